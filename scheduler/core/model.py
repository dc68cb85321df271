"""The nouns: frozen values. No I/O, no clock, no chance, no behaviour beyond their own fields.

Longer than other modules, so that all words are found in one place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import NewType

JobId = NewType("JobId", str)
Time = float  # seconds since the Unix epoch
RunKey = tuple[JobId, int]  # (job id, attempt): names a run's pods for ever
GpuKey = tuple[str, str]  # (node name, GPU uuid)

GPUS_MAX = 65_536  # of one run: what is more in a text is nonsense
HEADROOM_MIB_MIN = 256
HEADROOM_FRACTION = 0.03
PRETENDED = "pretended"  # the type of a GPU that exists on paper only
EXIT_STOPPED = 85  # the client library's: it left because it was asked to


# --- what there is ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card. `reserved_mib` is what its driver keeps for itself."""

    uuid: str
    index: int
    type: str
    memory_mib: int
    reserved_mib: int = 0
    strange_mib: int = 0  # held by processes that are none of ours, beyond what prudence keeps back
    fault: str = ""  # why nothing is started on it; what runs there may go on
    lost: bool = False  # it answers no more: what runs there is over
    whole: bool = False  # who hands it out gives it to one job at a time
    images: frozenset[str] | None = None  # of its node: see `Node.usable`

    @property
    def capacity_mib(self) -> int:
        """What jobs may share: the total less what the driver, and prudence, keep back."""
        return _capacity_mib(self.memory_mib, self.reserved_mib)

    @property
    def headroom_mib(self) -> int:
        return _headroom_mib(self.memory_mib)


@lru_cache(maxsize=1024)  # there are few sorts of cards, and each step asks for all of them
def _capacity_mib(memory_mib: int, reserved_mib: int) -> int:
    return max(0, memory_mib - max(reserved_mib, _headroom_mib(memory_mib)))


def _headroom_mib(memory_mib: int) -> int:
    return max(HEADROOM_MIB_MIN, int(memory_mib * HEADROOM_FRACTION))


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    gpus: tuple[Gpu, ...]
    labels: tuple[tuple[str, str], ...] = ()
    ready: bool = True
    leave: str = ""  # why whoever runs on it is to leave it after an epoch
    # Names of those that are there, as images.py has them, and "" for the one of jobs that name
    # none; None: any can be had there.
    images: frozenset[str] | None = None

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The cards on which something may be started, and with which images."""
        if not self.ready:
            return ()
        gpus = tuple([gpu for gpu in self.gpus if not gpu.fault])
        if self.images is None:
            return gpus
        return tuple([replace(gpu, images=self.images) for gpu in gpus])


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """So much of one GPU's memory. A job that shares with nobody takes the whole capacity."""

    node: str
    gpu: str  # the GPU's uuid
    memory_mib: int

    @property
    def key(self) -> GpuKey:
        return self.node, self.gpu


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for. Never changes after submission."""

    name: str
    user: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    project: str = ""
    experiment: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    script_path: str = ""
    custom_dir: str = ""
    snapshots_dir: str = ""
    ports: tuple[tuple[int, int], ...] = ()  # (host, container)
    max_epochs: int = 1
    batch_size: int = 1
    training_set_size: int = 1
    gpus_min: int = 1  # 0 and 0: a job that needs no GPU
    gpus_max: int = 1
    memory_mib: int = 0  # the estimate per GPU; 0: not said, so a whole card until it is measured
    shareable: bool = True
    priority: int = 1
    held: bool = False  # submitted, but not to be started before it is released
    hours_estimate: float = 0.0
    retries: int = 0
    keep_library: bool = False  # also if it is older than what the daemon could give it
    process_per_gpu: bool = False  # else one on each node


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A number of GPUs of one type, over a number of nodes: what the speed of a run depends on.

    Rows, the wire and the journal have it as text: `t4x2`, `t4x8/2` on two nodes, `cpu` without
    GPUs. So have the fields of the types that are written there as they are (`Run`, `Measured`,
    `Profile`). The text of GPUs of several types (`a100x1+t4x1`) is no placement: nothing is known
    of how fast such a run is elsewhere.
    """

    type: str
    gpus: int
    nodes: int = 1

    def __str__(self) -> str:
        if self.gpus == 0:
            return self.type
        return f"{self.type}x{self.gpus}" + (f"/{self.nodes}" if self.nodes > 1 else "")

    @staticmethod
    def parse(text: str) -> Placement | None:
        """None: GPUs of several types, or nonsense."""
        return _parse_placement(text)


