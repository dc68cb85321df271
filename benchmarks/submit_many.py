"""How long it takes to submit many jobs at once: the call, and the whole command.

`python -m benchmarks.submit_many --json`.
There is a real daemon with one GPU, for which all jobs wait. Each round submits 1,000 jobs in one
call; the slowest round counts.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

import grpc

from benchmarks.figures import options, show
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc
from tests.support import Daemon


def main() -> None:
    given = options(__doc__, jobs=1_000, rounds=5)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "1x16384").start()
        try:
            calls = [_call(daemon, given.jobs) for _ in range(given.rounds)]
            commands = [_command(daemon, given.jobs) for _ in range(given.rounds)]
        finally:
            daemon.end()
    show(
        submit_many_seconds=round(max(calls), 3),
        sweep_command_seconds=round(max(commands), 3),
        jobs=given.jobs,
    )


def _call(daemon: Daemon, jobs: int) -> float:
    common = pb.JobSpec(image="none", gpus_min=1, gpus_max=1, memory_mib=4000)
    made = [
        pb.SubmitRequest(
            job_id=str(uuid.uuid4()),
            spec=pb.JobSpec(name=f"grid-{number}", command=["sleep", "1000", str(number)]),
        )
        for number in range(jobs)
    ]
    request = pb.SubmitManyRequest(jobs=made, common=common)
    metadata = [("authorization", f"Bearer {daemon.token('root')}")]
    with grpc.insecure_channel(daemon.address) as channel:
        stub = scheduler_pb2_grpc.SchedulerStub(channel)
        stub.GetCluster(pb.GetClusterRequest(), metadata=metadata)  # connects
        start = time.perf_counter()
        reply = stub.SubmitMany(request, metadata=metadata, timeout=60)
        took = time.perf_counter() - start
    assert reply.accepted == jobs
    return took


def _command(daemon: Daemon, jobs: int) -> float:
    values = ",".join(map(str, range(jobs)))
    start = time.perf_counter()
    done = daemon.run(
        *("run-scheduler", "--sweep", f"lr={values}", "--yes", "--estimated_memory", "4000"),
        *("grid", "--", "sleep", "1000", "{lr}"),
    )
    took = time.perf_counter() - start
    assert len(done.stdout.split()) == jobs, done.stderr
    return took


if __name__ == "__main__":
    main()
