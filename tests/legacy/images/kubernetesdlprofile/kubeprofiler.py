"""Imitations of the old library in each of its generations: `GENERATION` names the one to be.

With `OLD_LIBRARIES` the tests run the real ones instead (conftest.py): those of which the code
could be read (G0b, G1, G2, G8) pass the same tests. The others are written from what is known of
their wire. Threads, order, counters, exits and defects are those that each generation has; nothing
here is better than it was.
"""

# ruff: noqa: PTH102, PTH112, PTH118 - as they do

from __future__ import annotations

import datetime
import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode
from xml.etree import ElementTree

PREFIX = "[KUBE_API_LIBRARY]"
SNAPSHOTS = "/snapshots"  # it is written into the code of each


class ConnectionError(OSError):
    """As the library `requests` has it, which all generations use."""


ConnectionError.__module__ = "requests.exceptions"


def call(host: str, path: str, data: bytes | None = None, kind: str = "") -> str:
    """No time-out; what the answer says is of no interest, not even that it is an error."""
    headers = {"Connection": "keep-alive", **({"Content-Type": kind} if kind else {})}
    connection = http.client.HTTPConnection(host)
    try:
        connection.request("GET" if data is None else "POST", f"/{path}", data, headers)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        name, _, port = host.partition(":")
        said = f"HTTPConnectionPool(host='{name}', port={port or 80}): Max retries exceeded with "
        raise ConnectionError(f"{said}url: /{path} (Caused by {error!r})") from error
    finally:
        connection.close()


