"""The world around one daemon: its time, its mail and its nodes, as one heap of future events.

It is the scheduler's Inbox and its Cluster. The runs on the nodes are in training.py, the users who
write to the scheduler in owners.py, and what can go wrong in faults.py.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from scheduler.core.model import (
    Action,
    Cancelled,
    Event,
    Fact,
    Failure,
    Gpu,
    GpuKey,
    Job,
    JobFamily,
    JobId,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Remove,
    RunKey,
    Submitted,
    Time,
    Used,
    View,
)
from simulator.lives.faults import NO_FAULTS, Crash, DiskFull, Faults
from simulator.lives.scripts import Folders
from simulator.lives.training import Training
from simulator.lives.workload import TrueJob

Learned = tuple[Mapping[str, JobFamily], Mapping[str, Used]]  # by kind, by user

EVICTED_AFTER_SECONDS = 120.0  # a node that was unreachable for longer ends its pods on return
# As agents reported it when the fingerprints of lives were first published; it is in their facts.
FOREIGN_USE = "others use {} MiB of it"


class Witness:
    """Sees everything that scheduler and world exchange, and raises if it finds a violation."""

    def on_launch(self, launch: Launch) -> None:
        """Called before a launch, which may be a repetition."""

    def on_remove(self, remove: Remove) -> None:
        """Called before a removal. There may be nothing to remove."""

    def on_answer(self, key: RunKey, epoch: int, stop: bool) -> None:
        """A rank was told whether to stop at the start of this epoch."""

    def on_step(self, before: View, after: View) -> None:
        """One step was committed, and its actions were performed."""

    def on_fact(self, fact: Fact) -> None:
        """A fact was recorded."""

    def on_restart(self, loaded: View) -> None:
        """A new daemon has read what the one before left."""

    def on_end(self) -> None:
        """The life is over, and every job should have ended."""


class World:
    def __init__(
        self,
        rng: random.Random,
        faults: Faults,
        nodes: Sequence[Node],
        truths: Mapping[JobId, TrueJob],
        observe_every_seconds: float = 45.0,
        lag_seconds: float = 0.0,
        keeps_dead: bool = False,
        agents: bool = False,
    ) -> None:
        self.rng, self.faults, self.truths = rng, faults, truths
        self.nodes = list(nodes)
        self.time: Time = 0.0  # the true one; the daemon's clock is `now()`
        self.lag_seconds = lag_seconds  # events that arrive so soon after the first join its batch
        self.keeps_dead = keeps_dead  # the cluster shows a removed pod until it is told to forget
        self.agents = agents  # observations contain the GPU memory of processes
        self.runs: dict[RunKey, Training] = {}  # the runs that the cluster shows
        self.refused: dict[RunKey, Pod] = {}  # the pods that it refused
        self.stored: Mapping[JobId, Job] = {}  # on disk, as the API's readers see it
        self.learned: Learned = ({}, {})  # on disk as well
        self.read: Callable[[], View] = View  # the daemon's last committed view
        self.witnesses: list[Witness] = []
        # The truth, to compare beliefs with.
        self.acknowledged: set[JobId] = set()
        self.epochs_acknowledged: dict[JobId, int] = {}
        self.memory_acknowledged: dict[JobId, int] = {}
        self.epochs_done: dict[JobId, int] = {}
        self.ended_well: set[JobId] = set()
        self.folders = Folders()
        self.failures: Counter[tuple[JobId, Failure]] = Counter()
        self.begun: Counter[JobId] = Counter()  # runs that began
        self.has_doubted = False  # a GPU was to be left
        self.healed_at: Time | None = None  # None: faults are still to be expected

        self._heap: list[tuple[Time, int, Callable[[], None]]] = []
        self._sequence = 0
        self._latest: Time = 0.0
        self._set_back = 0.0
        self._mail: list[Event] = []
        self._asking: list[Callable[[], None]] = []  # senders of events in the mail
        self._asked: list[Callable[[], None]] = []  # senders of events in the current batch
        self._up = True
        self._lives = 0
        self.disk_full = False
        self._observation_due = False
        self._observations = 0
        self._newest_observation: tuple[int, Time] = (
            0,
            0.0,
        )  # number and time of the last one that was delivered
        self._observe_every_seconds = observe_every_seconds
        self.after(0.0, self._observe_regularly)
        self._every(faults.node_lost_every_seconds, self._lose_node)
        self._every(faults.gpu_lost_every_seconds, self._lose_gpu)
        self._every(faults.gpu_to_be_left_every_seconds, self._doubt_gpu)
        self._every(faults.foreign_use_every_seconds, self._add_foreign_use)
        self._every(faults.disk_full_every_seconds, self._fill_disk)
        self._every(faults.clock_set_back_every_seconds, self._set_clock_back)

    # -- time -------------------------------------------------------------------------------------

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.time + seconds, self._sequence, do))

    def now(self) -> Time:
        self._latest = max(self._latest, self.time - self._set_back)
        return self._latest

    def wait(self, until: Time | None) -> Sequence[Event]:
        asked, self._asked = self._asked, []
        for heard in asked:  # when the scheduler calls again, it has committed their batch
            self._answer(heard)
        self._advance(until)
        if self._mail:
            end = self.time + self.lag_seconds
            while self._heap and self._heap[0][0] <= end:
                self._happen()
        elif until is not None:
            self.time = max(self.time, until + self._set_back)
            self._latest = max(self._latest, until)
        batch, self._mail = self._mail, []
        self._asked, self._asking = self._asking, []
        return batch

    def pass_time(self, seconds: float) -> None:
        """Lets time pass in the world without the scheduler."""
        end = self.time + seconds
        while self._heap and self._heap[0][0] <= end:
            self._happen()
        self.time = end

    def _advance(self, until: Time | None) -> None:
        while not self._mail and self._heap:
            if until is not None and self._heap[0][0] > until + self._set_back:
                return
            self._happen()

    def _happen(self) -> None:
        self.time, _, do = heapq.heappop(self._heap)
        do()

    def _every(self, seconds: float, do: Callable[[], None]) -> None:
        """Repeats `do` at random moments, as long as the faults do not change."""
        if not seconds:
            return
        faults = self.faults

        def again() -> None:
            if self.faults is faults:
                do()
                self.after(self.rng.expovariate(1 / seconds), again)

        self.after(self.rng.expovariate(1 / seconds), again)

    # -- chance -----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def span(self, seconds_max: float) -> float:
        return self.rng.uniform(0.0, seconds_max) if seconds_max else 0.0

    def maybe_crash(self) -> None:
        if self.chance(self.faults.crash):
            raise Crash

    def before_write(self) -> None:
        if self.disk_full:
            raise DiskFull("database or disk is full")
        self.maybe_crash()

    def heal(self) -> None:
        """Ends all faults. From now on every job must end."""
        self.faults, self.healed_at = NO_FAULTS, self.time
        self.disk_full = False
        for index in range(len(self.nodes)):
            self._restore_node(index)
            for gpu in self.nodes[index].gpus:
                self._end_foreign_use(index, gpu.uuid)
                self._repair_gpu(index, gpu.uuid)

    # -- mail -------------------------------------------------------------------------------------

    def post(
        self,
        event: Event,
        on_answer: Callable[[], None] | None = None,
        lost: float = 0.0,
        doubled: float = 0.0,
        delay_seconds_max: float = 0.0,
    ) -> None:
        """Sends an event to the scheduler. Calls `heard` when the answer arrives, if it does."""
        for _ in range(2 if self.chance(doubled) else 1):
            if not self.chance(lost):
                self.after(
                    0.01 + self.span(delay_seconds_max), partial(self._arrive, event, on_answer)
                )

    def _arrive(self, event: Event, on_answer: Callable[[], None] | None) -> None:
        if not self._up:
            return
        if on_answer is not None and self._nothing_to_do(event):  # the API finds that in the store
            self._answer(on_answer)
        elif delay := self.span(self.lag_seconds):  # its threads take their time
            self.after(delay, partial(self._put, event, on_answer, self._lives))
        else:
            self._put(event, on_answer, self._lives)

    def _put(self, event: Event, on_answer: Callable[[], None] | None, lives: int) -> None:
        if lives == self._lives:
            self._mail.append(event)
            if on_answer is not None:
                self._asking.append(on_answer)

    def _nothing_to_do(self, event: Event) -> bool:
        match event:
            case Submitted(job_id=job_id):
                return job_id in self.stored
            case Cancelled(job_id=job_id):
                job = self.stored.get(job_id)
                return job is not None and job.outcome is not None
        return False

    def _answer(self, on_answer: Callable[[], None]) -> None:
        if self.chance(self.faults.answer_lost):
            return
        if delay := self.span(self.faults.answer_delay_seconds_max):
            lives = self._lives
            self.after(delay, lambda: on_answer() if lives == self._lives else None)
        else:
            on_answer()

    def kill_daemon(self) -> None:
        """The daemon loses what was only in its memory."""
        self._up = False
        self._lives += 1
        self._mail.clear()
        self._asking.clear()
        self._asked.clear()

    def start_daemon(self) -> None:
        self.pass_time(self.span(self.faults.down_seconds_max))
        self._up, self.disk_full = True, False
        self.changed()

    # -- cluster ----------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        self.maybe_crash()
        match action:
            case Launch():
                self._launch(action)
            case Remove(job_id, attempt):
                for witness in self.witnesses:
                    witness.on_remove(action)
                self.refused.pop((job_id, attempt), None)
                if run := self.runs.get((job_id, attempt)):
                    run.remove()
        self.maybe_crash()

    def _launch(self, launch: Launch) -> None:
        for witness in self.witnesses:
            witness.on_launch(launch)
        key = (launch.job_id, launch.attempt)
        if key in self.refused or key in self.runs or self.chance(self.faults.launch_ignored):
            return
        if self.chance(self.faults.launch_refused):
            self.failures[launch.job_id, Failure.REFUSED] += 1
            self.refused[key] = Pod(*key, PodState.FAILED, reason=Failure.REFUSED, said="no room")
            self.changed()
        else:
            self.runs[key] = run = Training(self, launch, self.truths[launch.job_id])
            self.begun[launch.job_id] += 1
            if any(map(self._is_lost, run.gpus)):
                run.lose_gpu()
            self.changed()

    def observe(self) -> Observed:
        pods = (pod for run in self.runs.values() for pod in run.observed_pods(self.agents))
        return Observed(self.now(), tuple(self.nodes), (*pods, *self.refused.values()))

    def changed(self) -> None:
        """A watch wakes the adapter, which observes the cluster in a moment."""
        if not self._observation_due:
            self._observation_due = True
            self.after(0.2, self._send_observation)

    def _send_observation(self) -> None:
        self._observation_due = False
        if not self.chance(self.faults.observation_lost):
            self._observations += 1
            delay = self.span(self.faults.observation_delay_seconds_max)
            self.after(
                delay, partial(self._deliver, self.observe(), self._observations, self._lives)
            )

    def _deliver(self, observation: Observed, number: int, lives: int) -> None:
        if lives != self._lives or not self._up:
            return  # the daemon that observed it is dead
        newest, newest_at = self._newest_observation
        if number < newest and observation.at == newest_at:
            return  # a later one may overtake it, but not one with the same time
        self._newest_observation = max(self._newest_observation, (number, observation.at))
        self._mail.append(observation)

    def _observe_regularly(self) -> None:
        self.after(self._observe_every_seconds, self._observe_regularly)
        self._send_observation()

    # -- nodes ------------------------------------------------------------------------------------

    def _lose_node(self) -> None:
        index = self.rng.randrange(len(self.nodes))
        node = self.nodes[index]
        if not node.ready:
            return
        self.nodes[index] = replace(node, ready=False)
        power = self.rng.random() < 0.5
        for run in [run for run in self.runs.values() if run.is_on(node.name)]:
            if power:
                run.lose_power(node.name)
            else:
                run.cut_off(node.name)
        self.changed()
        back = self.rng.uniform(10.0, 400.0)
        if not power:
            self.after(EVICTED_AFTER_SECONDS, partial(self._evict, node.name, self.time))
        self.after(back, partial(self._restore_node, index))

    def _evict(self, name: str, since: Time) -> None:
        for run in self.runs.values():
            if run.cut_off_at == since and run.is_on(name):
                run.evict()

    def _restore_node(self, index: int) -> None:
        if self.nodes[index].ready:
            return
        self.nodes[index] = replace(self.nodes[index], ready=True)
        for run in [run for run in self.runs.values() if run.is_on(self.nodes[index].name)]:
            run.reconnect()
        self.changed()

    def reaches(self, pod: Pod) -> bool:
        nodes = {share.node for share in pod.shares}
        return all(node.ready for node in self.nodes if node.name in nodes)

    # -- GPUs -------------------------------------------------------------------------------------

    def _is_lost(self, key: GpuKey) -> bool:
        gpu = self._gpu(key)
        return gpu is not None and gpu.lost

    def _lose_gpu(self) -> None:
        index, gpu = self._any_gpu()
        if gpu.lost or not self.nodes[index].ready:
            return
        self._replace(index, _with_fault(replace(gpu, lost=True)))
        key = (self.nodes[index].name, gpu.uuid)
        for run in [run for run in self.runs.values() if key in run.gpus]:
            run.lose_gpu()
        self.after(self.rng.uniform(10.0, 600.0), partial(self._repair_gpu, index, gpu.uuid))

    def _repair_gpu(self, index: int, uuid: str) -> None:
        """The reset of a GPU ends the processes that still hang on it."""
        key = (self.nodes[index].name, uuid)
        gpu = self._gpu(key)
        if gpu is None or not gpu.lost:
            return
        self._replace(index, _with_fault(replace(gpu, lost=False, leave=False)))
        for run in [run for run in self.runs.values() if key in run.gpus]:
            run.release_gpu()

    def _doubt_gpu(self) -> None:
        """A GPU needs a reset; what runs there goes on."""
        index, gpu = self._any_gpu()
        self.has_doubted = True
        self._replace(index, _with_fault(replace(gpu, leave=True)))
        self.after(self.rng.uniform(10.0, 600.0), partial(self._trust_gpu, index, gpu.uuid))

    def _trust_gpu(self, index: int, uuid: str) -> None:
        if gpu := self._gpu((self.nodes[index].name, uuid)):
            self._replace(index, _with_fault(replace(gpu, leave=False)))

    def _add_foreign_use(self) -> None:
        """Foreign processes take a part of the free memory of one GPU. No run is started there."""
        index, gpu = self._any_gpu()
        room = (
            gpu.memory_mib - gpu.reserved_mib - self.taken_mib((self.nodes[index].name, gpu.uuid))
        )
        mib = min(room, int(gpu.memory_mib * self.rng.choice([0.1, 0.5, 0.9])))
        if mib > 0 and not gpu.strange_mib:
            self._replace(index, _with_fault(replace(gpu, strange_mib=mib)))
            stay = self.rng.uniform(10.0, 400.0)
            self.after(stay, partial(self._end_foreign_use, index, gpu.uuid))

    def _end_foreign_use(self, index: int, uuid: str) -> None:
        gpu = self._gpu((self.nodes[index].name, uuid))
        if gpu is not None and gpu.strange_mib:
            self._replace(index, _with_fault(replace(gpu, strange_mib=0)))

    def _any_gpu(self) -> tuple[int, Gpu]:
        index = self.rng.randrange(len(self.nodes))
        return index, self.rng.choice(self.nodes[index].gpus)

    def _gpu(self, key: GpuKey) -> Gpu | None:
        gpus = (gpu for node in self.nodes if node.name == key[0] for gpu in node.gpus)
        return next((gpu for gpu in gpus if gpu.uuid == key[1]), None)

    def _replace(self, index: int, gpu: Gpu) -> None:
        node = self.nodes[index]
        gpus = tuple(gpu if old.uuid == gpu.uuid else old for old in node.gpus)
        self.nodes[index] = replace(node, gpus=gpus)
        self.changed()

    def _fill_disk(self) -> None:
        self.disk_full = True

    def _set_clock_back(self) -> None:
        self._set_back += self.rng.uniform(1.0, 60.0)

    # -- memory, physically -----------------------------------------------------------------------

    def taken_mib(self, gpu: GpuKey) -> int:
        return sum(run.takes_mib for run in self.on_gpu(gpu))

    def on_gpu(self, gpu: GpuKey) -> list[Training]:
        return [run for run in self.runs.values() if run.takes_mib and gpu in run.gpus]

    def beside(self, training: Training) -> list[Training]:
        """The other runs that train on one of its GPUs and so slow it down."""
        gpus = {share.key for share in training.launch.shares}
        return [
            run
            for run in self.runs.values()
            if run is not training
            and run.training
            and any(share.key in gpus for share in run.launch.shares)
        ]

    def memory_mib(self, gpu: GpuKey) -> int:
        gpu_now = self._gpu(gpu)
        return gpu_now.memory_mib - gpu_now.strange_mib if gpu_now else 0


def _with_fault(gpu: Gpu) -> Gpu:
    foreign = FOREIGN_USE.format(gpu.strange_mib) if gpu.strange_mib else ""
    return replace(gpu, fault="XID 79" if gpu.lost else "XID 48" if gpu.leave else foreign)
