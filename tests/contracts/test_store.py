"""What every Store does, in a file and in memory: commits are atomic, and are read back."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.errors import InvariantError
from scheduler.core.model import Fact, Job, JobId, JobSpec, Outcome, Profile, Rules, View
from scheduler.core.ports import Step
from scheduler.store.journal import Decider
from scheduler.store.writer import SqliteStore
from tests.strategies import values

DECIDER = Decider("fifo_sharing", Rules())  # so that steps are recorded too
KINDS = pytest.mark.parametrize("kind", ["file", "memory"])


class Crash(BaseException):
    """An interruption of a commit."""


class Disk:
    """A store, which can be restarted as if by a new process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.statements_left = sys.maxsize
        self._stores: list[SqliteStore] = []
        self.restart()

    def restart(self) -> None:
        """Does not close what was open. A store in memory lives as long as its process."""
        if self._path or not self._stores:
            self._stores.append(SqliteStore(self._path, self._before_write, DECIDER))
        self.store = self._stores[-1]
        self.store.load()  # as every caller does first

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def jobs(self) -> list[Job]:
        return list(self.store.load().jobs.values())

    def _before_write(self) -> None:
        if self.statements_left == 0:
            raise Crash
        self.statements_left -= 1


@contextmanager
def disk(kind: str) -> Iterator[Disk]:
    with TemporaryDirectory() as folder:
        made = Disk(Path(folder) / "scheduler.db" if kind == "file" else None)
        try:
            yield made
        finally:
            made.close()


def live(view: View) -> list[Job]:
    return [job for job in view.jobs.values() if job.outcome is None]


@st.composite
def next_views(draw: st.DrawFn, view: View) -> tuple[View, tuple[JobId, ...]]:
    """Jobs come, change, end and are forgotten; and which ones a step would say it touched."""
    jobs = dict(view.jobs)
    touched: list[JobId] = []
    for job_id, job in view.jobs.items():
        what = draw(st.sampled_from(["stay", "change", "forget", "rumour"]))
        if job.outcome is not None and what == "forget":
            del jobs[job_id]
        elif job.outcome is None and what == "change":
            fixed = {"id": st.just(job_id), "spec": st.just(job.spec)}
            fixed |= {"submitted_at": st.just(job.submitted_at), "token": st.just(job.token)}
            jobs[job_id] = draw(values(Job, **fixed))
        if what != "stay":
            touched.append(job_id)
    for _ in range(draw(st.integers(0, 3))):
        job = draw(values(Job, id=st.uuids().map(lambda uuid: JobId(str(uuid)))))
        if job.id not in jobs:
            jobs[job.id] = job
            touched.append(job.id)
    return replace(view, number=view.number + 1, jobs=jobs), tuple(touched)


@st.composite
def news(draw: st.DrawFn, view: View) -> tuple[list[Fact], list[Profile]]:
    known = st.sampled_from(sorted(view.jobs)) if view.jobs else st.nothing()
    return (
        draw(st.lists(values(Fact), max_size=2)),
        draw(st.lists(values(Profile, job_id=known), max_size=2 if view.jobs else 0)),
    )


@KINDS
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_what_was_committed_is_what_is_loaded(kind: str, data: st.DataObject) -> None:
    view = View()
    with disk(kind) as here:
        for _ in range(3):
            after, touched = data.draw(next_views(view))
            here.store.commit(Step(view, after, touched, *data.draw(news(after)), 0.0))
            view = after
            here.restart()
            assert here.jobs() == live(view)


@KINDS
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_crash_at_any_statement_leaves_all_or_nothing(kind: str, data: st.DataObject) -> None:
    before, touched = data.draw(next_views(View()))
    with disk(kind) as here:
        here.store.commit(Step(View(), before, touched, [], [], 0.0))
        after, touched = data.draw(next_views(before))
        facts, profiles = data.draw(news(after))
        here.statements_left = data.draw(st.integers(0, 12))
        try:
            here.store.commit(Step(before, after, touched, facts, profiles, 0.0))
        except Crash:
            here.restart()
            assert here.jobs() == live(before)
            here.statements_left = sys.maxsize
            here.store.commit(Step(before, after, touched, facts, profiles, 0.0))
        assert here.jobs() == live(after)


