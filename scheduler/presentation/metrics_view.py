"""Metrics of jobs for a terminal or a spreadsheet: what each has come to, its points, a plot. Pure.

Records are what the gateway answers to `GET /jobs/JOB/series` and `GET /jobs/JOB/points`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scheduler.presentation.comparison import by_subject
from scheduler.presentation.comparison_view import ABSENT, value_text
from scheduler.presentation.records import Record
from scheduler.presentation.render import Cell, Column, Screen, clock, printable, span, table
from scheduler.presentation.terminal_plot import PlottedCurve, plot
from scheduler.presentation.views import SHORT

STATISTICS = ("last", "min", "max")


def summary(jobs: Sequence[Record], chosen: Sequence[str], now: float, screen: Screen) -> list[str]:
    """`chosen`: of STATISTICS. What a narrow screen leaves out comes last."""
    several = len(jobs) > 1
    columns = [Column("METRIC", least=12, keep_end=True)]
    if several:
        columns += [Column("JOB", least=12, keep_end=True), Column("USER", least=8, optional=True)]
    for each in chosen:
        # Where there is one value only, its step is a part of it.
        optional = len(chosen) > 1 and each != "last"
        columns += [
            Column(each.upper(), right=True, least=9),
            Column("STEP", right=True, optional=optional),
        ]
    columns += [
        Column("LOGGED", optional=True),
        Column("POINTS", right=True, optional=True),
        Column("TAGS", least=12, optional=True),
    ]
    names = job_names(jobs)
    rows = []
    for job, series in in_order(jobs):
        cells = [series["name"]]
        if several:
            cells += [names[job["job"]], job["user"]]
        for each in chosen:
            cells += [text_of(series[each]), _step(series[f"{each}_step"])]
        cells += [
            clock(series["last_at"], now),
            f"{series['points']:,}",
            tags_text(series["tags"]),
        ]
        rows.append([Cell(text) for text in cells])
    return table(columns, rows, screen)


def points(
    jobs: Sequence[Record], curves: Sequence[Record], now: float, screen: Screen
) -> list[str]:
    several = len(jobs) > 1
    columns = [
        Column("METRIC", least=12, keep_end=True),
        *([Column("JOB", least=12, keep_end=True)] if several else []),
        Column("STEP", right=True),
        Column("LOGGED"),
        Column("VALUE", right=True, least=9),
    ]
    names = job_names(jobs)
    rows = [
        [
            Cell(curve["name"]),
            *([Cell(names[curve["job"]])] if several else []),
            Cell(_step(step)),
            Cell(clock(at, now)),
            Cell(text_of(value)),
        ]
        for curve in curves
        for at, step, value in of_curve(curve)
    ]
    return table(columns, rows, screen)


def plots(jobs: Sequence[Record], curves: Sequence[Record], screen: Screen) -> list[str]:
    """One for each metric, with a curve for each job. By steps, if all of these have steps."""
    names, lines = job_names(jobs), list[str]()
    for name in dict.fromkeys(curve["name"] for curve in curves):
        drawn = [curve for curve in curves if curve["name"] == name]
        by_step = all(curve["steps"] and None not in curve["steps"] for curve in drawn)
        plotted = [
            PlottedCurve(names[curve["job"]], _plotted(curve, "steps" if by_step else "times"))
            for curve in drawn
        ]
        title = f"{name} by {'step' if by_step else 'time'}"
        lines += [*plot(title, plotted, screen, None if by_step else span), ""]
    return lines[:-1]


def _plotted(curve: Record, of: str) -> list[tuple[float, float]]:
    """Seconds count from the first point of each curve: jobs began at different times."""
    places = curve[of]
    first = places[0] if of == "times" and places else 0
    return sorted(
        (
            (place - first, _drawn(value))
            for place, value in zip(places, curve["values"], strict=True)
        ),
        key=lambda point: point[0],
    )


def _drawn(value: Any) -> float:
    """What is no number is not drawn."""
    return float(value) if isinstance(value, int | float) else float("nan")


def remarks(refused: Mapping[str, int], lost: Mapping[str, int]) -> list[str]:
    """What of all that a job has logged is not there, in sentences."""
    return [
        *(f"{_times(count)} refused: {printable(why)}" for why, count in refused.items()),
        *(f"{_times(count)} lost: {printable(why)}" for why, count in lost.items()),
    ]


def _times(count: int) -> str:
    return "1 point or entry was" if count == 1 else f"{count:,} points or entries were"


# --- for spreadsheets ---------------------------------------------------------------------------


def summary_rows(jobs: Sequence[Record], chosen: Sequence[str]) -> Iterator[list[Any]]:
    yield [
        *("job", "job_name", "user", "metric", "measurement", "field", "tags"),
        *(name for each in chosen for name in (each, f"{each}_step")),
        *("last_at", "points"),
    ]
    for job, series in in_order(jobs):
        yield [
            *(job[name] for name in ("job", "job_name", "user")),
            *(series[name] for name in ("name", "measurement", "field")),
            tags_text(series["tags"]),
            *(series[name] for each in chosen for name in (each, f"{each}_step")),
            *(series["last_at"], series["points"]),
        ]


def points_rows(jobs: Sequence[Record], curves: Sequence[Record]) -> Iterator[list[Any]]:
    names = {job["job"]: job["job_name"] for job in jobs}
    yield ["job", "job_name", "metric", "step", "time", "value"]
    for curve in curves:
        for at, step, value in of_curve(curve):
            yield [curve["job"], names[curve["job"]], curve["name"], step, at, value]


# --- parts --------------------------------------------------------------------------------------


def in_order(jobs: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Each metric of each job: by metric, so that what can be compared stands together."""
    found = [(job, series) for job in jobs for series in job["series"]]
    return sorted(found, key=lambda pair: by_subject(pair[1]["name"]))


def of_curve(curve: Record) -> Iterator[tuple[float, int | None, Any]]:
    steps = curve["steps"] or [None] * len(curve["times"])
    yield from zip(curve["times"], steps, curve["values"], strict=True)


def job_names(jobs: Sequence[Record]) -> Mapping[str, str]:
    """By id; with the end of the id where several have the same name."""
    names = [job["job_name"] for job in jobs]
    return {
        job["job"]: name if names.count(name) == 1 else f"{name} {job['job'][-SHORT:]}"
        for job, name in zip(jobs, names, strict=True)
    }


def tags_text(tags: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in tags.items())


def text_of(value: Any) -> str:
    return ABSENT if value is None else value_text(value)


def _step(step: int | None) -> str:
    return ABSENT if step is None else f"{step:,}"
