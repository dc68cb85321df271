"""The types of the domain: frozen values without I/O, clock, randomness, or behaviour beyond their
own fields.

This module is longer than others so that all types are found in one place.
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
RunKey = tuple[JobId, int]  # (job id, attempt): identifies a run and its pods, and is never reused
GpuKey = tuple[str, str]  # (node name, GPU uuid)

GPUS_MAX = 65_536  # of one run; a larger number in a text is invalid
HEADROOM_MIB_MIN = 256
HEADROOM_FRACTION = 0.03
PRETENDED = "pretended"  # the type of a GPU that exists on paper only
EXIT_STOPPED = 85  # the client library's exit code after a request to stop
EXIT_SKIPPED = 86  # of the wrapper of a workflow's step: its condition does not hold


# --- the cluster and its jobs -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Its driver keeps `reserved_mib` for itself."""

    uuid: str
    index: int
    type: str
    memory_mib: int
    reserved_mib: int = 0
    strange_mib: int = 0  # held by foreign processes, beyond the headroom
    fault: str = ""  # why nothing is started on it; its runs may go on
    leave: bool = False  # for its fault, runs must leave it at the end of an epoch
    lost: bool = False  # it no longer answers: its runs are over
    whole: bool = False  # the cluster gives it to one job at a time
    images: frozenset[str] | None = None  # of its node: see `Node.usable`

    @property
    def capacity_mib(self) -> int:
        """The memory that jobs may share: the total minus the larger of reserve and headroom."""
        return _capacity_mib(self.memory_mib, self.reserved_mib)

    @property
    def headroom_mib(self) -> int:
        return _headroom_mib(self.memory_mib)


@lru_cache(maxsize=1024)  # there are few kinds of GPUs, and each step asks for all of them
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
    leave: str = ""  # why runs must leave it at the end of an epoch; "": they need not
    # Names of the images on this node, in the form of images.py, and "" for the default image of
    # jobs that name none; None: any image can be pulled.
    images: frozenset[str] | None = None

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The GPUs on which a run may be started, with the images of their node."""
        if not self.ready:
            return ()
        gpus = tuple([gpu for gpu in self.gpus if not gpu.fault])
        if self.images is None:
            return gpus
        return tuple([replace(gpu, images=self.images) for gpu in gpus])


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """An amount of one GPU's memory. A job that does not share takes the GPU's whole capacity."""

    node: str
    gpu: str  # the GPU's uuid
    memory_mib: int

    @property
    def key(self) -> GpuKey:
        return self.node, self.gpu


class When(StrEnum):
    """How another job must have ended before a job starts."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FINISHED = "finished"  # it succeeded, failed or was cancelled, but was not skipped
    SKIPPED_OR_SUCCEEDED = "skipped-or-succeeded"
    ENDED = "ended"  # in whatever way


