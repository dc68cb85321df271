"""Times are measured around the loop's calls, which notice nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.core.counts import DECISION_SECONDS, STEP_SECONDS, SUM
from scheduler.core.model import Event, Plan, Time, View
from scheduler.metrics.timing import Timing


@dataclass
class Clock:
    at: float = 100.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Waiting:
    clock: Clock
    asked: list[Time | None] = field(default_factory=list)

    def now(self) -> Time:
        return 5.0

    def wait(self, until: Time | None) -> Sequence[Event]:
        self.asked.append(until)
        self.clock.at += 1000.0
        return ()


def test_the_time_of_the_policy_is_counted() -> None:
    clock, plan = Clock(), Plan()
    timing = Timing(clock)

    def slow(view: View, now: Time) -> Plan:
        clock.at += 0.25
        return plan

    policy = timing.policy(slow)
    assert policy(View(), 1.0) is plan
    assert policy(View(), 2.0) is plan
    assert timing.counts == {(DECISION_SECONDS, "0.3"): 2, (DECISION_SECONDS, SUM): 0.5}


def test_a_step_is_what_happens_between_two_waits() -> None:
    clock = Clock()
    timing, waiting = Timing(clock), Waiting(clock)
    inbox = timing.inbox(waiting)
    assert inbox.now() == 5.0
    inbox.wait(7.0)
    clock.at += 2.0
    inbox.wait(None)
    clock.at += 0.5
    inbox.wait(None)
    assert waiting.asked == [7.0, None, None]
    sizes = {(STEP_SECONDS, "3"): 1, (STEP_SECONDS, "1"): 1}
    assert timing.counts == {**sizes, (STEP_SECONDS, SUM): 2.5}
