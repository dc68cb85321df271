"""Answers those who read metrics over HTTP.

A scrape reads the view that the loop has published and a few rows, so it never waits for the loop.
Its answer serves for a second: however often it is asked for, it costs no more.
"""

from __future__ import annotations

import gzip
import hmac
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from scheduler.core.counts import Count
from scheduler.core.model import GpuKey, Time, View
from scheduler.gpus.usage import Usage
from scheduler.http.http11 import Reply, Request, is_loopback
from scheduler.http.http_server import Caller
from scheduler.metrics.gauges import Gauge, gauges

PATH = "/metrics"
FRESH_SECONDS = 1.0
_FAST = 1  # level of gzip

log = structlog.get_logger("scheduler.metrics.service")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers come from. Each may be asked by any thread at any time."""

    about: Mapping[str, str]
    started_at: Time
    leads: Callable[[], bool]  # whether it may change the cluster now
    view: Callable[[], View]
    due_at: Callable[[], Time]  # a run that was not heard since then is unresponsive
    usage: Callable[[], Mapping[GpuKey, Usage]]
    heard_at: Callable[[View], Mapping[str, Time]]  # when the agent of each node has last reported
    stored: Callable[[], Mapping[Count, float]]  # what was counted, over all starts
    counted: Callable[[], Mapping[Count, float]]  # since the start
    left_out_bytes: Callable[[], float | None]  # of logs; None: not looked yet
    disk: Path
    reserve_mib: int  # of that disk


class MetricsService:
    """For any thread."""

    def __init__(
        self,
        sources: Sources,
        jobs_max: int,
        token_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources, self._jobs_max, self._token_file = sources, jobs_max, token_file
        self._clock = clock
        self._lock = threading.Lock()
        self._made_at = clock() - FRESH_SECONDS
        self._made: dict[tuple[bool, bool], bytes] = {}  # by format, and whether it is compressed

    def answer(self, request: Request, caller: Caller) -> Reply:
        if not self._may_read(request, caller):
            told = (("WWW-Authenticate", "Bearer"),)
            return Reply(401, "this needs the token in metrics.token_file of the daemon\n", told)
        if request.path != PATH:
            return Reply(404, f"there is only {PATH}\n")
        if request.method not in ("GET", "HEAD"):
            return Reply(405, f"{PATH} can only be read\n", (("Allow", "GET, HEAD"),))
        from scheduler.metrics import exposition

        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        is_packed = "gzip" in request.headers.get("accept-encoding", "")
        body = self._body(is_open, is_packed)
        headers = (("Content-Encoding", "gzip"),) if is_packed else ()
        kind = exposition.OPEN_METRICS if is_open else exposition.PLAIN
        return Reply(200, "", headers, type=kind, body=body)

    def _may_read(self, request: Request, caller: Caller) -> bool:
        """Everyone on this machine may, as they may read scheduler-state; but not a page in a
        browser here that calls us by a name of its own (DNS rebinding)."""
        host = request.headers.get("host", "").rpartition(":")[0].strip("[]")
        if is_loopback(caller.address) and is_loopback(host):
            return True
        if self._token_file is None:
            return False
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            wanted = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            log.error("metrics_token_unreadable", error=str(error))
            return False
        is_same = hmac.compare_digest(given.strip().encode(), wanted.encode())
        return bool(wanted) and kind.lower() == "bearer" and is_same

    def _body(self, is_open: bool, is_packed: bool) -> bytes:
        with self._lock:
            now = self._clock()
            if now - self._made_at >= FRESH_SECONDS:
                self._made.clear()
                self._made_at = now
            if (is_open, False) not in self._made:
                self._made[is_open, False] = self._text(is_open)
            if is_packed and (is_open, True) not in self._made:
                self._made[is_open, True] = gzip.compress(self._made[is_open, False], _FAST)
            return self._made[is_open, is_packed]

    def _text(self, is_open: bool) -> bytes:
        from scheduler.metrics import exposition

        of = self._sources
        view = of.view()
        found = [*gauges(view, of.usage(), of.due_at(), self._jobs_max), *self._others(view)]
        counted = {**of.stored(), **of.counted()}
        return exposition.text(of.about, found, counted, is_open=is_open)

    def _others(self, view: View) -> Iterator[Gauge]:
        of = self._sources
        # Until the first step, since the start: a daemon that has just begun is not late.
        decided, at = "When the loop has last made a step.", max(view.at, of.started_at)
        yield Gauge("scheduler_decided_timestamp_seconds", decided, (), [((), at)])
        leads = "1: no other daemon can work on the cluster, and this one may."
        yield Gauge("scheduler_leader", leads, (), [((), float(of.leads()))])
        heard = "When the agent of a node has last reported."
        ats = [((node,), at) for node, at in sorted(of.heard_at(view).items())]
        yield Gauge("scheduler_agent_heard_timestamp_seconds", heard, ("node",), ats)
        if (left_out := of.left_out_bytes()) is not None:
            help = "Output of jobs that is not in their logs, because these were too long."
            yield Gauge("scheduler_log_left_out_bytes", help, (), [((), left_out)])
        free, reserve = "Free on the disk of the state folder.", "Below this, no job is accepted."
        left = shutil.disk_usage(of.disk).free
        yield Gauge("scheduler_disk_free_bytes", free, (), [((), left)])
        yield Gauge("scheduler_disk_reserve_bytes", reserve, (), [((), of.reserve_mib * 2**20)])
