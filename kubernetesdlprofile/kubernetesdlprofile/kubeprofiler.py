"""What a training script calls. Counts steps and epochs, and stops where no work is lost.

The names, also those in capitals, are those of the library's first generation: scripts written for
it run unchanged.
"""

import os
import sys
import tempfile
import threading
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any, Dict, Optional, Tuple

from kubernetesdlprofile import checkpoints, memory, wire
from kubernetesdlprofile.courier import Courier
from kubernetesdlprofile.log import warn
from kubernetesdlprofile.settings import Settings
from kubernetesdlprofile.transport import connect

ANSWER_SECONDS = 1.0  # how long start_epoch waits to be told whether to stop
LEAVE_SECONDS = 5.0  # how long a stopped process waits for its last messages to be acknowledged


class KubeProfiler:
    """One per process: making a second one, or a copy, gives the first.

    CPython finds attributes faster on an object that has fewer than 30: `measure` lives on that.
    """

    _instance: Optional["KubeProfiler"] = None

    def __new__(cls, *_args: str, **_names: str) -> "KubeProfiler":
        # Two would count every epoch twice.
        if KubeProfiler._instance is None:
            KubeProfiler._instance = super().__new__(cls)
        return KubeProfiler._instance

    def __init__(self, job_manager_hostname: str = "", db_hostname: str = "") -> None:
        """Either argument, host[:port], is used instead of KUBEPROFILER_SERVER."""
        if hasattr(self, "iterations"):
            return
        self.iterations = 0  # measured by this process
        self._step_at = 0.0  # when the newest of them ended
        self.has_to_stop = False
        self.exit_on_stop = True

        settings = Settings(os.environ, job_manager_hostname or db_hostname)
        for problem in settings.problems:
            warn(problem)
        self._settings = settings
        self.jmHostname = job_manager_hostname or settings.server
        self.dbHostname = db_hostname or settings.server
        self.JOBID = settings.job_id or "standalone"
        self.PROFILE_EACH = settings.heartbeat_freq
        self.RANK = settings.node_rank
        self.LOCAL_RANK = settings.local_rank
        self.NODE_LIST = settings.node_list
        self.NUM_GPUS = settings.num_gpus
        self.NUM_NODES = settings.num_nodes
        self.RESTARTED = settings.restarted
        self.BATCH_SIZE = settings.batch_size
        self.EPOCHS = settings.epochs
        self.EPOCHS_DONE = settings.epochs_done
        self.TRAINING_SET_SIZE = settings.training_set_size
        self.RESERVED_MEM = settings.reserved_mib
        self.epoch = self.EPOCHS_DONE  # epochs finished, over all attempts
        self.start_epoch_time: Optional[datetime] = None
        self.end_epoch_time: Optional[datetime] = None

        self.root_dir = self._make_root_dir()
        self.ckpt_path = checkpoints.newest(self.root_dir) if self.RESTARTED else None

        # When this epoch began, and how many of `iterations` were made before. Replaced as one,
        # because the courier's thread looks at it too.
        self._epoch_began = (perf_counter(), 0)
        self._clocks = (_local_time(), perf_counter())  # one moment on both of them
        self._mean_before = 0.0
        self._steps_reported = 0
        self._courier = self._hire()

    # --- the four calls -------------------------------------------------------------------------

    def start_epoch(self) -> None:
        """Ask whether to go on. If not: report what is done, and exit (see `exit_on_stop`)."""
        self.has_to_stop = False
        courier = self._own_courier()
        if courier is not None:
            settings = self._settings
            request = wire.start_epoch(
                settings.job_id,
                settings.attempt,
                settings.rank,
                max(0, settings.local_rank),
                self.epoch,
            )
            courier.ask(self.epoch, request, ANSWER_SECONDS)
            if self.has_to_stop and self.exit_on_stop:
                self._leave()
        self.start_epoch_time = _local_time()
        self._epoch_began = (perf_counter(), self.iterations)
        self._clocks = (self.start_epoch_time, self._epoch_began[0])

    def measure(self) -> None:
        """A step has ended. Takes about 0.1 microseconds: no lock, no allocation that stays."""
        self.iterations += 1
        self._step_at = perf_counter()
        if self.has_to_stop:
            self._leave()

    def end_epoch(self) -> None:
        """An epoch has ended, validation included."""
        ended_at = perf_counter()
        self.end_epoch_time = _local_time()
        self.epoch += 1
        # A whole epoch is the whole training set, however it is shared out to the processes.
        profile = self._profile(ended_at, samples=self.TRAINING_SET_SIZE)
        self._mean_before = self.mean_iteration_duration
        self._epoch_began = (ended_at, self.iterations)
        courier = self._own_courier()
        if courier is not None and self._reports():
            courier.post_epoch(profile)

    def end(self) -> None:
        """The training is complete, also if it took fewer epochs than were planned."""
        self._say_farewell(preempted=self.has_to_stop and self.epoch < self.EPOCHS)

    # --- beside them ----------------------------------------------------------------------------

    def send_profiling(self) -> None:
        """A sign of life now. Not needed: the background thread sends one at each interval."""
        courier = self._own_courier()
        if courier is not None and self._reports():
            courier.post_report()

    @property
    def should_stop(self) -> bool:
        """Whether the scheduler wants this process to leave before it begins another epoch."""
        return self.has_to_stop

    @property
    def mean_iteration_duration(self) -> float:
        """Seconds per step of this epoch; before its first step, of the one before."""
        began_at, steps_before = self._epoch_began
        if self.iterations == steps_before:
            return self._mean_before
        return (self._step_at - began_at) / (self.iterations - steps_before)

    @property
    def last_time(self) -> Optional[datetime]:
        """When the newest step ended."""
        if self.iterations == 0:
            return None
        then, counted = self._clocks
        return then + timedelta(seconds=self._step_at - counted)

    @property
    def iterationPerEpoch(self) -> int:
        """What the submission promised; the scheduler uses the steps that were measured."""
        processes = max(1, self.NUM_GPUS) * self.NUM_NODES
        return int(self.TRAINING_SET_SIZE / (self.BATCH_SIZE * processes))

    @property
    def maxIterations(self) -> int:
        return self.iterationPerEpoch * self.EPOCHS

    def __deepcopy__(self, _memo: Dict[int, Any]) -> "KubeProfiler":
        return self

    def __copy__(self) -> "KubeProfiler":
        return self

    def __reduce__(self) -> Tuple[Any, ...]:
        # Models keep the profiler as an attribute and are pickled with it. Where one is unpickled
        # it is that process's own, which a later attempt may have told of another server.
        return KubeProfiler, (self._settings.argument,)

    # --- within ---------------------------------------------------------------------------------

    def _make_root_dir(self) -> str:
        settings = self._settings
        if settings.job_id or settings.snapshots:
            return checkpoints.folder(settings.snapshots or "/snapshots", self.JOBID)
        return tempfile.mkdtemp(prefix="kubeprofiler-")

    def _hire(self) -> Optional[Courier]:
        settings = self._settings
        if not settings.job_id or not settings.server:
            warn(f"not running under the scheduler: nothing is reported, root_dir={self.root_dir}")
            return None
        transport = connect(settings.server, settings.token)
        if transport is None:
            warn("grpcio is not installed, so nothing is reported (pip install grpcio)")
            return None
        return Courier(
            transport,
            settings.heartbeat_seconds,
            self._sign_of_life,
            self._stop,
            settings.last_words,
        )

    def _own_courier(self) -> Optional[Courier]:
        if self._courier is not None and self._courier.pid != os.getpid():
            self._courier = self._hire()  # a forked child: the parent's thread is not in it
        return self._courier

    def _reports(self) -> bool:
        """All ranks ask, but one process of a node speaks for it."""
        return self.LOCAL_RANK <= 0

    def _sign_of_life(self) -> Optional[wire.Profile]:
        """For the courier's thread: what to report, unless no step was made since the last one."""
        if not self._reports() or self.iterations == self._steps_reported:
            return None
        self._steps_reported = self.iterations
        return self._profile(perf_counter(), samples=0)

    def _profile(self, now: float, samples: int) -> wire.Profile:
        settings = self._settings
        # The courier's thread may see an epoch that has just begun beside its predecessor's last
        # step: never below zero.
        began_at, steps_before = self._epoch_began
        steps = max(0, self.iterations - steps_before)
        steps_seconds = max(0.0, self._step_at - began_at) if steps else 0.0
        return wire.Profile(
            job_id=settings.job_id,
            attempt=settings.attempt,
            rank=settings.rank,
            epoch=self.epoch,
            step_seconds=steps_seconds / steps if steps else 0.0,
            epoch_seconds=max(0.0, now - began_at),
            samples_per_second=samples / steps_seconds if steps_seconds > 0 else 0.0,
            memory_mib=memory.probe(),
            gpu_util=0.0,
            steps=steps,
        )

    def _stop(self, epoch: int, reason: str) -> None:
        """For the courier's thread. An answer for an epoch that is over is void."""
        if epoch == self.epoch and epoch < self.EPOCHS - 1:  # the last one is never interrupted
            warn(f"the scheduler stops this run after epoch {epoch} of {self.EPOCHS}: {reason}")
            self.has_to_stop = True

    def _leave(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # SystemExit would end this thread and leave the process as it is
        self._say_farewell(preempted=True)
        if self._courier is not None and not self._courier.flush(LEAVE_SECONDS):
            warn("the scheduler has not acknowledged all reports: an epoch may be repeated")
        sys.exit(self._settings.stop_exit_code)

    def _say_farewell(self, preempted: bool) -> None:
        courier = self._own_courier()
        if courier is not None and self._reports():
            settings = self._settings
            courier.post_farewell(
                wire.finish(settings.job_id, settings.attempt, settings.rank, preempted)
            )


def _local_time() -> datetime:
    return datetime.now()  # noqa: DTZ005  # naive, as these attributes have always been