class Library:
    """What those have in common that know epochs."""

    exits_in_end_epoch = False
    counts_from_done = True  # the private counter of epochs begins at EPOCHS_DONE
    raises = False  # what the network does to it
    needs_own_pid = False  # nvidia-smi must show it

    def __init__(
        self, job_manager_hostname: str = "10.106.102.22", db_hostname: str = "10.106.72.44"
    ) -> None:
        self.jmHostname, self.dbHostname = job_manager_hostname, db_hostname
        self.JOBID = os.environ["JOB_UUID"]
        self.PROFILE_EACH = int(os.environ["HEARTBEAT_FREQ"])
        self.RANK = int(os.environ["NODE_RANK"])
        self.NODE_LIST = os.environ.get("NODELIST")
        self.NUM_GPUS = int(os.environ["NUM_GPUS"])
        self.RESTARTED = os.environ.get("JOB_RESTARTED") != "FALSE"
        self.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
        self.EPOCHS_DONE = int(os.environ["EPOCHS_DONE"])
        self.epoch = self.EPOCHS_DONE if self.counts_from_done else 0
        self.iterations = 0
        self.mean = 0.0
        self.last_time: float | None = None
        self.start_epoch_time = time.time()
        self.has_to_stop = False
        self.root_dir = os.path.join(SNAPSHOTS, self.JOBID)
        if not self.RESTARTED and not os.path.isdir(self.root_dir):
            os.mkdir(self.root_dir)

    # --- the wire -----------------------------------------------------------------------------

    def ask(self) -> bool:
        """W1."""
        return self.sent(self.jmHostname, f"has_to_stop/{self.JOBID}") == "1"

    def send_profiling(self, **more: float) -> None:
        """W2; with `epochDur` W3."""
        body = {
            "jobid": self.JOBID,
            "timestamp": datetime.datetime.now().isoformat(),  # noqa: DTZ005 - as they do
            "iternum": self.iterations,
            "nodelist": self.NODE_LIST,
            "numgpu": self.NUM_GPUS,
            "rank": self.RANK,
            "meandur": self.mean,
            "gpumem": self.measure_memory(),
            **more,
        }
        self.post(self.dbHostname, f"profiling/{self.JOBID}", body)

    def send_done(self) -> None:
        """W4."""
        self.post(self.jmHostname, f"end_epoch/{self.JOBID}", {"done": self.epoch})

    def signal_end(self) -> None:
        """W5."""
        self.sent(self.jmHostname, f"signal_end/{self.JOBID}", b"")

    def post(self, host: str, path: str, body: Mapping[str, object]) -> None:
        self.sent(host, path, json.dumps(body).encode(), "application/json")

    def sent(self, host: str, path: str, data: bytes | None = None, kind: str = "") -> str:
        try:
            return call(host, path, data, kind)
        except ConnectionError as error:
            if self.raises:
                raise
            print("Can't reach scheduler", error, flush=True)
            return ""

    def measure_memory(self) -> int:
        """Without nvidia-smi there is nothing to parse: ParseError."""
        shown = ElementTree.fromstring(os.popen("nvidia-smi -q -x").read())
        own = [
            int(process.findtext("used_memory", "").rstrip(" MiB"))
            for process in shown.findall("gpu/processes/process_info")
            if process.findtext("pid") == str(os.getpid())
        ]
        if self.needs_own_pid and not own:
            raise UnboundLocalError("memOcc")
        return own[-1] if own else 0

    # --- what the script calls ----------------------------------------------------------------

    def measure(self) -> None:
        raise NotImplementedError

    def start_epoch(self) -> None:
        self.start_epoch_time = time.time()

    def end_epoch(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        pass

    def count_step(self) -> None:
        """Any thread, without a lock: the first sets the clock."""
        now = time.time()
        if self.last_time is not None:
            took = now - self.last_time
            self.iterations += 1
            self.mean += (took - self.mean) / self.iterations
        self.last_time = now
        if self.iterations % self.PROFILE_EACH == 0 and self.iterations > 0:
            self.send_profiling()

    def in_thread(self, work: Callable[[], None]) -> None:
        """Not a daemon's: the process waits for it."""
        threading.Thread(target=work).start()


class G0b:
    """The wheels: measures some steps, and can tell what came of it. It knows no epochs, no folder
    and no stop; the end is told to an address in the code."""

    def __init__(self, iterationsToMeasure: int, ipAddress: str = "10.106.102.22") -> None:
        self.jobID, self.configID = os.environ["JOB_UUID"], os.environ["JOB_CONFIGID"]
        self.ip, self.iterationsToMeasure = ipAddress, iterationsToMeasure
        self.iterations = 0
        self.mean = 0.0
        self.last_time: float | None = None

    def measure(self) -> None:
        if self.iterations > self.iterationsToMeasure:
            return
        now = time.time()
        if self.last_time is None:
            self.last_time = now
            return
        self.take(now - self.last_time)
        print(os.popen("nvidia-smi -x").read())
        self.last_time = now

    def take(self, seconds: float) -> None:
        self.iterations += 1

    def end_profiling(self) -> None:
        """W6."""
        measured = {
            "meanIterDuration": self.mean,
            "endTime": str(datetime.datetime.now()),  # noqa: DTZ005 - as they do
            "gpuUsage": 0,  # these two have each other's value, and both are 0
            "gpuMemUsage": 0,
        }
        path = f"signal_end_profiling/{self.jobID}/{self.configID}"
        call(self.ip, path, urlencode(measured).encode(), "application/x-www-form-urlencoded")

    def end(self) -> None:
        call("10.106.102.22", f"signal_end/{self.jobID}", b"")


class G0a(G0b):
    """The first of them computes the mean."""

    def take(self, seconds: float) -> None:
        super().take(seconds)
        self.mean += (seconds - self.mean) / self.iterations


class G1(Library):
    """Asks at the end of each epoch, and exits there: before the guide's script saves. Whatever
    the network or nvidia-smi does to it ends the script."""

    counts_from_done = False
    raises = True
    needs_own_pid = True
    stops_in_last_epoch = True

    def measure(self) -> None:
        self.count_step()

    def end_epoch(self) -> None:
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        if self.ask() and (self.stops_in_last_epoch or self.epoch < self.EPOCHS - 1):
            sys.exit()
        self.epoch += 1

    def end(self) -> None:
        self.signal_end()


class G2(G1):
    """The same, but not in the last epoch."""

    stops_in_last_epoch = False


class G3(Library):
    """All in threads: an exit or an error in one of them stops nothing. From here on, no image
    reports its end."""

    counts_from_done = False
    raises = True

    def measure(self) -> None:
        self.in_thread(self.count_step)

    def start_epoch(self) -> None:
        self.in_thread(self._start_epoch)

    def end_epoch(self) -> None:
        self.in_thread(self._end_epoch)

    def _start_epoch(self) -> None:
        self.start_epoch_time = time.time()

    def _end_epoch(self) -> None:
        # The next epoch may have begun already: then this is less than nothing.
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        self.epoch += 1
        if self.ask() and self.epoch < self.EPOCHS:
            sys.exit()


class G4(G3):
    """The same; errors of the network are printed."""

    raises = False


class G5(G4):
    """Asks at the start of an epoch, and exits in a step. After a restart it counts from 0."""

    def measure(self) -> None:
        self.in_thread(self.count_step)
        if self.has_to_stop:
            sys.exit()

    def _start_epoch(self) -> None:
        self.start_epoch_time = time.time()
        if self.ask() and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def _end_epoch(self) -> None:
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        self.epoch += 1


class G6(G5):
    """Says how many epochs it has done, and counts from those of before. An error while it reports
    leaves the semaphore taken: the threads of later epochs wait for ever, and with them the end of
    the process."""

    counts_from_done = True

    def __init__(self, *hosts: str) -> None:
        super().__init__(*hosts)
        self.block_send_sem = threading.Semaphore()

    def _start_epoch(self) -> None:
        self.block_send_sem.acquire()
        super()._start_epoch()
        self.block_send_sem.release()

    def _end_epoch(self) -> None:
        self.block_send_sem.acquire()
        super()._end_epoch()
        self.send_done()
        self.block_send_sem.release()


class G7b(G6):
    """For three hours: no step is counted, and so none stops. Epochs begin and end in the script's
    own thread."""

    def measure(self) -> None:
        def broken() -> None:
            self.count_step(time.time())  # type: ignore[call-arg]  # that is the defect

        self.in_thread(broken)

    def start_epoch(self) -> None:
        self._start_epoch()

    def end_epoch(self) -> None:
        self._end_epoch()


class G7a(G7b):
    """For five minutes of these: the first end of an epoch ends the script."""

    def _end_epoch(self) -> None:
        self.block_send_sem.acquire()
        self.send_profiling(epochDur="2023-04-11T10:00:00" - time.time())  # type: ignore[operator]


class G8(G6):
    """HEAD. Asks at the start of an epoch, and exits in the first step of it. Only steps have
    threads."""

    def start_epoch(self) -> None:
        self._start_epoch()

    def end_epoch(self) -> None:
        self._end_epoch()


GENERATIONS: dict[str, type[Library] | type[G0b]] = {
    kind.__name__: kind for kind in (G0a, G0b, G1, G2, G3, G4, G5, G6, G7a, G7b, G8)
}
KubeProfiler = GENERATIONS[os.environ["GENERATION"]]
