"""What open pages cost, and whether trainings notice them: `python -m benchmarks.pages --json`.

A real daemon has 10,000 live jobs. 100 of them run, and each of these reports an epoch per second;
a gateway serves 50 pages that follow the events, in 5 processes. The cost is what the CPU time of
the daemon and of the gateway differs by from that without pages. Then 8 trainings report as fast as
they can, with and without a gateway that has 20 pages, each of which follows the events and lists
jobs again and again. What a page itself loads is measured by benchmarks/page.py.

    cpu_share        of a core, for 50 pages: gateway and daemon together
    gateway_share    the gateway's part of it
    delay_p99_ms     from the moment when a report is sent until a page has the job with it
    busy_ratio       reports per second with a busy gateway, of those without: all on the same cores
    busy_cpu_ratio   the daemon's CPU time per report, the same
    calm_p99_ms, busy_p99_ms  how late reports are acknowledged
    lists_per_second  lists of 100 jobs that the busy gateway answered meanwhile
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path

import httpx
import psutil

from benchmarks.events import JOBS, Answers, Seen, report
from benchmarks.figures import answered, options, show
from benchmarks.reports import Job, drive, milliseconds, start_jobs, training
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon

PAGES, PROCESSES = 50, 5
LIVE = 10_000
BUSY_PAGES, LIST_EVERY_SECONDS = 20, 1.0  # as the pages do while events come
ROUNDS = 3
_LIST = {"all_users": True}


def main() -> None:
    given = options(__doc__, seconds=20.0, live=LIVE)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0")
        daemon.environment = {"SCHEDULER_RULES__PLAN_EVERY_SECONDS": "1.0"}  # the default
        daemon.start()
        try:
            jobs = start_jobs(daemon, JOBS)
            _hold_jobs(daemon, given.live - JOBS)
            with gateway(daemon.address) as served:
                without, _ = _measure(daemon, served, jobs, given.seconds, 0)
                costs, delays = _measure(daemon, served, jobs, given.seconds, PROCESSES)
            show(
                cpu_share=round(sum(costs) - sum(without), 4),
                gateway_share=round(costs[1] - without[1], 4),
                delay_p50_ms=round(1e3 * statistics.median(delays)),
                delay_p99_ms=round(1e3 * statistics.quantiles(delays, n=100)[98]),
                delays=len(delays),
                live=given.live,
                **_compare(daemon, jobs, given.seconds / 4),
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
    both = psutil.Process(daemon.pid), psutil.Process(served.process.pid)
    of_daemon, of_gateway = (sum(process.cpu_times()[:2]) for process in both)
    return of_daemon, of_gateway


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


def _compare(daemon: Daemon, jobs: list[Job], seconds: float) -> dict[str, float]:
    """Rounds with and without pages take turns, so that the machine is the same for both."""
    ratios, cpu_ratios, lists = [], [], []
    calm: list[float] = []
    busy: list[float] = []
    for number in range(ROUNDS):
        rates, costs = [], []
        for latencies, visited in ((calm, False), (busy, True)):
            chosen = jobs[(2 * number + visited) * 8 :]  # a job for each training of each round
            with _visited(daemon) if visited else nullcontext() as listed:
                began, before = time.monotonic(), _daemon_cpu(daemon)
                found, spent = drive(training, daemon.address, chosen, seconds)
                costs.append((_daemon_cpu(daemon) - before) / len(found))
                if listed is not None:
                    lists.append(listed.value / (time.monotonic() - began))
            rates.append(len(found) / spent)
            latencies += found
        ratios.append(rates[1] / rates[0])
        cpu_ratios.append(costs[1] / costs[0])
    return {
        "busy_ratio": round(statistics.median(ratios), 3),
        "busy_cpu_ratio": round(statistics.median(cpu_ratios), 3),
        "calm_p99_ms": milliseconds(calm, 99),
        "busy_p99_ms": milliseconds(busy, 99),
        "lists_per_second": round(statistics.median(lists), 1),
    }


def _daemon_cpu(daemon: Daemon) -> float:
    return sum(psutil.Process(daemon.pid).cpu_times()[:2])


@contextmanager
def _visited(daemon: Daemon) -> Iterator[Synchronized[int]]:
    """A busy gateway. Yields how many lists it has answered."""
    context = multiprocessing.get_context("spawn")
    listed: Synchronized[int] = context.Value("q")
    with gateway(daemon.address) as served:
        pages = context.Process(target=_visit, args=(served.url, daemon.token("ada"), listed))
        pages.start()
        try:
            while listed.value < BUSY_PAGES:
                time.sleep(0.05)
            listed.value = 0
            yield listed
        finally:
            pages.kill()
            pages.join()


def _visit(url: str, token: str, listed: Synchronized[int]) -> None:
    """One process: all pages. Browsers are elsewhere, so it takes only what others leave."""
    os.nice(19)
    headers = {"authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=2 * BUSY_PAGES)
    client = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, limits=limits)

    def follow() -> None:
        with client.stream("GET", "/events") as stream:
            for _ in stream.iter_raw():
                pass

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
