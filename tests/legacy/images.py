"""The old library in each of its generations, as what is known of its wire describes it.

Written from that description alone. Threads, order, counters, exits and defects are those that
each generation has; nothing here is better than it was.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlencode

PREFIX = "[KUBE_API_LIBRARY]"


class Library:
    """What all have in common. `host`: of the job manager and of the database."""

    exits_in_end_epoch = False
    counts_from_done = True  # the private counter of epochs begins at EPOCHS_DONE

    def __init__(self, host: str) -> None:
        self.host = host
        self.JOBID = os.environ["JOB_UUID"]
        self.PROFILE_EACH = int(os.environ["HEARTBEAT_FREQ"])
        self.RANK = int(os.environ["NODE_RANK"])
        self.NODE_LIST = os.environ.get("NODELIST")
        self.NUM_GPUS = int(os.environ["NUM_GPUS"])
        self.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
        self.EPOCHS_DONE = int(os.environ["EPOCHS_DONE"])
        self.epoch = self.EPOCHS_DONE if self.counts_from_done else 0
        self.iterations = 0
        self.mean = 0.0
        self.last_time: float | None = None
        self.start_epoch_time = time.time()
        self.has_to_stop = False

    # --- the wire -----------------------------------------------------------------------------

    def ask(self) -> bool:
        """W1."""
        request = urllib.request.Request(f"http://{self.host}/has_to_stop/{self.JOBID}")
        return self.sent(request) == "1"

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
            "gpumem": 0,  # the driver reports other pids than ours
            **more,
        }
        self.post(f"profiling/{self.JOBID}", body)

    def send_done(self) -> None:
        """W4."""
        self.post(f"end_epoch/{self.JOBID}", {"done": self.epoch})

    def signal_end(self) -> None:
        """W5."""
        url = f"http://{self.host}/signal_end/{self.JOBID}"
        self.sent(urllib.request.Request(url, data=b"", method="POST"))

    def post(self, path: str, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Connection": "keep-alive"}
        url = f"http://{self.host}/{path}"
        self.sent(urllib.request.Request(url, data, headers, method="POST"))

    def sent(self, request: urllib.request.Request) -> str:
        """No time-out; what the answer says is of no interest, not even that it is an error."""
        try:
            with urllib.request.urlopen(request) as reply:
                text: str = reply.read().decode()
                return text
        except urllib.error.HTTPError as error:
            print(PREFIX, error.code, error.read().decode(), flush=True)
            return ""
        except OSError as error:
            print(PREFIX, error, flush=True)
            return ""

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
        if self.last_time is None:
            self.last_time = now
            return
        took, self.last_time = now - self.last_time, now
        self.iterations += 1
        self.mean += (took - self.mean) / self.iterations
        if self.iterations % self.PROFILE_EACH == 0:
            self.send_profiling()

    def in_thread(self, work: Callable[[], None]) -> None:
        """Not a daemon's: the process waits for it."""
        threading.Thread(target=work).start()


class G0(Library):
    """The wheels: measures so many steps, says what came of it, and knows no epochs. Nothing asks,
    so nothing stops it."""

    steps_to_measure = 3

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.config_id = os.environ["JOB_CONFIGID"]

    def measure(self) -> None:
        now = time.time()
        if self.last_time is not None:
            self.iterations += 1
        self.last_time = now
        if self.iterations == self.steps_to_measure:
            self.signal_end_profiling()

    def signal_end_profiling(self) -> None:
        """W6."""
        measured = {
            "meanIterDuration": 0,
            "endTime": time.time(),
            "gpuUsage": 3000,  # these two have each other's value
            "gpuMemUsage": 45,
        }
        url = f"http://{self.host}/signal_end_profiling/{self.JOBID}/{self.config_id}"
        self.sent(urllib.request.Request(url, urlencode(measured).encode(), method="POST"))

    def end_epoch(self) -> None:
        pass

    def end(self) -> None:
        self.signal_end()


class G1(Library):
    """Asks at the end of each epoch, and exits there."""

    exits_in_end_epoch = True
    counts_from_done = False
    stops_in_last_epoch = True

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.JOBID = self.JOBID[:36]

    def measure(self) -> None:
        self.count_step()

    def end_epoch(self) -> None:
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        self.epoch += 1
        if (self.stops_in_last_epoch or self.epoch < self.EPOCHS) and self.ask():
            sys.exit()

    def end(self) -> None:
        self.signal_end()


class G2(G1):
    """The same, but not in the last epoch."""

    stops_in_last_epoch = False


class G3(Library):
    """All in threads: an exit in one of them stops nothing. Here, no image reports its end."""

    counts_from_done = False

    def __init__(self, host: str) -> None:
        super().__init__(host)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as some frameworks do

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
    """The same; errors are printed."""


class G5(G3):
    """Asks at the start of an epoch, and exits in a step. After a restart it counts from 0."""

    def __init__(self, host: str) -> None:
        Library.__init__(self, host)

    def measure(self) -> None:
        if self.has_to_stop:
            sys.exit()
        self.in_thread(self.count_step)

    def _start_epoch(self) -> None:
        self.start_epoch_time = time.time()
        if self.ask() and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def _end_epoch(self) -> None:
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        self.epoch += 1


class G6(G5):
    """Says how many epochs it has done, and counts from those of before."""

    counts_from_done = True

    def _end_epoch(self) -> None:
        super()._end_epoch()
        self.send_done()


class G7(G6):
    """For three hours: no step is counted, and so none stops."""

    def measure(self) -> None:
        def broken() -> None:
            with suppress(TypeError):  # it is printed, and nothing else comes of it
                self.count_step(time.time())  # type: ignore[call-arg]  # that is the defect

        self.in_thread(broken)


class G7b(G7):
    """For five minutes of these: no epoch is told either."""

    def _end_epoch(self) -> None:
        with suppress(TypeError):
            self.send_profiling(epochDur="2023-04-11T10:00:00" - time.time())  # type: ignore[operator]


class G8(Library):
    """HEAD. Asks at the start of an epoch, and exits in the first step of it."""

    def start_epoch(self) -> None:
        self.start_epoch_time = time.time()
        if self.ask() and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def measure(self) -> None:
        if self.has_to_stop:
            sys.exit()
        self.in_thread(self.count_step)

    def end_epoch(self) -> None:
        self.send_profiling(epochDur=time.time() - self.start_epoch_time)
        self.epoch += 1
        self.send_done()


GENERATIONS: dict[str, type[Library]] = {
    kind.__name__: kind for kind in (G0, G1, G2, G3, G4, G5, G6, G7, G7b, G8)
}
