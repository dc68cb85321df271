"""What it costs to watch, and whether anything is missed: `python -m benchmarks.events --json`.

A real daemon has 100 running jobs, each of which reports an epoch per second. First nobody watches,
then 50 streams of `WatchEvents` do, in 5 processes. The cost of watching is what the daemon's CPU
time differs by. Then the daemon is killed (`kill -9`) and started 20 times while jobs are submitted
and cancelled, and 5 streams are continued with their cursors.

    cpu_share        of a core, for watching: all watchers together
    reports_share    the same for the reports alone
    delay_p99_ms     from the moment when a report is sent until a watcher has the job with it
    gaps             facts in the database that a stream that was continued has not sent
    repeated         facts that one has sent twice
    stale            jobs that one has not sent as they are at the end, nor said to list again
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import psutil

from benchmarks.figures import answered, options, show
from benchmarks.reports import Job, start_jobs
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.support import Daemon

JOBS, WATCHERS, PROCESSES, RESUMING = 100, 50, 5, 5
REPORT_EVERY_SECONDS = 1.0
EPOCHS_BEGAN_AT = 1_700_000_000  # of the first epoch: so later rounds have later epochs
Seen = tuple[str, int, float]  # a job, its epochs done, and when that was reported or seen
Answers: TypeAlias = "Queue[list[Seen]]"


def main() -> None:
    given = options(__doc__, seconds=20.0, restarts=20)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            jobs = start_jobs(daemon, JOBS)
            alone, _ = _measure(daemon, jobs, given.seconds, 0)
            both, delays = _measure(daemon, jobs, given.seconds, PROCESSES)
            missed = _restart(daemon, given.restarts)
            p99 = statistics.quantiles(delays, n=100)[98]
            show(
                cpu_share=round(both - alone, 4),
                reports_share=round(alone, 4),
                delay_p50_ms=round(1e3 * statistics.median(delays)),
                delay_p99_ms=round(1e3 * p99),
                delays=len(delays),
                restarts=given.restarts,
                **missed,
            )
        finally:
            daemon.end()


# --- the cost -------------------------------------------------------------------------------------


def _measure(
    daemon: Daemon, jobs: list[Job], seconds: float, processes: int
) -> tuple[float, list[float]]:
    """Returns the daemon's share of a core, and how late the watchers were told."""
    token, process = daemon.token("root"), psutil.Process(daemon.pid)
    ready = multiprocessing.get_context("spawn").Barrier(processes + 2)
    streams = WATCHERS // PROCESSES
    watching = (daemon.address, token, streams, seconds, ready)
    with ThreadPoolExecutor(2) as clients:
        reports = clients.submit(answered, report, [(daemon.address, jobs, seconds, ready)])
        watchers = clients.submit(answered, _watch, [watching] * processes)
        ready.wait()
        began, cpu = time.monotonic(), sum(process.cpu_times()[:2])
        time.sleep(seconds)
        share = (sum(process.cpu_times()[:2]) - cpu) / (time.monotonic() - began)
        (reported,) = reports.result()
        seen = watchers.result()
    sent = {(job, epoch): at for job, epoch, at in reported}
    found = [(at, sent.get((job, epoch))) for part in seen for job, epoch, at in part]
    return share, [at - since for at, since in found if since is not None]


def report(address: str, jobs: list[Job], seconds: float, ready: Barrier, answers: Answers) -> None:
    """One process: all jobs, evenly spread over each second."""
    reported: list[Seen] = []
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result()
        stub = pb_grpc.ProfilerStub(channel)
        ready.wait()
        at = time.time()
        epoch, until = int(at) - EPOCHS_BEGAN_AT, at + seconds
        while at < until:
            epoch += 1
            for job_id, token in jobs:
                profile = pb.Profile(job_id=job_id, attempt=1, epoch=epoch, epoch_seconds=1.0)
                reported.append((job_id, epoch, time.time()))
                stub.EndEpoch(
                    pb.EndEpochRequest(profiles=[profile]),
                    metadata=[("authorization", f"Bearer {token}")],
                    timeout=30,
                )
                at += REPORT_EVERY_SECONDS / len(jobs)
                time.sleep(max(0.0, at - time.time()))
    answers.put(reported)


