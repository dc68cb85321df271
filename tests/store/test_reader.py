from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.api.status import ENDED
from scheduler.core.errors import ConfigError
from scheduler.core.model import Fact, Job, JobId, JobSpec, Outcome, Profile, View
from scheduler.core.ports import Step
from scheduler.store import database, reader
from scheduler.store.reader import MATCHES_MAX, Query, Reader
from scheduler.store.writer import SqliteStore

CHANCE = random.Random(7)


def some_job(number: int) -> Job:
    spec = JobSpec(
        name=f"name-{number % 5}",
        user=CHANCE.choice(["ada", "bob", "eve"]),
        project=CHANCE.choice(["", "p1", "p2"]),
        experiment=CHANCE.choice(["", "e1"]),
        labels=tuple((key, CHANCE.choice("xy")) for key in CHANCE.sample("abc", k=number % 3)),
    )
    return Job(
        id=JobId(str(uuid.UUID(int=CHANCE.getrandbits(128), version=4))),
        spec=spec,
        submitted_at=float(number),
        outcome=CHANCE.choice([*Outcome, None]),
    )


JOBS = [some_job(number) for number in range(300)]  # oldest first


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader") / "scheduler.db"


@pytest.fixture(scope="module")
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as store:
        jobs = {job.id: job for job in JOBS}
        store.commit(Step(View(), View(jobs=jobs), tuple(jobs), [], [], 1.0))
        yield store


@pytest.fixture
def asked(store: SqliteStore, path: Path) -> Iterator[Reader]:
    with closing(Reader(path)) as asked:
        yield asked


# --- one job --------------------------------------------------------------------------------------


def test_a_job_is_found_by_its_id(asked: Reader) -> None:
    for job in JOBS[:20]:
        assert asked.job(job.id) == job
        assert asked.find_by_id(job.id) == [job]
    assert asked.job(JobId("nobody")) is None


def test_which_of_some_jobs_there_are(asked: Reader) -> None:
    some = {job.id for job in JOBS[:20]}
    assert asked.existing_ids({*some, JobId("nobody")}) == some


def test_a_job_is_found_by_the_end_of_its_id(asked: Reader) -> None:
    for job in JOBS[:20]:
        assert asked.find_by_id(job.id[-8:]) == [job]
    assert asked.find_by_id(JOBS[0].id[:8]) == []


def test_several_matches_come_newest_first_and_not_all_of_them(asked: Reader) -> None:
    end = JOBS[0].id[-1]
    matching = [job for job in reversed(JOBS) if job.id.endswith(end)]
    assert asked.find_by_id(end) == matching[:MATCHES_MAX]


@pytest.mark.parametrize("ref", ["", "%", "_", "*", "?", "' or 1 = 1 --", "\0", "\U0010ffff", "é"])
def test_whatever_is_looked_up_is_taken_literally(asked: Reader, ref: str) -> None:
    assert asked.find_by_id(ref) == []
    assert asked.find_ended(ref) == []


def test_ended_jobs_are_found_by_their_name(asked: Reader) -> None:
    name = next(job.spec.name for job in JOBS if job.outcome)
    ended = [job for job in reversed(JOBS) if job.outcome and job.spec.name == name]
    assert asked.find_ended(name) == ended[:MATCHES_MAX]


# --- lists ----------------------------------------------------------------------------------------


def fits(job: Job, query: Query) -> bool:
    return (
        job.outcome is not None
        and (not query.users or job.spec.user in query.users)
        and (not query.outcomes or job.outcome in query.outcomes)
        and query.project in ("", job.spec.project)
        and query.experiment in ("", job.spec.experiment)
        and all(
            any(own == key and value in ("*", has) for own, has in job.spec.labels)
            for key, value in query.labels
        )
    )


