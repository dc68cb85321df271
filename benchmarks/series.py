"""What trainings log, kept and read: `python -m benchmarks.series --json`.

A real gateway in front of a real daemon takes points over HTTP, in compressed batches of 2,000, as
relays send them; two processes make them and wait for each answer, which comes when the points are
on disk. A point is a loss as PyTorch gives it (32 bits, with noise), a step, and a time each tenth
of a second with some microseconds of chance. First beside a daemon to which 100 jobs report an
epoch each second, then alone until there are enough; then all of them are packed, and read.

    busy_points_per_second  acknowledged beside the busy daemon
    points_per_second       beside an idle one
    bytes_per_point         of the file, in pages that are used, when all is packed
    group_by_ms             mean by 10 minutes over all points, as Grafana asks: median over HTTP
    curves_ms               all points as curves of 2,000 points each, one for each job
    jobs_ms, jobs_kb        the same of 50 jobs with 100,000 points each, and its size
    rss_mib                 the gateway's memory after that
    kills                   how often it was killed (`kill -9`) while it took points
    lost, doubled           of the points that it had acknowledged until then
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import sqlite3
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import numpy as np
import psutil

from benchmarks.events import JOBS, report
from benchmarks.figures import answered, options, show
from benchmarks.reports import Job, start_jobs
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon

BATCH, ENTRY = 2_000, 500  # points
SENDERS = 2
MANY_JOBS, MANY_POINTS = 50, 100_000
INTERVAL_NS = 10**8
ASKED = 7  # times each query
PACKED_SECONDS = 300.0  # until then at the latest
Sent: TypeAlias = "Queue[tuple[int, float]]"  # points acknowledged, seconds


def main() -> None:
    given = options(__doc__, points=10_000_000, seconds=20.0, kills=5)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept"
        kept.mkdir()
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            jobs = start_jobs(daemon, JOBS)
            with gateway(daemon.address, "--folder", str(kept)) as served:
                busy = _beside_reports(daemon, served, jobs, given.seconds)
            lost, doubled = _kill(daemon, jobs[-10:], given.kills, Path(folder) / "killed")
            (kept / "series.db").unlink()
            with gateway(daemon.address, "--folder", str(kept)) as served:
                figures = _keep(daemon, served, kept, jobs, given.points)
            show(
                points=given.points,
                busy_points_per_second=round(busy),
                **figures,
                kills=given.kills,
                lost=lost,
                doubled=doubled,
            )
        finally:
            daemon.end()


# --- taken --------------------------------------------------------------------------------------


def batches(start_ns: int, points: int, seed: int) -> Iterator[bytes]:
    """Entries of a relay, compressed."""
    chance = np.random.default_rng(seed)
    for first in range(0, points, BATCH):
        steps = np.arange(first, min(first + BATCH, points))
        losses = 2 * np.exp(-steps / 2e5) + 0.05 * chance.normal(size=len(steps)) + 0.3
        times = start_ns + steps * INTERVAL_NS + chance.integers(0, 50_000, len(steps))
        rows = [
            ["metrics", {}, "loss", at, step, loss]
            for at, step, loss in zip(
                times.tolist(), steps.tolist(), losses.astype(np.float32).tolist(), strict=True
            )
        ]
        entries = [{"points": rows[at : at + ENTRY]} for at in range(0, len(rows), ENTRY)]
        content = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        yield zlib.compress(content, 1, wbits=31)


def _send(url: str, jobs: Sequence[Job], points: int, seconds: float, answers: Sent) -> None:
    """One process: `points` of each job, one job after the other, for so many seconds at most."""
    start_ns = time.time_ns() - 7200 * 10**9 - points * INTERVAL_NS
    taken, began = 0, time.monotonic()
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for _, token in jobs:
            headers = {"authorization": f"Bearer {token}", "content-encoding": "gzip"}
            for number, body in enumerate(batches(start_ns, points, hash(token) % 2**31)):
                if time.monotonic() > began + seconds:
                    break
                query = {"attempt": 1, "spool": "s", "first": number * (BATCH // ENTRY)}
                _post(client, query, body, headers)
                taken += min(BATCH, points - number * BATCH)
    answers.put((taken, time.monotonic() - began))


def _post(
    client: httpx.Client, query: Mapping[str, Any], body: bytes, headers: dict[str, str]
) -> None:
    """Again, if the gateway has too much to do."""
    while True:
        answer = client.post("/api/v1/tracking", params=query, content=body, headers=headers)
        if answer.status_code == 200:
            assert answer.json()["refused"] == 0, answer.text
            return
        assert answer.status_code == 503, answer.text
        time.sleep(0.2)


def _sent(served: Gateway, jobs: Sequence[Job], points: int, seconds: float = 3600.0) -> float:
    """Returns how many were acknowledged each second."""
    parts = [(served.url, jobs[n::SENDERS], points, seconds) for n in range(SENDERS)]
    rate: float = sum(taken / spent for taken, spent in answered(_send, parts))
    return rate


def _beside_reports(daemon: Daemon, served: Gateway, jobs: list[Job], seconds: float) -> float:
    ready = multiprocessing.get_context("spawn").Barrier(2)
    with ThreadPoolExecutor(1) as clients:
        reports = clients.submit(answered, report, [(daemon.address, jobs, seconds + 5, ready)])
        ready.wait()
        rate = _sent(served, jobs[:20], 1_000_000, seconds)
        reports.result()
    return rate


# --- killed -------------------------------------------------------------------------------------


def _kill(daemon: Daemon, jobs: Sequence[Job], kills: int, folder: Path) -> tuple[int, int]:
    """Returns how many acknowledged points are missing, and how many are there twice."""
    folder.mkdir()
    start_ns = time.time_ns() - 7200 * 10**9
    acknowledged = dict.fromkeys((job for job, _ in jobs), 0)  # batches
    bodies = {job: list(batches(start_ns, 400_000, at)) for at, (job, _) in enumerate(jobs)}
    for killed in range(kills):
        with (
            gateway(daemon.address, "--folder", str(folder)) as served,
            ThreadPoolExecutor(len(jobs)) as relays,
        ):
            relaying = [
                relays.submit(_relay, served.url, token, bodies[job], acknowledged[job])
                for job, token in jobs
            ]
            time.sleep(0.5 + 0.3 * killed)
            served.process.kill()
            for (job, _), done in zip(jobs, relaying, strict=True):
                acknowledged[job] = done.result()
    with gateway(daemon.address, "--folder", str(folder)) as served:
        found = {job: _logged(daemon, served, job) for job, _ in jobs}
    lost = doubled = 0
    for job, _ in jobs:
        steps = found[job]
        lost += len(set(range(acknowledged[job] * BATCH)) - set(steps))
        doubled += len(steps) - len(set(steps))
    return lost, doubled


def _relay(url: str, token: str, bodies: Sequence[bytes], first: int) -> int:
    """Sends until the gateway is killed. Returns how many batches are acknowledged then."""
    headers = {"authorization": f"Bearer {token}", "content-encoding": "gzip"}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for number in count(first):
            if number == len(bodies):
                return number
            query = {"attempt": 1, "spool": "s", "first": number * (BATCH // ENTRY)}
            try:
                _post(client, query, bodies[number], headers)
            except httpx.TransportError:
                return number
    raise AssertionError("not reached")


def _logged(daemon: Daemon, served: Gateway, job: str) -> list[int]:
    with served.client(_token(daemon)) as person:
        answer = person.get(f"/api/v1/jobs/{job}/points", params={"points_max": 1_000_000})
        curves = answer.raise_for_status().json()["curves"]
    return curves[0]["steps"] if curves else []


def _token(daemon: Daemon) -> str:
    return daemon.token(pwd.getpwuid(os.geteuid()).pw_name)


# --- kept and read ------------------------------------------------------------------------------


def _keep(
    daemon: Daemon, served: Gateway, kept: Path, jobs: Sequence[Job], points: int
) -> dict[str, Any]:
    few, many = jobs[:10], jobs[10 : 10 + MANY_JOBS]
    rate = _sent(served, few, points // len(few))
    _sent(served, many, MANY_POINTS)
    total = points + MANY_JOBS * MANY_POINTS
    bytes_per_point = _packed(kept / "series.db") / total
    token = _token(daemon)
    with served.client(token) as person:
        ids = "|".join(job for job, _ in few)
        select = f'SELECT mean("loss") FROM "metrics" WHERE "job" =~ /^({ids})$/'
        grouped = f"{select} AND time > now() - 7d GROUP BY time(10m)"
        group_by, _ = _asked(person, "/query", {"db": "any", "epoch": "ms", "q": grouped}, token)
        curves, _ = _asked(person, "/api/v1/points", _curves(few))
        jobs_ms, size = _asked(person, "/api/v1/points", _curves(many))
    rss = psutil.Process(served.process.pid).memory_info().rss
    return {
        "points_per_second": round(rate),
        "bytes_per_point": round(bytes_per_point, 2),
        "group_by_ms": group_by,
        "curves_ms": curves,
        "jobs_ms": jobs_ms,
        "jobs_kb": round(size / 1e3),
        "rss_mib": round(rss / 2**20),
    }


def _curves(jobs: Sequence[Job]) -> dict[str, Any]:
    return {"job": [job for job, _ in jobs], "name": "loss"}


def _packed(file: Path) -> int:
    """Waits until all points are in chunks. Returns the bytes that the file uses."""
    until = time.monotonic() + PACKED_SECONDS
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as db:
        while db.execute("SELECT EXISTS (SELECT 1 FROM points)").fetchone()[0]:
            assert time.monotonic() < until, "points are not packed"
            time.sleep(1)
        size, pages, free = (
            db.execute(f"PRAGMA {what}").fetchone()[0]
            for what in ("page_size", "page_count", "freelist_count")
        )
    return int(size * (pages - free))


def _asked(
    client: httpx.Client, path: str, query: dict[str, Any], token: str = ""
) -> tuple[float, int]:
    """Milliseconds until the whole answer is there, median, and its size."""
    spent = []
    for _ in range(ASKED):
        began = time.perf_counter()
        answer = client.get(path, params={**query, **({"p": token} if token else {})})
        spent.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text[:500]
        assert '"error"' not in answer.text[:500], answer.text[:500]
    return round(1e3 * statistics.median(spent), 1), len(answer.content)


if __name__ == "__main__":
    main()
