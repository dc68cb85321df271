"""The store in its file, seen by its readers. What holds in memory too: contracts/test_store.py."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core import sweeps
from scheduler.core.counts import Counts
from scheduler.core.errors import InvariantError, Unavailable
from scheduler.core.model import (
    Cancelled,
    Fact,
    Job,
    JobId,
    JobSpec,
    Outcome,
    Profile,
    Rules,
    Run,
    RunPhase,
    Share,
    View,
)
from scheduler.core.ports import Step
from scheduler.store import database, writer
from scheduler.store.journal import WAITING_MAX, Decider
from scheduler.store.reader import Query, Reader
from scheduler.store.writer import SqliteStore

JOB = Job(JobId("job-1"), JobSpec(name="n", user="u", labels=(("a", "b"),)), submitted_at=1.0)
RUNNING = replace(
    JOB, run=Run(1, (Share("node", "gpu0", 4_000),), RunPhase.RUNNING, 2.0, 2.5, 1), attempts=1
)
ENDED = replace(RUNNING, run=None, outcome=Outcome.SUCCEEDED, ended_at=9.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "scheduler.db")) as store:
        yield store


@pytest.fixture
def reader(store: SqliteStore, tmp_path: Path) -> Iterator[Reader]:
    with closing(Reader(tmp_path / "scheduler.db")) as reader:
        yield reader


def view(*jobs: Job) -> View:
    return View(jobs={job.id: job for job in jobs})


def counting(step: Step, stored: Sequence[Profile]) -> Counts:
    return {("epochs", ""): len(stored), ("facts", "told"): len(step.facts)}


def test_counts_go_on_after_a_restart_and_a_repeated_report_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.db"
    profiles = [Profile(RUNNING.id, 1, epoch, epoch_seconds=5.0) for epoch in (1, 2)]
    told = [Fact(3.0, "run_running", RUNNING.id, 1)]
    for start in range(2):
        with closing(SqliteStore(path, count=counting)) as store, closing(Reader(path)) as reader:
            before = view() if start == 0 else store.load()
            now = before if start else view(RUNNING)
            store.commit(Step(before, now, [RUNNING.id], told, profiles, 3.0))
            assert reader.counts() == {("epochs", ""): 2.0, ("facts", "told"): start + 1.0}


def test_what_is_not_written_is_not_counted(tmp_path: Path) -> None:
    path, writes = tmp_path / "scheduler.db", 0

    def fail_at_the_commit() -> None:
        nonlocal writes
        writes += 1
        if writes == 4:  # begin, job, fact, commit
            raise Unavailable("the disk is full")

    told = [Fact(3.0, "run_running", JOB.id, 1)]
    step = Step(view(), view(replace(JOB, spec=JobSpec("n", "u"))), [JOB.id], told, (), 3.0)
    with (
        closing(SqliteStore(path, fail_at_the_commit, count=counting)) as store,
        closing(Reader(path)) as reader,
    ):
        with pytest.raises(Unavailable):
            store.commit(step)
        assert reader.counts() == {}
        store.commit(step)
        assert reader.counts()["facts", "told"] == 1


def test_readers_see_a_job_as_it_is_committed(store: SqliteStore, reader: Reader) -> None:
    assert reader.job(JOB.id) is None
    last = View()
    for job in (JOB, RUNNING, ENDED):
        store.commit(Step(last, view(job), [job.id], [], [], 1.0))
        last = view(job)
        assert reader.job(JOB.id) == job


def test_a_job_that_the_view_forgets_stays_on_disk(store: SqliteStore, reader: Reader) -> None:
    store.commit(Step(View(), view(ENDED), [ENDED.id], [], [], 1.0))
    store.commit(Step(view(ENDED), View(), [ENDED.id], [], [], 2.0))
    assert reader.job(ENDED.id) == ENDED
    assert store.load() == View()


def test_facts_and_profiles_go_with_the_jobs_or_not_at_all(
    store: SqliteStore, reader: Reader
) -> None:
    fact = Fact(2.0, "submitted", JOB.id, data={"name": "ünï", "priority": 1})
    stranger = Profile(JobId("nobody's"), attempt=1, epoch=1)
    with pytest.raises(InvariantError, match="an invalid row"):
        store.commit(Step(View(), view(JOB), [JOB.id], [fact], [stranger], 2.0))
    assert (reader.job(JOB.id), reader.story(JOB.id)) == (None, [])
    store.commit(Step(View(), view(JOB), [JOB.id], [fact], [Profile(JOB.id, 1, 1)], 2.0))
    assert (reader.job(JOB.id), reader.story(JOB.id)) == (JOB, [fact])
    assert reader.profiles(JOB.id, 5) == [Profile(JOB.id, 1, 1)]


def test_a_fact_may_be_about_a_job_that_was_never_ours(store: SqliteStore, reader: Reader) -> None:
    fact = Fact(2.0, "stranger_removed", JobId("stranger"), 3)
    store.commit(Step(View(), View(), [], [fact], [], 2.0))
    assert reader.story(JobId("stranger")) == [fact]


def test_a_repeated_report_is_kept_once_and_as_it_came_first(
    store: SqliteStore, reader: Reader
) -> None:
    first = Profile(JOB.id, attempt=1, epoch=1, epoch_seconds=10.0, beside=(JobId("job-2"),))
    late = replace(first, epoch_seconds=99.0)
    other_rank = replace(first, rank=1)
    store.commit(Step(View(), view(JOB), [JOB.id], [], [first, late], 1.0))
    store.commit(Step(view(JOB), view(JOB), [], [], [late, other_rank], 2.0))
    assert reader.profiles(JOB.id, 5) == [first, other_rank]


def test_a_report_may_come_after_the_job_has_ended(store: SqliteStore, reader: Reader) -> None:
    late = Profile(ENDED.id, attempt=1, epoch=1)
    store.commit(Step(View(), view(ENDED), [ENDED.id], [], [], 1.0))
    store.commit(Step(view(ENDED), View(), [], [], [late], 2.0))
    assert reader.newest_epoch([ENDED.id]) == {ENDED.id: late}


def with_scores(store: SqliteStore, name: str, outcome: Outcome | None, rule: str = "asha") -> None:
    """Commits a job of a sweep of its own that has reported two epochs."""
    spec = JobSpec(name, "u", labels=(("sweep", name),), metric="loss", prune=rule)
    job = replace(ENDED if outcome else RUNNING, id=JobId(name), spec=spec, outcome=outcome)
    profiles = [Profile(job.id, 1, epoch, score=epoch / 2) for epoch in (1, 2)]
    profiles.append(Profile(job.id, 1, 1, rank=1, score=9.0))
    store.commit(Step(View(), view(job), [job.id], [], profiles, 1.0))


def test_a_start_knows_the_scores_of_the_newest_sweeps_also_of_those_that_are_over(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_scores(store, "live", None)
    for name in ("first", "second", "third"):
        with_scores(store, name, Outcome.SUCCEEDED)
    with_scores(store, "unruled", Outcome.SUCCEEDED, rule="")
    scores = store.load().scores
    assert list(scores) == ["u/first", "u/second", "u/third", "u/live"]  # the newest is last
    assert scores["u/first"] == {1: {"first": 0.5}, 2: {"first": 1.0}}
    monkeypatch.setattr(writer, "RECENT_SCORES", 3)  # the second and the third have four
    assert list(store.load().scores) == ["u/second", "u/third", "u/live"]
    monkeypatch.setattr(writer, "RECENT_JOBS", 2)
    assert list(store.load().scores) == ["u/third", "u/live"]
    monkeypatch.setattr(sweeps, "KEPT", 1)
    assert list(store.load().scores) == ["u/live"]


def test_a_label_given_twice_is_no_trouble(store: SqliteStore, reader: Reader) -> None:
    job = replace(ENDED, spec=replace(ENDED.spec, labels=(("a", "b"), ("a", "b"), ("a", "c"))))
    store.commit(Step(View(), view(job), [job.id], [], [], 1.0))
    assert reader.jobs(Query(labels=(("a", "b"), ("a", "c")))) == ([job], 1)


def test_a_full_disk_takes_nothing_and_the_store_goes_on_when_there_is_room(
    store: SqliteStore, reader: Reader
) -> None:
    store.commit(Step(View(), view(JOB), [JOB.id], [], [], 1.0))
    facts = [Fact(2.0, "long", JOB.id, data={"text": "x" * 1000})] * 1000
    with no_file_grows_beyond(200_000), pytest.raises(Unavailable, match="is the disk full"):
        store.commit(Step(view(JOB), view(RUNNING), [JOB.id], facts, [], 2.0))
    assert list(store.load().jobs.values()) == [JOB]
    assert reader.story(JOB.id) == []
    store.commit(Step(view(JOB), view(RUNNING), [JOB.id], facts, [], 2.0))
    assert reader.story(JOB.id) == facts
    assert reader.job(JOB.id) == RUNNING


# --- the journal ----------------------------------------------------------------------------------

DECIDER = Decider("fifo_sharing", Rules())


def step(store: SqliteStore, number: int, *jobs: Job, at: float = 1.0) -> None:
    """One that changes these jobs, and hears of another one."""
    heard = [Cancelled(JobId("other"))]
    before, after = View(number - 1), replace(view(*jobs), number=number)
    store.commit(Step(before, after, [job.id for job in jobs], [], [], at, events=heard))


def kept(path: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The starts and the steps that a replay would find."""
    with closing(database.connect_readonly(path / "scheduler.db")) as db:
        starts = db.execute("select start, number from starts order by start").fetchall()
        return starts, db.execute("select start, number from steps order by 1, 2").fetchall()