NO_GPU = Placement("cpu", 0)


@lru_cache(maxsize=4096)
def _parse_placement(text: str) -> Placement | None:
    if text == str(NO_GPU):
        return NO_GPU
    match = re.fullmatch(r"(.+)x(\d{1,5})(?:/(\d{1,5}))?", text)
    if match is None or re.search(r"x\d+\+", text):
        return None
    gpus, nodes = int(match[2]), int(match[3] or 1)
    return Placement(match[1], gpus, nodes) if 1 <= nodes <= gpus <= GPUS_MAX else None


class RunPhase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Failure(StrEnum):
    """Why a run ended badly. Each class has a budget of its own (see evolve.py)."""

    ERROR = "error"  # the job's own: it exited with a code that is not 0
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"  # the world's: node gone, pod deleted by hand, runner killed
    REFUSED = "refused"  # the world's too: nothing of it ever began, as nobody would have it


@dataclass(frozen=True, slots=True)
class Run:
    """One incarnation of a job."""

    attempt: int
    shares: tuple[Share, ...]
    phase: RunPhase
    started_at: Time
    phase_at: Time  # since when it is in this phase
    max_epochs: int  # as it was told at its launch: the job's may be changed since
    epochs_before: int = 0  # epochs done when it was launched
    expected_seconds: float = 0.0  # per epoch, were it alone, as its plan had it; 0: not said
    placement: str = "cpu"  # which GPUs these are: the text of a Placement, see `memory.placement`
    epoch_started: int = -1  # the highest epoch (from 0) that any rank was let into; -1: none
    epoch_at: Time | None = None  # since when it is in that epoch, if we were told
    epoch_before_at: Time | None = None  # the same of the epoch before: its report may come late
    epoch_measured: int = 0  # the newest epoch (from 1) whose report has been heard
    heard_at: Time | None = None  # its last report; None: it never spoke to us
    # Of the newest reports, how many steps they had counted: so a repeated one is known by images
    # that do not say which epoch it is of (legacy.py).
    steps_heard: tuple[int, ...] = ()
    finished: bool = False  # it said so itself
    stop_at_epoch: int | None = None  # every rank is told to stop at the start of this epoch
    stop_reason: str = ""
    kill_at: Time | None = None
    renew_library: bool = False  # its image's own is too old: see `JobFamily.old_library`
    over_mib: int = (
        0  # by how much more than its share it was last seen to take, without room for it
    )

    @property
    def told_to_stop(self) -> bool:
        """Whether some rank has been answered `stop`. Before that, an exit is the job's own."""
        return self.stop_at_epoch is not None and self.epoch_started >= self.stop_at_epoch


@dataclass(frozen=True, slots=True)
class Measured:
    """How long an epoch took in one situation: on these GPUs, beside these jobs."""

    placement: str  # the text of a Placement
    beside: tuple[JobId, ...]  # sorted; (): alone
    seconds: float  # per epoch: a mean that forgets slowly
    epochs: int  # how many it is made of; 0: only the first of a run, with its warm-up


@dataclass(frozen=True, slots=True)
class JobFamily:
    """What the jobs of one project, image, script and batch size have shown that are over."""

    jobs: int = 0  # how many it is made of
    measured: tuple[Measured, ...] = ()  # `beside`: kinds; `seconds`: per sample of a training set
    memory_mib: int = 0  # the most that one of them was measured to need
    gpu_util: float = 0.0
    epochs: float = 0.0  # that one of them does
    old_library: bool = False  # one of them spoke as the library did before this project


