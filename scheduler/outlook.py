"""What people are told of a job's future. Found out when somebody asks, from a committed view, in
the asker's thread; kept for as long as that view is the newest."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.model import Job, JobId, Reason, Rules, Time, View
from scheduler.ports import Policy
from scheduler.remedies import Remedy, remedy

if TYPE_CHECKING:  # with numpy, which a daemon needs not before it is asked
    from scheduler.forecast import Forecast
    from scheduler.lessons import SpeedBeside, SpeedOn
    from scheduler.paces import Paces

REMEDY_JOBS_MAX = 1000  # with more live jobs the policy is not asked again and again for one


@dataclass(frozen=True, slots=True)
class Prospect:
    """Of one job."""

    forecast: Forecast | None = None
    remedy: Remedy = field(default_factory=Remedy)
    slowed: Reason | None = None
    speeds: tuple[SpeedOn, ...] = ()
    beside: tuple[SpeedBeside, ...] = ()


@dataclass(slots=True)
class _Kept:
    number: int
    forecasts: Mapping[JobId, Forecast]
    paces: Paces
    prospects: dict[JobId, Prospect] = field(default_factory=dict)


class Outlook:
    def __init__(self, policy: Policy, rules: Rules, by_memory: bool = False) -> None:
        """`policy`: one of our own, as the loop's is in use. `by_memory`: see forecast.py."""
        self._policy, self._rules, self._by_memory = policy, rules, by_memory
        self._lock = threading.Lock()  # one asker at a time: the loop wants to get on
        self._kept: _Kept | None = None

    def of(self, job: Job, view: View, now: Time) -> Prospect:
        with self._lock:
            if self._kept is None or self._kept.number != view.number:
                self._kept = self._looked_ahead(view, now)
            found = self._kept.prospects
            if job.id not in found:
                found[job.id] = self._prospect(job, view, now, self._kept)
            return found[job.id]

    def _looked_ahead(self, view: View, now: Time) -> _Kept:
        from scheduler.forecast import forecast
        from scheduler.paces import Paces

        paces = Paces(view)
        made = forecast(paces, now, self._rules, self._by_memory)
        return _Kept(view.number, made, paces)

    def _prospect(self, job: Job, view: View, now: Time, kept: _Kept) -> Prospect:
        from scheduler.lessons import slowed, speeds_beside, speeds_on

        found = Remedy()
        if len(view.jobs) <= REMEDY_JOBS_MAX and view.observed_at is not None:
            leaves = {id: of.leaves_at for id, of in kept.forecasts.items()}
            leaving = sorted(leaves, key=lambda id: (leaves[id] or now, id))
            found = remedy(job, view, now, self._policy, self._rules, leaving)
        return Prospect(
            kept.forecasts.get(job.id),
            found,
            slowed(job, view, kept.paces),
            tuple(speeds_on(job, view, kept.paces)),
            tuple(speeds_beside(job, kept.paces)),
        )
