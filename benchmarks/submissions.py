"""Durable submissions per second, and listing among many jobs that have ended.

`python -m benchmarks.submissions --json`.
There is a real daemon, and 4 client processes submit 1,000 jobs one by one. Then its database gets
100,000 ended jobs, and the CPU seconds of `scheduler-state` are measured with them.
"""

from __future__ import annotations

import multiprocessing
import resource
import sqlite3
import tempfile
import time
import uuid
from pathlib import Path

import grpc
import psutil

from benchmarks.figures import options, show
from scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.support import Daemon

CLIENTS = 4


def main() -> None:
    given = options(__doc__, jobs=1_000, past=100_000)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "1x16384").start()
        try:
            rate = _submit(daemon, given.jobs)
            daemon.stop()
            _age(daemon.state / "scheduler.db", given.past)
            daemon.start()
            command, server = _listing(daemon)
            show(
                submissions_per_second=round(rate),
                state_cpu_seconds=round(command, 3),
                state_daemon_cpu_seconds=round(server, 3),
                past_jobs=given.past,
                jobs=given.jobs,
            )
        finally:
            daemon.end()


def _submit(daemon: Daemon, jobs: int) -> float:
    token = daemon.token("root")
    context = multiprocessing.get_context("spawn")
    with context.Pool(CLIENTS) as pool:
        pool.map(_ready, range(CLIENTS))  # starts the interpreters before the measurement
        start = time.perf_counter()
        pool.starmap(_client, [(daemon.address, token, jobs // CLIENTS)] * CLIENTS, chunksize=1)
        return jobs / (time.perf_counter() - start)


def _ready(number: int) -> int:
    time.sleep(0.2)  # so that each process takes one
    return number


def _client(address: str, token: str, jobs: int) -> None:
    spec = scheduler_pb2.JobSpec(name="job", image="none", command=["true"], held=True)
    with grpc.insecure_channel(address) as channel:
        stub = scheduler_pb2_grpc.SchedulerStub(channel)
        for _ in range(jobs):
            request = scheduler_pb2.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
            stub.Submit(request, metadata=[("authorization", f"Bearer {token}")], timeout=30)


def _age(database: Path, past: int) -> None:
    """Adds a history to the database: copies of a row with other ids, as ended jobs."""
    with sqlite3.connect(database) as db:
        names = [row[1] for row in db.execute("pragma table_info(jobs)") if row[1] != "seq"]
        values = {
            "id": "lower(hex(randomblob(4)) || '-0000-4000-8000-' || hex(randomblob(6)))",
            "outcome": "'succeeded'",
            "ended_at": "submitted_at + 1",
        }
        chosen = ", ".join(values.get(name, name) for name in names)
        db.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)"
            f" insert into jobs ({', '.join(names)}) select {chosen} from n,"
            " (select * from jobs limit 1)",
            (past,),
        )


def _listing(daemon: Daemon) -> tuple[float, float]:
    """CPU seconds of one `scheduler-state`: of the command, and of the daemon for it."""
    daemon.run("scheduler-state", "--all_users", "--nlast", "20")
    process = psutil.Process(daemon.pid)
    before = resource.getrusage(resource.RUSAGE_CHILDREN), process.cpu_times()
    rounds = 5
    for _ in range(rounds):
        done = daemon.run("scheduler-state", "--all_users", "--nlast", "20")
        assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN), process.cpu_times()
    command = sum(after[0][:2]) - sum(before[0][:2])
    server = sum(after[1][:2]) - sum(before[1][:2])
    return command / rounds, server / rounds


if __name__ == "__main__":
    main()
