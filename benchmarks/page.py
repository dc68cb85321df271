"""The pages with many jobs: `python -m benchmarks.page --json`.

A real daemon with 200 simulated GPUs has 10,000 live jobs: one that has all GPUs, some that wait
for it, and many that are held. A real gateway serves the list of jobs and the page Now to Debian's
Chromium, which is told to forget what it has loaded before each visit.

    first_paint_kb       what is transferred until the first rows can be read: page, scripts, data
    list_kb              the first page of the list alone, uncompressed
    interactive_ms       until a row can be chosen and the browser is idle, median
    now_interactive_ms   the same for the page Now
    list_cpu_ms          CPU time of daemon and gateway for one first page of the list
    idle_cpu_percent     of both processes together, of one core, with one page open
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, sync_playwright

from benchmarks.figures import options, show
from scheduler.v1 import scheduler_pb2 as pb
from tests.browser.visitor import Visitor, visitor
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon, eventually

WAITING = 200  # jobs; each submission of one makes the daemon plan
TRANSFERRED = """() => performance.getEntries()
    .filter((each) => ["navigation", "resource"].includes(each.entryType))
    .reduce((sum, each) => sum + each.transferSize, 0)"""
IDLE = "() => new Promise((done) => requestIdleCallback(() => done(performance.now())))"


def main() -> None:
    given = options(__doc__, jobs=10_000, gpus=200, visits=7)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        daemon = Daemon(Path(folder) / "state", f"{given.gpus}x16384").start()
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        try:
            _submit(daemon, given.jobs, given.gpus)
            with gateway(daemon.address) as served:
                show(
                    jobs=given.jobs,
                    gpus=given.gpus,
                    **_measure(daemon, served, browser, given.visits),
                )
        finally:
            browser.close()
            daemon.end()


def _submit(daemon: Daemon, jobs: int, gpus: int) -> None:
    def submit(number: int) -> None:
        spec = pb.JobSpec(
            name=f"resnet50-lr0.1-seed{number}",
            command=["sleep", "100000"],
            gpus_min=gpus,
            gpus_max=gpus,
            disable_gpu_sharing=True,
            held=number >= WAITING,
            project=f"project-{number % 7}",
            max_epochs=90,
        )
        request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
        stub.Submit(request, metadata=metadata, timeout=60)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number + 1} of {jobs} jobs submitted ")

    with daemon.stub() as (stub, metadata), ThreadPoolExecutor(32) as people:
        list(people.map(submit, range(jobs)))
    eventually(lambda: daemon.state_of("--status", "RUNNING")["jobs"])


def _measure(daemon: Daemon, served: Gateway, browser: Browser, visits: int) -> dict[str, Any]:
    processes = [psutil.Process(daemon.pid), psutil.Process(served.process.pid)]

    def cpu() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    with served.client(daemon.token("root")) as client:
        path = "/api/v1/jobs?all_users=true&limit=100"
        content = client.get(path).content
        assert json.loads(content)["total"] >= 1
        before, asked = cpu(), 20
        for _ in range(asked):
            client.get(path)
        list_cpu_ms = (cpu() - before) / asked * 1000

    jobs = [_visit(daemon, served, browser, "/jobs", "tr.job") for _ in range(visits)]
    now = [_visit(daemon, served, browser, "/", ".gpu") for _ in range(visits)]
    person = _logged_in(daemon, served, browser)
    person.go("/jobs")
    person.page.locator("tr.job").first.wait_for()
    time.sleep(3)  # what follows the first drawing
    before, begun = cpu(), time.monotonic()
    time.sleep(10)
    idle = (cpu() - before) / (time.monotonic() - begun)
    person.page.context.close()
    return {
        "first_paint_kb": round(statistics.median(size for _, size in jobs) / 1000, 1),
        "list_kb": round(len(content) / 1000, 1),
        "interactive_ms": round(statistics.median(ms for ms, _ in jobs)),
        "now_interactive_ms": round(statistics.median(ms for ms, _ in now)),
        "list_cpu_ms": round(list_cpu_ms, 1),
        "idle_cpu_percent": round(100 * idle, 1),
    }


def _logged_in(daemon: Daemon, served: Gateway, browser: Browser) -> Visitor:
    person = visitor(browser, served.url)
    person.page.context.unroute_all()  # nothing between the browser and the gateway
    person.log_in(daemon.token("root"))
    return person


def _visit(
    daemon: Daemon, served: Gateway, browser: Browser, path: str, awaited: str
) -> tuple[float, float]:
    """Milliseconds until the page can be used, and the bytes that were transferred."""
    person = _logged_in(daemon, served, browser)
    session = person.page.context.new_cdp_session(person.page)
    session.send("Network.clearBrowserCache")
    person.go(path)
    person.page.locator(awaited).first.wait_for()
    milliseconds: float = person.page.evaluate(IDLE)
    transferred: float = person.page.evaluate(TRANSFERRED)
    person.page.context.close()
    return milliseconds, transferred


if __name__ == "__main__":
    main()