@dataclass(frozen=True, slots=True)
class Used:
    """GPU-seconds that a user has had, old ones counting less and less."""

    gpu_seconds: float = 0.0
    at: Time = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """The phase is derived: waiting = no run and no outcome."""

    id: JobId
    spec: JobSpec
    submitted_at: Time
    token: str = ""  # proves to the job service that a report is this job's
    priority: int = 1
    held: bool = False
    cancelled: bool = False  # asked for; becomes an outcome when its run is gone
    max_epochs: int = 1
    memory_mib: int = 0  # the most that a GPU must hold for it, as learned so far; 0: not known
    # How much each GPU was seen to hold, at most, when it had so many: (GPUs, MiB), the fewest
    # first. With more of them it may be less: a batch is shared out.
    peaks: tuple[tuple[int, int], ...] = ()
    epochs_done: int = 0
    attempts: int = 0
    failures: tuple[tuple[Failure, int], ...] = ()
    eligible_at: Time = 0.0  # not to be started before (back-off after a failure)
    ran_seconds: float = 0.0  # in runs that are over: time in which it did not wait
    started_at: Time | None = None  # of its first run
    ended_at: Time | None = None
    measured: tuple[Measured, ...] = ()  # the situations that it was in, the newest last
    profiles_ignored: int = 0  # because no epoch can have taken as long as they say
    gpu_util: float = 0.0  # how busy it keeps a GPU alone, 0 to 1; 0: not known
    restart_seconds: float = 0.0  # from a launch to the first epoch; 0: not known
    run: Run | None = None
    outcome: Outcome | None = None
    reason: str = ""  # why it ended, or why its last run did

    @classmethod
    def submitted(cls, job_id: JobId, spec: JobSpec, at: Time, token: str = "") -> Job:
        """The job as it is submitted. What may change later begins as `spec` has it."""
        return cls(
            id=job_id,
            spec=spec,
            submitted_at=at,
            token=token,
            priority=spec.priority,
            held=spec.held,
            max_epochs=spec.max_epochs,
            memory_mib=spec.memory_mib,
        )

    @property
    def waiting(self) -> bool:
        return self.run is None and self.outcome is None

    def failed(self, failure: Failure) -> int:
        return dict(self.failures).get(failure, 0)


class PodState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pod:
    """What the cluster says, not what we wish. A terminating pod still holds its shares, and one
    that is over what its processes are seen to use."""

    job_id: JobId
    attempt: int
    state: PodState
    shares: tuple[Share, ...] = ()
    rank: int = 0
    exit_code: int | None = None
    reason: str = ""  # "out_of_memory", "lost", or words for a person
    said: str = ""  # the line of its output that tells of it, if one does
    at: Time | None = None  # when it ended, if the cluster knows
    used: tuple[Share, ...] = ()  # what its processes take of GPUs, where somebody can see that
    orphan: bool = False  # no row tells of its job: the database was lost

    @property
    def alive(self) -> bool:
        return self.state not in (PodState.SUCCEEDED, PodState.FAILED)


@dataclass(frozen=True, slots=True)
class Profile:
    """One measured epoch. `epoch` counts finished epochs, absolutely: the first one reports 1."""

    job_id: JobId
    attempt: int
    epoch: int
    rank: int = 0
    placement: str = ""  # the text of a Placement; empty: not known
    beside: tuple[JobId, ...] = ()  # who ran on the same GPUs
    step_seconds: float = 0.0
    epoch_seconds: float = 0.0
    samples_per_second: float = 0.0
    memory_mib: int = 0  # 0: not known
    gpu_util: float = 0.0  # 0 to 1; 0: not known
    at: Time = 0.0
    steps: int = 0  # that its process has counted since it began; 0: not said


# --- what flows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job is submitted. If it claims its ports, it is not taken while a live job has one."""

    job_id: JobId
    spec: JobSpec
    token: str = ""
    claims_ports: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    job_id: JobId
    by: str = ""
    graceful: bool = False  # at the end of the epoch, not at once


