"""What fair sharing would have given each job over its life, and who is behind that. Pure.

A job's weight is its rank by the work that it has left (offer.py), so the longest jobs pay for all
others. While jobs compete they have a fiftieth to a half of what fair sharing would give them, and
it is they that make up the 99th percentile. With `rules.fair_weight`, a job weighs at least the
part of its due under fair sharing that it lacks, times this: with 1, one that has trained nothing
weighs as much as the shortest job, and one that has half of its due as much as one in the middle.
The further it falls behind the more it gets, so it does not jump to and fro. By default there is no
such rule: ADR 40 says why.

What is compared is training, not GPU time: the epochs that are done, at the speed of the GPUs where
the job is fastest, with its age, of which fair sharing gives it a part. The jobs that are there now
stand for those of its whole life, because the view forgets jobs that have ended. An epoch more is
counted than is done: less cannot be seen, and a job that has just come lacks nothing.
"""

from __future__ import annotations

import numpy as np

from scheduler.estimates.arrays import Floats, Ints


def fair_parts(wants: Ints, gpus: int) -> Floats:
    """[job] the part of the GPUs that it wants which it has under max-min fair sharing: all jobs
    have equally many, but none has more than it wants. `wants`: at least 1."""
    if not len(wants):
        return np.zeros(0)
    ordered = np.sort(wants)
    before = np.cumsum(ordered) - ordered  # what those that want less have
    equal = (gpus - before) / np.arange(len(wants), 0, -1)
    at = int(np.argmax(ordered >= equal)) if (ordered >= equal).any() else len(wants) - 1
    parts: Floats = np.minimum(1.0, equal[at] / wants)
    return parts


def lacking(age: Floats, done: Ints, seconds: Floats, part: Floats) -> Floats:
    """[job] the part of its training under fair sharing that it lacks. `age`: seconds since its
    submission; `done`: epochs; `seconds`: of an epoch where it is fastest; `part`: see
    `fair_parts`."""
    due = np.maximum(age * part, 1e-9)
    lacks: Floats = np.maximum(1.0 - (done + 1.0) * seconds / due, 0.0)
    return lacks
