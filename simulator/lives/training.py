"""A run on its nodes: it starts, asks, trains, reports, stops and dies, as the truth says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from scheduler.core.model import (
    EXIT_STOPPED,
    EpochEnded,
    EpochStarted,
    Failure,
    Finished,
    GpuKey,
    Launch,
    Pod,
    PodState,
    Profile,
    Reported,
)
from scheduler.core.runs import must_stop
from simulator.lives.scripts import Habit, Saved, saves
from simulator.lives.workload import ClientKind, TrueJob

if TYPE_CHECKING:
    from simulator.lives.world import World

EXIT_TERMINATED = 143
EXIT_ABORTED = 134
RESEND_SECONDS = 10.0
ABSURD = (0.0, -1.0, float("inf"), 1e12)  # seconds of an epoch; no API lets a NaN through


def pending_pods(launch: Launch) -> list[Pod]:
    """A new run as the cluster shows it: a pod for each node."""
    nodes = dict.fromkeys(share.node for share in launch.shares) or {"": None}
    return [
        Pod(
            launch.job_id,
            launch.attempt,
            PodState.PENDING,
            tuple(share for share in launch.shares if share.node == node),
            rank,
        )
        for rank, node in enumerate(nodes)
    ]


class Training:
    """One run: a process for each node on which it has GPUs; they live and work together."""

    def __init__(self, world: World, launch: Launch, truth: TrueJob) -> None:
        self.world, self.launch, self.truth = world, launch, truth
        self.key = (launch.job_id, launch.attempt)
        self.epoch = self.first = launch.epochs_done
        self.trained = launch.epochs_done  # epochs in its weights, in truth
        self.lacks: int | None = None  # how many its library says are missing; None: nothing
        self.begun = False  # has its memory
        self.grown = not world.chance(world.faults.memory_grows)  # all of its memory
        self.left = False  # its processes keep the memory for a while after its pods
        self.working = True  # makes progress
        self.terminating = False  # the cluster is ending it
        self.evicted = False  # because its node was unreachable, not because we asked
        self.cut_off_at: float | None = None  # since when its node is unreachable
        self._answers: dict[int, bool] = {}  # by rank: whether to stop at the start of this epoch
        self._reports: dict[int, Profile] = {}  # by epoch: not yet acknowledged
        self.training = False  # keeps its GPUs busy, and so slows its neighbours
        self._in_epoch = False
        self._epoch_at = 0.0  # when its epoch began
        self._paced_at = 0.0  # since when it has this pace
        self._slowness = 1.0  # epoch seconds relative to alone
        self._left = 0.0  # epoch seconds (alone) that were left at `_paced_at`
        self._turns = 0  # how often its pace has changed
        self.pods = pending_pods(launch)
        begins_after = world.rng.choice([1.0, 5.0, 10.0, 60.0])  # the image may have to be pulled
        world.after(world.rng.uniform(0.5, begins_after), self._begin)
        if world.chance(world.faults.deleted_by_hand):
            world.after(world.rng.uniform(0.0, begins_after), self._delete_by_hand)

    @property
    def alive(self) -> bool:
        return any(pod.alive for pod in self.pods)

    @property
    def gpus(self) -> set[GpuKey]:
        return {share.key for share in self.launch.shares}

    @property
    def takes_mib(self) -> int:
        """The memory that it uses now on each of its GPUs."""
        if not self.begun or not (self.alive or self.left):
            return 0
        return self.truth.memory_mib if self.grown else self.truth.memory_mib // 2

    def observed_pods(self, agents: bool) -> list[Pod]:
        """Its pods, with the memory of its processes if there are agents. Nothing is observed on an
        unreachable node; on the other nodes of a gang everything is."""
        mib = self.takes_mib
        if not agents or not mib:
            return self.pods
        return [
            replace(pod, used=tuple(replace(share, memory_mib=mib) for share in pod.shares))
            if (pod.alive or self.left) and self.world.reaches(pod)
            else pod
            for pod in self.pods
        ]

    def is_on(self, node: str) -> bool:
        return any(share.node == node for share in self.launch.shares)

    # -- its work ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self.working or self.terminating:
            return
        if self.cut_off_at is not None:
            self.world.after(10.0, self._begin)
            return
        self._show(PodState.RUNNING)
        self.begun = True
        self._load()
        self._ask_for_memory()
        if self.working:
            self._enter_epoch()

    def _load(self) -> None:
        done, alone = self.launch.epochs_done, len(self.pods) == 1
        begins = self.world.folders.begin(self.truth, self.launch.attempt, done, alone)
        self.epoch = self.first = begins.epoch
        self.trained, self.lacks = begins.trained, begins.lacks

    def _save(self, reported: bool) -> None:
        habit = self.truth.habit
        if habit and self.epoch > self.first and saves(Habit(habit), self.epoch, reported):
            saved = Saved(self.epoch, self.trained, self._count(self.epoch))
            self.world.folders.save(self.launch.job_id, self.launch.attempt, saved)

    def _count(self, epoch: int) -> int | None:
        """How many of so many epochs are in the weights, as the library counts."""
        return None if self.lacks is None else max(0, epoch - self.lacks)

    def _ask_for_memory(self) -> None:
        """Takes its memory. When a GPU is full, the next run that asks dies, maybe another one."""
        for share in self.launch.shares:
            while self.world.taken_mib(share.key) > self.world.memory_mib(share.key):
                asking = [run for run in self.world.on_gpu(share.key) if run.working]
                if not asking:  # leftovers of gangs hold memory but do not ask for more
                    break
                self.world.rng.choice(asking).die(Failure.OUT_OF_MEMORY, 1)

    def _enter_epoch(self) -> None:
        if not self.working:
            return
        truth, rng = self.truth, self.world.rng
        self._save(reported=True)
        if not self.grown and self.epoch > self.first:
            self.grown = True
            self.world.changed()
            self._ask_for_memory()
            if not self.working:
                return
        if self.epoch >= self.launch.max_epochs or self.epoch == truth.ends_early_at:
            self._finish()
        elif self.epoch == truth.fails_at and (truth.fails_always or self.launch.attempt == 1):
            self.world.failures[self.launch.job_id, Failure.ERROR] += 1
            self._exit(1)
        elif truth.kind is ClientKind.SILENT:
            self._work()
        else:
            self._answers = {}
            for rank in range(truth.ranks):
                later = rng.uniform(0.0, 3.0) if rank else 0.0
                self.world.after(later, partial(self._ask, rank, self.epoch))

    def _ask(self, rank: int, epoch: int) -> None:
        if not self.working:
            return
        if self.cut_off_at is None:
            faults = self.world.faults
            self.world.post(
                EpochStarted(*self.key, epoch, None if rank else self._count(epoch)),
                partial(self._receive_answer, rank, epoch),
                faults.report_lost,
                faults.report_doubled,
                faults.report_delay_seconds_max,
            )
        # A training must not wait forever for a scheduler that does not answer.
        self.world.after(
            self.world.rng.uniform(3.0, 10.0), partial(self._decide, rank, epoch, False)
        )

    def _receive_answer(self, rank: int, epoch: int) -> None:
        job = self.world.read().jobs.get(self.launch.job_id)
        if job is None:
            return  # the scheduler does not know it any more: an error instead of an answer
        if job.run is None or job.run.attempt != self.launch.attempt:
            self._decide(rank, epoch, True)  # this attempt is over
            return
        stop = must_stop(job.run, epoch)
        for witness in self.world.witnesses:
            witness.on_answer(self.key, epoch, stop)
        self._decide(rank, epoch, stop)

    def _decide(self, rank: int, epoch: int, stop: bool) -> None:
        """Starts the epoch, or stops, as soon as every rank has an answer."""
        if not self.working or epoch != self.epoch or rank in self._answers:
            return
        self._answers[rank] = stop
        if len(self._answers) < self.truth.ranks:
            return
        deaf = self.truth.deaf_to_stop or self.world.chance(self.world.faults.stop_ignored)
        if any(self._answers.values()) and not deaf:
            self._stop()
        else:
            self._work()

    def _work(self) -> None:
        world = self.world
        seconds = self.truth.seconds(len(self.launch.shares), ())
        if self.epoch == self.first:
            seconds += self.truth.warm_up_seconds
        if world.chance(world.faults.pod_dies):
            cause = world.rng.choice([Failure.ERROR, Failure.LOST])
            world.after(world.rng.uniform(0, seconds), partial(self.die, cause, 139))
        elif world.chance(world.faults.deleted_by_hand):
            world.after(world.rng.uniform(0, seconds), self._delete_by_hand)
        if self.truth.kind is ClientKind.LIBRARY and world.rng.random() < 0.2:
            world.after(seconds / 2, self._heartbeat)
        self._epoch_at = self._paced_at = world.time
        self._left, self._slowness, self._in_epoch = seconds, 1.0, True
        self.adjust_pace()
        if not self.training:
            self.training = True
            self._adjust_neighbours()

    def adjust_pace(self) -> None:
        """Sets its pace to what its neighbours now allow."""
        if not self._in_epoch:
            return
        world, gpus = self.world, len(self.launch.shares)
        self._left -= (world.time - self._paced_at) / self._slowness
        beside = [run.truth for run in world.beside(self)]
        self._slowness = self.truth.seconds(gpus, beside) / self.truth.seconds(gpus, ())
        self._paced_at, self._turns = world.time, self._turns + 1
        world.after(max(0.0, self._left) * self._slowness, partial(self._end_epoch, self._turns))

    def _adjust_neighbours(self) -> None:
        for run in self.world.beside(self):
            run.adjust_pace()

    def _stop_working(self) -> None:
        self.working = self._in_epoch = False
        if self.training:
            self.training = False
            self._adjust_neighbours()

    def _end_epoch(self, turn: int) -> None:
        if not self.working or turn != self._turns:
            return
        self._in_epoch = False
        seconds = self.world.time - self._epoch_at
        self.epoch += 1
        job_id, truth, world = self.launch.job_id, self.truth, self.world
        world.epochs_done[job_id] = max(world.epochs_done.get(job_id, 0), self.epoch)
        self.trained += 1
        world.folders.train(job_id, self.launch.attempt, self.epoch, self.trained)
        self._save(reported=False)
        if truth.kind is not ClientKind.SILENT:
            absurd = world.chance(truth.absurd)
            self._reports[self.epoch] = Profile(
                *self.key,
                self.epoch,
                epoch_seconds=world.rng.choice(ABSURD) if absurd else seconds,
                memory_mib=self._measure_mib(),
                gpu_util=truth.gpu_util,
                at=world.now(),
                trained=self._count(self.epoch),
                score=truth.score(self.epoch),
            )
            self._report(self.epoch)
        # After an epoch the script saves, which takes a moment.
        world.after(world.rng.uniform(0.0, 2.0), self._enter_epoch)

    # -- its reports ------------------------------------------------------------------------------

    def _report(self, epoch: int) -> None:
        """Reports an epoch until it is acknowledged. An old image tries only once."""
        if epoch not in self._reports or not (self.working or self.alive):
            return
        if self.cut_off_at is None:
            faults = self.world.faults
            self.world.post(
                EpochEnded(self._reports[epoch]),
                partial(self._on_acknowledged, epoch),
                faults.report_lost,
                faults.report_doubled,
                faults.report_delay_seconds_max,
            )
        if self.truth.kind is ClientKind.LIBRARY and self.working:
            self.world.after(RESEND_SECONDS, partial(self._report, epoch))

    def _on_acknowledged(self, epoch: int) -> None:
        report = self._reports.pop(epoch, None)
        job_id, world = self.launch.job_id, self.world
        world.epochs_acknowledged[job_id] = max(world.epochs_acknowledged.get(job_id, 0), epoch)
        if report and report.memory_mib:
            world.memory_acknowledged[job_id] = report.memory_mib

    def _heartbeat(self) -> None:
        if self.working and self.cut_off_at is None:
            report = Reported(*self.key, self._measure_mib())
            self.world.post(report, lost=self.world.faults.report_lost)

    def _measure_mib(self) -> int:
        return self.takes_mib if self.world.chance(self.truth.measures_memory) else 0

    # -- its end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.world.ended_well.add(self.launch.job_id)
        self._send_farewell(preempted=False)
        self.world.after(self.world.rng.uniform(0.0, 2.0), partial(self._exit, 0))

    def _stop(self) -> None:
        self._send_farewell(preempted=True)
        code = EXIT_STOPPED if self.truth.kind is ClientKind.LIBRARY else 0
        self.world.after(self.world.rng.uniform(0.0, 2.0), partial(self._exit, code))

    def _send_farewell(self, preempted: bool) -> None:
        """Sends unacknowledged reports once more, and how the run ends."""
        if self.truth.kind is not ClientKind.LIBRARY or self.cut_off_at is not None:
            return
        for epoch in list(self._reports):
            self._report(epoch)
        if preempted or self.truth.says_finished:
            faults = self.world.faults
            self.world.post(
                Finished(*self.key, preempted), None, faults.report_lost, faults.report_doubled
            )

    def _exit(self, code: int) -> None:
        if not self.working:
            return
        self._stop_working()
        if self.terminating:
            self._vanish()
        else:
            self._leave_processes()
            self._show(PodState.FAILED if code else PodState.SUCCEEDED, code)

    def die(self, cause: Failure, code: int) -> None:
        """Ends one of its processes; the others hang until they are removed."""
        if not self.working:
            return
        self._stop_working()
        if self.terminating:
            self._vanish()
            return
        self.world.failures[self.launch.job_id, cause] += 1
        index = self.world.rng.randrange(len(self.pods))
        reason = "" if cause is Failure.ERROR else cause.value
        self.pods[index] = replace(
            self.pods[index], state=PodState.FAILED, exit_code=code, reason=reason
        )
        self.world.changed()

    def _leave_processes(self) -> None:
        if self.begun and self.world.chance(self.world.faults.process_left):
            self.left = True
            self.world.after(self.world.rng.uniform(1.0, 90.0), self._end_leftovers)

    def _end_leftovers(self) -> None:
        self.left = False
        self.world.changed()

    def _delete_by_hand(self) -> None:
        if self.working and self.cut_off_at is None:
            self.world.failures[self.launch.job_id, Failure.LOST] += 1
            self._forget()

    # -- what the cluster does with it ------------------------------------------------------------

    def remove(self) -> None:
        if not self.alive:
            self.world.after(self.world.rng.uniform(0.0, 2.0), self._forget)
        elif not self.terminating:
            self.terminating = True
            self._show(PodState.TERMINATING)
            if not self.truth.deaf_to_term:
                self._stop_working()
            seconds = self.world.rng.uniform(0.3, self.world.faults.removal_seconds_max)
            self.world.after(seconds, self._vanish)

    def lose_gpu(self) -> None:
        """It hangs or dies. If it has just ended by itself, the lost GPU may be blamed."""
        self.world.failures[self.launch.job_id, Failure.LOST] += 1
        works = self.working and self.alive
        self._stop_working()
        if works and not self.terminating and self.begun and self.world.rng.random() < 0.5:
            self._show(PodState.FAILED, EXIT_ABORTED)

    def release_gpu(self) -> None:
        """It ends if it still hangs; perhaps no observation has shown that the GPU is the cause."""
        if not self.working and not self.terminating:
            self.world.failures[self.launch.job_id, Failure.ERROR] += 1
            self._show(PodState.FAILED, EXIT_ABORTED)

    def lose_power(self, node: str) -> None:
        """The node and its processes are gone; its pods are shown as failed, or not at all."""
        if not self.alive:
            return
        self._stop_working()
        self.world.failures[self.launch.job_id, Failure.LOST] += 1
        here = [bool(pod.shares) and pod.shares[0].node == node for pod in self.pods]
        if len(self.pods) == 1 and self.world.rng.random() < 0.5:
            self._forget()
            return
        # A gang's missing pods are shown; otherwise it could not be seen that it is incomplete.
        self.pods = [
            replace(pod, state=PodState.FAILED, reason="lost") if lost and pod.alive else pod
            for pod, lost in zip(self.pods, here, strict=True)
        ]

    def cut_off(self, node: str) -> None:
        """It continues to work; its reports are lost, and its pods are shown as they were."""
        self.cut_off_at = self.world.time

    def evict(self) -> None:
        if self.alive and not self.terminating:
            self.world.failures[self.launch.job_id, Failure.LOST] += 1
            self.terminating = self.evicted = True
            self._show(PodState.TERMINATING)

    def reconnect(self) -> None:
        if self.cut_off_at is not None:
            self.cut_off_at = None
            if self.terminating:
                self._vanish()

    def _vanish(self) -> None:
        if self.cut_off_at is not None:  # not known until its node is back
            return
        self._stop_working()
        if self.world.keeps_dead:
            self._show(PodState.FAILED, EXIT_TERMINATED, "lost" if self.evicted else "")
        else:
            self._forget()

    def _forget(self) -> None:
        self._stop_working()
        if self.left:
            self.world.after(5.0, self._forget)
            return
        if self.world.runs.get(self.key) is self:
            del self.world.runs[self.key]
            self.world.changed()
        self.pods = []

    def _show(self, state: PodState, exit_code: int | None = None, reason: str = "") -> None:
        """Shows a new state. A pod that has not changed stays the same object."""
        at = self.world.now() if exit_code is not None else None
        self.pods = [
            replace(pod, state=state, exit_code=exit_code, reason=reason, at=at)
            if pod.alive
            else pod
            for pod in self.pods
        ]
        self.world.changed()