@dataclass(frozen=True, slots=True)
class Updated:
    """None: as it was."""

    job_id: JobId
    by: str = ""
    priority: int | None = None
    held: bool | None = None
    max_epochs: int | None = None


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A rank asks to be let into this epoch (from 0). The answer is read from the committed run."""

    job_id: JobId
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A sign of life between two epochs' ends."""

    job_id: JobId
    attempt: int
    memory_mib: int = 0
    refused: bool = False  # what it said is no measure: told as a fact, and nothing else


@dataclass(frozen=True, slots=True)
class EpochEnded:
    profile: Profile


@dataclass(frozen=True, slots=True)
class Finished:
    """A run says how it ends: its work done, or gone because it was asked to."""

    job_id: JobId
    attempt: int
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class OldLibrary:
    """A run has spoken as the client library did before this project."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class Observed:
    """The whole cluster, as a look that began at `at` found it. Never a difference.

    Whatever was asked to be launched before `at`, and is not over and removed, is among the pods.
    """

    at: Time
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()


Event = (
    Submitted
    | Cancelled
    | Updated
    | EpochStarted
    | Reported
    | EpochEnded
    | Finished
    | OldLibrary
    | Observed
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this run, unless it was started already."""

    job_id: JobId
    attempt: int
    spec: JobSpec
    shares: tuple[Share, ...]
    epochs_done: int
    max_epochs: int
    token: str
    renew_library: bool = False  # it is to find the library of today before any other


@dataclass(frozen=True, slots=True)
class Remove:
    """End this run if it lives, and forget it if it is over. Its logs stay."""

    job_id: JobId
    attempt: int


Action = Launch | Remove


class Waiting(StrEnum):
    """Why a job waits, why its run stops, or what holds a run up: a word for programs. The values
    are on the wire, in JSON and in rows."""

    HELD = "held"
    BACKOFF = "backoff"  # its last run failed: not to be started again yet
    STOPPING = "stopping"  # other runs, or the last one of its own, have still to go
    NODES = "nodes"
    IMAGE = "image"
    GPUS = "gpus"
    MEMORY = "memory"
    TURN = "turn"  # other jobs come first
    PLANNING = "planning"  # no plan has looked at it yet
    # Of a run that is to stop.
    PREEMPTED = "preempted"
    MOVED = "moved"
    MADE_ROOM = "made room"
    STOPPED = "stopped"
    # Of a run that goes on.
    STARTING = "starting"
    SILENT = "silent"
    SLOWED = "slowed"


class WholeGpus(StrEnum):
    """Why a job needs GPUs on which no other job is."""

    EXCLUSIVE = "exclusive"  # it shares with no other job
    UNKNOWN = "unknown"  # its memory use is not known
    POLICY = "policy"  # the policy gives whole GPUs only


