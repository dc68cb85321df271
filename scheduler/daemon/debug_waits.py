"""Jobs that wait for a debugger (`--debug_wait`): they end if none comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from scheduler.core.model import Cancelled, Fact, Job, JobId, RunKey, Time, View, Visited
from scheduler.core.ports import Put
from scheduler.core.time_limit import text

EVERY_SECONDS = 2.0
DEBUGGER = "a debugger"
TIMEOUT = "debug_timeout"


@dataclass(slots=True)
class DebugWaits:
    """That a debugger came is in the story of the job, for the next daemon. For any thread."""

    view: Callable[[], View]
    now: Callable[[], Time]
    put: Put
    story: Callable[[JobId], Iterable[Fact]]
    is_connected: Callable[[RunKey, int], bool]  # whether a connection to the port was seen
    seconds: float
    _lock: Lock = field(default_factory=Lock)
    _came: set[RunKey] = field(default_factory=set)

    def came(self, key: RunKey, port: int) -> None:
        """Someone has connected to this port of the run, by scheduler-connect or otherwise."""
        job = self.view().jobs.get(key[0])
        with self._lock:
            if job is None or job.spec.debug_wait != port or key in self._came:
                return
            self._came.add(key)
        self.put(Visited(*key, DEBUGGER, f"port {port}"))

    def look(self) -> None:
        waiting = {
            (job.id, job.run.attempt): job
            for job in self.view().jobs.values()
            if job.spec.debug_wait and job.run and not job.cancelled
        }
        with self._lock:
            self._came &= waiting.keys()
        for key, job in waiting.items():
            if key not in self._came:
                self._judge(key, job)

    def _judge(self, key: RunKey, job: Job) -> None:
        assert job.run is not None
        port = job.spec.debug_wait
        if self.is_connected(key, port):
            self.came(key, port)
        elif self.now() - job.run.started_at >= self.seconds:
            if job.run.epoch_started >= 0 or self._has_come(key):
                with self._lock:
                    self._came.add(key)
                return
            why = f"no debugger connected to port {port} in {text(self.seconds)}"
            self.put(Cancelled(job.id, f"{TIMEOUT}: {why}"))

    def _has_come(self, key: RunKey) -> bool:
        return any(
            (fact.kind, fact.attempt, fact.data.get("by")) == ("run_visited", key[1], DEBUGGER)
            for fact in self.story(key[0])
        )
