from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.errors import Busy, InUseError, SchedulerError, Unavailable
from scheduler.core.model import Event, JobId, Reported
from scheduler.inbox import BATCH_MAX, Clock, QueueInbox

HANGS_SECONDS = 30.0  # a test that waits longer than this has failed


def event(number: int) -> Event:
    return Reported(JobId("job"), attempt=number)


class Caller(threading.Thread):
    """Calls from another thread, and keeps what came of it."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self.call, self.args = call, args
        self.error: SchedulerError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.call(*self.args)
        except SchedulerError as error:
            self.error = error

    def done(self) -> None:
        self.join(HANGS_SECONDS)
        assert not self.is_alive()


def drained(inbox: QueueInbox) -> list[Event]:
    return list(inbox.wait(inbox.now()))


# --- the queue ------------------------------------------------------------------------------------


def test_events_come_out_in_the_order_in_which_they_were_put() -> None:
    inbox = QueueInbox()
    for number in range(10):
        inbox.put(event(number))
    assert drained(inbox) == [event(number) for number in range(10)]
    assert drained(inbox) == []


def test_a_batch_has_its_limit() -> None:
    inbox = QueueInbox()
    for number in range(BATCH_MAX + 1):
        inbox.put(event(number))
    assert len(inbox.wait(None)) == BATCH_MAX
    assert drained(inbox) == [event(BATCH_MAX)]


def test_events_of_one_caller_are_in_one_batch_however_many_they_are() -> None:
    inbox = QueueInbox()
    inbox.put(event(0))
    together = [event(number) for number in range(1, 2 * BATCH_MAX)]
    caller = Caller(inbox.ask, *together)
    batch = list(inbox.wait(None))
    while len(batch) < 2 * BATCH_MAX:
        (*more,) = inbox.wait(None)
        assert len(batch) == 1  # the first one alone: the caller was slow
        batch += more
    assert batch == [event(0), *together]
    drained(inbox)
    caller.done()
    assert caller.error is None


def test_a_full_inbox_takes_nothing_until_it_is_read() -> None:
    inbox = QueueInbox(capacity=2)
    inbox.put(event(1))
    inbox.put(event(2))
    with pytest.raises(Busy):
        inbox.put(event(3))
    with pytest.raises(Busy):
        inbox.ask(event(4))
    assert drained(inbox) == [event(1), event(2)]
    inbox.put(event(5))
    assert drained(inbox) == [event(5)]


def test_who_asks_is_answered_when_the_loop_comes_back_and_not_before() -> None:
    inbox = QueueInbox()
    asker = Caller(inbox.ask, event(1))
    assert inbox.wait(None) == [event(1)]
    assert asker.is_alive()
    inbox.put(event(2))
    assert drained(inbox) == [event(2)]
    asker.done()
    assert asker.error is None


def test_who_asks_is_not_answered_by_the_batch_before() -> None:
    inbox = QueueInbox()
    inbox.put(event(0))
    assert inbox.wait(None) == [event(0)]
    asker = Caller(inbox.ask, event(1))
    assert inbox.wait(None) == [event(1)]  # came back, but for the batch without it
    assert asker.is_alive()
    drained(inbox)
    asker.done()


def test_who_asks_does_not_wait_for_ever() -> None:
    inbox = QueueInbox()
    with pytest.raises(Unavailable, match=r"no answer in 0\.01 s"):
        inbox.ask(event(1), timeout=0.01)
    assert drained(inbox) == [event(1)], "it was taken all the same"
    assert drained(inbox) == [], "and nobody stumbles over the asker who has gone"


def test_the_loop_sleeps_until_there_is_news() -> None:
    inbox = QueueInbox()
    batches: list[object] = []
    loop = Caller(lambda: batches.append(inbox.wait(None)))
    inbox.put(event(1))
    loop.done()
    assert batches == [[event(1)]]


def test_when_its_moment_has_come_the_loop_wakes_with_nothing() -> None:
    inbox = QueueInbox()
    until = inbox.now() + 0.02
    assert inbox.wait(until) == []
    assert inbox.now() >= until


def test_nothing_acknowledged_is_lost_whoever_asks_at_once() -> None:
    inbox = QueueInbox(capacity=20)
    committed: list[Event] = []
    acknowledged: list[Event] = []

    def loop() -> None:
        batch: list[Event] = []
        while len(committed) + len(batch) < 8 * 200:
            committed.extend(batch)
            batch = list(inbox.wait(None))
        committed.extend(batch)
        inbox.wait(inbox.now())

    def report(first: int) -> None:
        for number in range(first, first + 200):
            inbox.ask(event(number))
            acknowledged.append(event(number))
            assert event(number) in committed

    threads = [Caller(loop), *(Caller(report, 200 * n) for n in range(8))]
    for thread in threads:
        thread.done()
    assert sorted(map(str, acknowledged)) == sorted(map(str, committed))
    assert len(committed) == 1600


# --- its end --------------------------------------------------------------------------------------


def test_when_it_closes_all_who_wait_are_told_why() -> None:
    inbox = QueueInbox()
    taken = Caller(inbox.ask, event(1))
    assert inbox.wait(None) == [event(1)]
    queued = Caller(inbox.ask, event(2))
    inbox.close("it stops")
    for asker in (taken, queued):
        asker.done()
        assert isinstance(asker.error, Unavailable)
        assert str(asker.error) == "it stops"


def test_a_closed_inbox_answers_nobody_and_holds_up_nobody() -> None:
    inbox = QueueInbox()
    inbox.put(event(1))
    inbox.close("it stops")
    inbox.close("and again")
    with pytest.raises(Unavailable, match="it stops"):
        inbox.ask(event(2))
    inbox.put(event(3))
    assert inbox.wait(None) == []


def test_closing_wakes_the_loop() -> None:
    inbox = QueueInbox()
    loop = Caller(inbox.wait, None)
    inbox.close("it stops")
    loop.done()


def test_a_loop_that_must_do_nothing_any_more_is_told_why() -> None:
    inbox = QueueInbox()
    loop, asker = Caller(inbox.wait, None), Caller(inbox.ask, event(1))
    loop.done()
    inbox.fail(InUseError("somebody else has it"))
    asker.done()
    assert str(asker.error) == "somebody else has it"
    for _ in range(2):
        with pytest.raises(InUseError, match="somebody else has it"):
            inbox.wait(inbox.now())


# --- the clock ------------------------------------------------------------------------------------


class Clocks:
    """The machine's two, set by hand."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000.0, 50.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)


