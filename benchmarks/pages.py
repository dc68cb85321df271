"""What open pages cost: `python -m benchmarks.pages --json`.

A real daemon has 100 running jobs, each of which reports an epoch per second; a gateway serves 50
pages that follow the events, in 5 processes. The cost is what the CPU time of the daemon and of the
gateway differs by from that without pages. Then 10,000 jobs wait, and a list is asked for.

    cpu_share        of a core, for 50 pages: gateway and daemon together
    gateway_share    the gateway's part of it
    delay_p99_ms     from the moment when a report is sent until a page has the job with it
    first_page_kb    the first page of the list of 10,000 live jobs, in kB
    first_page_cpu_ms  CPU of both processes for it
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

import httpx
import psutil

from benchmarks.events import JOBS, Answers, Seen, report
from benchmarks.figures import answered, options, show
from benchmarks.reports import Job, start_jobs
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon

PAGES, PROCESSES = 50, 5
LIVE = 10_000
LISTS = 10


def main() -> None:
    given = options(__doc__, seconds=20.0, live=LIVE)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            with gateway(daemon.address) as served:
                jobs = start_jobs(daemon, JOBS)
                without, _ = _measure(daemon, served, jobs, given.seconds, 0)
                costs, delays = _measure(daemon, served, jobs, given.seconds, PROCESSES)
                kilobytes, milliseconds = _list(daemon, served, given.live)
                show(
                    cpu_share=round(sum(costs) - sum(without), 4),
                    gateway_share=round(costs[1], 4),
                    delay_p50_ms=round(1e3 * statistics.median(delays)),
                    delay_p99_ms=round(1e3 * statistics.quantiles(delays, n=100)[98]),
                    delays=len(delays),
                    live=given.live,
                    first_page_kb=kilobytes,
                    first_page_cpu_ms=milliseconds,
                )
        finally:
            daemon.end()


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


def _list(daemon: Daemon, served: Gateway, live: int) -> tuple[float, float]:
    spec = pb.JobSpec(command=["sleep", "600"], held=True, gpus_min=0, gpus_max=0)
    with daemon.stub() as (stub, metadata):
        for number in range(live):
            spec.name = f"waits-{number}"
            request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
            stub.Submit(request, metadata=metadata, timeout=60)
    with served.client(daemon.token("ada")) as client:
        client.get("/api/v1/jobs", params={"all_users": True})
        before = _cpu(daemon, served)
        for _ in range(LISTS):
            answer = client.get("/api/v1/jobs", params={"all_users": True})
        after = _cpu(daemon, served)
    spent = sum(after) - sum(before)
    return round(len(answer.content) / 1e3, 1), round(1e3 * spent / LISTS, 1)


if __name__ == "__main__":
    main()
