"""Requests of old images per second: `python -m benchmarks.legacy --json`.

A real daemon has 64 running trainings, and its plan changes ten times a second: 100 jobs wait for
its GPUs, and one of them gets another priority. 4 processes on the same cores are the trainings,
with a thread for each. They call as old images do, with a new connection each time, and wait for
the answer. The calls ask to start an epoch, and report progress, measurements and finished epochs.

    requests_per_second  of all four kinds
    p99_ms               from the start of the connection to the end of the answer

The daemon answers when the reported data is on disk.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TypeAlias

from benchmarks.figures import answered, options, show
from benchmarks.reports import milliseconds, start_jobs
from scheduler.access.identity import user_name
from scheduler.v1 import scheduler_pb2 as pb
from tests.support import Daemon

CLIENTS = 4  # with 16 of the 64 jobs each
WAITING = 100
PRIORITY_EVERY_SECONDS = 0.1
PORTS = range(20_000, 30_000)
STEPS = 100  # of an epoch
Answers: TypeAlias = "Queue[tuple[float, float, list[float], int]]"  # start, end, seconds, refused


def main() -> None:
    seconds = options(__doc__, seconds=8.0).seconds
    port = PORTS[secrets.randbelow(len(PORTS))]
    os.environ["SCHEDULER_LEGACY__LISTEN"] = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "4x16384").start()
        try:
            jobs = [job_id for job_id, _ in start_jobs(daemon)]
            with _planning(daemon):
                latencies, spent, refused = _drive(port, jobs, seconds)
            show(
                requests_per_second=round(len(latencies) / spent),
                p50_ms=milliseconds(latencies, 50),
                p99_ms=milliseconds(latencies, 99),
                refused=refused,
            )
        finally:
            daemon.end()


@contextmanager
def _planning(daemon: Daemon) -> Iterator[None]:
    """Makes the daemon plan all the time, by changes that affect plans."""
    ended = threading.Event()
    with daemon.stub() as (stub, _):
        owner = user_name(os.geteuid())
        mine = [("authorization", f"Bearer {daemon.token(owner)}")]
        spec = pb.JobSpec(command=["sleep", "600"], max_epochs=100, gpus_min=1, gpus_max=2)
        ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(WAITING)]
        for job_id in ids:
            spec.name = f"waits-{job_id[:8]}"
            stub.Submit(pb.SubmitRequest(job_id=job_id, spec=spec), metadata=mine, timeout=30)

        def change() -> None:
            number = 0
            while not ended.wait(PRIORITY_EVERY_SECONDS):
                number += 1
                request = pb.UpdateJobRequest(job=ids[number % WAITING], priority=number % 50)
                stub.UpdateJob(request, metadata=mine, timeout=30)

        changing = threading.Thread(target=change)
        changing.start()
        try:
            yield
        finally:
            ended.set()
            changing.join()


def _drive(port: int, jobs: list[str], seconds: float) -> tuple[list[float], float, int]:
    parts = answered(_client, [(port, jobs[n::CLIENTS], seconds) for n in range(CLIENTS)])
    spent = max(end for _, end, _, _ in parts) - min(start for start, _, _, _ in parts)
    latencies = [latency for _, _, part, _ in parts for latency in part]
    return latencies, spent, sum(refused for _, _, _, refused in parts)


def _client(port: int, jobs: list[str], seconds: float, answers: Answers) -> None:
    """One process: a thread for each training, with epochs that take no time."""
    latencies: list[float] = []
    refused: list[bytes] = []
    start = time.time()

    def train(job_id: str) -> None:
        epoch = 0
        while time.time() < start + seconds:
            for request in _epoch(job_id, epoch):
                began = time.perf_counter()
                with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
                    peer.sendall(request)
                    answer = peer.recv(4096)
                latencies.append(time.perf_counter() - began)
                if not answer.startswith(b"HTTP/1.1 200"):
                    refused.append(answer)
            epoch += 1

    threads = [threading.Thread(target=train, args=(job_id,)) for job_id in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put((start, time.time(), latencies, len(refused)))


def _epoch(job_id: str, epoch: int) -> Iterator[bytes]:
    """A request about one training, as the package `requests` writes it."""
    steps = (epoch + 1) * STEPS - 1
    sign = {
        "jobid": job_id,
        "timestamp": "2026-11-18T06:12:28.288290",
        "iternum": steps - STEPS // 2,
        "nodelist": "westworld",
        "numgpu": 2,
        "rank": 0,
        "meandur": 0.011686,
        "gpumem": 250,
    }
    yield _request("GET", f"/has_to_stop/{job_id}")
    yield _request("POST", f"/profiling/{job_id}", sign)
    yield _request("POST", f"/profiling/{job_id}", {**sign, "iternum": steps, "epochDur": 0.07})
    yield _request("POST", f"/end_epoch/{job_id}", {"done": epoch + 1})


def _request(method: str, path: str, body: dict[str, object] | None = None) -> bytes:
    data = json.dumps(body).encode() if body else b""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: python-requests/2.34.0",
        "Accept-Encoding: gzip, deflate",
        "Accept: */*",
        "Connection: keep-alive",
        *([f"Content-Length: {len(data)}", "Content-Type: application/json"] if body else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


if __name__ == "__main__":
    main()
