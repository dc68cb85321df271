"""CPU of a scrape of the daemon's metrics: `python -m benchmarks.scrape --json`.

The service that answers scrapes, with the view of the real loop and the counts of the real store
after its first steps. There are 10,000 live jobs, on 200 GPUs and again on 4,096; agents see the
processes of all runs. Each scrape finds a text that is too old, as those of Prometheus do, and asks
for OpenMetrics, compressed.

    cpu_ms        of one scrape with 200 GPUs (the median of twenty)
    first_ms      of the first one, which imports prometheus_client
    kib, sent_kib the text, and what is sent of it
    large_cpu_ms  of one scrape with 4,096 GPUs
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.figures import options, show
from benchmarks.whole_step import World, nodes, submitted
from scheduler.core import counts
from scheduler.core.loop import Scheduler
from scheduler.core.model import GpuKey, Rules, RunKey, View
from scheduler.gpus.usage import WATCHDOG, GpuReading, Process, Usage
from scheduler.http.http11 import Request
from scheduler.http.http_server import Caller
from scheduler.metrics.service import FRESH_SECONDS, MetricsService, Sources
from scheduler.planning.policies import POLICIES
from scheduler.store.reader import Reader
from scheduler.store.writer import SqliteStore

SCRAPES, JOBS_MAX, RESERVE_MIB = 20, 1000, 512
ASKED = {
    "host": "127.0.0.1:7072",
    "accept": "application/openmetrics-text;version=1.0.0",
    "accept-encoding": "gzip",
}


def main() -> None:
    given = options(__doc__, jobs=10_000, gpus=200, large=4_096, seed=1)
    first, usual, plain, sent, series = _measure(given.jobs, given.gpus, given.seed)
    _, large, *_ = _measure(given.jobs, given.large, given.seed)
    show(
        cpu_ms=round(usual * 1e3, 1),
        first_ms=round(first * 1e3, 1),
        kib=round(plain / 1024),
        sent_kib=round(sent / 1024),
        series=series,
        large_cpu_ms=round(large * 1e3, 1),
        jobs=given.jobs,
        gpus=given.gpus,
        large=given.large,
    )


def _measure(jobs: int, gpus: int, seed: int) -> tuple[float, float, int, int, int]:
    """Returns the seconds of the first scrape and of the others, the sizes and the series."""
    chance, world, rules = random.Random(seed), World(nodes(gpus)), Rules()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scheduler.db"
        with (
            closing(SqliteStore(path, count=counts.count)) as store,
            closing(Reader(path)) as reader,
        ):
            scheduler = Scheduler(world, store, world, POLICIES["gpu_sharing"](rules), rules)
            world.news = [submitted(number, chance) for number in range(jobs)]
            scheduler.step()
            for _ in range(2):
                world.time += 10.0
                world.news = [world.look()]
                scheduler.step()
            usage = _usage(scheduler.view)
            sources = Sources(
                about={"version": "1"},
                started_at=1.0,
                leads=lambda: True,
                view=lambda: scheduler.view,
                due_at=lambda: 0.0,
                usage=lambda: usage,
                heard_at=lambda view: {node.name: world.time for node in view.nodes},
                stored=reader.counts,
                counted=dict,
                left_out_bytes=lambda: 7.0,
                disk=Path(folder),
                reserve_mib=RESERVE_MIB,
            )
            return _scrape(sources)


def _scrape(sources: Sources) -> tuple[float, float, int, int, int]:
    at = 0.0
    service = MetricsService(sources, JOBS_MAX, clock=lambda: at)
    caller = Caller("127.0.0.1", lambda: None)
    spent = []
    for _ in range(SCRAPES + 1):
        at += FRESH_SECONDS
        began = time.process_time()
        packed = service.answer(Request("GET", "/metrics", ASKED, b"", True), caller).body
        spent.append(time.process_time() - began)
    plain = service.answer(
        Request("GET", "/metrics", {**ASKED, "accept-encoding": ""}, b"", True), caller
    ).body
    assert plain
    assert packed
    series = sum(not line.startswith(b"#") for line in plain.splitlines())
    return spent[0], statistics.median(spent[1:]), len(plain), len(packed), series


def _usage(view: View) -> dict[GpuKey, Usage]:
    """One process of each run on each of its GPUs."""
    usage = {}
    for node in view.nodes:
        for gpu in node.gpus:
            held = view.held.get((node.name, gpu.uuid), {})
            processes = tuple(Process(pid, mib, busy=0.3) for pid, mib in enumerate(held.values()))
            runs: tuple[RunKey | None, ...] = tuple(held)
            reading = GpuReading(gpu, sum(held.values()), 0.6, processes)
            usage[node.name, gpu.uuid] = Usage(reading, runs, view.at, WATCHDOG)
    return usage


if __name__ == "__main__":
    main()