@dataclass(frozen=True, slots=True)
class After:
    job_id: JobId
    when: When = When.SUCCEEDED


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the user asked for. It never changes after submission."""

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
    gpus_min: int = 1  # both 0: the job needs no GPU
    gpus_max: int = 1
    memory_mib: int = 0  # the estimate per GPU; 0: none, so a whole GPU until it is measured
    shareable: bool = True
    priority: int = 1
    held: bool = False  # submitted, but not started before it is released
    hours_estimate: float = 0.0
    retries: int = 0
    keep_library: bool = False  # even if it is older than the one that the daemon could provide
    process_per_gpu: bool = False  # otherwise one process per node
    # Where and with which of the submitter's variables it was submitted. Only for jobs that run on
    # the submitter's machine: a container has its own.
    directory: str = ""
    exported: tuple[tuple[str, str], ...] = ()
    time_limit_seconds: float = 0.0  # of all runs together; 0: none
    secrets: tuple[str, ...] = ()  # names of variables; the values are in job_secrets.py
    no_tracking: bool = False  # it has no relay, and no variables that name one
    debug_wait: int = 0  # a port: it is cancelled unless a debugger connects there; 0: none
    storage: str = ""  # where the job finds the storage of its project; "": it does not
    storage_size: str = ""  # of that storage, if this job is the first to need it
    registry_secret: str = ""  # the Secret with which its image is pulled
    # With a label `sweep`; see sweeps.py.
    parallel: int = 0  # so many jobs of its sweep may run at once; 0: any number
    metric: str = ""  # by which the jobs of its sweep are compared
    maximize: bool = False  # the greater the metric, the better
    prune: str = ""  # the rule by which it is pruned; "": it is not
    prune_after: int = 0  # not before so many epochs
    code: str = ""  # the id of the package that it sees as /code; empty: none
    folders: tuple[tuple[str, str], ...] = ()  # links in /code, each with where it leads
    after: tuple[After, ...] = ()  # it starts only when all of these hold: see dependencies.py
    volumes: tuple[str, ...] = ()  # SRC:DST[:ro]: see job_volumes.py
    workflow: bytes = b""  # of a workflow's first job: its document, packed; no decision reads it
    # What its wrapper brings from other steps of its workflow and keeps for them: see step_wrapper.
    step: str = ""  # JSON; empty: it has no wrapper


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A number of GPUs of one type over a number of nodes; the speed of a run depends on it.

    In rows, on the wire and in the journal it is text: `t4x2`, `t4x8/2` on two nodes, `cpu` without
    GPUs. Fields of types that are written there unchanged (`Run`, `Measured`, `Profile`) hold the
    text too. The text for GPUs of several types (`a100x1+t4x1`) is not a placement: how fast such a
    run is says nothing about other GPUs.
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
        """None: GPUs of several types, or invalid text."""
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
    # A condition in `after` can never hold, so it never ran; or its wrapper found its own condition
    # false (EXIT_SKIPPED).
    SKIPPED = "skipped"


class Failure(StrEnum):
    """Why a run failed. Each class has its own budget of retries (see evolve.py)."""

    ERROR = "error"  # the job's fault: it exited with a code other than 0
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"  # the cluster's fault: node gone, pod deleted by hand, runner killed
    REFUSED = "refused"  # also the cluster's fault: no node accepted it, so nothing ran


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job on certain GPUs."""

    attempt: int
    shares: tuple[Share, ...]
    phase: RunPhase
    started_at: Time
    phase_at: Time  # since when it is in this phase
    max_epochs: int  # as it was told at launch; the job's may have changed since
    epochs_before: int = 0  # epochs done when it was launched
    expected_seconds: float = 0.0  # per epoch when alone, by the plan that launched it; 0: unknown
    placement: str = "cpu"  # which GPUs these are: the text of a Placement, see `memory.placement`
    epoch_started: int = -1  # the highest epoch (from 0) that any rank may start; -1: none
    epoch_at: Time | None = None  # since when it is in that epoch, if known
    epoch_before_at: Time | None = None  # the same for the epoch before, whose report may come late
    epoch_measured: int = 0  # the newest epoch (from 1) that was reported
    heard_at: Time | None = None  # its last report; None: it has never reported
    # The step counts of the newest reports. Images that do not send the number of an epoch are
    # recognised by them when they repeat a report (legacy/).
    steps_heard: tuple[int, ...] = ()
    finished: bool = False  # the run itself reported this
    stop_at_epoch: int | None = None  # every rank is told to stop at the start of this epoch
    stop_reason: str = ""
    kill_at: Time | None = None
    renew_library: bool = False  # the image's library is too old: see `JobFamily.old_library`
    over_mib: int = 0  # by how much it last exceeded its share without room for it

    @property
    def told_to_stop(self) -> bool:
        """Whether some rank has been answered `stop`. An exit before that is the job's own."""
        return self.stop_at_epoch is not None and self.epoch_started >= self.stop_at_epoch


@dataclass(frozen=True, slots=True)
class Measured:
    """How long an epoch took in one situation: on these GPUs, beside these jobs."""

    placement: str  # the text of a Placement
    beside: tuple[JobId, ...]  # sorted; (): alone
    seconds: float  # per epoch: a mean in which old epochs fade slowly
    epochs: int  # in this mean; 0: only a run's first epoch, with its warm-up
    newest: tuple[float, ...] = ()  # its newest epochs in the present run, or in the last one
    # On which GPUs: see learning.where_of. Of a family: (): on several that were equally fast.
    where: tuple[GpuKey, ...] = ()
    at: Time = 0.0  # when the newest of these epochs ended


@dataclass(frozen=True, slots=True)
class JobFamily:
    """What the ended jobs of one project, image, script and batch size have shown."""

    jobs: int = 0  # how many jobs this is made of
    measured: tuple[Measured, ...] = ()  # `beside`: families; `seconds`: per training sample
    memory_mib: int = 0  # the most that any of them was measured to need
    gpu_util: float = 0.0
    epochs: float = 0.0  # the epochs of one job
    old_library: bool = False  # one of them used a library from before this project
    warm_up_seconds: float = 0.0  # after a launch, in which their runs are slower than later


@dataclass(frozen=True, slots=True)
class Used:
    """The GPU-seconds that a user has had; the older they are, the less they count."""

    gpu_seconds: float = 0.0
    at: Time = 0.0