def job(number: int, **changes: object) -> Job:
    spec = JobSpec(name="n", user="u")
    return replace(Job(JobId(f"job-{number}"), spec, submitted_at=1.0), **changes)  # type: ignore[arg-type]  # a mapping has one type of value


def view(*jobs: Job) -> View:
    return View(jobs={job.id: job for job in jobs})


@KINDS
def test_jobs_are_loaded_in_the_order_of_their_submission(kind: str) -> None:
    numbers = random.Random(1).sample(range(100), 100)
    jobs = [job(number) for number in numbers]
    with disk(kind) as here:
        here.store.commit(Step(View(), view(*jobs), [job.id for job in jobs], [], [], 1.0))
        assert here.jobs() == jobs


@KINDS
def test_how_a_job_ended_is_never_changed(kind: str) -> None:
    ended = job(1, outcome=Outcome.FAILED)
    with disk(kind) as here:
        here.store.commit(Step(View(), view(ended), [ended.id], [], [], 1.0))
        for changed in (replace(ended, outcome=Outcome.SUCCEEDED), replace(ended, outcome=None)):
            with pytest.raises(InvariantError, match="job-1"):
                here.store.commit(Step(view(ended), view(changed), [ended.id], [], [], 2.0))
        assert here.jobs() == []


@KINDS
def test_a_job_is_submitted_once(kind: str) -> None:
    with disk(kind) as here:
        here.store.commit(Step(View(), view(job(1)), [job(1).id], [], [], 1.0))
        with pytest.raises(InvariantError, match="an invalid row"):
            here.store.commit(Step(View(), view(job(1)), [job(1).id], [], [], 2.0))


@KINDS
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_could_not_be_read_again_is_not_written(kind: str, wrong: float) -> None:
    spec = replace(job(1).spec, hours_estimate=wrong)
    fact = Fact(at=wrong, kind="odd")
    with disk(kind) as here:
        with pytest.raises(InvariantError, match="job-1: its specification"):
            here.store.commit(Step(View(), view(job(1, spec=spec)), [job(1).id], [], [], 1.0))
        if wrong != wrong:
            with pytest.raises(InvariantError, match="an invalid row"):
                here.store.commit(Step(View(), view(job(1)), [job(1).id], [fact], [], 1.0))
        assert here.jobs() == []


@KINDS
def test_when_there_is_nothing_to_write_nothing_is_written(kind: str) -> None:
    with disk(kind) as here:
        here.store.commit(Step(View(), view(job(1)), [job(1).id], [], [], 1.0))
        here.statements_left = 0  # one more would be a crash
        same = view(job(1))
        here.store.commit(Step(same, replace(same, number=2), [job(1).id], [], [], 2.0))
        here.store.commit(Step(same, View(), [job(1).id], [], [], 2.0))
        assert here.jobs() == [job(1)]


# --- a process that is killed --------------------------------------------------------------------

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from scheduler.core.model import Fact, Job, JobId, JobSpec, View
from scheduler.core.ports import Step
from scheduler.store.writer import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
view = store.load()
while True:
    number = len(view.jobs)
    # Each step submits a job and counts an epoch of all that were there: in no row alone.
    jobs = {i: replace(job, epochs_done=job.epochs_done + 1) for i, job in view.jobs.items()}
    new = Job(JobId(str(number)), JobSpec(name="n", user="u"), submitted_at=1.0)
    after = View(jobs={**jobs, new.id: new})
    told = [Fact(1.0, "submitted", new.id)]
    store.commit(Step(view, after, tuple(after.jobs), told, [], 1.0))
    view = after
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = tmp_path / "scheduler.db"
    there = 0
    for _ in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer:
            for _ in range(chance.randrange(1, 15)):
                assert writer.stdout.readline()
            writer.kill()
            told = [int(line) for line in writer.stdout if line.endswith("\n")]
        store = SqliteStore(path)
        jobs = list(store.load().jobs.values())
        store.close()
        assert len(jobs) > max(told, default=there)
        assert [job.epochs_done for job in jobs] == list(range(len(jobs) - 1, -1, -1))
        there = len(jobs)
