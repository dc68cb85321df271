"""The class that a training script calls. It counts steps and epochs, and stops the training where
no work is lost.

The names, also the ones in capitals, come from the first library: scripts written for it run
unchanged.
"""

import os
import sys
from contextlib import ContextDecorator
from time import perf_counter

from kubernetesdlprofile.log import warn

TYPE_CHECKING = False  # `typing` and much else take longer to import than all of the library
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any, Callable, Iterator, Optional, Tuple

    from kubernetesdlprofile import wire
    from kubernetesdlprofile.courier import Courier

ANSWER_SECONDS = 1.0  # how long start_epoch waits for the answer whether to stop
LEAVE_SECONDS = 5.0  # how long a stopped process waits for its last messages to be acknowledged


class KubeProfiler(ContextDecorator):
    """One per process: a second call or a copy returns the first object. As a context manager or
    decorator it calls `end()` when the training is complete, that is, without an exception."""

    __slots__ = ("_alert", "_step_at", "iterations")  # faster to access in `measure`
    _instance: "Optional[KubeProfiler]" = None
    exit_on_stop = True  # False: the script checks should_stop and exits by itself
    checkpoint_requested = False  # the run is to stop and may be killed before its epoch ends

    def __new__(cls, *_args: object, **_names: object) -> "KubeProfiler":
        # Two objects would count every epoch twice.
        if KubeProfiler._instance is None:
            KubeProfiler._instance = super().__new__(cls)
        return KubeProfiler._instance

    def __init__(
        self, job_manager_hostname: str = "", db_hostname: str = "", epochs: int = 1
    ) -> None:
        """Either name, host[:port], replaces KUBEPROFILER_SERVER. `epochs` is used outside the
        scheduler only."""
        if hasattr(self, "iterations"):
            return
        from kubernetesdlprofile import fence, folders, settings

        self.iterations = 0  # steps measured by this process
        self._step_at = 0.0  # when the newest step ended
        self._alert = True  # the next `measure` has to call `_look_up`
        self.has_to_stop = False

        given = settings.Settings(os.environ, job_manager_hostname or db_hostname)
        self._settings = given
        self.jmHostname = job_manager_hostname or given.server
        self.dbHostname = db_hostname or given.server
        self.JOBID = given.job_id or "standalone"
        self.PROFILE_EACH = given.integer("HEARTBEAT_FREQ", 100, 1)
        self.RANK = given.integer("NODE_RANK", 0, 0)
        self.LOCAL_RANK = given.integer("LOCAL_RANK", -1, -1)  # -1: the processes have no numbers
        self.NODE_LIST = given.text("NODELIST")
        self.NUM_GPUS = given.integer("NUM_GPUS", 1, 0)
        self.NUM_NODES = given.integer("NUM_NODES", 1, 1)
        self.RESTARTED = given.boolean("JOB_RESTARTED")
        self.BATCH_SIZE = given.integer("BATCH_SIZE", 1, 1)
        self.EPOCHS = given.integer("EPOCHS_TO_BE_DONE", max(1, epochs), 1)
        self.EPOCHS_DONE = given.integer("EPOCHS_DONE", 0, 0)
        self.TRAINING_SET_SIZE = given.integer("TRAINING_SET_SIZE", 1, 1)
        self.RESERVED_MEM = given.integer("RESERVED_MEM", 0, 0)
        for problem in given.problems:
            warn(problem)
        # As the submission says; the scheduler uses the measured number of steps.
        processes = max(1, self.NUM_GPUS) * self.NUM_NODES
        self.iterationPerEpoch = int(self.TRAINING_SET_SIZE / (self.BATCH_SIZE * processes))
        self.maxIterations = self.iterationPerEpoch * self.EPOCHS
        self.epoch = self.EPOCHS_DONE  # epochs finished, over all attempts
        self.start_epoch_time: Optional[datetime] = None
        self.end_epoch_time: Optional[datetime] = None

        if given.job_id or given.snapshots:
            self.root_dir = folders.folder(given.snapshots or "/snapshots", self.JOBID)
        else:
            self.root_dir = folders.temporary()
        # The folder of the job's checkpoints; the search for one comes after it.
        self._fence = fence.Fence(self.root_dir, given.attempt) if given.job_id else None
        self.ckpt_path: Optional[str] = None
        if self.RESTARTED:
            from kubernetesdlprofile import checkpoints

            self.ckpt_path = checkpoints.at_start(self.root_dir)

        self._mean_before = 0.0
        self._steps_reported = 0
        self._begin()
        self._courier = self._hire()
        self._limit_memory()

    # --- the four calls -------------------------------------------------------------------------

    def start_epoch(self, agree: "Optional[Callable[[bool], bool]]" = None) -> None:
        """Asks whether to continue. If not, reports the finished epochs and exits (see
        `exit_on_stop`).

        `agree` turns this process's answer into one for all ranks, as `hooks.any_rank` does."""
        self.has_to_stop = False
        courier = self._own_courier()
        local_rank = max(0, self.LOCAL_RANK)
        question = self._message("StartEpoch", local_rank=local_rank, epoch=self.epoch)
        courier.ask(question, ANSWER_SECONDS)
        if agree is not None:
            courier.forget()  # otherwise one rank alone might obey a late answer
            self.has_to_stop = bool(agree(self.has_to_stop))
        if self.has_to_stop and self.exit_on_stop:
            self._leave()
        self._limit_memory()
        self.start_epoch_time = self._begin()

    def measure(self) -> None:
        """Counts a step that has ended. Takes about 0.1 microseconds: no lock, no allocation."""
        self.iterations += 1
        self._step_at = perf_counter()
        if self._alert:
            self._look_up()

    def end_epoch(self) -> None:
        """Reports an epoch that has ended, validation included."""
        if self._speaks():
            # An epoch is the whole training set, however it is divided between the processes.
            self._own_courier().post_epoch(self._profile(self.epoch + 1, self.TRAINING_SET_SIZE))
        self._mean_before = self.mean_iteration_duration
        self.end_epoch_time = self._begin()
        self.epoch += 1

    def end(self) -> None:
        """Reports that the training is complete, also after fewer epochs than planned."""
        if self.end_epoch_time is None and self.epoch > self.EPOCHS_DONE and self._speaks():
            # The checkpoint contains epochs that the previous run did not report: it was killed.
            done = self._profile(self.epoch, samples=0)
            self._own_courier().post_epoch(done._replace(step_seconds=0.0, epoch_seconds=0.0))
        self._say_farewell(preempted=self.should_stop and self.epoch < self.EPOCHS)

    # --- beside them ----------------------------------------------------------------------------

    def epochs(self) -> "Iterator[int]":
        """Yields the numbers of the remaining epochs, from 0; starts and ends each one."""
        while self.epoch < self.EPOCHS:
            self.start_epoch()
            if self.has_to_stop:
                return
            yield self.epoch
            self.end_epoch()

    def __enter__(self) -> "KubeProfiler":
        return self

    def __exit__(self, kind: object, *_what: object) -> None:
        if kind is None:
            self.end()

    def save(self, path: str, writer: "Callable[[str], Any]") -> bool:
        """Calls `writer(name)` to write a checkpoint, and moves the complete file to `path` (below
        `root_dir`). False: it could not be written, or a newer run has begun."""
        from pathlib import Path

        from kubernetesdlprofile import checkpoints

        return checkpoints.save(Path(self.root_dir, path), writer, self._fence)

    def checkpoint_path(self) -> "Optional[str]":
        """The newest complete checkpoint that is now in `root_dir`."""
        from kubernetesdlprofile import checkpoints

        return checkpoints.newest(self.root_dir)

    def send_profiling(self) -> None:
        """Sends a sign of life now. Not needed: the background thread does so at each interval."""
        if self._speaks():
            self._own_courier().post_report()

    @property
    def should_stop(self) -> bool:
        """Whether the scheduler wants this process to exit before it begins another epoch. A single
        process may learn it within an epoch; several would learn it at different moments."""
        alone = self.NUM_GPUS * self.NUM_NODES <= 1 and self.epoch < self.EPOCHS - 1
        return self.has_to_stop or (alone and self.checkpoint_requested)

    @property
    def mean_iteration_duration(self) -> float:
        """Seconds per step of this epoch, without its first; before that, of the previous epoch."""
        if self.iterations == self._began[1]:
            return self._mean_before
        at, steps = self._warm if self.iterations > self._warm[1] else self._began[:2]
        return max(0.0, self._step_at - at) / max(1, self.iterations - steps)

    @property
    def last_time(self) -> "Optional[datetime]":
        """When the newest step ended."""
        from datetime import timedelta

        began_at, _, then = self._began
        return then + timedelta(seconds=self._step_at - began_at) if self.iterations else None

    def __reduce__(self) -> "Tuple[Any, ...]":
        # Models keep the profiler as an attribute, and are copied and pickled with it. Unpickling
        # returns the process's own profiler: a later attempt may have another server.
        return KubeProfiler, (self._settings.argument,)

    # --- within ---------------------------------------------------------------------------------

    def _begin(self) -> "datetime":
        """Sets when this epoch began, how many `iterations` there were, and the local time; and the
        first two also for its first step, which takes longer than the others. Each is replaced as a
        whole, because the courier's thread reads it too."""
        from datetime import datetime

        now = perf_counter(), self.iterations
        self._began = (*now, datetime.now())  # noqa: DTZ005  # naive, as in the first library
        self._warm = now
        self._alert = True
        return self._began[2]

    def _look_up(self) -> None:
        self._alert = False  # first, so that a stop that arrives meanwhile is not missed
        if self.iterations == self._began[1] + 1:
            self._warm = (self._step_at, self.iterations)
        if self.has_to_stop:
            self._alert = True
            self._leave()

    def _hire(self) -> "Courier":
        from kubernetesdlprofile import courier, memory, transport

        given, link = self._settings, None
        if given.job_id and given.server:
            link = transport.connect(given.server, given.http_server, given.token)
        else:
            warn(f"not running under the scheduler: nothing is reported, root_dir={self.root_dir}")
        hired = courier.Courier(
            link,
            given.heartbeat_seconds,
            self._sign_of_life,
            self._stop,
            memory.Sampler(self.RESERVED_MEM),
            self._last_farewell,
            given.last_words or f"{self.root_dir}/.kubeprofiler-{given.rank}.json",
        )
        if self._speaks():
            hired.resume(given.job_id)
        return hired

    def _own_courier(self) -> "Courier":
        if self._courier.pid != os.getpid():
            self._courier = self._hire()  # a forked child does not have its parent's thread
        return self._courier

    def _speaks(self) -> bool:
        """Whether this process reports: all ranks ask, but one process reports for each node."""
        return self.LOCAL_RANK <= 0

    def _limit_memory(self) -> None:
        if self._settings.enforce_memory:
            from kubernetesdlprofile import memory

            memory.limit(self.RESERVED_MEM)

    def _sign_of_life(self) -> "Optional[wire.Profile]":
        """For the courier's thread: the report, or None without a new step since the last one."""
        if not self._speaks() or self.iterations == self._steps_reported:
            return None
        self._steps_reported = self.iterations
        return self._profile(self.epoch, samples=0)

    def _stop(self, epoch: int, reason: str) -> None:
        """For the courier's thread. An answer for an epoch that is over is ignored."""
        if epoch < 0:
            self.checkpoint_requested = True
        elif epoch == self.epoch and epoch < self.EPOCHS - 1:  # the last epoch is never interrupted
            warn(f"the scheduler stops this run after epoch {epoch} of {self.EPOCHS}: {reason}")
            self.has_to_stop = True
            self._alert = True

    def _leave(self) -> None:
        import threading

        if threading.current_thread() is not threading.main_thread():
            return  # SystemExit would end only this thread and not the process
        self._say_farewell(preempted=True)
        if not self._courier.flush(LEAVE_SECONDS):
            warn("the scheduler has not acknowledged all reports: an epoch may be repeated")
        sys.exit(self._settings.stop_exit_code)

    def _say_farewell(self, preempted: bool) -> None:
        if self._speaks():
            self._own_courier().post_farewell(self._message("Finish", preempted=preempted))

    def _last_farewell(self) -> "Optional[wire.Finish]":
        """At the end of the process, when its exit code is not known: the farewell, if certain."""
        complete = self.epoch >= self.EPOCHS > self.EPOCHS_DONE and not hasattr(sys, "last_type")
        return self._message("Finish", preempted=False) if complete and self._speaks() else None

    def _message(self, kind: str, **fields: "Any") -> "Any":
        """A message of the type `kind` (in `wire`) from this process."""
        from kubernetesdlprofile import wire

        given = self._settings
        return getattr(wire, kind)(given.job_id, given.attempt, given.rank, **fields)

    def _profile(self, epoch: int, samples: int) -> "wire.Profile":
        # The courier's thread may see a new epoch's beginning with the last step of the previous
        # epoch; the difference must not be below zero.
        steps = max(0, self.iterations - self._began[1])
        step_seconds = self.mean_iteration_duration if steps else 0.0
        profile: wire.Profile = self._message(
            "Profile",
            epoch=epoch,
            step_seconds=step_seconds,
            epoch_seconds=max(0.0, perf_counter() - self._began[0]),
            samples_per_second=samples / (steps * step_seconds) if step_seconds > 0 else 0.0,
            memory_mib=0,  # the courier fills it in
            gpu_util=0.0,
            steps=steps,
            iterations=self.iterations,
            local_rank=self.LOCAL_RANK,
        )
        return profile
