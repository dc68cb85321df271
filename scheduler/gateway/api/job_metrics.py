"""The metrics of a job by their names: what each has come to over its attempts, as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from scheduler.gateway.series import summaries
from scheduler.gateway.series.reading import Kind, newest
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.summaries import JobSummary, Summary
from scheduler.presentation import comparison
from scheduler.presentation.comparison import Key
from scheduler.presentation.records import Record


@dataclass(slots=True)
class Metric:
    """The series of one measurement, field and tags, one for each attempt that logged it."""

    key: Key
    name: str
    kind: Kind
    attempts: dict[int, Summary] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)  # of the series, by attempt


def metrics_by_name(job: JobSummary) -> dict[str, Metric]:
    keys = {(series.measurement, series.field, series.tags) for series, _ in job.series}
    names = comparison.metric_names(keys)
    found: dict[str, Metric] = {}
    for series, summary in job.series:
        key = series.measurement, series.field, series.tags
        metric = found.setdefault(names[key], Metric(key, names[key], series.kind))
        metric.kind = _wider(metric.kind, series.kind)
        metric.attempts[series.attempt] = summary
        metric.ids[series.attempt] = series.id
    return found


def _wider(one: Kind, other: Kind) -> Kind:
    """An attempt that has logged whole numbers only does not make the others whole."""
    return "float" if {one, other} == {"float", "integer"} else other


def described(metric: Metric) -> Record:
    measurement, field, tags = metric.key
    return {
        "name": metric.name,
        "measurement": measurement,
        "field": field,
        "tags": dict(tags),
        "kind": metric.kind,
    }


def metrics_of(store: SeriesStore, job: JobSummary) -> dict[str, Record]:
    """What each metric of a job has come to, by name."""
    return {name: record(store, metric) for name, metric in metrics_by_name(job).items()}


def record(store: SeriesStore, metric: Metric) -> Record:
    summary = _whole(store, metric)
    last = summary.last
    if last is None and metric.kind == "float" and summary.points:
        last = math.nan
    if metric.kind == "boolean" and last is not None:
        last = bool(last)
    return {
        "last": last,
        "min": summary.least,
        "max": summary.greatest,
        "last_step": summary.last_step,
        "min_step": summary.least_step,
        "max_step": summary.greatest_step,
        "points": summary.points,
    }


def _whole(store: SeriesStore, metric: Metric) -> Summary:
    if len(metric.attempts) == 1:
        return next(iter(metric.attempts.values()))
    whole = summaries.over_attempts(metric.attempts)
    if whole is None:
        points = store.points(list(metric.ids.values()))
        whole = summaries.of_points(
            newest({each: points[number] for each, number in metric.ids.items()})
        )
    return whole


def sent(value: Any) -> Any:
    """JSON knows no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