def test_it_is_the_wall_clock_and_follows_it_forward() -> None:
    machine = Clocks()
    clock = machine.clock()
    for seconds in (0.0, 0.25, 3600.0):
        machine.pass_(seconds)
        assert clock.now() == machine.wall
    machine.wall += 86_400.0
    assert clock.now() == machine.wall


def test_set_back_it_goes_on_at_half_its_pace_until_the_wall_clock_is_there() -> None:
    machine = Clocks()
    clock = machine.clock()
    ahead = machine.wall
    machine.wall -= 3600.0
    assert clock.now() == ahead
    machine.pass_(60.0)
    assert clock.now() == ahead + 30.0
    machine.pass_(7140.0)
    assert clock.now() == ahead + 3600.0 == machine.wall
    machine.pass_(60.0)
    assert clock.now() == machine.wall


MOVES = st.tuples(st.floats(0, 1e6), st.floats(-1e7, 1e7))


@given(st.lists(MOVES, max_size=20))
def test_it_never_goes_back_whatever_the_wall_clock_does(moves: list[tuple[float, float]]) -> None:
    machine = Clocks()
    clock = machine.clock()
    last = clock.now()
    for passed, jump in moves:
        machine.pass_(passed)
        machine.wall += jump
        now = clock.now()
        assert now >= max(last, machine.wall)
        last = now


def test_a_clock_set_back_an_hour_does_not_keep_the_loop_waiting_for_an_hour() -> None:
    machine = Clocks()
    inbox = QueueInbox(wall=lambda: machine.wall)
    until = inbox.now() + 0.02
    machine.wall -= 3600.0
    assert inbox.wait(until) == []


def test_a_clock_set_forward_wakes_the_loop() -> None:
    machine = Clocks()
    inbox = QueueInbox(wall=lambda: machine.wall)
    loop = Caller(inbox.wait, inbox.now() + 3600.0)
    machine.wall += 7200.0
    loop.done()
