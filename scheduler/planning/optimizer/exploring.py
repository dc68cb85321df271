"""Which job of each kind may try a configuration in which it was never measured. Pure.

A try is offered to the optimizer with the time that is expected of it if the job goes back in case
it is slower there (estimates/trials.py). So on idle GPUs a job tries what is expected to pay for
two restarts, and on GPUs that others want only what is worth more to it than their price, which is
what they would lose. One job of a kind tries at a time, because all others learn from it: in the
class that is served first, the one with the most work left. None does while another one is where
the kind was not measured yet. Nothing is remembered: a job that was stopped for a try is still the
one with the most work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.core.model import Placement
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.slow_gpus import split_type
from scheduler.estimates.speed import MARGIN, Speeds
from scheduler.estimates.trials import may_be_tried, seconds_with_return


@dataclass(frozen=True, slots=True)
class Known:
    """Where jobs were measured themselves."""

    met: Floats  # [job, choice] 1 if it was measured there, 0 if never, between if badly
    best: Floats  # [job] seconds per epoch where it is fastest; infinite: nowhere
    at: Ints  # [job] that choice

    @classmethod
    def of(cls, seconds: Floats, met: Floats) -> Known:
        where = np.where(met == 1.0, seconds, np.inf)
        at = where.argmin(axis=1)
        return cls(met, where[np.arange(len(at)), at], at)


@dataclass(frozen=True, slots=True)
class Tries:
    """What each job may try now, and what keeps the others from it."""

    seconds: Floats  # [job, choice] per epoch, with the chances of what may be tried
    may: Bools  # [job, choice] what may be tried
    known: Known
    left: Floats  # [job] epochs
    allowed: Bools  # [job, choice] what it can have
    news: Bools  # [job, choice] those where its kind was never measured, nor the job itself
    owners: Ints  # [job]
    kinds: Ints  # [job]
    trying: Ints  # [kind] the owner that tries already, or may in a class before; -1: none
    first: Ints  # [kind] the same, or else the one of these jobs that may try


def find_tries(
    seconds: Floats,
    known: Known,
    left: Floats,
    restart: Floats,
    trying: Ints,
    allowed: Bools,
    owners: Ints,
    choices: Sequence[Placement],
    speeds: Speeds,
) -> Tries:
    """`seconds`: [job, choice] per epoch, as expected; `allowed`: what they can have; `trying`:
    [kind] an owner that tries already, -1 for none."""
    kinds = speeds.measured.kind[owners]
    shown = speeds.shown(choices)
    usual = np.array([split_type(choice.type)[1] == 1.0 for choice in choices], bool)
    news = allowed & usual & ~shown[kinds] & (known.met == 0.0)  # slow GPUs are no news
    compares = np.isfinite(known.best)
    free = np.flatnonzero(compares & news.any(axis=1) & (trying[kinds] < 0))
    jobs = _first_of_each_kind(kinds, free, left * np.where(compares, known.best, 0.0))
    found, may = seconds, np.zeros(seconds.shape, bool)
    if len(jobs):
        doubt = speeds.doubts(owners[jobs], choices)
        most, mean, epochs = known.best[jobs, None], seconds[jobs], left[jobs, None]
        perfect = _perfect(most, known.at[jobs], choices)
        least = np.maximum(perfect, _with_more(mean, known.met[jobs], choices))
        hoped = seconds_with_return(most, mean, doubt, least, epochs, restart[jobs, None])
        may[jobs] = news[jobs] & may_be_tried(hoped, doubt, most, epochs)
        found = seconds.copy()
        found[jobs] = np.where(may[jobs], np.minimum(hoped, mean), mean)
    first = trying.copy()
    first[kinds[jobs]] = owners[jobs]
    return Tries(found, may, known, left, allowed, news, owners, kinds, trying, first)


def find_trying(owners: Ints, places: Sequence[Placement], speeds: Speeds) -> Ints:
    """[kind] an owner that is where its kind was never measured; -1: none. `places`: where these
    owners are."""
    distinct = {place: at for at, place in enumerate(dict.fromkeys(places))}
    column = np.array([distinct[place] for place in places], np.intp)
    kinds = speeds.measured.kind[owners]
    away = ~speeds.shown(list(distinct))[kinds, column]
    trying = np.full(speeds.measured.kinds, -1)
    trying[kinds[away]] = owners[away]
    return trying


def _with_more(seconds: Floats, met: Floats, choices: Sequence[Placement]) -> Floats:
    """[job, choice] the seconds that it was measured to take on at least as many GPUs of the same
    type, on no more nodes: on fewer it is not faster. 0: it was measured on none."""
    least = np.zeros(seconds.shape)
    for column, choice in enumerate(choices):
        more = [
            other.type == choice.type and other.gpus >= choice.gpus and other.nodes <= choice.nodes
            for other in choices
        ]
        there = np.where((met == 1.0) & np.array(more), seconds, 0.0)
        least[:, column] = there.max(axis=1, initial=0.0)
    return least


def _first_of_each_kind(kinds: Ints, jobs: Ints, work: Floats) -> Ints:
    """Of these jobs the one with the most work, of each kind."""
    ordered = jobs[np.lexsort((-work[jobs], kinds[jobs]))]
    first: Ints = ordered[np.unique(kinds[ordered], return_index=True)[1]]
    return first


def _perfect(seconds: Floats, at: Ints, choices: Sequence[Placement]) -> Floats:
    """[job, choice] the least seconds that are possible if it takes `seconds` at the choice `at`:
    on GPUs of the same type, those of perfect scaling."""
    count = np.array([max(1, choice.gpus) for choice in choices])
    type = np.unique([choice.type for choice in choices], return_inverse=True)[1]
    same = type[at][:, None] == type
    least: Floats = np.where(same, seconds * count[at][:, None] / count / (1.0 + MARGIN), 0.0)
    return least
