"""What the loop needs from the world. Structural: adapters do not inherit."""

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
    touched: Sequence[JobId]  # all that may differ between the two, new ones as they were submitted
    facts: Sequence[Fact]
    profiles: Sequence[Profile]  # measured epochs to be kept
    at: Time
    events: Sequence[Event] = ()  # what was heard
    actions: Sequence[Action] = ()  # what is about to be asked for


class Inbox(Protocol):
    """Time and news, which are one thing to a loop that waits."""

    def now(self) -> Time:
        """Never goes back."""

    def wait(self, until: Time | None) -> Sequence[Event]:
        """Return as soon as there is news, or with nothing when `until` has come.

        To be called again is to hear that the batch before has been committed and acted upon:
        whoever waits for one of its events is answered now.
        """


class Store(Protocol):
    def load(self) -> View:
        """The jobs that have not ended, in the order of their submission, and what was learned of
        others; no nodes, no pods."""

    def commit(self, step: Step) -> None:
        """All of it is on disk, or none of it and an error. Nothing to write costs nothing.

        Of jobs that do not differ between the two views, and of those which `after` has merely
        forgotten, nothing is written. A job that had ended is never written again. What the step
        heard and is about to ask for may be kept, so that it can be decided once more.
        """


class Cluster(Protocol):
    """Performing twice is performing once; a run is known by (job id, attempt) for ever.

    A removed run is soon no longer alive; removing what is not there does nothing. A launch that
    has been performed shows in every observation begun later, until it is over and removed.
    """

    def perform(self, action: Action) -> None:
        """Quick, and never raises for operational trouble: that shows in a later Observed."""


class Source(Protocol):
    """Something that puts events into the inbox from threads of its own."""

    def start(self, put: Put) -> None: ...

    def stop(self) -> None:
        """Returns when its threads have ended."""
