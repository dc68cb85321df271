"""Streams of what happens, on a real loop and store; most through a real channel."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.api import event_feed, grpc_server, lookup
from scheduler.api.event_feed import parse_cursor
from scheduler.core.errors import Rejected
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import Serving, bearer, by, of, refused, serving
from tests.support import eventually

BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED


class Watcher:
    """A stream, and all that it has told."""

    def __init__(self, served: Serving, after: str = "", caller: str = "bob", **given: Any) -> None:
        self.request = pb.WatchEventsRequest(after=after, **given)
        self.stream = served.gateway.WatchEvents(self.request, metadata=by(caller), timeout=60)
        self.replies: list[pb.WatchEventsReply] = []
        self.read()

    def read(self) -> pb.WatchEventsReply:
        self.replies.append(next(self.stream))
        return self.replies[-1]

    def until(self, true: Callable[[], object]) -> None:
        while not true():
            self.read()

    @property
    def cursor(self) -> str:
        return self.replies[-1].cursor

    @property
    def facts(self) -> list[pb.Fact]:
        return [fact for reply in self.replies for fact in reply.facts]

    @property
    def numbers(self) -> list[int]:
        return [fact.number for fact in self.facts]

    @property
    def jobs(self) -> dict[str, pb.Job]:
        """The newest of each."""
        return {job.id: job for reply in self.replies for job in reply.jobs}

    @property
    def lost(self) -> list[tuple[int, int, str]]:
        lost = [gap for reply in self.replies for gap in reply.lost]
        return [(gap.first, gap.last, gap.reason) for gap in lost]

    @property
    def list_again(self) -> bool:
        return any(reply.list_again for reply in self.replies)


@contextmanager
def watching(served: Serving, after: str = "", **given: Any) -> Iterator[Watcher]:
    watcher = Watcher(served, after, **given)
    try:
        yield watcher
    finally:
        watcher.stream.cancel()


def _newest(served: Serving) -> int:
    return served.reader.fact_numbers()[1]


def _execute(served: Serving, sql: str, *values: object) -> None:
    with sqlite3.connect(served.database, timeout=30) as db:
        db.execute(sql, values)


def _add_facts(served: Serving, count: int, data: str = "{}") -> None:
    with sqlite3.connect(served.database, timeout=30) as db:
        rows = [("node_ready", data)] * count
        db.executemany("insert into facts (at, kind, data) values (1.0, ?, ?)", rows)


# --- cursors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x", "-1", "1.2", "1.0123abcd", "1.0123ABCD.2", "9" * 19, "1.0123abcd.2\n", "\u0661"]
)
def test_what_is_no_cursor_is_refused(text: str, served: Serving) -> None:
    with pytest.raises(Rejected, match="is neither a cursor nor the number of a fact"):
        parse_cursor(text)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "is neither a cursor nor the number"):
        Watcher(served, text)


# --- going on -------------------------------------------------------------------------------------


def test_a_stream_is_continued_without_gap_or_repetition(served: Serving) -> None:
    with watching(served) as first:
        begin = _newest(served)
        job = served.running()
        first.until(lambda: job.id in first.jobs)
    served.submit("held", held=True)
    with watching(served, first.cursor) as second:
        last = served.submit("last", held=True)
        second.until(lambda: last in second.jobs and second.numbers[-1] == _newest(served))
    assert first.numbers + second.numbers == list(range(begin + 1, _newest(served) + 1))
    assert {job.spec.name for job in second.jobs.values()} >= {"held", "last"}
    assert [first.lost, second.lost] == [[], []]
    assert [first.list_again, second.list_again] == [False, False]


def test_a_stream_is_continued_at_the_next_daemon(tmp_path: Path) -> None:
    with serving(tmp_path) as served, watching(served) as first:
        begin = _newest(served)
        job = served.running()
        first.until(lambda: job.id in first.jobs)
    with serving(tmp_path) as served:
        held = served.submit("held", held=True)
        with watching(served, first.cursor) as second:
            assert second.list_again
            second.until(lambda: second.numbers and second.numbers[-1] == _newest(served))
            assert second.facts[-1].job_id == held
            last = served.submit("last", held=True)
            second.until(lambda: last in second.jobs)
        assert first.numbers + second.numbers == list(range(begin + 1, _newest(served) + 1))
    assert not second.lost


def test_what_changes_after_a_list_is_told(served: Serving) -> None:
    before = served.submit("before", held=True)
    request = pb.ListJobsRequest(all_users=True, brief=True)
    listed = served.people.ListJobs(request, metadata=by("bob"), timeout=10)
    after = served.submit("after", held=True)
    with watching(served, listed.events) as watcher:
        watcher.until(lambda: after in watcher.jobs)
        assert before not in watcher.jobs
        assert not watcher.list_again


def test_a_number_is_enough_for_facts(served: Serving) -> None:
    served.running()
    with watching(served, "0") as watcher:
        assert watcher.list_again
        watcher.until(lambda: watcher.numbers[-1:] == [_newest(served)])
    assert watcher.numbers == list(range(1, _newest(served) + 1))


def test_facts_that_were_pruned_are_told_as_lost(served: Serving) -> None:
    _add_facts(served, 20)
    _execute(served, "delete from facts where seq <= 5 or seq between 8 and 9")
    with watching(served, "2") as watcher:
        watcher.until(lambda: watcher.numbers[-1:] == [_newest(served)])
    assert watcher.lost == [(3, 5, event_feed.TOO_OLD), (8, 9, event_feed.TOO_OLD)]
    assert watcher.numbers == [6, 7, *range(10, _newest(served) + 1)]


def test_a_caller_who_was_away_too_long_is_told_what_is_left_out(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "FACTS_BEHIND_MAX", 5)
    _add_facts(served, 20)
    newest = _newest(served)
    with watching(served, "2") as watcher:
        watcher.until(lambda: watcher.numbers[-1:] == [newest])
    assert watcher.lost == [(3, newest - 5, event_feed.TOO_MANY)]
    assert watcher.numbers == list(range(newest - 4, newest + 1))


def test_a_database_from_a_backup_is_noticed(served: Serving) -> None:
    newest = _newest(served)
    with watching(served, f"{newest + 7}.0123abcd.9") as watcher:
        assert watcher.lost == [(newest + 1, newest + 7, event_feed.RESTORED)]
        assert watcher.list_again
        job_id = served.submit(held=True)
        watcher.until(lambda: job_id in watcher.jobs)
        assert watcher.numbers[0] == newest + 1


@pytest.mark.parametrize("kept", [1, 1000])
def test_damaged_facts_are_told_as_lost(
    served: Serving, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "FACTS_KEPT", kept)
    with watching(served, jobs=["none"]):
        begin = _newest(served)
        _add_facts(served, 1)
        _add_facts(served, 2, "{")
        _add_facts(served, 3)
        with watching(served, str(begin)) as watcher:
            watcher.until(lambda: watcher.numbers[-1:] == [begin + 6])
    assert watcher.numbers == [begin + n for n in (1, 4, 5, 6)]
    lost = [n for first, last, _ in watcher.lost for n in range(first, last + 1)]
    assert lost == [begin + 2, begin + 3]


def test_a_stream_that_is_far_behind_reads_the_database(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "FACTS_KEPT", 3)
    monkeypatch.setattr(event_feed, "JOBS_KEPT", 2)
    with watching(served) as quick, watching(served) as slow:
        begin = _newest(served)
        ids = [served.submit(f"job-{n}", held=True) for n in range(30)]
        quick.until(lambda: ids[-1] in quick.jobs)
        slow.until(lambda: slow.numbers[-1:] == [_newest(served)] and ids[-1] in slow.jobs)
        with watching(served, slow.replies[0].cursor) as again:
            again.until(lambda: again.numbers[-1:] == [_newest(served)])
            again.until(lambda: ids[-1] in again.jobs)
    assert slow.numbers == again.numbers == list(range(begin + 1, _newest(served) + 1))
    assert again.list_again  # 30 jobs have changed, and two are kept


@pytest.mark.parametrize("seed", range(3))
def test_wherever_a_stream_is_broken_nothing_is_missed(
    served: Serving, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(event_feed, "JOBS_PER_LOOK", 3)  # so that streams end while some wait
    monkeypatch.setattr(event_feed, "FACTS_KEPT", 20)
    begin, ids = _newest(served), list[str]()

    def change() -> None:
        for number in range(60):
            ids.append(served.submit(f"job-{number}", held=True))
            job, metadata = chance.choice(ids), by("ada")
            with suppress(grpc.RpcError):  # it has ended
                served.people.UpdateJob(
                    pb.UpdateJobRequest(job=job, priority=number % 9 + 1), metadata=metadata
                )
            if number % 3:
                served.people.CancelJob(pb.CancelJobRequest(job=job), metadata=metadata)

    numbers: list[int] = []
    jobs: dict[str, pb.Job] = {}
    with watching(served) as first:
        cursor = first.cursor
    changing = threading.Thread(target=change)
    changing.start()
    wanted: list[pb.Job] = []
    while not wanted or any(jobs.get(job.id) != job for job in wanted):
        with watching(served, cursor) as watcher:
            for _ in range(chance.randrange(4)):
                watcher.read()
                if not changing.is_alive():
                    break
        numbers += watcher.numbers
        jobs |= watcher.jobs
        cursor = watcher.cursor
        assert not watcher.list_again
        if not changing.is_alive():
            request = pb.ListJobsRequest(all_users=True, limit=1000, brief=True)
            wanted = list(served.people.ListJobs(request, metadata=by("bob")).jobs)
    changing.join()
    assert numbers == list(range(begin + 1, begin + 1 + len(numbers)))
    assert len(wanted) == 60


def test_jobs_that_cannot_be_told_are_listed_again(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> list[pb.Job]:
        raise ValueError("planted")

    with watching(served) as watcher:
        with monkeypatch.context() as broken:
            broken.setattr(lookup.Lookup, "messages", fail)
            with suppress(grpc.RpcError):  # nor can it be shown to its user
                served.submit(held=True)
            watcher.until(lambda: watcher.list_again)
        job_id = served.submit(held=True)
        watcher.until(lambda: job_id in watcher.jobs)


# --- what is told ---------------------------------------------------------------------------------


def test_a_job_that_changes_quickly_is_told_as_it_is_at_last(served: Serving) -> None:
    job = served.running(env=[pb.KeyValue(key="PASSWORD", value="hush")], max_epochs=100)
    with watching(served) as watcher:
        for epoch in range(1, 51):
            profile = pb.Profile(job_id=job.id, attempt=1, epoch=epoch, epoch_seconds=1.0)
            request = pb.EndEpochRequest(profiles=[profile])
            served.jobs.EndEpoch(request, metadata=of(job), timeout=10)
        watcher.until(lambda: job.id in watcher.jobs and watcher.jobs[job.id].epochs_done == 50)
        told = watcher.jobs[job.id]
    assert (told.spec.name, told.spec.user, told.state) == ("demo", "ada", "RUNNING")
    assert (told.epoch_seconds, len(told.shares)) == (1.0, 1)
    assert not told.spec.env
    assert all(b"PASSWORD" not in reply.SerializeToString() for reply in watcher.replies)


@pytest.mark.parametrize("given", [{"user": "ada"}, {"project": "vision"}, {"jobs": 1}])
def test_only_what_is_wanted_is_told(served: Serving, given: dict[str, Any]) -> None:
    with watching(served) as everything:
        job = served.submit("mine", project="vision", held=True)
        other = served.submit("other", "eve", held=True)
        everything.until(lambda: other in everything.jobs and job in everything.jobs)
    if "jobs" in given:
        given = {"jobs": [job]}
    for after in (everything.replies[0].cursor, "0"):
        with watching(served, after, **given) as watcher:
            served.people.CancelJob(pb.CancelJobRequest(job=job), metadata=by("ada"), timeout=10)
            watcher.until(lambda: "job_cancelled" in {fact.kind for fact in watcher.facts})
            if after != "0":
                watcher.until(lambda: watcher.jobs.get(job, pb.Job()).state == "CANCELED")
        assert {fact.job_id for fact in watcher.facts} == {job}
        assert set(watcher.jobs) <= {job}


def test_facts_of_a_kind_are_told_without_jobs(served: Serving) -> None:
    mine = served.submit("mine", held=True)
    for job, who in ((mine, "ada"), (served.submit("other", "eve", held=True), "eve")):
        served.people.CancelJob(pb.CancelJobRequest(job=job), metadata=by(who), timeout=10)
    kinds = ["job_cancelled", "node_lost"]
    with watching(served, "0", kinds=kinds) as watcher:
        watcher.until(lambda: len(watcher.facts) == 2)
        last = served.submit("last", held=True)
        served.people.CancelJob(pb.CancelJobRequest(job=last), metadata=by("ada"), timeout=10)
        watcher.until(lambda: len(watcher.facts) == 3)
        assert {fact.kind for fact in watcher.facts} == {"job_cancelled"}
        assert not watcher.jobs
    with watching(served, "0", kinds=kinds, user="ada") as watcher:
        watcher.until(lambda: len(watcher.facts) == 2)
        assert [fact.job_id for fact in watcher.facts] == [mine, last]


def test_a_filter_that_leaves_all_out_still_moves_the_cursor(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "TOLD_EVERY", 10)
    with watching(served, jobs=["none"]) as watcher:
        _add_facts(served, 20)
        reply = watcher.read()
        assert not reply.facts
        assert int(reply.cursor.split(".")[0]) >= 10


def test_a_job_that_has_become_silent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "SILENCE_SECONDS", 0.0)
    with serving(tmp_path, heartbeat_seconds=0.05) as served, watching(served) as watcher:
        job = served.running()
        served.jobs.StartEpoch(
            pb.StartEpochRequest(job_id=job.id, attempt=1), metadata=of(job), timeout=10
        )
        watcher.until(lambda: watcher.jobs.get(job.id, pb.Job()).state == "UNRESPONSIVE")


def test_a_new_reason_to_wait_is_told(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "REASONS_SECONDS", 0.0)
    running = [served.running(f"job-{n}", memory_mib=15_000) for n in range(2)]
    with watching(served) as watcher:
        waits = served.submit("waits", memory_mib=15_000)
        watcher.until(lambda: watcher.jobs.get(waits, pb.Job()).why.kind == "memory")
        first = watcher.jobs[waits].reason
        served.people.UpdateJob(
            pb.UpdateJobRequest(job=waits, priority=2), metadata=by("ada"), timeout=10
        )
        watcher.until(lambda: watcher.jobs[waits].priority == 2)
        served.cluster.end(running[0].id, 1)
        watcher.until(lambda: watcher.jobs[waits].state in ("STARTING", "RUNNING"))
    assert first


# --- limits ---------------------------------------------------------------------------------------


def test_a_user_has_so_many_streams_and_another_user_has_others(served: Serving) -> None:
    streams = [Watcher(served, caller="ada") for _ in range(64)]
    with refused(BUSY, "ada has 64 streams"):
        Watcher(served, caller="ada")
    others = [Watcher(served, caller="bob") for _ in range(64)]
    with refused(BUSY, "too many streams of jobs and logs: at most 128 at a time"):
        Watcher(served, caller="eve")
    streams[0].stream.cancel()

    eventually(lambda: served.seats.taken == 127)
    others.append(Watcher(served, caller="eve"))
    for one in (*streams, *others):
        one.stream.cancel()


def test_a_slow_reader_is_dropped_and_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(grpc_server._PATIENCE_SECONDS, "Gateway", 0.3)
    with serving(tmp_path) as served:
        _add_facts(served, 5_000, '{"x":"%s"}' % ("x" * 1_000))
        newest = _newest(served)
        slow = Watcher(served, "0")
        eventually(lambda: served.seats.taken == 0)
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "the caller has taken nothing for 0.3 s"):
            slow.until(lambda: slow.numbers[-1:] == [newest])
        rest = _read_to(served, slow.cursor, newest)
    assert slow.numbers + rest == list(range(1, newest + 1))


def _read_to(served: Serving, cursor: str, newest: int) -> list[int]:
    """The numbers up to this one. The stream is continued as often as it takes: on a busy machine
    this reader is slow too."""
    numbers: list[int] = []
    while numbers[-1:] != [newest]:
        with watching(served, cursor) as watcher, suppress(grpc.RpcError):
            watcher.until(lambda: watcher.numbers[-1:] == [newest])
        numbers += watcher.numbers
        cursor = watcher.cursor
    return numbers


def test_a_stream_ends_with_its_token(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "REST_SECONDS", 0.05)
    token, _ = served.sessions.begin("ada", None)
    stream = served.gateway.WatchEvents(pb.WatchEventsRequest(), metadata=bearer(token), timeout=60)
    next(stream)
    served.sessions.end(token)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "this session has ended"):
        for _ in stream:
            pass


def test_streams_end_before_the_daemon_does(served: Serving) -> None:
    streams = [Watcher(served) for _ in range(3)]
    served.feed.stop()
    for watcher in streams:
        with refused(grpc.StatusCode.UNAVAILABLE, "the scheduler is stopping: call again"):
            watcher.read()
    with pytest.raises(grpc.RpcError):
        Watcher(served, streams[0].cursor).read()


def test_a_feed_that_is_not_watched_is_forgotten(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "IDLE_SECONDS", 0.0)
    with watching(served) as first:
        pass
    eventually(lambda: served.feed.is_idle)
    job_id = served.submit(held=True)
    with watching(served, first.cursor) as second:
        assert second.list_again
        second.until(lambda: second.numbers)
        assert second.facts[0].job_id == job_id


@pytest.mark.parametrize("what", ["jobs", "kinds"])
def test_too_many_are_refused(what: str, served: Serving) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT, f"{what}: 101 values given, 100 at most"):
        given: dict[str, Any] = {what: [str(n) for n in range(101)]}
        Watcher(served, **given)