# How many GPUs of each type, sorted by type; type "": of any one type.
GpuCounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits, or its run stops, as data; reason_text.py makes the text. Each kind uses a
    few of the fields, the others stay as they are by default."""

    kind: Waiting
    # What the job needs, and what there is of it.
    gpus: int = 0  # how many GPUs it needs (slowed: on how many it would be faster)
    most: bool = False  # `gpus` is the most that it can use, not the fewest
    nodes: int = 0  # they are on as many nodes at least; 1: all on one; 0: on any
    whole: WholeGpus | None = None  # None: it can share a GPU
    memory_mib: int = 0  # needed on each GPU
    gpu: int | None = None  # the index of the GPU in question,
    node: str = ""  # and its node, if there are several
    free_mib: int = 0  # free on that GPU
    there: GpuCounts | None = None  # the GPUs that are large enough
    free: GpuCounts | None = None  # those of them that are free now
    image: str = ""  # that only some nodes have; "": the default one
    image_nodes: tuple[str, ...] = ()  # the first of these nodes,
    image_nodes_more: int = 0  # and how many others there are
    # Names of jobs.
    jobs: tuple[str, ...] = ()  # beside or for which this is
    jobs_more: int = 0  # of these, not named
    asked: tuple[str, ...] = ()  # to stop at the end of an epoch
    gone: tuple[str, ...] = ()  # over, but their pods are still there
    ends: tuple[str, ...] = ()  # that will not stop before they end
    # The rest.
    seconds: int = 0  # until it may start
    cause: str = ""  # what the row of its last run, or the cluster, says
    observed: bool = True  # False: the cluster has not been observed yet
    before: GpuCounts = ()  # moved: the GPUs that it has,
    after: GpuCounts = ()  # and will have
    nodes_before: int = 0  # moved: on how many nodes it is; it will be on `nodes`
    grown: bool = False  # the job itself was measured to need more
    slows: bool = False  # it might slow down `jobs`
    speed: float = 0.0  # slowed: times the speed that it could have
    measured: bool = False  # `speed` was measured, not predicted


@dataclass(frozen=True, slots=True)
class Plan:
    """Who should hold which GPUs: the whole wish, not a difference. May be any nonsense.

    A job that is not in `placements` should not run; one with an empty tuple runs without GPUs.
    """

    placements: Mapping[JobId, tuple[Share, ...]] = field(default_factory=dict)
    why: Mapping[JobId, Reason] = field(default_factory=dict)
    # Seconds per epoch, were it alone on what is wished for it: for the story, and nothing else.
    expected: Mapping[JobId, float] = field(default_factory=dict)
    optimal: bool = True
    replan_at: Time | None = None
    # The order in which waiting jobs are served; those that are not in it come last.
    queue: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened, told once, for all readers."""

    at: Time
    kind: str
    job_id: JobId | None = None
    attempt: int | None = None
    data: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """Everything a decision may look at. Replaced, never edited."""

    number: int = 0
    at: Time = 0.0  # of the step that made it
    jobs: Mapping[JobId, Job] = field(default_factory=dict)  # live ones, and those just ended
    nodes: tuple[Node, ...] = ()
    pods: Mapping[RunKey, tuple[Pod, ...]] = field(default_factory=dict)  # by rank
    # Memory taken on each GPU: by runs we believe in, and by pods not yet seen gone.
    held: Mapping[GpuKey, Mapping[RunKey, int]] = field(default_factory=dict)
    stopping: frozenset[JobId] = frozenset()  # whose run has been asked to stop
    due_at: Time = 0.0  # when the next of these is to be killed: after `at`, or it is not known
    # When somebody last began or ceased to train on a GPU: what was measured across that moment
    # says nothing of either side of it.
    disturbed: Mapping[GpuKey, Time] = field(default_factory=dict)
    kinds: Mapping[str, JobFamily] = field(default_factory=dict)
    used: Mapping[str, Used] = field(default_factory=dict)  # by user
    ended: Mapping[JobId, Time] = field(default_factory=dict)  # oldest first, until forgotten
    observed_at: Time | None = None  # None until the first look at the cluster after a start
    planned_at: Time | None = None
    replan_at: Time | None = None
    stale: bool = True  # something has changed that a plan would look at
    # Of the newest plan: why jobs wait, why it asked runs to stop, and in which order waiting jobs
    # are served.
    why: Mapping[JobId, Reason] = field(default_factory=dict)
    stops: Mapping[JobId, Reason] = field(default_factory=dict)
    queue: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers a decision obeys. Set by configuration, the same for all policies."""

    plan_every_seconds: float = 1.0
    stop_grace_seconds: float = 3600.0  # from the request to stop to the kill
    memory_margin_mib: int = 0  # on top of what was estimated or measured
    out_of_memory_factor: float = 1.5
    lost_max: int = 10  # runs in a row lost to the world without one epoch between; refused: any
    backoff_seconds: float = 5.0  # before the second try; doubles, up to
    backoff_max_seconds: float = 300.0
    ageing_seconds: float = 6 * 3600.0  # waiting this long is worth one step of priority
    restart_seconds: float = 20.0  # what a restart costs a job that has not shown it yet
    fairness_half_life_seconds: float = 7 * 86400.0  # used GPU time counts half after so long
    remember_seconds: float = 60.0  # an ended job stays in the view so long, for late callers