def _watch(
    address: str, token: str, streams: int, seconds: float, ready: Barrier, answers: Answers
) -> None:
    """One process: several streams on one connection, as a gateway has them."""
    metadata = [("authorization", f"Bearer {token}")]

    def watch(stream: Iterator[pb.WatchEventsReply]) -> list[Seen]:
        seen: list[Seen] = []
        with suppress(grpc.RpcError):
            for reply in stream:
                now = time.time()
                seen += ((job.id, job.epochs_done, now) for job in reply.jobs)
        return seen

    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(streams) as pool:
        watched = pb_grpc.GatewayStub(channel).WatchEvents
        begun = [watched(pb.WatchEventsRequest(), metadata=metadata) for _ in range(streams)]
        for stream in begun:
            next(stream)
        found = [pool.submit(watch, stream) for stream in begun]
        ready.wait()
        time.sleep(seconds)
        for stream in begun:
            stream.cancel()
        answers.put([one for part in found for one in part.result()])


# --- restarts -------------------------------------------------------------------------------------


class _Resuming(threading.Thread):
    """A stream that is continued whenever it ends."""

    def __init__(self, daemon: Daemon, begun: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self._daemon, self._begun = daemon, begun
        self._token = daemon.token("root")
        self.facts: Counter[int] = Counter()
        self.states: dict[str, str] = {}
        self.ended = threading.Event()
        self.cursor = ""

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                for reply in self._replies():
                    self._take(reply)
            except grpc.RpcError:
                time.sleep(0.05)

    def _replies(self) -> Iterator[pb.WatchEventsReply]:
        with grpc.insecure_channel(self._daemon.address) as channel:
            stub, metadata = (
                pb_grpc.GatewayStub(channel),
                [("authorization", f"Bearer {self._token}")],
            )
            request = pb.WatchEventsRequest(after=self.cursor)
            for reply in stub.WatchEvents(request, metadata=metadata):
                yield reply
                if reply.list_again:
                    self._list(pb_grpc.SchedulerStub(channel), metadata)
                if self.ended.is_set():
                    return

    def _take(self, reply: pb.WatchEventsReply) -> None:
        first, self.cursor = not self.cursor, reply.cursor
        self.facts.update(fact.number for fact in reply.facts)
        for lost in reply.lost:
            self.facts.update(range(lost.first, lost.last + 1))
        self.states |= {job.id: job.state for job in reply.jobs}
        if first:
            self._begun.wait()

    def _list(self, stub: pb_grpc.SchedulerStub, metadata: list[tuple[str, str]]) -> None:
        request = pb.ListJobsRequest(all_users=True, limit=1000, brief=True)
        reply = stub.ListJobs(request, metadata=metadata, timeout=30)
        self.states |= {job.id: job.state for job in reply.jobs}


def _restart(daemon: Daemon, restarts: int) -> dict[str, Any]:
    begun = threading.Barrier(RESUMING + 1)
    streams = [_Resuming(daemon, begun) for _ in range(RESUMING)]
    for stream in streams:
        stream.start()
    begun.wait()
    first = _newest_fact(daemon)
    for number in range(restarts):
        _submit_and_cancel(daemon, 10)
        threading.Timer(0.01 * (number % 7), daemon.kill).run()
        daemon.start()
    _submit_and_cancel(daemon, 1)
    newest = _newest_fact(daemon)
    until = time.monotonic() + 60
    while time.monotonic() < until and any(max(one.facts, default=0) < newest for one in streams):
        time.sleep(0.1)
    time.sleep(2.0)  # for the jobs, which follow their facts
    states = {job.id: job.state for job in _listed(daemon)}
    for stream in streams:
        stream.ended.set()
    wanted = set(range(first + 1, newest + 1))
    return {
        "facts": len(wanted),
        "gaps": sum(len(wanted - one.facts.keys()) for one in streams),
        "repeated": sum(count - 1 for one in streams for count in one.facts.values()),
        "stale": sum(
            one.states.get(job_id, state) != state
            for one in streams
            for job_id, state in states.items()
        ),
    }


def _submit_and_cancel(daemon: Daemon, jobs: int) -> None:
    spec = pb.JobSpec(name="job", command=["true"], held=True, gpus_min=0, gpus_max=0)
    with daemon.stub() as (stub, metadata):
        for _ in range(jobs):
            request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
            job = stub.Submit(request, metadata=metadata, timeout=30).job
            stub.CancelJob(pb.CancelJobRequest(job=job.id), metadata=metadata, timeout=30)


def _listed(daemon: Daemon) -> list[pb.Job]:
    with daemon.stub() as (stub, metadata):
        request = pb.ListJobsRequest(all_users=True, limit=1000)
        return list(stub.ListJobs(request, metadata=metadata, timeout=30).jobs)


def _newest_fact(daemon: Daemon) -> int:
    with sqlite3.connect(daemon.state / "scheduler.db") as db:
        (number,) = db.execute("select max(seq) from facts").fetchone()
    return int(number)


if __name__ == "__main__":
    main()
