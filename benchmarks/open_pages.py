"""What open pages cost, and if trainings notice: `python -m benchmarks.open_pages --json`.

A real daemon has 10,000 live jobs. 100 of them run, and each of these reports an epoch per second;
a gateway serves 50 pages that follow the events, in 5 processes. The cost is what the CPU time of
the daemon and of the gateway differs by from that without pages. Rounds with and without pages take
turns, and medians count, because both get slower and faster with the machine.

Then 8 trainings report as fast as they can, which keeps all cores busy, in rounds of four:

- *calm*: without a gateway;
- *busy*: beside a gateway with 20 pages, each of which follows the events and lists jobs again and
  again;
- *burdened*: without a gateway, beside a process that computes as much as the gateway did. So what
  the busy gateway takes of the cores can be told from what it asks of the daemon;
- *killed*: beside a gateway with the same pages that is killed (`kill -9`) a second after it
  answers, again and again. To start a gateway takes most of a core for a second.

What a page itself loads is measured by benchmarks/page.py.

    cpu_share        of a core, for 50 pages: gateway and daemon together
    gateway_share    the gateway's part of it
    delay_p99_ms     from the moment when a report is sent until a page has the job with it
    busy_ratio       reports per second with a busy gateway, of those without
    burdened_ratio   the same beside the process that computes
    busy_cpu_ratio   the daemon's CPU time per report with a busy gateway, of that without
    killed_ratio     the same as busy_ratio while the gateway is killed
    kills            how often it was
    calm_p99_ms, busy_p99_ms, burdened_p99_ms, killed_p99_ms  how late reports are acknowledged
    busy_share       of a core, for the busy gateway
    lists_per_second  lists of 100 jobs that it answered meanwhile
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path

import httpx
import psutil

from benchmarks.events import JOBS, Answers, Seen, report
from benchmarks.figures import answered, options, show
from benchmarks.reports import CLIENTS, Job, drive, milliseconds, start_jobs, training
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon

PAGES, PROCESSES = 50, 5
LIVE = 10_000
BUSY_PAGES, LIST_EVERY_SECONDS = 20, 1.0  # as the pages do while events come
ROUNDS = 3  # each needs 32 of the jobs
_LIST = {"all_users": True}


def main() -> None:
    given = options(__doc__, seconds=20.0, live=LIVE, rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0")
        daemon.environment = {"SCHEDULER_RULES__PLAN_EVERY_SECONDS": "1.0"}  # the default
        daemon.start()
        try:
            jobs = start_jobs(daemon, JOBS)
            _hold_jobs(daemon, given.live - JOBS)
            with gateway(daemon.address) as served:
                costs = _cost(daemon, served, jobs, given.seconds, given.rounds)
            show(
                live=given.live,
                **costs,
                **_compare(daemon, jobs, given.seconds, given.rounds),
            )
        finally:
            daemon.end()


def _hold_jobs(daemon: Daemon, count: int) -> None:
    """More live jobs, directly in the database: to submit each would take minutes. The running
    ones do not notice that their daemon starts again."""
    sample = daemon.submit("--image", "none", "--num_gpus", "0", "--hold", "waits", "--", "true")
    daemon.stop()
    with sqlite3.connect(daemon.state / "scheduler.db") as db:
        db.row_factory = sqlite3.Row
        row = dict(db.execute("select * from jobs where id = ?", (sample,)).fetchone())
        del row["seq"]
        for number in range(1, count):
            job_id = str(uuid.uuid4())
            row |= {"id": job_id, "id_reversed": job_id[::-1], "token": uuid.uuid4().hex}
            row["name"] = f"waits-{number}"
            row["spec"] = json.dumps({**json.loads(row["spec"]), "name": row["name"]})
            places = ", ".join(f":{name}" for name in row)
            db.execute(f"insert into jobs ({', '.join(row)}) values ({places})", row)
    daemon.start()


def _cpu(daemon: Daemon, served: Gateway) -> tuple[float, float]:
    return _cpu_of(daemon.pid), _cpu_of(served.process.pid)


def _cost(
    daemon: Daemon, served: Gateway, jobs: list[Job], seconds: float, rounds: int
) -> dict[str, float]:
    of_both: list[float] = []
    of_gateway: list[float] = []
    delays: list[float] = []
    _measure(daemon, served, jobs, seconds / 4, PROCESSES)  # what comes first is slower
    for _ in range(rounds):
        without, _ = _measure(daemon, served, jobs, seconds, 0)
        pages, found = _measure(daemon, served, jobs, seconds, PROCESSES)
        of_both.append(sum(pages) - sum(without))
        of_gateway.append(pages[1] - without[1])
        delays += found
    return {
        "cpu_share": round(statistics.median(of_both), 4),
        "cpu_share_min": round(min(of_both), 4),
        "cpu_share_max": round(max(of_both), 4),
        "gateway_share": round(statistics.median(of_gateway), 4),
        "delay_p50_ms": round(1e3 * statistics.median(delays)),
        "delay_p99_ms": milliseconds(delays, 99),
        "delays": len(delays),
    }


def _measure(
    daemon: Daemon, served: Gateway, jobs: list[Job], seconds: float, processes: int
) -> tuple[tuple[float, float], list[float]]:
    """Returns the shares of a core of both processes, and how late the pages were told."""
    ready = multiprocessing.get_context("spawn").Barrier(processes + 2)
    page = (served.url, daemon.token("ada"), PAGES // PROCESSES, seconds, ready)
    with ThreadPoolExecutor(2) as clients:
        reports = clients.submit(answered, report, [(daemon.address, jobs, seconds, ready)])
        pages = clients.submit(answered, _follow, [page] * processes)
        ready.wait()
        began, before = time.monotonic(), _cpu(daemon, served)
        time.sleep(seconds)
        after, spent = _cpu(daemon, served), time.monotonic() - began
        (reported,) = reports.result()
        seen = pages.result()
    sent = {(job, epoch): at for job, epoch, at in reported}
    found = [(at, sent.get((job, epoch))) for part in seen for job, epoch, at in part]
    shares = (after[0] - before[0]) / spent, (after[1] - before[1]) / spent
    return shares, [at - since for at, since in found if since is not None]


def _follow(
    url: str, token: str, pages: int, seconds: float, ready: Barrier, answers: Answers
) -> None:
    """One process: several pages."""
    seen: list[Seen] = []
    begun = threading.Barrier(pages + 1)
    client = httpx.Client(
        base_url=url,
        headers={"authorization": f"Bearer {token}"},
        timeout=60,
        trust_env=False,
        limits=httpx.Limits(max_connections=pages),
    )

    def follow() -> None:
        with suppress(httpx.HTTPError, RuntimeError), client.stream("GET", "/events") as stream:
            told = False
            for line in stream.iter_lines():
                now = time.time()
                if not line.startswith("data: "):
                    continue
                if not told:
                    told = True
                    begun.wait()
                changed = json.loads(line[6:]).get("jobs", ())
                seen.extend((job["id"], job["epochs_done"], now) for job in changed)

    for _ in range(pages):
        threading.Thread(target=follow, daemon=True).start()
    begun.wait()
    ready.wait()
    time.sleep(seconds)
    found = list(seen)
    client.close()
    answers.put(found)


# --- beside reports -------------------------------------------------------------------------------


class _Arm:
    """What was measured of one of the three, over all rounds."""

    def __init__(self) -> None:
        self.rates: list[float] = []  # reports per second
        self.costs: list[float] = []  # the daemon's seconds of CPU per report
        self.latencies: list[float] = []

    def measure(self, daemon: Daemon, jobs: list[Job], seconds: float) -> None:
        before = _cpu_of(daemon.pid)
        found, spent = drive(training, daemon.address, jobs, seconds)
        self.costs.append((_cpu_of(daemon.pid) - before) / len(found))
        self.rates.append(len(found) / spent)
        self.latencies += found


def _compare(daemon: Daemon, jobs: list[Job], seconds: float, rounds: int) -> dict[str, float]:
    calm, busy, burdened, killed = _Arm(), _Arm(), _Arm(), _Arm()
    kills = 0
    lists: list[float] = []
    shares: list[float] = []
    unused = iter([jobs[at : at + CLIENTS] for at in range(0, len(jobs), CLIENTS)])
    for _ in range(rounds):
        calm.measure(daemon, next(unused), seconds)
        with _visited(daemon) as (served, listed):
            began, before = time.monotonic(), _cpu_of(served.process.pid)
            busy.measure(daemon, next(unused), seconds)
            spent = time.monotonic() - began
            lists.append(listed.value / spent)
            shares.append((_cpu_of(served.process.pid) - before) / spent)
        with _burdened(shares[-1]):
            burdened.measure(daemon, next(unused), seconds)
        with _killed(daemon) as count:
            killed.measure(daemon, next(unused), seconds)
            kills += count()
    return {
        "busy_ratio": _ratio(busy.rates, calm.rates),
        "burdened_ratio": _ratio(burdened.rates, calm.rates),
        "killed_ratio": _ratio(killed.rates, calm.rates),
        "kills": kills,
        "busy_cpu_ratio": _ratio(busy.costs, calm.costs),
        "calm_per_second": round(statistics.median(calm.rates)),
        "calm_p99_ms": milliseconds(calm.latencies, 99),
        "busy_p99_ms": milliseconds(busy.latencies, 99),
        "burdened_p99_ms": milliseconds(burdened.latencies, 99),
        "killed_p99_ms": milliseconds(killed.latencies, 99),
        "busy_share": round(statistics.median(shares), 3),
        "lists_per_second": round(statistics.median(lists), 1),
    }


def _ratio(values: list[float], of: list[float]) -> float:
    pairs = zip(values, of, strict=True)
    return round(statistics.median(value / other for value, other in pairs), 3)


def _cpu_of(pid: int) -> float:
    return sum(psutil.Process(pid).cpu_times()[:2])


@contextmanager
def _burdened(share: float) -> Iterator[None]:
    computing = multiprocessing.get_context("spawn").Process(target=_compute, args=(share,))
    computing.start()
    try:
        yield
    finally:
        computing.kill()
        computing.join()


def _compute(share: float) -> None:
    """One process: takes this share of a core, in small parts as a server does."""
    began, before = time.monotonic(), time.process_time()
    while True:
        while time.process_time() - before < share * (time.monotonic() - began):
            pass
        time.sleep(0.002)


@contextmanager
def _visited(daemon: Daemon) -> Iterator[tuple[Gateway, Synchronized[int]]]:
    """A busy gateway. Yields it, and how many lists it has answered."""
    context = multiprocessing.get_context("spawn")
    listed: Synchronized[int] = context.Value("q")
    with gateway(daemon.address) as served:
        pages = context.Process(target=_visit, args=(served.url, daemon.token("ada"), listed))
        pages.start()
        try:
            while listed.value < BUSY_PAGES:
                time.sleep(0.05)
            listed.value = 0
            yield served, listed
        finally:
            pages.kill()
            pages.join()


@contextmanager
def _killed(daemon: Daemon) -> Iterator[Callable[[], int]]:
    """A gateway with pages that is killed again and again. Yields what tells how often so far."""
    context = multiprocessing.get_context("spawn")
    ended, kills = threading.Event(), 0
    with gateway(daemon.address) as first:
        url = first.url

    def kill() -> None:
        nonlocal kills
        while not ended.is_set():
            with gateway(daemon.address, listen=url.removeprefix("http://")) as served:
                ended.wait(1.0)
                served.process.kill()
                kills += 1

    listed = context.Value("q")  # lives as long as the process that counts in it
    pages = context.Process(target=_visit, args=(url, daemon.token("ada"), listed))
    killing = threading.Thread(target=kill)
    pages.start()
    killing.start()
    try:
        yield lambda: kills
    finally:
        ended.set()
        killing.join()
        pages.kill()
        pages.join()


def _visit(url: str, token: str, listed: Synchronized[int]) -> None:
    """One process: all pages. Browsers are elsewhere, so it takes only what others leave."""
    os.nice(19)
    headers = {"authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=2 * BUSY_PAGES)
    client = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, limits=limits)

    def follow() -> None:
        while True:
            with suppress(httpx.HTTPError), client.stream("GET", "/events") as stream:
                for _ in stream.iter_raw():
                    pass
            time.sleep(LIST_EVERY_SECONDS)  # the gateway is away

    def ask() -> None:
        while True:
            with suppress(httpx.HTTPError):  # a connection that the gateway has just given up
                client.get("/api/v1/jobs", params=_LIST)
                with listed.get_lock():
                    listed.value += 1
            time.sleep(LIST_EVERY_SECONDS)

    for _ in range(BUSY_PAGES):
        threading.Thread(target=follow, daemon=True).start()
        threading.Thread(target=ask, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
