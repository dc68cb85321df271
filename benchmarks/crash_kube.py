"""benchmarks.crash for a daemon on Kubernetes: `python -m benchmarks.crash_kube --json`.

A real API server has pods whose commands run on this machine (tests/kube/bare.py). Halfway the
daemon's database is deleted as well: the runs of that moment must continue to their end, although
the daemon does not know their jobs any more. Needs what `make kube` builds.

    lost, doubled     as in benchmarks.crash
    epochs_repeated   epochs done twice
    epochs_uncounted  epochs without a report: pods do not wait for a daemon that is away
    went_on           runs that outlived the database
    interrupted       runs that did not, or that failed
    overbooked        observations in which pods had more of a GPU than it has
    leaked            objects of ours that remain when all jobs have ended
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from benchmarks.crash import EPOCHS, LIVE_MAX, TRAIN, Load, killed, tell
from benchmarks.figures import options, show
from benchmarks.kube import daemon_on, left, missing
from scheduler.core.model import Job, JobId, RunKey, RunPhase
from scheduler.store.writer import SqliteStore
from tests.kube.bare import BareKubelet
from tests.kube.control import ControlPlane
from tests.support import Daemon, eventually

NAMESPACE = "crash"
DATABASE = "scheduler.db"
KILLED_WITHIN_SECONDS = 2.0
END_SECONDS = 600.0


def main() -> None:
    given = options(__doc__, kills=50, seed=1)
    if why := missing():
        show(not_measured=why)
        return
    with tempfile.TemporaryDirectory() as name:
        control = ControlPlane(Path(name) / "kube")
        try:
            control.start()
            control.controllers.start()
            control.namespace(NAMESPACE)
            verdict = judged(control, NAMESPACE, Path(name), given.kills, LIVE_MAX, given.seed)
            show(kills=given.kills, **verdict)
        finally:
            control.stop()


def judged(
    control: ControlPlane, namespace: str, folder: Path, kills: int, live_max: int, seed: int
) -> dict[str, int]:
    """Half of the kills, the loss of the database, and the other half. Controllers must run."""
    chance = random.Random(seed)
    with BareKubelet(control, namespace, folder / "snapshots").at_work() as kubelet:
        daemon = daemon_on(control, namespace, folder)
        trial = _Trial(daemon, kubelet, folder, live_max, chance)
        try:
            first = trial.killed(kills // 2)
            orphans = trial.forgets(first)
            verdict = Counter(first.verdict())
            for file in daemon.state.glob(f"{DATABASE}*"):
                file.unlink()
            daemon.start()
            second = trial.killed(kills - kills // 2)
            second.stop()
            daemon.wait(lambda jobs: all(job.ended_at for job in jobs.values()), END_SECONDS)
            verdict.update(second.verdict())
            leaked = left(control, namespace, END_SECONDS)
        finally:
            trial.end()
    well = sum(_whole(first.record(job_id)) for job_id in orphans)
    return {
        **verdict,
        "went_on": well,
        "interrupted": len(orphans) - well,
        "overbooked": kubelet.overbooked,
        "leaked": leaked,
    }


class _Trial:
    """A daemon under load that is killed repeatedly."""

    def __init__(
        self,
        daemon: Daemon,
        kubelet: BareKubelet,
        folder: Path,
        live_max: int,
        chance: random.Random,
    ) -> None:
        self._daemon, self._kubelet = daemon, kubelet
        self._folder, self._live_max, self._chance = folder, live_max, chance
        self._loads: list[Load] = []

    def killed(self, kills: int) -> Load:
        """Afterwards the load continues, and the daemon is alive."""
        trained = {"command": [sys.executable, str(TRAIN)]}
        chance = random.Random(self._chance.random())
        load = Load(self._daemon, self._folder, chance, trained, self._live_max)
        self._loads.append(load)
        load.start()
        started = time.monotonic()
        for kill in range(kills):
            eventually(self._kubelet.alive, END_SECONDS)
            killed(self._daemon, self._chance, KILLED_WITHIN_SECONDS)
            self._daemon.start()
            tell(kill + 1, kills, started, load)
        return load

    def forgets(self, load: Load) -> list[JobId]:
        """Kills the daemon once more, while these jobs run. Unfinished jobs are no longer expected
        to end."""
        while True:
            eventually(self._kubelet.alive, END_SECONDS)
            self._daemon.kill()
            jobs, alive = _unfinished(self._daemon), self._kubelet.alive()
            if running := [job.id for job in jobs.values() if _runs(job, alive)]:
                load.stop()
                load.acknowledged -= jobs.keys()
                return running
            self._daemon.start()

    def end(self) -> None:
        self._daemon.end()
        for load in self._loads:
            load.stop()


def _unfinished(daemon: Daemon) -> Mapping[JobId, Job]:
    """The result of a query on the database of a dead daemon."""
    store = SqliteStore(daemon.state / DATABASE)
    jobs = store.load().jobs
    store.close()
    return jobs


def _runs(job: Job, alive: Collection[RunKey]) -> bool:
    """Whether it runs and was not told to stop."""
    run = job.run
    return bool(run and run.phase is not RunPhase.STOPPING and (job.id, run.attempt) in alive)


def _whole(record: list[str]) -> bool:
    """Whether all epochs were done once, and no two runs were alive at a time."""
    twice = [line for line, count in Counter(record).items() if count > 1]
    done = {line for line in record if line.startswith("epoch")}
    return len(done) == EPOCHS and not twice and "doubled" not in record


if __name__ == "__main__":
    main()
