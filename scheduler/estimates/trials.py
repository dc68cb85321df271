"""What it is worth to try a configuration in which a job was never measured.

A job that is tried on other GPUs has one epoch there and then goes on where it is faster, so what
it may win counts in full and what it may lose counts for one epoch and two restarts. With a
lognormal belief about the seconds there, whose median is the estimate, the time that is left is
known in closed form (expected improvement). No time below that of perfect scaling is believed
possible on GPUs of the same type, and a doubt beyond DOUBT_MAX makes nothing more attractive.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from scheduler.estimates.arrays import Bools, Floats

LAST_EPOCHS = 4  # with no more than these left, nothing is tried
KNOWN = 0.05  # a relative standard deviation up to which there is nothing to find out
DOUBT_MAX = 0.5


def seconds_with_return(
    best: Floats, estimate: Floats, doubt: Floats, least: Floats, left: Floats, restart: Floats
) -> Floats:
    """The seconds per epoch that are expected of a try, the way back included, but not the restart
    there. Arguments broadcast: `best`: where it is known to be fastest; `estimate`, `doubt`: there,
    and its relative standard deviation; `least`: possible there; `left`: epochs."""
    later = np.maximum(left - 1.0, 1.0)
    most = best + restart / later  # of a later epoch: else it goes back
    sd = np.sqrt(np.log1p(np.clip(doubt, 1e-6, DOUBT_MAX) ** 2))
    within = _mean_below(estimate, sd, most)
    within = within + np.maximum(least - _mean_below(estimate, sd, least), 0.0)
    seconds: Floats = (estimate + later * np.minimum(within, most)) / (later + 1.0)
    return seconds


def may_be_tried(seconds: Floats, doubt: Floats, best: Floats, left: Floats) -> Bools:
    """Whether there is something to find out, and enough left for it. `seconds`: as expected of a
    try; `best`: infinite for a job that is known nowhere and has nothing to compare with."""
    enough = (left > LAST_EPOCHS) & np.isfinite(best)
    worth: Bools = enough & (doubt > KNOWN) & (seconds < best)
    return worth


def _mean_below(median: Floats, sd: Floats, limit: Floats) -> Floats:
    """The mean of the smaller of this limit and a lognormal variable."""
    distance = np.log(np.maximum(limit, 1e-300) / median) / sd
    below: Floats = median * np.exp(sd**2 / 2) * ndtr(distance - sd) + limit * ndtr(-distance)
    return below
