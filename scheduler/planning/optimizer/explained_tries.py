"""What a job tries next, or why nothing: what its offer says, for people. Pure.

It is read from the offer that a plan chooses from, so there is no second rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.core.fast_replace import replace
from scheduler.core.model import JobId, Placement
from scheduler.estimates.arrays import Bools
from scheduler.estimates.next_try import NextTry, Trying
from scheduler.estimates.slow_gpus import split_type
from scheduler.estimates.trials import LAST_EPOCHS
from scheduler.planning.optimizer.offer import Offer


def next_try(
    offer: Offer, row: int, idle: Mapping[str, int], owners: Sequence[JobId]
) -> NextTry | None:
    """Of the job in this row. `idle`: GPUs of each type that nothing uses; `owners`: the jobs by
    their numbers. None: its speeds are not learned."""
    if (tries := offer.tries) is None:
        return None
    kind, owner = tries.kinds[row], tries.owners[row]
    if not np.isfinite(tries.known.best[row]):
        return NextTry(Trying.UNMEASURED)
    if tries.trying[kind] == owner:
        return NextTry(Trying.NOW, _text(offer.configs[offer.now[row]]))
    if tries.left[row] <= LAST_EPOCHS:
        return NextTry(Trying.LAST_EPOCHS)
    if not tries.news[row].any():
        return _best_of(offer, row, _more_or_other(offer, row), Trying.KNOWN)
    if tries.first[kind] != owner:
        return NextTry(Trying.ANOTHER, job=owners[tries.first[kind]])
    may = tries.may[row] & offer.possible[row]
    if not may.any():
        return _best_of(offer, row, tries.news[row], Trying.UNPROMISING)
    columns = np.flatnonzero(may)
    chosen = int(columns[offer.worth(row, columns, 1.0).argmax()])
    type, there_are = offer.configs[chosen].type, 0
    if offer.now[row] >= 0 and offer.configs[offer.now[row]].type == type:
        there_are = offer.configs[offer.now[row]].gpus
    missing = offer.configs[chosen].gpus - there_are - idle.get(type, 0)
    return _compared(offer, row, chosen, Trying.NEXT, max(0, missing))


def _more_or_other(offer: Offer, row: int) -> Bools:
    """[choice] those on more GPUs than where it is fastest, if there are any; else all others."""
    assert offer.tries
    best = offer.configs[offer.tries.known.at[row]]
    allowed = offer.tries.allowed[row]
    more = np.array([on.type == best.type and on.gpus > best.gpus for on in offer.configs])
    other = np.array([on != best for on in offer.configs])
    found: Bools = allowed & (more if (allowed & more).any() else other)
    return found


def _best_of(offer: Offer, row: int, choices: Bools, trying: Trying) -> NextTry:
    if not choices.any():
        return NextTry(trying)
    found = int(np.where(choices, offer.expected[row], np.inf).argmin())
    return _compared(offer, row, found, trying)


def _compared(offer: Offer, row: int, column: int, trying: Trying, waits_for: int = 0) -> NextTry:
    """What is expected there, relative to where it is fastest."""
    assert offer.tries
    known, where = offer.tries.known, offer.configs[column]
    there = float(offer.learned.doubt([where])[offer.learned.rows([offer.jobs[row]])[0], 0])
    return NextTry(
        trying,
        _text(where),
        _text(offer.configs[known.at[row]]),
        float(known.best[row] / offer.expected[row, column]),
        0.0 if known.met[row, column] == 1.0 else there,
        waits_for,
    )


def _text(choice: Placement) -> str:
    """Slow GPUs are a type of their own only within a plan."""
    return str(replace(choice, type=split_type(choice.type)[0]))
