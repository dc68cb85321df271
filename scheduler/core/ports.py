"""The interfaces that the loop needs from the outside. Structural: adapters do not inherit from
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import Action, Event, Fact, JobId, Plan, Profile, Time, View

Policy = Callable[[View, Time], Plan]
Put = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the loop, to be committed."""

    before: View
    after: View
    touched: Sequence[JobId]  # all that may differ between the views; new jobs as submitted
    facts: Sequence[Fact]
    profiles: Sequence[Profile]  # measured epochs to be stored
    at: Time
    events: Sequence[Event] = ()  # the events that were received
    actions: Sequence[Action] = ()  # the actions that are about to be performed


class Inbox(Protocol):
    """Time and events in one interface, because the loop waits for either."""

    def now(self) -> Time:
        """The current time; it never goes back."""

    def wait(self, until: Time | None) -> Sequence[Event]:
        """Returns as soon as there are events, or with none when `until` has come.

        The next call means that the previous batch has been committed and acted upon: callers that
        wait for one of its events are answered now.
        """


class Store(Protocol):
    def load(self) -> View:
        """The jobs that have not ended, in the order of submission, and what was learned from
        others; no nodes, no pods."""

    def commit(self, step: Step) -> None:
        """Writes everything to disk, or nothing and raises an error. An empty step costs nothing.

        Nothing is written for jobs that do not differ between the two views, nor for those that
        `after` has merely forgotten. An ended job is never written again. The step's events and
        actions may be kept, so that it can be decided once more.
        """


class Cluster(Protocol):
    """Performing an action twice has the same effect as once; a run is identified by (job id,
    attempt) for ever.

    A removed run soon stops being alive; removing a run that does not exist does nothing. A launch
    that has been performed shows in every observation that begins later, until the run is over and
    removed.
    """

    def perform(self, action: Action) -> None:
        """Returns quickly, and never raises for operational trouble: that shows in a later
        Observed."""


class Source(Protocol):
    """Puts events into the inbox from threads of its own."""

    def start(self, put: Put) -> None: ...

    def stop(self) -> None:
        """Returns when its threads have ended."""
