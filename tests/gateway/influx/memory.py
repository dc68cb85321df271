"""A store of series in memory, and the same data as line protocol for a real InfluxDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.gateway.series.reading import (
    DTYPES,
    NO_STEP,
    JobRecord,
    Kind,
    Points,
    Series,
    no_points,
)

Value = float | int | bool | str
_KINDS: dict[type, Kind] = {float: "float", int: "integer", bool: "boolean", str: "string"}


class Memory:
    """Implements SeriesReader."""

    def __init__(self) -> None:
        self._series: dict[Any, Series] = {}
        self._points: dict[int, list[tuple[int, int, Value]]] = {}
        self.lines: list[str] = []

    def add(
        self,
        measurement: str,
        tags: Mapping[str, str],
        time: int,
        fields: Mapping[str, Value],
        job: str = "one",
        attempt: int = 1,
        step: int = NO_STEP,
    ) -> None:
        for field, value in fields.items():
            key = job, attempt, measurement, field, type(value), tuple(sorted(tags.items()))
            series = self._series.setdefault(
                key,
                Series(
                    len(self._series) + 1,
                    job,
                    attempt,
                    measurement,
                    field,
                    _KINDS[type(value)],
                    tuple(sorted(tags.items())),
                ),
            )
            self._points.setdefault(series.id, []).append((time, step, value))
        shown = ",".join(f"{_name(key)}={_value(value)}" for key, value in fields.items())
        all_tags = ",".join(f"{_name(k)}={_name(v)}" for k, v in {**tags, "job": job}.items())
        self.lines.append(f"{_name(measurement)},{all_tags} {shown} {time}")

    def jobs(self) -> set[str]:
        return {each.job for each in self._series.values()}

    def measurements(self, jobs: Collection[str] | None = None) -> list[str]:
        return sorted({each.measurement for each in self.series(jobs)})

    def series(
        self, jobs: Collection[str] | None = None, measurement: str | None = None
    ) -> list[Series]:
        return [
            each
            for each in self._series.values()
            if (jobs is None or each.job in jobs) and measurement in (None, each.measurement)
        ]

    def points(
        self, series: Sequence[int], first_ns: int | None = None, last_ns: int | None = None
    ) -> dict[int, Points]:
        kinds = {each.id: each.kind for each in self._series.values()}
        found = {}
        for number in series:
            listed = sorted(self._points[number], key=lambda each: each[:2])
            listed = [
                each
                for each in listed
                if (first_ns is None or each[0] >= first_ns)
                and (last_ns is None or each[0] < last_ns)
            ]
            found[number] = no_points(kinds[number])
            if listed:
                times, steps, values = zip(*listed, strict=True)
                found[number] = Points(
                    np.array(times, np.int64),
                    np.array(steps, np.int64),
                    np.array(values, DTYPES[kinds[number]]),
                )
        return found

    def record(self, job: str) -> JobRecord:
        return JobRecord({}, {}, "", [], {}, {})


def _name(text: str) -> str:
    for character in (",", "=", " "):
        text = text.replace(character, f"\\{character}")
    return text


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}i"
    if isinstance(value, float):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
