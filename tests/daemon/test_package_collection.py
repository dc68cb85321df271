from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core.errors import NotFound
from scheduler.core.model import Job, JobId, JobSpec, Outcome, View
from scheduler.daemon.package_collection import collect
from scheduler.packages import unpacking
from scheduler.packages.store import PackageStore
from tests.packages.conftest import upload

DAY = 86_400.0


def test_a_job_needs_its_package_while_it_lives_and_for_some_days(tmp_path: Path) -> None:
    now = [1000.0]
    store = PackageStore(tmp_path, lambda: now[0], 64)
    package = upload(store, "ada", {"train.py": b"1"})
    store.use("ada", package, [JobId("job")])
    live = Job.submitted(JobId("job"), JobSpec("demo", "ada", code=package), 1000.0)
    unpacking.unpacked(str(store.contents), package, str(store.trees), {})

    def days_later(days: float, job: Job) -> None:
        now[0] = 1000.0 + days * DAY
        in_view = {} if job.outcome else {job.id: job}
        collect(store, View(at=now[0], jobs=in_view), lambda _: job, 90)

    days_later(400, live)
    store.check("ada", package)
    assert list(store.trees.glob("*/train.py"))
    ended = replace(live, outcome=Outcome.FAILED, ended_at=now[0])
    for lock in store.trees.glob("*.lock"):
        os.utime(lock, (0, 0))
    days_later(489, ended)
    store.check("ada", package)
    assert not list(store.trees.iterdir())  # unpacked again if it starts again
    days_later(491, ended)
    with pytest.raises(NotFound):
        store.check("ada", package)


def test_a_job_that_was_never_accepted_needs_nothing(tmp_path: Path) -> None:
    now = [1000.0]
    store = PackageStore(tmp_path, lambda: now[0], 64)
    package = upload(store, "ada", {"train.py": b"1"})
    store.use("ada", package, [JobId("refused")])
    now[0] += 2 * DAY
    assert collect(store, View(at=now[0]), lambda _: None, 90) == 2
