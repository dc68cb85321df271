"""Seconds per epoch alone on one GPU, for jobs that were not measured there.

In logarithms, and per sample of the training set, the seconds of a job on a type of GPU are

    x + f(type) + g(kind, type)

where x is the job's own and close to the x of its kind (job family), and f and g are learned from
kinds that were measured on several types. A kind that differs much from the others pulls f no
harder than one that differs a little, so alone it moves the ratio of two types by no more than the
doubt of it (docs/adr/0036). If nothing is known of a kind, the estimate given with
the job is used instead, and without one, what is usual among the other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scheduler.core.model import Job
from scheduler.estimates import scaling
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.measurements import Measurements

SECONDS_UNKNOWN = 600.0  # an epoch, if nothing is known of any job
SECONDS_LEAST, SECONDS_MOST = 1e-9, 1e12  # bounds of predictions

# Standard deviations, relative.
SD_OF_KIND = 0.2  # between jobs of one kind, at least
SD_TYPE = 0.25  # of the ratio of two types, for a kind measured on only one
SD_RATIO = 0.9  # more, as long as no kind was measured on both
SD_SAID = 0.7
SD_USUAL = 1.2

MEAN_TO_SD = 1.25  # a standard deviation is about this many mean absolute ones

RIDGE_TYPE = 0.1  # of f, in kinds
FAR = RIDGE_TYPE * SD_RATIO / 2.2  # a kind that is further off pulls no harder
RIDGE_JOBS = 0.5  # of g, in jobs
_SWEEPS = 12


@dataclass(frozen=True, slots=True)
class Firsts:
    """The measurements: one entry for each owner and type that was measured."""

    owner: Ints
    type: Ints
    seconds: Floats  # on one GPU, by the law
    sd: Floats


def fit(jobs: Sequence[Job], measured: Measurements, firsts: Firsts) -> tuple[Floats, Floats]:
    """[owner, type] seconds on one GPU, and their relative standard deviations. The last type
    stands for all types without measurements."""
    kind, size = measured.kind[firsts.owner], np.log(measured.size)
    shown = np.log(firsts.seconds)
    x, doubt, factor, transfer = _kinds(
        kind, firsts.type, shown - size[firsts.owner], firsts.sd, measured
    )
    shown = shown - factor[kind, firsts.type]
    off = shown - x[kind] - size[firsts.owner]
    doubt = doubt + _spreads(kind, off, measured.kinds) ** 2
    before, doubt = x[measured.kind] + size, doubt[measured.kind]
    _fill(before, doubt, jobs, shown[firsts.owner < len(jobs)])
    own = np.bincount(firsts.owner, firsts.sd**-2, len(size))
    pull = np.bincount(firsts.owner, shown * firsts.sd**-2, len(size))
    precision = own + 1.0 / doubt
    seconds = ((pull + before / doubt) / precision)[:, None] + factor[measured.kind]
    sd = np.sqrt(1.0 / precision[:, None] + transfer[measured.kind])
    return np.exp(np.clip(seconds, math.log(SECONDS_LEAST), math.log(SECONDS_MOST))), sd


def _kinds(
    kind: Ints, type: Ints, shown: Floats, sd: Floats, measured: Measurements
) -> tuple[Floats, Floats, Floats, Floats]:
    """[kind] x and its variance, NaN and infinite where nothing is known; [kind, type] f + g, and
    its variance."""
    shape = measured.kinds, len(measured.types) + 1
    cell, cells = kind * shape[1] + type, shape[0] * shape[1]
    trust = 1.0 / (sd**2 + SD_OF_KIND**2)
    total: Floats = np.bincount(cell, trust, cells).astype(np.float64).reshape(shape)
    known = total > 0.0
    sums = np.bincount(cell, trust * shown, cells).reshape(shape)
    mean = np.divide(sums, total, out=np.zeros(shape), where=known)
    f, compared = _type_factors(mean, known)
    of_kind = total.sum(axis=1)
    some = of_kind > 0.0
    x = np.full(shape[0], np.nan)
    np.divide((total * (mean - f)).sum(axis=1), of_kind, out=x, where=some)
    variance = np.divide(1.0, of_kind, out=np.full(shape[0], np.inf), where=some)
    jobs = total * SD_OF_KIND**2  # their approximate number
    g = (
        np.where(known, mean - np.where(some, x, 0.0)[:, None] - f, 0.0)
        * jobs
        / (jobs + RIDGE_JOBS)
    )
    never = np.where(some[:, None], SD_RATIO**2 * RIDGE_TYPE / (RIDGE_TYPE + compared), 0.0)
    unlike = SD_TYPE**2 + never
    return x, variance, f + g, np.where(known, 0.0, unlike)


def _spreads(kind: Ints, off: Floats, kinds: int) -> Floats:
    """[kind] how far its jobs are from each other: far, if they are different programs. `off`: how
    far each is from what is usual for its kind."""
    others = np.maximum(np.bincount(kind, minlength=kinds) - 1, 1)
    spread = MEAN_TO_SD * np.bincount(kind, np.abs(off), kinds) / others
    return np.clip(spread, SD_OF_KIND, SD_USUAL)


def _type_factors(mean: Floats, known: Bools) -> tuple[Floats, Floats]:
    """[type] f, from the kinds that were measured on several types, and their number."""
    several = known.sum(axis=1) > 1
    mean, known = mean[several], known[several]
    f = np.zeros(known.shape[1])
    for _ in range(_SWEEPS if len(known) else 0):
        x = np.where(known, mean - f, 0.0).sum(axis=1) / known.sum(axis=1)
        left = np.where(known, mean - x[:, None], 0.0)
        pull = known * (FAR / np.maximum(np.abs(left - f), FAR))
        f = (pull * left).sum(axis=0) / (pull.sum(axis=0) + RIDGE_TYPE)
    return f, known.sum(axis=0)


def _fill(before: Floats, doubt: Floats, jobs: Sequence[Job], shown: Floats) -> None:
    """Fills in the values of kinds that show nothing."""
    usual = float(np.median(shown)) if len(shown) else math.log(SECONDS_UNKNOWN)
    for owner in np.flatnonzero(np.isnan(before)).tolist():
        said = _owner_estimate(jobs[owner]) if owner < len(jobs) else None
        before[owner] = usual if said is None else said
        doubt[owner] = SD_USUAL**2 if said is None else SD_SAID**2


def _owner_estimate(job: Job) -> float | None:
    """The logarithm of the seconds per epoch on one GPU, if the whole job takes as long as the user
    estimated."""
    seconds = job.spec.hours_estimate * 3600.0 / max(1, job.max_epochs)
    if not SECONDS_LEAST < seconds < SECONDS_MOST:
        return None
    return math.log(seconds / _guess(max(1, job.spec.gpus_min)))


@lru_cache(maxsize=1024)
def _guess(gpus: int) -> float:
    """A guess of the time on this number of GPUs of one node, relative to one GPU."""
    return float(scaling.terms(gpus, 1) @ scaling.GUESS)
