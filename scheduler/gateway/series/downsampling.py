"""Few points that look like many: what is drawn in a plot. Pure.

MinMaxLTTB (Van Der Donckt et al. 2023): of each bucket the least and the greatest value, and of
these the ones that make the largest triangles. So a spike stays, and each point is one that was
logged. Buckets have as many points each: where more was logged, more is shown.
"""

from __future__ import annotations

import numpy as np
from tsdownsample import MinMaxLTTBDownsampler

from scheduler.gateway.series.reading import Int64s, Points

LEAST = 10  # below it, a curve has no shape
_MINMAX_RATIO = 4  # so many points go into the triangles for each that comes out


def downsampled(points: Points, points_max: int) -> Points:
    """`points_max`: at least LEAST. NaN and infinities stay, up to a quarter of these."""
    if len(points) <= points_max:
        return points
    if points.values.dtype == object:
        return points.chosen(_evenly(len(points), points_max))
    values = points.values.astype(np.float64)
    finite = np.isfinite(values)
    if finite.all():
        return points.chosen(_shaping(values, points_max))
    odd = np.flatnonzero(~finite)
    odd = odd[_evenly(len(odd), points_max // 4)]
    regular = np.flatnonzero(finite)
    regular = regular[_shaping(values[regular], points_max - len(odd))]
    return points.chosen(np.sort(np.concatenate([odd, regular])))


def _shaping(values: np.ndarray[tuple[int], np.dtype[np.float64]], count: int) -> Int64s:
    if len(values) <= count:
        return np.arange(len(values))
    chosen = MinMaxLTTBDownsampler().downsample(values, n_out=count, minmax_ratio=_MINMAX_RATIO)
    return np.asarray(chosen, np.int64)


def _evenly(length: int, count: int) -> Int64s:
    """The first and the last are among them."""
    if length <= count:
        return np.arange(length)
    return np.linspace(0, length - 1, count).round().astype(np.int64)
