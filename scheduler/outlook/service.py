"""What users are told about a job's future. It is computed on demand from a committed view, in the
caller's thread, and cached for as long as that view is the newest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from scheduler.core.adopt import adopt
from scheduler.core.model import Job, JobId, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.core.watchdog import deadline
from scheduler.estimates.next_try import NextTry
from scheduler.outlook import calibration_file
from scheduler.outlook.calibration import Calibration
from scheduler.outlook.current_speeds import CurrentSpeeds
from scheduler.outlook.forecast import Guess, guesses
from scheduler.outlook.learned import slowed, speeds_beside, speeds_on
from scheduler.outlook.prospect import NO_REMEDY, Forecast, PlannedSubmission, Prospect, Remedy
from scheduler.outlook.remedies import remedy

REMEDY_JOBS_MAX = 1000  # with more live jobs, the policy is not asked again for remedies


@dataclass(slots=True)
class _Look:
    """What was computed for one view."""

    view: View
    guesses: Mapping[JobId, Guess]
    paces: CurrentSpeeds
    prospects: dict[JobId, Prospect] = field(default_factory=dict)


class Outlook:
    def __init__(
        self,
        policy: Policy,
        rules: Rules,
        ended: Callable[[JobId], Job | None],
        by_memory: bool = False,
        kept: Path | None = None,
        next_try: Callable[[Job, View, Time], NextTry | None] = lambda job, view, now: None,
    ) -> None:
        """`policy`: not the loop's own object, which is in use. `ended`: finds a job that is no
        longer in the view. `by_memory`: see forecast.py. `kept`: see calibration_file.py.
        `next_try`: what a live job tries next."""
        self._policy, self._rules, self._ended, self._by_memory = policy, rules, ended, by_memory
        self._kept, self._next_try = kept, next_try
        self._lock = threading.Lock()  # one caller at a time, because the loop needs the CPU
        self._calibration: Calibration | None = None
        self._last: _Look | None = None

    def look(self, view: View, now: Time) -> None:
        """Compares earlier guesses with what happened, and stores their errors. The caller calls it
        regularly."""
        if self._calibration or any(job.outcome is None for job in view.jobs.values()):
            with self._lock:
                self._looked(view, now)
                offs = self._calibration.offs if self._calibration else {}
            if self._kept:
                calibration_file.save(self._kept, offs)

    def of(self, job: Job, view: View, now: Time) -> Prospect:
        with self._lock:
            look = self._looked(view, now)
            if job.id not in look.prospects:
                look.prospects[job.id] = self._prospect(job, look, now)
            return look.prospects[job.id]

    def trial(self, job: Job, view: View, now: Time) -> PlannedSubmission:
        with_it = replace(view, jobs={**view.jobs, job.id: job})
        if len(with_it.jobs) > REMEDY_JOBS_MAX or view.observed_at is None:
            return PlannedSubmission(with_it, Prospect())
        with self._lock:
            self._looked(view, now)
            paces = CurrentSpeeds(with_it)
            look = _Look(with_it, guesses(paces, now, self._rules, self._by_memory), paces)
            found = self._remedy(job, look, now)
            prospect = Prospect(
                self._forecast(job, found, look, now),
                found,
                deadlines=self._deadlines(found.until, with_it),
            )
            planned = adopt(with_it, self._policy(with_it, now), now, self._rules).view
        return PlannedSubmission(planned, prospect)

    def _looked(self, view: View, now: Time) -> _Look:
        if self._last is None or self._last.view.number != view.number:
            paces = CurrentSpeeds(view)
            made = guesses(paces, now, self._rules, self._by_memory)
            if self._calibration is None:
                self._calibration = Calibration(
                    calibration_file.load(self._kept) if self._kept else {}
                )
            self._calibration.note(made, now, lambda id: view.jobs.get(id) or self._ended(id))
            self._last = _Look(view, made, paces)
        return self._last

    def _prospect(self, job: Job, look: _Look, now: Time) -> Prospect:
        found = self._remedy(job, look, now)
        return Prospect(
            self._forecast(job, found, look, now),
            found,
            slowed(job, look.view, look.paces),
            tuple(speeds_on(job, look.view, look.paces)),
            tuple(speeds_beside(job, look.paces)),
            self._tried_next(job, look.view, now),
            self._deadlines((job.id, *found.until), look.view),
        )

    def _tried_next(self, job: Job, view: View, now: Time) -> NextTry | None:
        if job.outcome or len(view.jobs) > REMEDY_JOBS_MAX or view.observed_at is None:
            return None
        return self._next_try(job, view, now)

    def _deadlines(self, ids: Iterable[JobId], view: View) -> tuple[tuple[JobId, Time], ...]:
        jobs = [job for job in map(view.jobs.get, ids) if job]
        ends = ((job.id, deadline(job, view, self._rules)) for job in jobs)
        return tuple((id, at) for id, at in ends if at is not None)

    def _forecast(self, job: Job, found: Remedy, look: _Look, now: Time) -> Forecast | None:
        guess = look.guesses.get(job.id)
        if guess is None or self._calibration is None:
            return None
        if found.until and not found.ahead:
            others = [look.guesses.get(other) for other in found.until]
            return self._calibration.after(guess, others, now)
        return self._calibration.forecast(guess, now)

    def _remedy(self, job: Job, look: _Look, now: Time) -> Remedy:
        view = look.view
        if len(view.jobs) > REMEDY_JOBS_MAX or view.observed_at is None:
            return NO_REMEDY
        leaves = {id: guess.leaves_at for id, guess in look.guesses.items()}
        leaving = sorted(leaves, key=lambda id: (leaves[id] or now, id))
        return remedy(job, view, now, self._policy, self._rules, leaving)