QUERIES = [
    Query(),
    Query(limit=0),
    Query(limit=1_000),
    Query(users=("ada",)),
    Query(users=("ada", "bob"), limit=3),
    Query(users=("nobody",)),
    Query(project="p1"),
    Query(experiment="e1", users=("eve",)),
    Query(outcomes=(Outcome.FAILED,)),
    Query(outcomes=(Outcome.FAILED, Outcome.CANCELLED), users=("bob",), project="p2"),
    Query(labels=(("a", "x"),)),
    Query(labels=(("a", "x"), ("b", "y"))),
    Query(labels=(("a", "x"),), users=("ada",), outcomes=(Outcome.SUCCEEDED,), limit=2),
    Query(labels=(("a", "no such value"),)),
    Query(labels=(("a", ""),)),
    Query(labels=(("a", "*"),)),
    Query(labels=(("a", "*"), ("b", "y"), ("c", "*"))),
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_list_holds_the_newest_that_fit_and_counts_them_all(asked: Reader, query: Query) -> None:
    expected = [job for job in reversed(JOBS) if fits(job, query)]
    assert asked.jobs(query) == (expected[: query.limit], len(expected))


# --- what there is about a job --------------------------------------------------------------------


def ordered_value(job: Job, order: str) -> str | int:
    if order == "state":
        return "" if job.outcome is None else ENDED[job.outcome]
    if order == "priority":
        return job.priority
    return JOBS.index(job) + 1 if order == "submitted" else str(getattr(job.spec, order))


@pytest.mark.parametrize("order", reader.ORDERS)
@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize(
    "query", [Query(), Query(search="me-3"), Query(search="p1", users=("ada",)), Query(search="%")]
)
def test_pages_in_any_order_hold_each_job_once(
    asked: Reader, order: str, ascending: bool, query: Query
) -> None:
    def is_found(job: Job) -> bool:
        texts = (job.id, job.spec.name, job.spec.user, job.spec.project, job.spec.experiment)
        return any(query.search in text for text in texts)

    wanted = [job for job in JOBS if job.outcome and fits(job, query) and is_found(job)]
    wanted.sort(key=lambda job: (ordered_value(job, order), JOBS.index(job)), reverse=not ascending)
    query = replace(query, order=order, ascending=ascending, limit=17)
    found: list[Job] = []
    while True:
        page, total = asked.jobs(query)
        assert total == len(wanted)
        found += page
        if len(page) < query.limit:
            break
        number = asked.numbers([page[-1].id])[page[-1].id]
        query = replace(query, after=(ordered_value(page[-1], order), number))
    assert [job.id for job in found] == [job.id for job in wanted]


def test_jobs_have_numbers_in_the_order_of_their_submission(asked: Reader) -> None:
    ids = [job.id for job in JOBS]
    assert asked.numbers([*ids, JobId("nobody")]) == {id: n for n, id in enumerate(ids, start=1)}
    live = {job.id: n for n, job in enumerate(JOBS, start=1) if job.outcome is None}
    assert asked.live_numbers() == live


def test_a_story_is_told_in_its_order(asked: Reader, store: SqliteStore) -> None:
    job, other = JOBS[3], JOBS[4]
    facts = [Fact(9.0, "told", job.id, n, {"text": "ü", "n": n, "none": None}) for n in range(3)]
    noise = [replace(fact, job_id=other.id) for fact in facts]
    mixed = [fact for pair in zip(facts, noise, strict=True) for fact in pair]
    store.commit(Step(View(), View(), [], mixed, [], 9.0))
    assert asked.story(job.id) == facts


def test_profiles_come_newest_first(asked: Reader, store: SqliteStore) -> None:
    job, other = JOBS[5].id, JOBS[6].id
    oldest_first = [
        Profile(job, attempt, epoch, rank)
        for attempt, epoch in ((1, 1), (1, 2), (2, 2), (2, 3))
        for rank in (1, 0)
    ]
    store.commit(Step(View(), View(), [], [], [*oldest_first, Profile(other, 1, 8)], 1.0))
    assert asked.profiles(job, 100) == oldest_first[::-1]
    assert asked.profiles(job, 3) == oldest_first[::-1][:3]
    assert asked.newest_epoch([job, other, JOBS[7].id]) == {
        job: Profile(job, 2, 3, rank=0),
        other: Profile(other, 1, 8),
    }


# --- many threads, and the end --------------------------------------------------------------------


def test_many_threads_may_ask_at_once(asked: Reader) -> None:
    answers: list[object] = []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        answers.extend(asked.job(job.id) == job for job in JOBS[:50])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 400


def test_a_reader_cannot_write(store: SqliteStore, path: Path) -> None:
    with (
        closing(database.connect_readonly(path)) as db,
        pytest.raises(ConfigError, match="write"),
        database.translate_errors(path),
    ):
        db.execute("delete from jobs")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.db"):
        Reader(tmp_path / "nowhere.db").job(JobId("x"))


@pytest.mark.parametrize("ended", [(), (0, 1, 2, 3), (2, 4), (3, 4, 5), range(6)])
def test_users_come_in_the_order_of_their_first_jobs(tmp_path: Path, ended: Sequence[int]) -> None:
    users, jobs = ("eve", "ada", "eve", "bob", "ada", "dan"), dict[JobId, Job]()
    for number, user in enumerate(users):
        job_id, outcome = JobId(f"job-{number}"), Outcome.SUCCEEDED if number in ended else None
        jobs[job_id] = Job(job_id, JobSpec(name="j", user=user), 1.0, outcome=outcome)
    file = tmp_path / "scheduler.db"
    with closing(SqliteStore(file)) as store, closing(Reader(file)) as asked:
        assert asked.users() == []
        store.commit(Step(View(), View(jobs=jobs), tuple(jobs), [], [], 1.0))
        assert asked.users() == ["eve", "ada", "bob", "dan"]


# --- speed: what SQLite means to do, which no size of the database changes ------------------------

BY_LABEL = "SEARCH labels USING PRIMARY KEY (key=? AND value=?)"
BY_KEY = "SEARCH labels USING PRIMARY KEY (key=?)"


def plan(path: Path, sql: str, values: Sequence[object]) -> list[str]:
    """Which tables are walked through or searched, and how; and whether all must be sorted."""
    with closing(database.connect_readonly(path)) as db:
        steps = [row[3] for row in db.execute(f"explain query plan {sql}", values)]
    return [step for step in steps if step.startswith(("SCAN", "SEARCH", "USE TEMP B-TREE FOR O"))]


def test_one_job_and_what_belongs_to_it_are_found_by_index(store: SqliteStore, path: Path) -> None:
    assert plan(path, reader.BY_ID, ["x"]) == [
        "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)"
    ]
    assert plan(path, reader.STORY, ["x"]) == ["SEARCH facts USING INDEX facts_by_job (job_id=?)"]
    assert plan(path, reader.ENDED_NAMED, ["x", 1]) == [
        "SEARCH jobs USING INDEX jobs_ended_by_name (name=?)"
    ]
    assert plan(path, reader.PROFILES, ["x", 1]) == ["SEARCH profiles USING PRIMARY KEY (job_id=?)"]
    users = plan(path, reader.USERS, [])
    assert not {"SCAN jobs", "SCAN jobs USING INDEX jobs_ended_by_user"} & set(users), users
    assert plan(path, reader.MATCHING, ["x", "y", 20]) == [
        "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH jobs USING COVERING INDEX jobs_by_end_of_id (id_reversed>? AND id_reversed<?)",
        "USE TEMP B-TREE FOR ORDER BY",  # but of row numbers alone
    ]


@pytest.mark.parametrize(
    ("query", "how"),
    [
        (Query(), ["SCAN jobs USING {} jobs_ended"]),
        (Query(users=("a", "b"), project="p"), ["SCAN jobs USING {} jobs_ended"]),
        (Query(users=("a",)), ["SEARCH jobs USING {} jobs_ended_by_user (user=?)"]),
        (Query(labels=(("a", "x"),)), ["SEARCH jobs USING {} jobs_ended (seq=?)", BY_LABEL]),
        (Query(labels=(("a", "*"),)), ["SEARCH jobs USING {} jobs_ended (seq=?)", BY_KEY]),
    ],
)
def test_a_list_walks_an_index_from_its_newest_end_and_is_counted_in_it(
    store: SqliteStore, path: Path, query: Query, how: list[str]
) -> None:
    page, count, values = reader.listing_sql(query)
    assert plan(path, page, [*values, 20]) == [line.format("INDEX") for line in how]
    assert plan(path, count, values) == [line.format("COVERING INDEX") for line in how]


@pytest.mark.parametrize("order", ["user", "project", "experiment", "state", "name"])
def test_another_order_reads_only_the_rows_of_the_page(
    store: SqliteStore, path: Path, order: str
) -> None:
    query = Query(order=order, after=("x", 1), search="")
    page, _, values = reader.listing_sql(query)
    steps = plan(path, page, [*values, "x", 1, 20])
    assert steps[0] == "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"
    assert "COVERING INDEX jobs_ended" in steps[1]


def test_a_search_reads_indexes_alone(store: SqliteStore, path: Path) -> None:
    _, count, values = reader.listing_sql(Query(search="x"))
    steps = plan(path, count, values)
    assert steps[0].startswith("SEARCH jobs USING COVERING INDEX jobs_ended")
    assert all("COVERING INDEX" in step for step in steps), steps


def test_facts_and_sums_are_found_by_index(store: SqliteStore, path: Path) -> None:
    assert plan(path, reader.FACTS, [1, 1]) == ["SEARCH facts USING INTEGER PRIMARY KEY (rowid>?)"]
    sql, values = reader.usage_sql(1, 2, "ada", "")
    assert plan(path, sql, values) == ["SEARCH usage USING PRIMARY KEY (day>? AND day<?)"]
    assert plan(path, reader.RUNS, []) == ["SCAN jobs USING INDEX jobs_live"]
