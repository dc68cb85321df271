"""Durable epoch reports per second: `python -m benchmarks.reports --json`.

A real daemon with 64 running jobs; 8 client processes, on the same cores, report the epochs of 8
jobs each, one report after the other for each job. A report counts when it was acknowledged, and
it is acknowledged when it is on disk.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import statistics
import tempfile
import threading
import time
from multiprocessing.queues import Queue
from pathlib import Path

import grpc
import psutil

from benchmarks.figures import options, show
from scheduler.v1 import scheduler_pb2
from tests.support import Daemon

CLIENTS, JOBS_PER_CLIENT = 8, 8
METHOD = "/scheduler.v1.Profiler/EndEpoch"
Job = tuple[str, str]  # id, token


def main() -> None:
    seconds = options(__doc__, seconds=10.0).seconds
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            jobs = _start_jobs(daemon)
            latencies, spent = _drive(daemon.address, jobs, seconds)
            process = psutil.Process(daemon.pid)
            show(
                reports_per_second=round(len(latencies) / spent),
                p50_ms=round(statistics.median(latencies) * 1e3, 1),
                p99_ms=round(statistics.quantiles(latencies, n=100)[98] * 1e3, 1),
                rss_mib=round(process.memory_info().rss / 2**20),
                reports=len(latencies),
                daemon_cpu_share=round(sum(process.cpu_times()[:2]) / spent, 2),
            )
        finally:
            daemon.end()


def _start_jobs(daemon: Daemon) -> list[Job]:
    """Jobs that run and leave the reporting to us."""
    names = [f"job-{number}" for number in range(CLIENTS * JOBS_PER_CLIENT)]
    flags = ("--image", "none", "--num_gpus", "0", "--max_epochs", "1000000000")
    for name in names:
        daemon.submit(*flags, name, "--", "sleep", "600")
    daemon.wait_state(**dict.fromkeys(names, "RUNNING"))
    with sqlite3.connect(daemon.state / "scheduler.db") as db:
        return list(db.execute("select id, token from jobs"))


def _drive(address: str, jobs: list[Job], seconds: float) -> tuple[list[float], float]:
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[float, float, list[float]]] = context.Queue()
    clients = [
        context.Process(target=_client, args=(address, jobs[n::CLIENTS], seconds, answers))
        for n in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    parts = [answers.get() for _ in clients]
    for client in clients:
        client.join()
    spent = max(end for _, end, _ in parts) - min(start for start, _, _ in parts)
    return [latency for _, _, part in parts for latency in part], spent


def _client(
    address: str,
    jobs: list[Job],
    seconds: float,
    answers: Queue[tuple[float, float, list[float]]],
) -> None:
    """One process: a report under way for each of its jobs, the next when that is acknowledged."""
    latencies: list[float] = []
    ended = threading.Semaphore(0)
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(METHOD, request_serializer=None, response_deserializer=None)
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

        def acknowledged(call: grpc.Future, job: Job, epoch: int, sent: float) -> None:
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
