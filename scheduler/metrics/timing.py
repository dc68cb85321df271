"""How long the loop takes, measured from outside: the core has no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from scheduler.core.counts import DECISION_SECONDS, STEP_SECONDS, Count, enter
from scheduler.core.model import Event, Plan, Time, View
from scheduler.core.ports import Inbox, Policy


class Timing:
    """The times of the policy and of whole steps since the start. The loop's thread enters them;
    any thread may copy `counts`."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.counts: dict[Count, float] = {}

    def policy(self, policy: Policy) -> Policy:
        def timed(view: View, now: Time) -> Plan:
            began = self._clock()
            plan = policy(view, now)
            enter(self.counts, DECISION_SECONDS, self._clock() - began)
            return plan

        return timed

    def inbox(self, inbox: Inbox) -> Inbox:
        return _TimedInbox(inbox, self)

    def enter_step(self, began: float) -> None:
        enter(self.counts, STEP_SECONDS, self._clock() - began)

    def now(self) -> float:
        return self._clock()


class _TimedInbox:
    """A step is what the loop does between two waits."""

    def __init__(self, inbox: Inbox, timing: Timing) -> None:
        self._inbox, self._timing = inbox, timing
        self._began: float | None = None

    def now(self) -> Time:
        return self._inbox.now()

    def wait(self, until: Time | None) -> Sequence[Event]:
        if self._began is not None:
            self._timing.enter_step(self._began)
        events = self._inbox.wait(until)
        self._began = self._timing.now()
        return events