def recording(path: Path) -> SqliteStore:
    store = SqliteStore(path / "scheduler.db", decider=DECIDER)
    store.load()
    return store


def test_nothing_is_recorded_for_a_store_that_knows_no_decider(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.load()
    step(store, 1, JOB)
    assert kept(tmp_path) == ([], [])


def test_a_step_that_changes_nothing_is_written_with_the_next_that_does(tmp_path: Path) -> None:
    with closing(recording(tmp_path)) as store:
        step(store, 1)
        step(store, 2)
        assert kept(tmp_path) == ([], [])
        step(store, 3, JOB)
        assert kept(tmp_path) == ([(1, 0)], [(1, 1), (1, 2), (1, 3)])


def test_steps_do_not_wait_for_ever(tmp_path: Path) -> None:
    with closing(recording(tmp_path)) as store:
        for number in range(1, WAITING_MAX + 1):
            step(store, number)
        assert len(kept(tmp_path)[1]) == WAITING_MAX


def test_each_start_is_recorded_and_steps_that_waited_are_lost_with_the_daemon(
    tmp_path: Path,
) -> None:
    with closing(recording(tmp_path)) as store:
        step(store, 1, JOB)
        step(store, 2)
    with closing(recording(tmp_path)) as store:
        step(store, 1, replace(JOB, id=JobId("job-2")))
    assert kept(tmp_path) == ([(1, 0), (2, 0)], [(1, 1), (2, 1)])


def test_a_step_that_could_not_be_committed_is_not_recorded_and_those_before_it_are(
    tmp_path: Path,
) -> None:
    with closing(recording(tmp_path)) as store:
        step(store, 1)
        with no_file_grows_beyond(1_000), pytest.raises(Unavailable):
            step(store, 2, JOB)
        assert kept(tmp_path) == ([], [])
        step(store, 2, JOB)
        assert kept(tmp_path) == ([(1, 0)], [(1, 1), (1, 2)])


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """The kernel refuses to write more, as it does when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
