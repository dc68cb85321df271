"""What happens reaches the pages: soon, each fact once, and none is missing."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from scheduler.gateway.events import FOLLOWERS_MAX, WAITING_BYTES_MAX, Events, Follower
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Listener, Served, gateway
from tests.support import eventually


def contiguous(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_change_is_told_with_its_sentence(served: Served) -> None:
    with served.listen() as page:
        job = served.daemon.submit("news", held=True)
        eventually(lambda: job in page.jobs)
        assert page.jobs[job]["state"] == "HELD"
        assert contiguous(page.facts)
        assert page.states == ["here"]


def test_who_comes_back_gets_what_happened_and_nothing_twice(served: Served) -> None:
    with served.listen() as stays, served.listen() as page:
        first = served.daemon.submit("before", held=True)
        eventually(lambda: first in page.jobs and first in stays.jobs)
        page.stop()
        missed = [served.daemon.submit("missed", held=True) for _ in range(20)]
        eventually(lambda: missed[-1] in stays.jobs)
        again = served.listen()
        again.last_id = page.last_id
        with again:
            eventually(lambda: set(missed) <= set(again.jobs))
            last = served.daemon.submit("after", held=True)
            eventually(lambda: last in again.jobs and last in stays.jobs)
            assert contiguous(page.facts + again.facts)
            assert stays.facts[-1] == again.facts[-1]


def test_another_gateway_goes_on_where_the_first_was_killed(served: Served) -> None:
    server = f"127.0.0.1:{served.daemon.server.port}"
    with gateway(server) as first:
        page = Listener(Served(served.daemon, first).by())
        with page:
            job = served.daemon.submit("one", held=True)
            eventually(lambda: job in page.jobs)
            first.process.kill()
    job = served.daemon.submit("two", held=True)
    with gateway(server) as second:
        again = Listener(Served(served.daemon, second).by())
        again.last_id = page.last_id
        with again:
            eventually(lambda: job in again.jobs)
            assert contiguous(page.facts + again.facts)


def test_there_are_so_many_streams_and_no_more(served: Served) -> None:
    with ExitStack() as pages:
        for number in range(FOLLOWERS_MAX):
            pages.enter_context(served.listen(f"user{number % 7}"))
        with served.listen("late") as late:
            assert late.refused == 429
        with served.listen("late", project="vision") as filtered:
            assert filtered.refused == 429
    with served.listen("ada") as page:
        eventually(lambda: page.last_id)


@pytest.mark.parametrize("after", ["x", "1.2", "-1", "1.zzzzzzzz.0", "9" * 30])
def test_an_id_of_no_event_is_refused(after: str, served: Served) -> None:
    with served.by() as client:
        answer = client.get("/events", headers={"last-event-id": after})
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "after")


def test_a_number_alone_will_do(served: Served) -> None:
    served.daemon.submit("some", held=True)
    page = served.listen()
    page.last_id = "0"
    with page:
        eventually(lambda: len(page.facts) > 1)
        assert page.facts[0] == 1
        assert contiguous(page.facts)


def test_only_what_is_wanted_comes(served: Served) -> None:
    mine = served.daemon.submit("mine", held=True, project="vision")
    with served.listen(job=[mine]) as of_job, served.listen(project="vision") as of_project:
        other = served.daemon.submit("other", held=True)
        late = served.daemon.submit("late", held=True, project="vision")
        with served.by() as client:
            client.patch(f"/api/v1/jobs/{mine}", json={"priority": 7})
        eventually(lambda: of_job.jobs.get(mine, {}).get("priority") == 7)
        eventually(lambda: {mine, late} <= set(of_project.jobs))
        assert set(of_job.jobs) == {mine}
        assert other not in of_project.jobs
        assert of_job.states == of_project.states == ["here"]


def test_facts_of_a_kind_come_alone_and_go_on_after_a_break(served: Served) -> None:
    def cancel(job: str) -> None:
        with served.by() as client:
            client.post(f"/api/v1/jobs/{job}/cancel")

    jobs = [served.daemon.submit(f"job-{number}", held=True) for number in range(3)]
    with served.listen(kind=["job_cancelled"]) as page:
        cancel(jobs[0])
        eventually(lambda: page.facts)
        page.stop()
    cancel(jobs[1])
    again = served.listen(kind=["job_cancelled"])
    again.last_id = page.last_id
    with again:
        cancel(jobs[2])
        eventually(lambda: len(again.facts) == 2)
        assert not set(page.facts) & set(again.facts)
        assert not again.jobs


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"user": ["a", "b"]}, "user"),
        ({"kind": ["x"] * 101}, "kinds"),
    ],
)
def test_filters_that_make_no_sense_are_refused(
    query: dict[str, str | list[str]], field: str, served: Served
) -> None:
    with served.by() as client:
        answer = client.get("/events", params=query)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_session_that_is_logged_out_hears_no_more(served: Served) -> None:
    with served.logged_in() as browser, served.gateway.client() as other:
        other.cookies.set("scheduler_session", browser.cookies["scheduler_session"])
        with Listener(other) as page, Listener(other, user="ada") as filtered:
            browser.post("/logout")
            eventually(lambda: page.refused == filtered.refused == 401)


def test_a_follower_that_reads_nothing_is_dropped() -> None:
    async def life() -> None:
        events = Events(None)  # type: ignore[arg-type]  # it asks nothing
        follower = Follower("token", pb.WatchEventsRequest())
        events._followers.add(follower)
        events._receive(pb.WatchEventsReply(cursor="1.00000000.1"))
        events._follow(follower, events._head or pytest.fail("no head"))
        for number in range(2, 60):
            fact = pb.Fact(number=number, kind="x", data_json='{"a": "%s"}' % ("x" * 500_000))
            cursor = f"{number}.00000000.{number}"
            events._receive(pb.WatchEventsReply(facts=[fact], cursor=cursor))
        assert follower.dropped
        assert follower.waiting_bytes < WAITING_BYTES_MAX + 2**21
        assert sum(len(message.encoded) for message in events._kept) < 9 * 2**20

    asyncio.run(life())
