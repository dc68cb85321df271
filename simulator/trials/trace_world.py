"""The world of a trace: in virtual time its jobs arrive, train as their truth says, and end.

It is the scheduler's Inbox and its Cluster. There are no faults here except those that the
scheduler causes; for faults see lives/world.py. Arrivals, epochs and ends have exact moments that
do not depend on batches: `gather_seconds` only delays when the scheduler hears of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scheduler.core.memory import all_gpus
from scheduler.core.model import (
    EXIT_STOPPED,
    Action,
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    Finished,
    Gpu,
    GpuKey,
    JobId,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Profile,
    Run,
    RunKey,
    Submitted,
    Time,
    View,
)
from scheduler.core.runs import current_run, must_stop
from simulator.lives.training import pending_pods
from simulator.traces.behaviour import TraceJob, Truth, VaryingTruth
from simulator.trials.outcome import Tally

REMOVED_AFTER_SECONDS = 1.0

_Moment = tuple[Time, int, Callable[[], None]]


@dataclass(slots=True, eq=False)
class TraceRun:
    """One run, and its progress in the current epoch."""

    launch: Launch
    job: TraceJob
    gpus: dict[GpuKey, Gpu]
    launched_at: Time
    alone_seconds: Callable[[int], float]  # of each epoch
    pods: list[Pod]  # one for each node, all in the same state
    epoch: int  # epochs finished
    began_at: Time = 0.0  # when it began to train
    entered_at: Time = 0.0  # when the current epoch began
    left_seconds: float = 0.0  # of the current epoch, if it is alone from `timed_at` on
    timed_at: Time = 0.0
    speed: float = 1.0  # since then, relative to alone
    trains: bool = False
    moment: int = 0  # the number of its next event; events with an older number are void

    @property
    def key(self) -> RunKey:
        return self.launch.job_id, self.launch.attempt

    @property
    def truth(self) -> Truth:
        return self.job.truth

    @property
    def state(self) -> PodState:
        return self.pods[0].state

    def show(
        self, state: PodState, code: int | None = None, reason: str = "", at: Time | None = None
    ) -> None:
        self.pods = [
            replace(pod, state=state, exit_code=code, reason=reason, at=at) for pod in self.pods
        ]


def trace_job_id(number: int) -> JobId:
    """The id of the job with this number, from 0, in its trace."""
    return JobId(f"job-{number:05}")


class TraceWorld:
    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: Sequence[Node],
        tally: Tally,
        restart_seconds: float = 20.0,
        gather_seconds: float = 0.0,
        slowness: Mapping[str, float] | None = None,
    ) -> None:
        """`slowness`: of nodes, by name: how many times longer everything takes there."""
        self.nodes, self.tally = tuple(nodes), tally
        self.restart_seconds, self.gather_seconds = restart_seconds, gather_seconds
        self.read: Callable[[], View] = View  # the scheduler's last committed view
        self.runs: dict[RunKey, TraceRun] = {}  # what the cluster shows
        self._gpus = all_gpus(nodes)
        self._training_on: dict[GpuKey, list[TraceRun]] = {key: [] for key in self._gpus}
        self._slowness = slowness or {}
        self._jobs: dict[JobId, TraceJob] = {}
        self._time: Time = 0.0
        self._mail: list[Event] = []
        self._observation_due = True
        self._sequence = 0
        self._heap: list[_Moment] = []
        for number, job in enumerate(jobs):
            self._at(job.submit_at, partial(self._submit, trace_job_id(number), job))

    # -- the inbox --------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing more happens here unless the scheduler acts."""
        return not (self._heap or self._mail or self._observation_due)

    def now(self) -> Time:
        return self._time

    def wait(self, until: Time | None) -> Sequence[Event]:
        """Returns events in batches, which end `gather_seconds` after they began."""
        end = math.inf if until is None else until
        while not self._has_news() and self._heap and self._heap[0][0] <= end:
            self._happen()
        if self._has_news():
            end = min(end, self._time + self.gather_seconds)
            while self._heap and self._heap[0][0] <= end:
                self._happen()
        if end == until:
            self._time = max(self._time, end)
        batch, self._mail = self._mail, []
        if self._observation_due:
            # Last, because an observation that begins now shows the effects of all earlier events.
            batch.append(self._observe())
        return batch

    def _observe(self) -> Observed:
        self._observation_due = False
        pods = tuple(pod for run in self.runs.values() for pod in run.pods)
        return Observed(self._time, self.nodes, pods)

    def _has_news(self) -> bool:
        return bool(self._mail) or self._observation_due

    def _happen(self) -> None:
        self._time, _, do = heapq.heappop(self._heap)
        do()

    def _at(self, moment: Time, do: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (moment, self._sequence, do))

    def _next(self, run: TraceRun, seconds: float, do: Callable[[TraceRun], None]) -> None:
        """Sets the next event of this run and drops the one that was set before."""
        run.moment = self._sequence + 1
        self._at(self._time + seconds, partial(self._unless_overtaken, run, run.moment, do))

    def _unless_overtaken(self, run: TraceRun, moment: int, do: Callable[[TraceRun], None]) -> None:
        if run.moment == moment:
            do(run)

    def _submit(self, job_id: JobId, job: TraceJob) -> None:
        self._jobs[job_id] = job
        self.tally.record_submission(job_id, job.spec, self._time)
        self._mail.append(Submitted(job_id, job.spec))

    # -- the cluster ------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        run = self.runs.get((action.job_id, action.attempt))
        if isinstance(action, Launch):
            if run is None:
                self._launch(action)
        elif run is not None and run.pods[0].alive:
            self._terminate(run)
        elif run is not None:
            del self.runs[run.key]

    # A run that is launched, begins, or is forgotten after its end needs no observation of its own:
    # the next one shows it, and until then nothing depends on it.

    def _launch(self, launch: Launch) -> None:
        job = self._jobs[launch.job_id]
        gpus = {share.key: self._gpus[share.key] for share in launch.shares}
        nodes = sorted({node for node, _ in gpus})
        types = sorted({gpu.type for gpu in gpus.values()}) or [""]
        slowest = max((self._slowness.get(node, 1.0) for node in nodes), default=1.0)
        # All ranks wait for the slowest, so a mixed gang is as fast as if all GPUs were that.
        places = [(type, len(gpus), len(nodes)) for type in types]
        run = TraceRun(
            launch=launch,
            job=job,
            gpus=gpus,
            launched_at=self._time,
            alone_seconds=_alone_seconds(job.truth, places, slowest),
            pods=pending_pods(launch),
            epoch=launch.epochs_done,
        )
        self.runs[run.key] = run
        self.tally.record_launch(launch, self._time)
        self._next(run, self.restart_seconds, self._begin)

    def _terminate(self, run: TraceRun) -> None:
        if run.state is not PodState.TERMINATING:
            run.show(PodState.TERMINATING)
            self._stop_training(run)
            self._next(run, REMOVED_AFTER_SECONDS, self._vanish)

    def _vanish(self, run: TraceRun) -> None:
        del self.runs[run.key]
        self.tally.record_run_end(
            run.launch, run.launched_at, self._time, finished=False, preempted=False
        )
        self._observation_due = True

    # -- the work ---------------------------------------------------------------------------------

    def _begin(self, run: TraceRun) -> None:
        for key, gpu in run.gpus.items():
            taken = sum(other.truth.memory_mib for other in self._training_on[key])
            if taken + run.truth.memory_mib > gpu.memory_mib:
                self._exit(run, 1, Failure.OUT_OF_MEMORY)
                return
        if math.isinf(run.alone_seconds(run.epoch)):
            self._exit(run, 1, "cannot train on these GPUs")
            return
        run.show(PodState.RUNNING)
        run.trains = True
        run.began_at = run.timed_at = self._time
        for key in run.gpus:
            self._training_on[key].append(run)
            if len(self._training_on[key]) == 1:
                self.tally.add_busy_gpus(1, self._time)
        self._retime_neighbours(run)
        self._enter_epoch(run)

    def _enter_epoch(self, run: TraceRun) -> None:
        if run.epoch >= run.launch.max_epochs:
            self._finish(run)
            return
        self._mail.append(EpochStarted(*run.key, run.epoch))
        believed = self._committed_run(run)
        if believed is None or must_stop(believed, run.epoch):
            self._mail.append(Finished(*run.key, preempted=True))
            self._exit(run, EXIT_STOPPED)
            return
        run.entered_at = self._time
        run.left_seconds = run.job.course.epoch_seconds(
            run.alone_seconds(run.epoch),
            run.epoch,
            run.launch.max_epochs,
            self._time - run.began_at,
        )
        self._time_epoch(run, self._speed(run))

    def _end_epoch(self, run: TraceRun) -> None:
        self._account(run)
        run.epoch += 1
        self._mail.append(EpochEnded(self._profile(run)))
        self._enter_epoch(run)

    def _finish(self, run: TraceRun) -> None:
        self._mail.append(Finished(*run.key))
        self._exit(run, 0)

    def _exit(self, run: TraceRun, code: int, reason: str = "") -> None:
        self._stop_training(run)
        state = PodState.FAILED if code else PodState.SUCCEEDED
        run.show(state, code, reason, self._time)
        self.tally.record_run_end(
            run.launch, run.launched_at, self._time, not code, code == EXIT_STOPPED
        )
        self._observation_due = True

    def _stop_training(self, run: TraceRun) -> None:
        """Ends its training, if it trains, and frees its GPUs."""
        run.moment = 0
        if not run.trains:
            return
        self._account(run)
        run.trains = False
        for key in run.gpus:
            self._training_on[key].remove(run)
            if not self._training_on[key]:
                self.tally.add_busy_gpus(-1, self._time)
        self._retime_neighbours(run)

    def _profile(self, run: TraceRun) -> Profile:
        """The report that the library would send."""
        spec = run.launch.spec
        true_seconds = self._time - run.entered_at
        seconds = run.job.lie.told_seconds(true_seconds, run.epoch, len(run.gpus))
        return Profile(
            *run.key,
            run.epoch,
            step_seconds=seconds / math.ceil(spec.training_set_size / spec.batch_size),
            epoch_seconds=seconds,
            samples_per_second=spec.training_set_size / seconds if seconds > 0.0 else 0.0,
            memory_mib=run.truth.memory_mib,
            gpu_util=run.truth.gpu_util,
            at=self._time,
        )

    def _committed_run(self, run: TraceRun) -> Run | None:
        """The run as the scheduler has committed it; None: the scheduler takes it for over."""
        return current_run(run.key, self.read().jobs)

    # -- how fast ---------------------------------------------------------------------------------

    def _speed(self, run: TraceRun) -> float:
        """Neighbours on a GPU slow each other down; a gang is as fast as on its slowest GPU."""
        speed = 1.0
        for key, gpu in run.gpus.items():
            if len(self._training_on[key]) > 1:
                others = (other.truth for other in self._training_on[key] if other is not run)
                here = math.prod(run.truth.speed_beside(other, gpu.type) for other in others)
                speed = min(speed, here)
        return speed

    def _retime_neighbours(self, run: TraceRun) -> None:
        beside = {other.key: other for key in run.gpus for other in self._training_on[key]}
        for other in beside.values():
            if other is not run and (speed := self._speed(other)) != other.speed:
                self._account(other)
                self._time_epoch(other, speed)

    def _account(self, run: TraceRun) -> None:
        """Accounts for the work since its speed last changed."""
        done = (self._time - run.timed_at) * run.speed
        run.left_seconds -= done
        run.timed_at = self._time
        self.tally.effective_gpu_seconds += done * len(run.gpus)

    def _time_epoch(self, run: TraceRun, speed: float) -> None:
        run.speed = speed
        self._next(run, max(0.0, run.left_seconds) / speed, self._end_epoch)


def _alone_seconds(
    truth: Truth, places: Sequence[tuple[str, int, int]], slowest: float
) -> Callable[[int], float]:
    """The seconds of each epoch, in the slowest of these places."""
    if isinstance(truth, VaryingTruth):
        at = truth.epoch_seconds_at
        return lambda epoch: slowest * max(at(epoch, *place) for place in places)
    seconds = slowest * max(truth.epoch_seconds(*place) for place in places)
    return lambda epoch: seconds
