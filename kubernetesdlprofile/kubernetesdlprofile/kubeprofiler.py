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
    from typing import Any, Callable, Dict, FrozenSet, Iterator, Mapping, Optional, Tuple

    from kubernetesdlprofile import wire
    from kubernetesdlprofile.courier import Courier
    from kubernetesdlprofile.entries import EntrySender

ANSWER_SECONDS = 1.0  # how long start_epoch waits for the answer whether to stop
LEAVE_SECONDS = 5.0  # how long a stopped process waits for its last messages to be acknowledged


class _Asked:
    """An attribute that a script reads which resumes by itself. Notes that it was read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, api: "Any", _owner: object) -> "Any":
        if api is None:
            return self
        api._asked |= {self._name}
        return getattr(api, self._name)


class KubeProfiler(ContextDecorator):
    """One per process: a second call or a copy returns the first object. As a context manager or
    decorator it calls `end()` when the training is complete, that is, without an exception."""

    __slots__ = ("_alert", "_step_at", "iterations")  # faster to access in `measure`
    _instance: "Optional[KubeProfiler]" = None
    exit_on_stop = True  # False: the script checks should_stop and exits by itself
    checkpoint_requested = False  # the run is to stop and may be killed before its epoch ends
    RESTARTED, root_dir, ckpt_path = map(_Asked, ("_restarted", "_root_dir", "_ckpt_path"))
    _asked: "FrozenSet[str]" = frozenset()  # which of these the script has read
    _told = False  # whether it has set `epoch`
    _in_epoch: "Optional[bool]" = None  # None: it does not call start_epoch
    _sender: "Optional[EntrySender]" = None  # for what it logs
    _lacks = -1  # how many of the finished epochs are not in the weights; -1: not known

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
        self._restarted = given.boolean("JOB_RESTARTED")
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
        self.start_epoch_time: Optional[datetime] = None
        self.end_epoch_time: Optional[datetime] = None

        if given.job_id or given.snapshots:
            self._root_dir = folders.folder(given.snapshots or "/snapshots", self.JOBID)
        else:
            self._root_dir = folders.temporary()
        # The folder of the job's checkpoints; the search for one comes after it.
        self._fence = fence.Fence(self._root_dir, given.attempt) if given.job_id else None
        self._ckpt_path: Optional[str] = None
        self._resume: Any = None
        self._settled = not self.EPOCHS_DONE
        if self._settled:
            self._lacks = 0
        if self.EPOCHS_DONE or self._restarted or given.attempt > 1:
            from kubernetesdlprofile import resume

            if self._is_first():
                resume.note_old(self._root_dir, self._process(), self.EPOCHS_DONE, self._fence)
            self._resume = resume.Resume(self._root_dir, self.EPOCHS_DONE)
            self._ckpt_path = self._resume.path
            self.EPOCHS_DONE = self._resume.first_epoch(alone=self.NUM_NODES <= 1)
        self._epoch = self.EPOCHS_DONE

        self._metric = given.text("KUBEPROFILER_METRIC")
        self._score: Optional[float] = None
        self._epochs_begun: Dict[int, float] = {}  # when each epoch of this run began
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
        self.has_to_stop = self._in_epoch = False
        courier = self._own_courier()
        local_rank = max(0, self.LOCAL_RANK)
        self._settle()
        trained = self._trained(self.epoch) if self._is_first() else -1
        question = self._message(
            "StartEpoch", local_rank=local_rank, epoch=self.epoch, trained=trained
        )
        courier.ask(question, ANSWER_SECONDS)
        if agree is not None:
            courier.forget()  # otherwise one rank alone might obey a late answer
            self.has_to_stop = bool(agree(self.has_to_stop))
        if self.has_to_stop and self.exit_on_stop:
            self._leave()
        self._limit_memory()
        self._mark()
        self.start_epoch_time = self._begin()
        self._in_epoch = not self.has_to_stop

    def measure(self) -> None:
        """Counts a step that has ended. Takes about 0.1 microseconds: no lock, no allocation."""
        self.iterations += 1
        self._step_at = perf_counter()
        if self._alert:
            self._look_up()

    def end_epoch(self, metrics: "Optional[Mapping[str, Any]]" = None) -> None:
        """Reports an epoch that has ended, validation included. `metrics` are logged with it.

        The scheduler compares this job with others by the metric that `run-scheduler --metric`
        names, as it was logged last in this epoch."""
        if metrics:
            self.log_metrics(metrics, self._epoch + 1)
        self._settle()
        if self._speaks():
            # An epoch is the whole training set, however it is divided between the processes.
            done = self._profile(self.epoch + 1, self.TRAINING_SET_SIZE)
            self._own_courier().post_epoch(done._replace(score=self._score))
        self._score = None
        self._mean_before = self.mean_iteration_duration
        self.end_epoch_time = self._begin()
        self._epoch += 1
        self._in_epoch = False if self._in_epoch else self._in_epoch

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

        from kubernetesdlprofile import checkpoints, manifest

        place, epoch = Path(self._root_dir, path), self._epochs_in_weights()
        saved = checkpoints.save(place, writer, self._fence)
        if saved:
            numbers = [epoch, self._trained(epoch)]
            manifest.add(self._root_dir, self._process(), place, numbers, self._fence)
        return saved

    def checkpoint_path(self) -> "Optional[str]":
        """The newest complete checkpoint that is now in `root_dir`."""
        from kubernetesdlprofile import checkpoints

        self._asked |= {"_ckpt_path"}
        return checkpoints.newest(self.root_dir)

    def log_metric(self, name: str, value: "Any", step: "Optional[int]" = None) -> None:
        """Keeps a number; `step` is that of the whole job, by default the number of this epoch."""
        self.log_metrics({name: value}, step)

    def log_metrics(self, metrics: "Mapping[str, Any]", step: "Optional[int]" = None) -> None:
        if step is None:
            step = self._epoch + (self._in_epoch is not False)
        self._entries().add_metrics(metrics, step)
        if self._metric and self._metric in metrics and self._is_first():
            try:
                self._score = float(metrics[self._metric])
            except (TypeError, ValueError):
                self._score = None  # the line above has warned

    def log_params(self, params: "Any") -> None:
        """Keeps settings, by name: a dict, also with dicts within, or what argparse returns."""
        self._entries().add_params(params)

    def log_artifact(self, path: str) -> None:
        """Keeps a copy of a file, which is read in the background."""
        self._entries().add_file(path)

    @property
    def epoch(self) -> int:
        """Epochs finished, over all attempts. A script whose checkpoint knows better sets it."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch, self._told = epoch, True

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
        if given.job_id and (given.server or given.files):
            link = transport.connect(given.server, given.http_server, given.token, given.files)
        else:
            warn(f"not running under the scheduler: nothing is reported, root_dir={self._root_dir}")
        hired = courier.Courier(
            link,
            given.heartbeat_seconds,
            self._sign_of_life,
            self._stop,
            memory.Sampler(self.RESERVED_MEM),
            self._last_farewell,
            given.last_words or f"{self._root_dir}/.kubeprofiler-{given.rank}.json",
        )
        if self._speaks():
            hired.resume(given.job_id)
        return hired

    def _own_courier(self) -> "Courier":
        if self._courier.pid != os.getpid():
            self._courier = self._hire()  # a forked child does not have its parent's thread
        return self._courier

    def _entries(self) -> "EntrySender":
        """What all ranks log is kept; the first one's without a tag."""
        if self._sender is None or self._sender.pid != os.getpid():
            from kubernetesdlprofile import entries

            given = self._settings
            rank = str(given.rank) if given.text("RANK") else self._process()
            told = "" if self._is_first() else rank
            self._sender = entries.EntrySender(given.relay, given.token, given.job_id, told)
        return self._sender

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

    def _settle(self) -> None:
        """When the first epoch begins: finds out how many of the epochs before it are missing."""
        if self._settled:
            return
        self._settled, epoch = True, self._epoch
        self._lacks, why = self._resume.lacks(epoch, self._asked, self._told)
        if why and self._is_first():
            lost = f"epochs {epoch - self._lacks + 1} to {epoch} may be missing from the result"
            warn(f"{why}: {lost}. If your script has loaded them, let it set api.epoch")

    def _mark(self) -> None:
        if self._fence and self._is_first():
            from kubernetesdlprofile import beginnings

            epoch, begun = self._epoch, self._epochs_begun
            begun[epoch] = beginnings.mark(self._root_dir, epoch, self._lacks, begun, self._fence)

    def _trained(self, epoch: int) -> int:
        """How many of so many epochs are in the weights; -1: not known."""
        return epoch - self._lacks if self._lacks >= 0 <= epoch else -1

    def _epochs_in_weights(self) -> int:
        """How many epochs count as done with a checkpoint that is saved now; -1: not known."""
        if self.iterations == 0 and self._in_epoch is None:
            return -1
        stepped = self.iterations == 0 or self.iterations > self._began[1]
        return self._epoch + bool(self._in_epoch is not False and stepped)

    def _process(self) -> str:
        return f"{self._settings.rank}-{max(0, self.LOCAL_RANK)}"

    def _is_first(self) -> bool:
        return self._settings.rank == 0 and self._speaks()

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
            trained=self._trained(epoch) if self._is_first() else -1,
            iterations=self.iterations,
            local_rank=self.LOCAL_RANK,
        )
        return profile
