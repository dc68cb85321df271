"""Jobs compared, as lines for a terminal: a column for each job, in blocks that fit. Pure.

The record is what the gateway answers to `GET /compare`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scheduler.presentation.comparison import is_of_machine
from scheduler.presentation.records import Record
from scheduler.presentation.render import Cell, Column, Screen, printable, table, width
from scheduler.presentation.views import SHORT

NO_DIFFERENCES = "no differences"
ONLY_OF_MACHINES = "but in how fast they ran, or what their machines did: --metrics shows it"
ABSENT = "\N{EN DASH}"
_JOB_LEAST, _LABEL_LEAST, _LABEL_MOST = 14, 12, 40  # columns of the screen
_STATISTICS = (("last", "last_step"), ("min", "min_step"), ("max", "max_step"))


class Sections(NamedTuple):
    """What is shown, and whether also what is the same in all jobs."""

    config: bool = True
    metrics: bool = True
    code: bool = True
    everything: bool = False


def comparison(record: Record, sections: Sections, screen: Screen) -> list[str]:
    jobs = record["jobs"]
    config = _config(record) if sections.config else []
    metrics = _metrics(record, sections.everything) if sections.metrics else []
    code = [f"code  {record['code']}"] if sections.code else []
    lines = []
    if not (config or metrics):
        if sections.config or sections.metrics:
            code = code if sections.everything else []
            lines.append(_nothing(sections, len(jobs)))
        return lines + code
    if sections == Sections() and not config and all(row.of_machine for row in metrics):
        # No two runs take the same time: people who ask for differences mean others.
        return [NO_DIFFERENCES, ONLY_OF_MACHINES]
    rows = [*_titled("config", config), *_titled("metrics", metrics)]
    for block in _blocks(rows, len(jobs), screen):
        lines += [*_block(jobs, rows, block, screen), ""]
    if sections.config and record["equal"] and not sections.everything:
        lines.append(f"the same in all: {record['equal']:,} {'more' if config else 'of config'}")
    return [*lines, *code]


def _nothing(sections: Sections, jobs: int) -> str:
    if jobs == 1:
        return f"{NO_DIFFERENCES}: these are one job"
    if sections.config and sections.metrics:
        return NO_DIFFERENCES
    return f"{NO_DIFFERENCES} in {'config' if sections.config else 'metrics'}"


# --- rows ---------------------------------------------------------------------------------------


class _Row(NamedTuple):
    label: str
    texts: Sequence[str]  # of each job
    dim: bool = False  # the same in all jobs
    best: Sequence[bool] = ()  # of each job
    title: bool = False
    of_machine: bool = False  # it tells of no result


def _titled(title: str, rows: list[_Row]) -> list[_Row]:
    return [_Row(title, (), title=True), *rows] if rows else []


def _config(record: Record) -> list[_Row]:
    ids = [job["id"] for job in record["jobs"]]
    return [
        _Row(
            each["key"],
            [value_text(each["values"][job]) if job in each["values"] else ABSENT for job in ids],
            dim=not each["differs"],
        )
        for each in record["config"]
    ]


def _metrics(record: Record, everything: bool) -> list[_Row]:
    ids = [job["id"] for job in record["jobs"]]
    rows = []
    for metric in record["metrics"]:
        found = [metric["values"].get(job) for job in ids]
        if not everything and all(each == found[0] for each in found):
            continue
        rows += list(_statistics(metric["name"], metric["rises"], found))
    return rows


def _statistics(name: str, rises: bool | None, found: Sequence[Record | None]) -> Iterator[_Row]:
    """Rows `last`, `min` and `max`; the one that is best says at which step it was."""
    best = best_statistic(rises)
    for statistic, step in _STATISTICS:
        texts = [
            ABSENT if each is None else _figure(each[statistic], each[step], statistic == best)
            for each in found
        ]
        label = f"{name} {statistic}{' (best)' if statistic == best else ''}"
        values = [each[statistic] if each else None for each in found]
        dim = all(value == values[0] for value in values)
        winners = _winners(values, bool(rises)) if statistic == best else ()
        yield _Row(label, texts, dim, winners, of_machine=is_of_machine(name))


def best_statistic(rises: bool | None) -> str:
    """Empty: it is no result."""
    return "" if rises is None else "max" if rises else "min"


def _winners(values: Sequence[Any], rises: bool) -> list[bool]:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(set(numbers)) < 2:
        return []
    most = max(numbers) if rises else min(numbers)
    return [isinstance(value, int | float) and value == most for value in values]


def _figure(value: Any, step: int | None, with_step: bool) -> str:
    if value is None:
        return ABSENT
    text = value_text(value)
    return f"{text} at {step:,}" if with_step and step is not None else text


def value_text(value: Any) -> str:
    """A text in quotes only if it would look like something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return printable(value) if _is_plain(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    if not text or text != text.strip() or text == ABSENT:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return text in ("NaN", "Infinity", "-Infinity")


# --- columns ------------------------------------------------------------------------------------


def _label_room(rows: Sequence[_Row]) -> int:
    longest = max((width(row.label) + 2 for row in rows), default=0)
    return max(_LABEL_LEAST, min(_LABEL_MOST, longest))


def _blocks(rows: Sequence[_Row], jobs: int, screen: Screen) -> list[range]:
    """Which jobs stand beside each other."""
    if screen.width is None:
        return [range(jobs)]
    each = max(1, (screen.width - _label_room(rows)) // (_JOB_LEAST + 2))
    if jobs > each:
        each = -(-jobs // -(-jobs // each))  # the blocks are about equal
    return [range(first, min(jobs, first + each)) for first in range(0, jobs, each)]


def _block(jobs: Sequence[Record], rows: Sequence[_Row], block: range, screen: Screen) -> list[str]:
    columns = [
        Column("", least=_label_room(rows), keep_end=True),
        *(Column(jobs[at]["name"], least=_JOB_LEAST, keep_end=True) for at in block),
    ]
    lines = [
        [Cell(f"  {name}", "grey"), *(Cell(text, "grey") for text in texts)]
        for name, texts in _heads([jobs[at] for at in block], jobs)
    ]
    for row in rows:
        if row.title:
            lines.append([Cell(row.label), *(Cell("") for _ in block)])
            continue
        colour = "grey" if row.dim else ""
        lines.append(
            [
                Cell(f"  {row.label}", colour),
                *(
                    Cell(row.texts[at], "green" if row.best and row.best[at] else colour)
                    for at in block
                ),
            ]
        )
    return table(columns, lines, screen)


def _heads(block: Sequence[Record], jobs: Sequence[Record]) -> Iterator[tuple[str, list[str]]]:
    yield "id", [job["id"][-SHORT:] for job in block]
    if len({job["user"] for job in jobs}) > 1:
        yield "user", [job["user"] for job in block]
    yield "state", [job["state"] for job in block]
