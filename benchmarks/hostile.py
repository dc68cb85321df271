"""A stream of malformed requests: `python -m benchmarks.hostile --json`.

Two processes send a real daemon with running jobs requests that no client of ours would send (see
malformed.py), while an honest client reads a job and reports its epochs as usual:

    answered_good    honest requests with a correct answer, out of `good`
    rss_growth_mib   of the daemon, since the first 2,000 requests filled its buffers and caches
    internal_errors  calls that ended as INTERNAL or UNKNOWN, and errors in the daemon's log
    changed          jobs that have changed, except the honest job's epochs

stderr shows how the requests ended.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.figures import options, show
from benchmarks.malformed import Attacker, Target
from scheduler.access.identity import user_name
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.support import Daemon

ATTACKERS = 2
WARM_UP = 2_000
TOLD_EVERY = 200  # requests
OUR_FAULT = ("INTERNAL", "UNKNOWN")
STRANGERS_NAME = "no-such-user"
EPOCHS = 1_000_000_000
Job = tuple[str, str]  # id, token


def main() -> None:
    given = options(__doc__, requests=100_000, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "2x16384").start()
        try:
            honest, target = prepare(daemon)
            before = rows(daemon)
            process = psutil.Process(daemon.pid)
            started = time.monotonic()
            ended = _attack(target, honest, given.seed, WARM_UP)
            warm = process.memory_info().rss
            ended += _attack(target, honest, given.seed + 1, given.requests - WARM_UP)
            show(
                requests=ended.total(),
                good=honest.asked,
                answered_good=honest.answered,
                rss_growth_mib=round((process.memory_info().rss - warm) / 2**20, 1),
                rss_mib=round(process.memory_info().rss / 2**20),
                internal_errors=sum(ended[status] for status in OUR_FAULT) + len(errors(daemon)),
                changed=len(dict(rows(daemon).items() - before.items())),
                seconds=round(time.monotonic() - started, 1),
            )
            sys.stderr.write(f"{dict(ended.most_common())}\n")
        finally:
            daemon.end()


# --- the attack ---------------------------------------------------------------------------------


def _attack(target: Target, honest: Honest, seed: int, requests: int) -> Counter[str]:
    """Counts how the requests ended."""
    context = multiprocessing.get_context("spawn")
    told: Queue[Counter[str] | None] = context.Queue()
    attackers = [
        context.Process(
            target=_attacker,
            args=(target, seed * ATTACKERS + n, requests // ATTACKERS, told),
            daemon=True,
        )
        for n in range(ATTACKERS)
    ]
    for attacker in attackers:
        attacker.start()
    ended: Counter[str] = Counter()
    left, started = ATTACKERS, time.monotonic()
    while left:
        news = told.get()
        left -= news is None
        ended += news or Counter()
        honest.ask()
        _tell(ended.total(), requests, started)
    for attacker in attackers:
        attacker.join()
    return ended


def _attacker(target: Target, seed: int, requests: int, told: Queue[Counter[str] | None]) -> None:
    """The attack of one process."""
    with Attacker(target, seed) as attacker:
        while requests > 0:
            told.put(attacker.attack(min(TOLD_EVERY, requests)))
            requests -= TOLD_EVERY
    told.put(None)


def _tell(done: int, requests: int, started: float) -> None:
    if sys.stderr.isatty():
        left = (time.monotonic() - started) / max(1, done) * (requests - done)
        end = "\n" if done == requests else ""
        sys.stderr.write(f"\r{done} of {requests} requests, {left:.0f} s left   {end}")
        sys.stderr.flush()


# --- the attacked -------------------------------------------------------------------------------


class Honest:
    """An honest client with a job, which counts whether its requests are served."""

    def __init__(self, address: str, user: str, job: Job) -> None:
        channel = grpc.insecure_channel(address)
        self._people, self._jobs = pb_grpc.SchedulerStub(channel), pb_grpc.ProfilerStub(channel)
        self._user, (self._job_id, self._token) = user, job
        self.asked, self.answered, self.epoch = 0, 0, 0

    def ask(self) -> None:
        self.asked += 1
        profile = pb.Profile(job_id=self._job_id, attempt=1, epoch=self.epoch + 1)
        try:
            done = self._jobs.EndEpoch(
                pb.EndEpochRequest(profiles=[profile]), metadata=bearer(self._token), timeout=10
            )
            seen = self._people.GetJob(
                pb.GetJobRequest(job=self._job_id), metadata=bearer(self._user), timeout=10
            )
        except grpc.RpcError as error:
            sys.stderr.write(f"an honest request failed: {error}\n")
            return
        self.epoch += 1
        self.answered += done.epochs_done == self.epoch == seen.job.epochs_done


def prepare(daemon: Daemon) -> tuple[Honest, Target]:
    """Running jobs, with more knowledge about them than an attacker can have."""
    names = ["honest", "stranger", *(f"victim-{n}" for n in range(4))]
    for name in names:
        flags = ("--image", "none", "--num_gpus", str(int(name.startswith("victim"))))
        memory = ("--estimated_memory", "2000", "--max_epochs", str(EPOCHS))
        daemon.submit(*flags, *memory, name, "--", "sleep", "1000")
    daemon.wait_state(**dict.fromkeys(names, "RUNNING"))
    with closing(sqlite3.connect(daemon.state / "scheduler.db")) as db:
        jobs = {
            name: (job, token)
            for name, job, token in db.execute("select name, id, token from jobs")
        }
    owner = daemon.token(user_name(os.geteuid()))
    victims = tuple(jobs[name] for name in names[2:])
    with grpc.insecure_channel(daemon.address) as channel:
        for job_id, token in victims:  # so that epochs can go backwards
            profile = pb.Profile(job_id=job_id, attempt=1, epoch=5)
            pb_grpc.ProfilerStub(channel).EndEpoch(
                pb.EndEpochRequest(profiles=[profile]), metadata=bearer(token), timeout=10
            )
    target = Target(
        daemon.address, owner, daemon.token(STRANGERS_NAME), jobs["stranger"][1], victims
    )
    return Honest(daemon.address, owner, jobs["honest"]), target


def rows(daemon: Daemon) -> dict[str, str]:
    """Every stored job, without the time of its last report and the honest job's progress."""
    with closing(sqlite3.connect(daemon.state / "scheduler.db")) as db:
        db.row_factory = sqlite3.Row
        kept = [dict(row) for row in db.execute("select * from jobs")]
    for row in kept:
        run = json.loads(row["run"] or "{}")
        run.pop("heard_at", None)
        if row["name"] == "honest":
            for told in ("epochs_done", "measured", "restart_seconds", "profiles_ignored"):
                row.pop(told)
            run = {name: value for name, value in run.items() if not name.startswith("epoch")}
        row["run"] = run
    return {row["id"]: json.dumps(row, sort_keys=True) for row in kept}


def errors(daemon: Daemon) -> list[dict[str, Any]]:
    """Counts errors of our own in the daemon's log."""
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    return [line for line in lines if line["level"] in ("error", "critical")]


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


if __name__ == "__main__":
    main()
