"""Curves: the points of metrics of jobs, thinned out to what can be drawn, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.gateway.api.job_metrics import Metric, described, metrics_by_name, sent
from scheduler.gateway.problems import Problem
from scheduler.gateway.series import downsampling
from scheduler.gateway.series.reading import NO_STEP, Points, Steps, joined, no_points, uncovered
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.presentation.comparison import by_subject
from scheduler.presentation.records import Record

POINTS = 2_000  # of a curve
ANSWERED_MAX = 1_000_000  # points of all curves
READ_MAX = 50_000_000  # points of the store, for an answer with several curves
AT_ONCE_MAX = 1_000_000  # points of a curve, in memory


@dataclass(frozen=True, slots=True)
class CurveChoice:
    """`names`: None: all metrics."""

    names: Sequence[str] | None
    attempt: int | None
    first_ns: int | None
    last_ns: int | None
    first_step: int | None
    last_step: int | None
    points_max: int


def curves(store: SeriesStore, jobs: Sequence[str], choice: CurveChoice) -> Record:
    """In the order of the names, then of the jobs."""
    told = store.summaries(jobs)
    found = [(job, metrics_by_name(told[job])) for job in jobs]
    names = choice.names
    if names is None:
        names = sorted({name for _, metrics in found for name in metrics}, key=by_subject)
    chosen = [
        (job, metrics[name])
        for name in dict.fromkeys(names)
        for job, metrics in found
        if name in metrics
    ]
    _check(chosen)
    points_max = choice.points_max
    if len(chosen) * points_max > ANSWERED_MAX:
        points_max = max(downsampling.LEAST, ANSWERED_MAX // len(chosen))
    drawn = (_curve(store, job, metric, choice, points_max) for job, metric in chosen)
    return {"points_max": points_max, "curves": [curve for curve in drawn if curve["points"]]}


def _check(chosen: Sequence[tuple[str, Metric]]) -> None:
    if len(chosen) > ANSWERED_MAX // downsampling.LEAST:
        raise Problem(400, f"name: {len(chosen)} curves are too many for one answer", "name")
    read = sum(each.points for _, metric in chosen for each in metric.attempts.values())
    if len(chosen) > 1 and read > READ_MAX:
        raise Problem(
            400,
            f"there are {read} points in these {len(chosen)} curves, and an answer is computed "
            f"from at most {READ_MAX}: ask for fewer jobs or names",
            "name",
        )


def _curve(
    store: SeriesStore, job: str, metric: Metric, choice: CurveChoice, points_max: int
) -> Record:
    count, points = _points(store, metric, choice, points_max)
    shown = downsampling.downsampled(points, points_max)
    stepped = shown.steps != NO_STEP
    steps: list[int | None] | None = None
    if stepped.any():
        steps = shown.steps.tolist()
        if not stepped.all():
            steps = [None if step == NO_STEP else step for step in steps]
    return {
        "job": job,
        **described(metric),
        "points": count,
        "times": (shown.times / 1e9).tolist(),
        "steps": steps,
        "values": values_of(shown),
    }


def _points(
    store: SeriesStore, metric: Metric, choice: CurveChoice, points_max: int
) -> tuple[int, Points]:
    """How many there are, and these; of many, a part that has the same shape."""
    logged = sum(each.points for each in metric.attempts.values())
    share = 1.0 if logged <= AT_ONCE_MAX else 4 * points_max / logged
    covered: list[Steps] = []
    count, found = 0, [no_points(metric.kind)]
    for attempt in sorted(metric.ids, reverse=True):
        if choice.attempt is None or attempt == choice.attempt:
            for piece in store.pieces(metric.ids[attempt], choice.first_ns, choice.last_ns):
                points = _between_steps(
                    uncovered(piece, covered), choice.first_step, choice.last_step
                )
                count += len(points)
                most = max(downsampling.LEAST, int(share * len(points)))
                found.append(downsampling.downsampled(points, most) if share < 1 else points)
            covered += _steps(metric, attempt) if choice.attempt is None else []
    return count, joined(found)


def _steps(metric: Metric, attempt: int) -> list[Steps]:
    summary = metric.attempts[attempt]
    if summary.first_step is None or summary.final_step is None:
        return []
    return [(summary.first_step, summary.final_step)]


def _between_steps(points: Points, first: int | None, last: int | None) -> Points:
    if first is None and last is None:
        return points
    # What has no step is in no span of steps.
    there = (points.steps != NO_STEP) & (points.steps >= (0 if first is None else first))
    return points.chosen(there if last is None else there & (points.steps <= last))


def values_of(points: Points) -> list[Any]:
    """As JSON, which knows no NaN and no infinity."""
    values: list[Any] = points.values.tolist()
    if points.values.dtype == np.float64:
        for place in np.flatnonzero(~np.isfinite(points.values)):
            values[place] = sent(values[place])
    return values
