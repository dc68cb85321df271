"""Kill -9 the real daemon at random moments under load: `python -m benchmarks.crash --json`.

Real trainings (crash_train.py) share two simulated GPUs while clients submit more, some of them
urgent, so that others are preempted and resumed. The daemon is killed repeatedly, also while it
starts. At the end every job must have finished, and the record that each job keeps of its own work
is compared with the daemon's:

    lost           jobs with an acknowledged submission that did not finish
    doubled        runs started twice, or beside another run of the same job
    epochs_lost    epochs done twice (epochs_repeated), or done but not reported (epochs_uncounted)
    epochs_behind  epochs that the daemon has counted but the job has not done; must be 0

With `--full` each job writes more than its log may take, and the disk of the state folder falls
below its reserve and rises above it all the time. Then the figures of kept_logs.py are added.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from benchmarks import kept_logs
from benchmarks.figures import options, show
from benchmarks.kept_logs import Note
from benchmarks.small_disk import SETTINGS, CannotMountError, SmallDisk, mounted
from scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.support import Daemon, eventually

TRAIN = Path(__file__).with_name("crash_train.py")
LIVE_MAX = 8
EPOCHS = 20
KILLED_WITHIN_SECONDS = 0.6
KILLED_WHILE_STARTING = 0.2


def main() -> None:
    given = options(__doc__, kills=100, seed=1, full=False)
    try:
        show(kills=given.kills, **_figures(given))
    except CannotMountError as error:
        show(not_measured=str(error))


def _figures(given: argparse.Namespace) -> dict[str, int]:
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        daemon = Daemon(Path(folder) / "state", "2x16384")
        disk = stack.enter_context(full_disk(daemon, given.seed + 2)) if given.full else None
        daemon.start()
        trained = {"image": "none", "script_path": str(TRAIN)}
        trained["snapshots_dir"] = f"{folder}/snapshots"
        load = Load(daemon, Path(folder), random.Random(given.seed + 1), trained)
        load.notes_lines = given.full
        try:
            load.start()
            started, within = time.monotonic(), KILLED_WITHIN_SECONDS
            for kill in range(given.kills):
                load.await_jobs()
                killed(daemon, chance, within)
                began = time.monotonic()
                daemon.start()
                # Where it takes longer to start, it takes longer to accept a job.
                within = max(KILLED_WITHIN_SECONDS, time.monotonic() - began)
                tell(kill + 1, given.kills, started, load)
            load.stop()
            daemon.wait(lambda jobs: all(job.ended_at for job in jobs.values()), seconds=600)
            verdict = load.verdict()
            lost = verdict["epochs_repeated"] + verdict["epochs_uncounted"]
            full = compared(daemon, load, disk) if disk else {}
            return {"epochs_lost": lost, **verdict, **full}
        finally:
            load.stop()
            daemon.end()


def killed(daemon: Daemon, chance: random.Random, within_seconds: float) -> None:
    """Kills it at a random moment, perhaps while it starts."""
    time.sleep(chance.uniform(0.0, within_seconds))
    daemon.kill()
    if chance.random() < KILLED_WHILE_STARTING:
        daemon.spawn()
        time.sleep(chance.uniform(0.0, within_seconds))
        daemon.kill()


@contextlib.contextmanager
def full_disk(daemon: Daemon, seed: int) -> Iterator[SmallDisk]:
    """`--full`, for a daemon that has not started yet."""
    with mounted(daemon.state, random.Random(seed)) as disk:
        daemon.environment = {**daemon.environment, **SETTINGS}
        yield disk


def compared(
    daemon: Daemon, load: Load, disk: SmallDisk, lost_ends: Collection[str] = ()
) -> dict[str, int]:
    """The figures of `--full`. `lost_ends`: runs whose runner was killed."""
    return {
        "crossings": disk.crossings,
        "refused": load.refused,
        "taken_when_low": sum(disk.was_low(*span) for span in load.submitted.values()),
        **kept_logs.compare(daemon, load.notes(), disk, lost_ends),
    }


class Load:
    """A client that submits jobs continuously, and remembers which were acknowledged."""

    def __init__(
        self,
        daemon: Daemon,
        folder: Path,
        chance: random.Random,
        trained: Mapping[str, Any],
        live_max: int = LIVE_MAX,
    ) -> None:
        """`trained`: the part of a specification that runs crash_train.py. `live_max`: another job
        is submitted while fewer jobs wait or are asked to stop."""
        self._daemon, self._chance, self._trained = daemon, chance, trained
        self._live_max = live_max
        self._truth = folder / "truth"
        self._truth.mkdir(exist_ok=True)
        self._metadata = [("authorization", f"Bearer {daemon.token('root')}")]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._submit_on)
        self.acknowledged: set[str] = set()
        self.submitted: dict[str, tuple[float, float]] = {}  # first call and acknowledgement
        self.refused = 0  # for want of room on the disk
        self.notes_lines = False  # whether jobs write numbered lines, and note them

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def await_jobs(self) -> None:
        """Until there are some to be lost: a busy machine accepts none between many kills."""
        with self._daemon.stub() as (stub, _):
            eventually(lambda: self._live(stub) > 0, seconds=600)

    def verdict(self) -> dict[str, int]:
        with sqlite3.connect(self._daemon.state / "scheduler.db") as db:
            finished = {
                row[0] for row in db.execute("select id from jobs where outcome='succeeded'")
            }
            counted = Counter(
                row[0] for row in db.execute("select distinct job_id, epoch from profiles")
            )
            attempts = dict(db.execute("select id, attempts from jobs"))
            done = dict(db.execute("select id, epochs_done from jobs"))
        doubled, repeated, uncounted = 0, 0, 0
        for job_id in self.acknowledged:
            lines = self.record(job_id)
            starts = Counter(line for line in lines if line.startswith("attempt"))
            doubled += sum(count - 1 for count in starts.values()) + lines.count("doubled")
            epochs = Counter(line for line in lines if line.startswith("epoch"))
            repeated += sum(count - 1 for count in epochs.values())
            uncounted += EPOCHS - counted[job_id]
        return {
            "lost": len(self.acknowledged - finished),
            "doubled": doubled,
            "epochs_repeated": repeated,
            "epochs_uncounted": uncounted,
            "epochs_behind": sum(EPOCHS - done[job_id] for job_id in self.acknowledged),
            "jobs": len(self.acknowledged),
            "epochs": sum(counted.values()),
            "resumed": sum(max(0, count - 1) for count in attempts.values()),
        }

    def record(self, job_id: str) -> list[str]:
        """The record that a job keeps of its own work."""
        record = self._truth / job_id
        return record.read_text().splitlines() if record.exists() else []

    def notes(self) -> dict[str, list[Note]]:
        """What each job has noted of the lines that it wrote."""
        return {
            job_id: [Note.of(line) for line in path.read_text().splitlines()]
            for job_id in self.acknowledged
            if (path := self._truth / f"{job_id}.lines").exists()
        }

    def _submit_on(self) -> None:
        with grpc.insecure_channel(
            self._daemon.address, options=[("grpc.max_reconnect_backoff_ms", 200)]
        ) as channel:
            stub = scheduler_pb2_grpc.SchedulerStub(channel)
            while not self._stopped.wait(0.05):
                if self._live(stub) < self._live_max:
                    self._submit(stub, str(uuid.uuid4()))

    def _live(self, stub: scheduler_pb2_grpc.SchedulerStub) -> int:
        request = scheduler_pb2.ListJobsRequest(states=["QUEUE", "STOPPING"], limit=1)
        try:
            return int(stub.ListJobs(request, metadata=self._metadata, timeout=2).total)
        except grpc.RpcError:
            return self._live_max

    def _submit(self, stub: scheduler_pb2_grpc.SchedulerStub, job_id: str) -> None:
        """Repeats a submission with the same id until it is acknowledged."""
        urgent = self._chance.random() < 0.2
        env = {"TRUTH": str(self._truth / job_id)}
        if self.notes_lines:
            env["LINES_NOTED"] = f"{env['TRUTH']}.lines"
        spec = scheduler_pb2.JobSpec(
            name=job_id,
            **self._trained,
            max_epochs=EPOCHS,
            memory_mib=14_000 if urgent else 5_000,
            priority=9 if urgent else 1,
            env=[scheduler_pb2.KeyValue(key=key, value=env[key]) for key in env],
        )
        request = scheduler_pb2.SubmitRequest(job_id=job_id, spec=spec)
        began_at = time.time()
        while job_id not in self.acknowledged:
            try:
                stub.Submit(request, metadata=self._metadata, timeout=2)
            except grpc.RpcError as error:
                self.refused += "the scheduler's disk is full" in str(error.details())
                if self._stopped.wait(0.05):
                    return
            else:
                self.submitted[job_id] = began_at, time.time()
                self.acknowledged.add(job_id)


def tell(kill: int, kills: int, started: float, load: Load) -> None:
    left = (time.monotonic() - started) / kill * (kills - kill)
    words = f"\r{kill} of {kills} kills, {len(load.acknowledged)} jobs, {left:.0f} s left "
    sys.stderr.write(words if sys.stderr.isatty() else words + "\n" if kill % 50 == 0 else "")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
