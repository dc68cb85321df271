"""How wrong forecasts have been, and so how wide the interval of the next one must be.

A guess is kept until its event has happened. Its error, as a factor, joins the last few hundred
errors of the same situation. The quantiles of these errors give an interval that contains four of
five events, on any cluster and with any trainings.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from scheduler.core.model import Job, JobId, Outcome, Time
from scheduler.outlook.forecast import ForecastCase, Guess
from scheduler.outlook.prospect import Forecast, Interval

KEPT = 200  # errors of each situation
PRIOR = 6  # the prior counts as this number of guesses
GUESSES_MAX = 6  # that are kept of a job
OFFSET_SECONDS = 30.0  # no duration is guessed more precisely
INSIDE = 0.8  # the share of events in the interval

# The prior, for ends and for starts: the standard deviation of the logarithm.
DEVIATION = {
    ForecastCase.SETTLED: 0.15,
    ForecastCase.NEW: 0.5,
    ForecastCase.MOVES: 0.6,
    ForecastCase.ROOM: 0.6,
    ForecastCase.NEXT: 0.6,
    ForecastCase.QUEUED: 0.8,
}


@dataclass(frozen=True, slots=True)
class _PastForecast:
    at: Time
    guess: Guess


class Calibration:
    def __init__(self, offs: Mapping[str, Sequence[float]] | None = None) -> None:
        """`offs`: the errors that an earlier calibration had collected."""
        self._ends = {each: _prior(sd) for each, sd in DEVIATION.items()}
        self._starts = {each: _prior(sd) for each, sd in DEVIATION.items()}
        self._said: dict[JobId, list[_PastForecast]] = {}
        for about, errors in self._each():
            if offs and (earlier := offs.get(about)):
                errors.clear()
                errors.extend(earlier)

    @property
    def offs(self) -> Mapping[str, list[float]]:
        """The errors of guesses, by event and situation."""
        return {about: list(errors) for about, errors in self._each()}

    def _each(self) -> Iterator[tuple[str, deque[float]]]:
        for what, by_situation in (("starts", self._starts), ("ends", self._ends)):
            for situation, errors in by_situation.items():
                yield f"{what} {situation}", errors

    def forecast(self, guess: Guess, now: Time) -> Forecast:
        return Forecast(
            _interval(now, guess.starts_at, self._starts[guess.situation]),
            _interval(now, guess.ends_at, self._ends[guess.situation]),
        )

    def after(self, guess: Guess, others: Sequence[Guess | None], now: Time) -> Forecast:
        """Returns the forecast of a job that starts when these others have left their GPUs: it
        starts after the last of them, and then takes as long as new runs do."""
        ends = [self.forecast(other, now).ends_at for other in others if other and _stays(other)]
        known = [end for end in ends if end]
        if len(known) < len(others) or guess.starts_at is None:
            return self.forecast(guess, now)
        starts = Interval(
            max(end.low for end in known),
            max(end.middle for end in known),
            max(end.high for end in known),
        )
        if guess.ends_at is None:
            return Forecast(starts)
        run = _interval(0.0, guess.ends_at - guess.starts_at, self._ends[ForecastCase.NEW])
        assert run is not None, "it has a length"
        return Forecast(
            starts,
            Interval(starts.low + run.low, starts.middle + run.middle, starts.high + run.high),
        )

    def note(
        self,
        guesses: Mapping[JobId, Guess],
        now: Time,
        ended: Callable[[JobId], Job | None],
    ) -> None:
        """Keeps the present guesses, and records the errors of earlier guesses about jobs that have
        ended."""
        for job_id in [id for id in self._said if id not in guesses]:
            if (job := ended(job_id)) and job.outcome:
                self._come(self._said.pop(job_id), job)
        for job_id, guess in guesses.items():
            said = self._said.setdefault(job_id, [])
            said.append(_PastForecast(now, guess))
            if len(said) > GUESSES_MAX:
                del said[1::2]

    def _come(self, said: list[_PastForecast], job: Job) -> None:
        for each in said:
            guess = each.guess
            if guess.ends_at and job.ended_at and job.outcome is Outcome.SUCCEEDED:
                off = _off(each.at, guess.ends_at, job.ended_at)
                self._ends[guess.situation].append(off)
            if guess.starts_at and job.started_at and job.started_at >= each.at:
                off = _off(each.at, guess.starts_at, job.started_at)
                self._starts[guess.situation].append(off)


def _stays(guess: Guess) -> bool:
    """Whether the job keeps its GPUs until it ends."""
    return guess.leaves_at is not None and guess.leaves_at == guess.ends_at


def _off(now: Time, guessed: Time, came: Time) -> float:
    return math.log((came - now + OFFSET_SECONDS) / (guessed - now + OFFSET_SECONDS))


def _interval(now: Time, at: Time | None, offs: deque[float]) -> Interval | None:
    if at is None:
        return None
    ordered = sorted(offs)
    span = at - now + OFFSET_SECONDS
    moments = []
    for share in ((1 - INSIDE) / 2, 0.5, (1 + INSIDE) / 2):
        factor = math.exp(_quantile(ordered, share))
        moments.append(max(now, now + span * factor - OFFSET_SECONDS))
    return Interval(*moments)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _prior(deviation: float) -> deque[float]:
    normal = NormalDist(0.0, deviation)
    quantiles = (normal.inv_cdf((number + 0.5) / PRIOR) for number in range(PRIOR))
    return deque(quantiles, KEPT)
