"""What the daemon itself knows of runs, told to the gateway as series of their jobs: the profile of
each epoch (`scheduler_profile`), and what is seen of each GPU (`scheduler_gpu`).

It is told as a relay tells what a training logs: with the job's token, by the same requests.
Nothing waits for it, and without a gateway the daemon misses nothing: what cannot be told in time
is dropped, and how much that is is told later.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from scheduler.core.model import GpuKey, Job, JobId, Profile, View
from scheduler.core.ports import Step, Store
from scheduler.gpus.usage import Usage
from scheduler.relay.delivery import Link

PROFILE, GPU = "scheduler_profile", "scheduler_gpu"
EVERY_SECONDS = 30.0  # a request for each run takes the gateway some milliseconds
PAUSE_SECONDS = 1.0  # however many jobs end
WAITING_MAX = 20_000  # points of all runs
ENTRY_POINTS = 500
DROPPED = "the daemon could not tell the gateway in time"

log = structlog.get_logger("scheduler.daemon.own_series")

RunName = tuple[JobId, int]
Entry = Mapping[str, Any]  # JSON, as in a relay's spool


@dataclass(slots=True)
class Untold:
    """What is to be told of one run. Its entries are numbered over the life of this daemon."""

    token: str
    points: deque[list[Any]] = field(default_factory=deque)
    dropped: int = 0
    sending: list[Entry] = field(default_factory=list)  # the same until it is acknowledged
    number: int = 0  # of the first entry that is not


class OwnSeries:
    def __init__(
        self,
        link: Callable[[str], Link],
        view: Callable[[], View],
        usage: Callable[[], Mapping[GpuKey, Usage]],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        """`link`: to the gateway, with this token."""
        self._link, self._view, self._usage = link, view, usage
        self._every_seconds = every_seconds
        self._spool = f"daemon-{time.time_ns():019d}"
        self._runs: dict[RunName, Untold] = {}
        self._waiting = 0
        self._seen: dict[GpuKey, float] = {}  # when each GPU was last looked at
        self._failed = False
        self._lock = threading.Lock()
        self._due, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="own_series", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tells what is known, if the gateway answers at once."""
        self._stopped.set()
        self._due.set()
        self._thread.join()

    def keep(self, profile: Profile, job: Job) -> None:
        """Returns at once. Called by the loop."""
        with self._lock:
            for point in _profile_points(profile):
                self._add((profile.job_id, profile.attempt), job.token, point)

    def tell_soon(self) -> None:
        """A job has ended: people look at it now."""
        self._due.set()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._due.wait(self._every_seconds)
            self._due.clear()
            try:
                self._look()
                self._tell_all()
            except Exception:  # a thread's entry: what waits is told the next time
                log.exception("own_series_failed")
            self._stopped.wait(min(PAUSE_SECONDS, self._every_seconds))

    def _look(self) -> None:
        """At what is seen on GPUs, if that is news."""
        jobs = self._view().jobs
        for key, usage in self._usage().items():
            if usage.at == self._seen.get(key):
                continue
            self._seen[key] = usage.at
            with self._lock:
                for run, point in _gpu_points(key, usage):
                    if (job := jobs.get(run[0])) is not None:
                        self._add(run, job.token, point)

    def _add(self, run: RunName, token: str, point: list[Any]) -> None:
        """The oldest point of the same run makes place, so that the end of each is known."""
        untold = self._runs.setdefault(run, Untold(token))
        if self._waiting >= WAITING_MAX:
            untold.dropped += 1
            if not untold.points:
                return
            untold.points.popleft()
            self._waiting -= 1
        untold.points.append(point)
        self._waiting += 1

    def _tell_all(self) -> None:
        with self._lock:
            runs = [*self._runs.items()]
        for run, untold in runs:
            if not self._tell(run, untold):
                return  # the gateway is away, or has enough to do
        alive = self._view().jobs
        with self._lock:
            for run in [run for run in self._runs if run[0] not in alive]:
                self._waiting -= len(self._runs.pop(run).points)

    def _tell(self, run: RunName, untold: Untold) -> bool:
        """False: there is no use in telling of others now."""
        if not untold.sending:
            self._take(untold)
        if not untold.sending:
            return True
        body = b"".join(json.dumps(entry).encode() + b"\n" for entry in untold.sending)
        path = f"/api/v1/tracking?attempt={run[1]}&spool={self._spool}&first={untold.number}"
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        try:
            status, _, answer = self._link(untold.token).call(
                "POST", path, zlib.compress(body, 1, wbits=31), headers
            )
        except (OSError, ValueError) as error:
            return self._away(str(error))
        if status != 200 and (status >= 500 or status in (408, 429)):
            return self._away(f"{status} {answer[:200].decode('utf-8', 'replace')}")
        # Whatever else it says, to say the same again does not help: e.g. the job is forgotten.
        self._failed = False
        untold.number += len(untold.sending)
        untold.sending = []
        return True

    def _take(self, untold: Untold) -> None:
        with self._lock:
            points, dropped = [*untold.points], untold.dropped
            untold.points.clear()
            untold.dropped = 0
            self._waiting -= len(points)
        untold.sending = [
            {"points": points[first : first + ENTRY_POINTS]}
            for first in range(0, len(points), ENTRY_POINTS)
        ]
        if dropped:
            untold.sending.append({"lost": dropped, "why": DROPPED})

    def _away(self, why: str) -> bool:
        """The same is said once."""
        if not self._failed:
            log.info("own_series_wait", error=why)
        self._failed = True
        return False


class ToldStore:
    """A store that also has the profiles told, once they are on disk."""

    def __init__(self, store: Store, own: OwnSeries) -> None:
        self._store, self._own = store, own

    def load(self) -> View:
        return self._store.load()

    def commit(self, step: Step) -> None:
        self._store.commit(step)
        for profile in step.profiles:
            job = step.after.jobs.get(profile.job_id) or step.before.jobs.get(profile.job_id)
            if job is not None:
                self._own.keep(profile, job)
        after = step.after.jobs
        if any((job := after.get(name)) is not None and job.outcome for name in step.touched):
            self._own.tell_soon()


# --- points, as in the entry of a relay: measurement, tags, field, nanoseconds, step, value ------


def _profile_points(profile: Profile) -> Iterator[list[Any]]:
    tags = {"rank": str(profile.rank)} if profile.rank else {}
    known: dict[str, Any] = {
        "epoch_seconds": profile.epoch_seconds,
        "step_seconds": profile.step_seconds,
        "samples_per_second": profile.samples_per_second,
        "memory_mib": profile.memory_mib,
        "gpu_util": profile.gpu_util,
        "placement": profile.placement,
    }
    at = int(profile.at * 1e9)
    for name, value in known.items():
        if value:  # else it is not known
            yield [PROFILE, tags, name, at, profile.epoch, value]
    yield [PROFILE, tags, "neighbours", at, profile.epoch, len(profile.beside)]


def _gpu_points(key: GpuKey, usage: Usage) -> Iterator[tuple[RunName, list[Any]]]:
    """A run may have several processes on a GPU."""
    sums: dict[RunName, tuple[int, float]] = {}
    for process, run in zip(usage.reading.processes, usage.runs, strict=True):
        if run is not None:
            memory, busy = sums.get(run, (0, 0.0))
            sums[run] = memory + process.memory_mib, busy + process.busy
    tags = {"node": key[0], "gpu": key[1]}
    for run, (memory, busy) in sums.items():
        at = int(usage.at * 1e9)
        yield run, [GPU, tags, "memory_mib", at, None, memory]
        yield run, [GPU, tags, "sm_share", at, None, min(1.0, round(busy, 4))]