@dataclass(frozen=True, slots=True)
class Trained:
    """How many epochs are in the weights of a job, as its client library counts them."""

    attempt: int  # the newest attempt that has told
    epochs: int  # in its weights now
    loaded: int  # in the weights that it began with
    first: int  # the epoch (from 0) that it began with
    of: int  # the epochs that this attempt has finished, counted from the first of its job
    certain: bool = True  # not if the job has ended without word of what its last run trained


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Its phase is derived: it waits while it has no run and no outcome."""

    id: JobId
    spec: JobSpec
    submitted_at: Time
    token: str = ""  # proves to the job service that a report comes from this job
    priority: int = 1
    held: bool = False
    cancelled: bool = False  # requested; becomes the outcome when the run is gone
    max_epochs: int = 1
    memory_mib: int = 0  # needed on each GPU, as learned so far; 0: not known
    # The most that each GPU was seen to hold, by the number of GPUs: (GPUs, MiB), the fewest first.
    # It may be less on more GPUs because they split a batch.
    peaks: tuple[tuple[int, int], ...] = ()
    epochs_done: int = 0
    attempts: int = 0
    failures: tuple[tuple[Failure, int], ...] = ()
    eligible_at: Time = 0.0  # not started earlier (back-off after a failure)
    ran_seconds: float = 0.0  # in runs that are over: time in which it did not wait
    started_at: Time | None = None  # start of its first run
    ended_at: Time | None = None
    measured: tuple[Measured, ...] = ()  # the situations it was in, the newest last
    profiles_ignored: int = 0  # reports with impossible durations or memory
    gpu_util: float = 0.0  # GPU utilisation when alone, 0 to 1; 0: not known
    restart_seconds: float = 0.0  # from a launch to the first epoch; 0: not known
    run: Run | None = None
    outcome: Outcome | None = None
    reason: str = ""  # why it, or its last run, ended
    trained: Trained | None = None  # None: its library has not told
    awaits: tuple[After, ...] = ()  # those of `spec.after` that do not hold yet

    @classmethod
    def submitted(cls, job_id: JobId, spec: JobSpec, at: Time, token: str = "") -> Job:
        """The job at its submission. Fields that may change later start as in `spec`."""
        return cls(
            id=job_id,
            spec=spec,
            submitted_at=at,
            token=token,
            priority=spec.priority,
            held=spec.held,
            max_epochs=spec.max_epochs,
            memory_mib=spec.memory_mib,
            awaits=spec.after,
        )

    @property
    def waiting(self) -> bool:
        return self.run is None and self.outcome is None

    @property
    def epochs_missing(self) -> int | None:
        """How many of the epochs done are not in its weights; None: its library has not told."""
        if self.trained is None or not self.trained.certain:
            return None
        return max(0, self.epochs_done - self.trained.epochs)

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
    """What the cluster reports, not what we want. A terminating pod still holds its shares; a pod
    that is over holds what its processes are seen to use."""

    job_id: JobId
    attempt: int
    state: PodState
    shares: tuple[Share, ...] = ()
    rank: int = 0
    exit_code: int | None = None
    reason: str = ""  # "out_of_memory", "lost", or a text for people
    said: str = ""  # the line of its output that shows the reason, if there is one
    at: Time | None = None  # when it ended, if the cluster knows
    used: tuple[Share, ...] = ()  # what its processes use on GPUs that an agent watches
    orphan: bool = False  # no row has its job: the database was lost

    @property
    def alive(self) -> bool:
        return self.state not in (PodState.SUCCEEDED, PodState.FAILED)


@dataclass(frozen=True, slots=True)
class Profile:
    """One measured epoch. `epoch` counts finished epochs from the start of the job: the first one
    reports 1."""

    job_id: JobId
    attempt: int
    epoch: int
    rank: int = 0
    placement: str = ""  # the text of a Placement; empty: not known
    beside: tuple[JobId, ...] = ()  # the jobs on the same GPUs
    step_seconds: float = 0.0
    epoch_seconds: float = 0.0
    samples_per_second: float = 0.0
    memory_mib: int = 0  # 0: not known
    gpu_util: float = 0.0  # 0 to 1; 0: not known
    at: Time = 0.0
    steps: int = 0  # counted by its process since it started; 0: not reported
    trained: int | None = None  # how many of the epochs are in the weights; None: not reported
    score: float | None = None  # the value of its job's metric; infinite: not a number


# --- events, actions, plans ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job is submitted. If it claims ports, it is rejected while a live job has one of them. It
    is also rejected if it starts after a job that is neither in the view nor in `ended`."""

    job_id: JobId
    spec: JobSpec
    token: str = ""
    claims_ports: bool = False
    # Of the jobs that it starts after, those that had ended: id, outcome and name.
    ended: tuple[tuple[JobId, Outcome, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cancelled:
    job_id: JobId
    by: str = ""
    graceful: bool = False  # at the end of the epoch, not at once


@dataclass(frozen=True, slots=True)
class Updated:
    """Changes to a job. None: unchanged."""

    job_id: JobId
    by: str = ""
    priority: int | None = None
    held: bool | None = None
    max_epochs: int | None = None


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A rank asks to start this epoch (from 0). The answer is read from the committed run."""

    job_id: JobId
    attempt: int
    epoch: int
    trained: int | None = (
        None  # how many of the epochs before it are in the weights; None: not told
    )


@dataclass(frozen=True, slots=True)
class Reported:
    """A sign of life between the ends of two epochs."""

    job_id: JobId
    attempt: int
    memory_mib: int = 0
    refused: bool = False  # it contained invalid values: recorded as a fact, otherwise ignored


@dataclass(frozen=True, slots=True)
class EpochEnded:
    profile: Profile


@dataclass(frozen=True, slots=True)
class Finished:
    """A run reports how it ends: its work is done, or it stops because it was asked to."""

    job_id: JobId
    attempt: int
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class OldLibrary:
    """A run has reported as the client library did before this project."""

    job_id: JobId
    attempt: int
    unsaved: int = 0  # it stops before its script has saved this epoch, which does not count


@dataclass(frozen=True, slots=True)
class Observed:
    """The whole cluster as an observation that began at `at` found it; never a difference.

    Every run that was launched before `at`, and is not over and removed, is among the pods.
    """

    at: Time
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Visited:
    """Someone connects to the run of another user's job: recorded as a fact, otherwise ignored."""

    job_id: JobId
    attempt: int
    by: str
    what: str


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
    | Visited
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
    renew_library: bool = False  # its processes must find the current library before any other


@dataclass(frozen=True, slots=True)
class Remove:
    """End this run if it is alive, and forget it if it is over. Its logs stay."""

    job_id: JobId
    attempt: int


Action = Launch | Remove


class Waiting(StrEnum):
    """Why a job waits, why its run stops, or what delays a run: a word for programs. The values are
    on the wire, in JSON and in rows."""

    HELD = "held"
    AFTER = "after"  # other jobs have to end first, as its submitter has said
    BACKOFF = "backoff"  # its last run failed: it must not be started again yet
    STOPPING = "stopping"  # other runs, or its own last one, are not gone yet
    NODES = "nodes"
    IMAGE = "image"
    GPUS = "gpus"
    MEMORY = "memory"
    TURN = "turn"  # other jobs come first
    PLANNING = "planning"  # no plan has considered it yet
    PARALLEL = "parallel"  # other jobs of its sweep come first
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
    """Why a job needs GPUs without other jobs."""

    EXCLUSIVE = "exclusive"  # it does not share
    UNKNOWN = "unknown"  # its memory use is not known
    POLICY = "policy"  # the policy gives whole GPUs only


# The number of GPUs of each type, sorted by type; type "": of any one type.
GpuCounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits, or its run stops, as data; reason_text.py makes the text. Each kind uses a
    few of the fields; the others keep their defaults."""

    kind: Waiting
    # What the job needs, and what the cluster has.
    gpus: int = 0  # how many GPUs it needs (slowed: on how many it would be faster)
    most: bool = False  # `gpus` is the most that it can use, not the fewest
    nodes: int = 0  # they are on at least this many nodes; 1: all on one; 0: on any
    whole: WholeGpus | None = None  # None: it can share a GPU
    memory_mib: int = 0  # needed on each GPU
    gpu: int | None = None  # the index of the GPU in question,
    node: str = ""  # and its node, if there are several
    free_mib: int = 0  # free on that GPU
    there: GpuCounts | None = None  # the GPUs that are large enough
    free: GpuCounts | None = None  # those of them that are free now
    image: str = ""  # an image that only some nodes have; "": the default one
    image_nodes: tuple[str, ...] = ()  # the first of these nodes,
    image_nodes_more: int = 0  # and the number of the others
    # Names of jobs.
    jobs: tuple[str, ...] = ()  # the jobs that this kind of reason is about
    jobs_more: int = 0  # the number of further jobs, not named
    asked: tuple[str, ...] = ()  # asked to stop at the end of an epoch
    gone: tuple[str, ...] = ()  # over, but their pods still exist
    ends: tuple[str, ...] = ()  # they will not stop before they end
    # Everything else.
    seconds: int = 0  # until it may start
    cause: str = ""  # the text from the row of its last run, or from the cluster
    observed: bool = True  # False: the cluster has not been observed yet
    before: GpuCounts = ()  # moved: the GPUs that it has,
    after: GpuCounts = ()  # and those that it will have
    nodes_before: int = 0  # moved: from how many nodes; the new number is `nodes`
    grown: bool = False  # the job itself was measured to need more
    slows: bool = False  # it might slow down `jobs`
    speed: float = 0.0  # slowed: relative to the speed that it could have
    measured: bool = False  # `speed` was measured, not predicted
    parallel: int = 0  # so many jobs of its sweep may run at once, and `jobs` come first
    when: When | None = None  # after: how `jobs` must end; None: some so, some so


@dataclass(frozen=True, slots=True)
class Plan:
    """Which jobs should hold which GPUs: the complete target, not a difference. A plan need not be
    valid; adopt.py checks it.

    A job that is not in `placements` should not run; one with an empty tuple runs without GPUs.
    """

    placements: Mapping[JobId, tuple[Share, ...]] = field(default_factory=dict)
    why: Mapping[JobId, Reason] = field(default_factory=dict)
    # Expected seconds per epoch, alone on the planned GPUs: for facts only.
    expected: Mapping[JobId, float] = field(default_factory=dict)
    optimal: bool = True
    replan_at: Time | None = None
    # The order in which waiting jobs are served; jobs that are not in it come last.
    queue: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened, recorded once for all readers."""

    at: Time
    kind: str
    job_id: JobId | None = None
    attempt: int | None = None
    data: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """Everything a decision may depend on. Replaced, never edited."""

    number: int = 0
    at: Time = 0.0  # the time of the step that made it
    jobs: Mapping[JobId, Job] = field(default_factory=dict)  # jobs that are live or have just ended
    nodes: tuple[Node, ...] = ()
    pods: Mapping[RunKey, tuple[Pod, ...]] = field(default_factory=dict)  # by rank
    # Memory held on each GPU: by current runs, and by pods that are not seen gone yet.
    held: Mapping[GpuKey, Mapping[RunKey, int]] = field(default_factory=dict)
    stopping: frozenset[JobId] = frozenset()  # jobs whose run has been asked to stop
    behind: Mapping[JobId, tuple[JobId, ...]] = field(default_factory=dict)  # who awaits each job
    due_at: Time = 0.0  # when the next of these is to be killed: after `at`, or it is not known
    # When a job last began or ceased to train on a GPU. A measurement that spans this moment
    # describes neither the time before nor after it.
    disturbed: Mapping[GpuKey, Time] = field(default_factory=dict)
    kinds: Mapping[str, JobFamily] = field(default_factory=dict)
    used: Mapping[str, Used] = field(default_factory=dict)  # by user
    ended: Mapping[JobId, Time] = field(default_factory=dict)  # oldest first, until forgotten
    observed_at: Time | None = None  # None until the first observation after a start
    planned_at: Time | None = None
    replan_at: Time | None = None
    stale: bool = True  # something that a plan depends on has changed
    # From the newest plan: why jobs wait, why it asked runs to stop, and in which order waiting
    # jobs are served.
    why: Mapping[JobId, Reason] = field(default_factory=dict)
    stops: Mapping[JobId, Reason] = field(default_factory=dict)
    queue: tuple[JobId, ...] = ()
    observed_since: Time | None = None  # the first observation after a start or a gap
    # By sweep, epoch and job: see sweeps.py. The sweep that was heard last is the last one.
    scores: Mapping[str, Mapping[int, Mapping[JobId, float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers that decisions obey. They come from the configuration and are the same for all
    policies."""

    plan_every_seconds: float = 1.0
    stop_grace_seconds: float = 3600.0  # from the request to stop to the kill
    memory_margin_mib: int = 0  # added to what was estimated or measured
    out_of_memory_factor: float = 1.5
    # Runs in a row that end LOST without an epoch in between. REFUSED has no limit.
    lost_max: int = 10
    backoff_seconds: float = 5.0  # before the second try; doubles, up to
    backoff_max_seconds: float = 300.0
    ageing_seconds: float = 6 * 3600.0  # waiting this long is worth one step of priority
    restart_seconds: float = 20.0  # assumed cost of a restart until a job has shown its own
    fairness_half_life_seconds: float = 7 * 86400.0  # used GPU time counts half after this time
    fair_weight: float = 0.0  # of a job that lacks all of its fair share; 0: no such rule
    remember_seconds: float = 60.0  # an ended job stays in the view this long, for late callers
    # A run that should report, and has not for so long, is ended: see watchdog.py.
    silent_seconds: float = 86_400.0
