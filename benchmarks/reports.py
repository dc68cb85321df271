"""Durable epoch reports per second: `python -m benchmarks.reports --json`.

A real daemon has 64 running jobs, and there are 8 client processes on the same cores. A report
counts when it was acknowledged, that is, when it is on disk. There are two rounds:

    reports_per_second  each client is a training with the client library. Its epochs end as fast as
                        they are acknowledged, with at most 16 under way; the library collects
                        epochs during a call and sends them in the next one
    calls_per_second    each client reports for 8 jobs, one epoch in each call, and waits for the
                        answer before that job's next call. This is the cost of a call, including
                        the client's part; grpcio with empty answers is not much faster here
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import psutil

from benchmarks.figures import answered, options, show
from kubernetesdlprofile import wire
from kubernetesdlprofile.courier import Courier
from kubernetesdlprofile.transport import GrpcTransport
from scheduler.v1 import scheduler_pb2
from tests.support import Daemon

CLIENTS, JOBS_PER_CLIENT = 8, 8
METHOD = "/scheduler.v1.Profiler/EndEpoch"
UNDER_WAY = 16  # epochs of one training that are not acknowledged yet
FIRST_EPOCH = 500_000_000  # of a training: past all that was reported of its job before
Job = tuple[str, str]  # id, token
Answers: TypeAlias = "Queue[tuple[float, float, list[float]]]"  # start, end, seconds to each answer


def main() -> None:
    seconds = options(__doc__, seconds=8.0).seconds
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            jobs = start_jobs(daemon)
            process = psutil.Process(daemon.pid)
            calls, calls_spent = drive(_caller, daemon.address, jobs, seconds)
            reports, spent = drive(training, daemon.address, jobs, seconds)
            show(
                reports_per_second=round(len(reports) / spent),
                p50_ms=milliseconds(reports, 50),
                p99_ms=milliseconds(reports, 99),
                rss_mib=round(process.memory_info().rss / 2**20),
                calls_per_second=round(len(calls) / calls_spent),
                calls_p99_ms=milliseconds(calls, 99),
            )
        finally:
            daemon.end()


def milliseconds(latencies: list[float], percentile: int) -> float:
    return round(statistics.quantiles(latencies, n=100)[percentile - 1] * 1e3, 1)


def start_jobs(daemon: Daemon, count: int = CLIENTS * JOBS_PER_CLIENT) -> list[Job]:
    """Running jobs that do not report themselves."""
    names = [f"job-{number}" for number in range(count)]
    flags = ("--image", "none", "--num_gpus", "0", "--max_epochs", "1000000000")
    for name in names:
        daemon.submit(*flags, name, "--", "sleep", "600")
    daemon.wait_state(**dict.fromkeys(names, "RUNNING"))
    with sqlite3.connect(daemon.state / "scheduler.db") as db:
        return list(db.execute("select id, token from jobs"))


def drive(
    client: Callable[..., None], address: str, jobs: list[Job], seconds: float
) -> tuple[list[float], float]:
    parts = answered(client, [(address, jobs[n::CLIENTS], seconds) for n in range(CLIENTS)])
    spent = max(end for _, end, _ in parts) - min(start for start, _, _ in parts)
    return [latency for _, _, part in parts for latency in part], spent


class _Timed(GrpcTransport):
    """The library's transport, which also counts what it delivers."""

    def __init__(self, server: str, token: str) -> None:
        super().__init__(grpc, server, token)
        self.ended: dict[int, float] = {}
        self.latencies: list[float] = []
        self.window = threading.Semaphore(UNDER_WAY)

    def call(self, method: str, message: Any, timeout_seconds: float) -> tuple[bool, str]:
        reply = super().call(method, message, timeout_seconds)
        for profile in message:
            self.latencies.append(time.perf_counter() - self.ended.pop(profile.epoch))
            self.window.release()
        return reply


def training(address: str, jobs: list[Job], seconds: float, answers: Answers) -> None:
    """One process: a training with epochs that take no time."""
    job_id, token = jobs[0]
    transport = _Timed(address, token)
    courier = Courier(transport, 3600.0, lambda: None, lambda epoch, reason: None)
    start, epoch = time.time(), FIRST_EPOCH
    while time.time() < start + seconds:
        transport.window.acquire()
        epoch += 1
        transport.ended[epoch] = time.perf_counter()
        courier.post_epoch(wire.Profile(job_id, 1, 0, epoch, 0.01, 60.0, 100.0, 4000, 0.0, 100))
    courier.flush(30.0)
    answers.put((start, time.time(), transport.latencies))
    courier.close()


def _caller(address: str, jobs: list[Job], seconds: float, answers: Answers) -> None:
    """One process: one report under way for each of its jobs; the next follows the answer."""
    latencies: list[float] = []
    ended = threading.Semaphore(0)
    with grpc.insecure_channel(address) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        grpc.channel_ready_future(channel).result()
        start = time.time()

        def report(job: Job, epoch: int) -> None:
            profile = scheduler_pb2.Profile(
                job_id=job[0], attempt=1, epoch=epoch, epoch_seconds=60.0, memory_mib=4000
            )
            request = scheduler_pb2.EndEpochRequest(profiles=[profile]).SerializeToString()
            metadata = (("authorization", f"Bearer {job[1]}"),)
            sent = time.perf_counter()
            call = method.future(request, metadata=metadata, timeout=30)
            call.add_done_callback(lambda done: acknowledged(done, job, epoch, sent))

        def acknowledged(call: grpc.Future[bytes], job: Job, epoch: int, sent: float) -> None:
            call.result()  # raises if it was refused
            latencies.append(time.perf_counter() - sent)
            if time.time() < start + seconds:
                report(job, epoch + 1)
            else:
                ended.release()

        for job in jobs:
            report(job, 1)
        for _ in jobs:
            ended.acquire()
    answers.put((start, time.time(), latencies))


if __name__ == "__main__":
    main()
