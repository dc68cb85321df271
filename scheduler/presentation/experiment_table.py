"""The table of experiments: a row for each job, with columns of what was set and measured. Pure.

A column has a dotted name: `name`, `state`, `seconds`; `param.lr`, `label.sweep`, `tag.team`,
`annotation.star`, `option.batch_size`; `last.val_loss`, `min.val_loss`, `max.val_loss`.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scheduler.presentation import comparison
from scheduler.presentation.comparison import STEERING, Flat
from scheduler.presentation.records import Record

ABOUT_JOB = ("name", "user", "project", "experiment", "state")
PARAMS_CHOSEN, METRICS_CHOSEN = 6, 3
_LEFT_OUT = ("option.exported", "option.project", "option.experiment")
STATISTICS = ("last", "min", "max")
_TERM = re.compile(r'(?:"([^"]*)"|(\S+))')
_CONDITION = re.compile(r"([^=<>!~\s]+)(<=|>=|!=|=|<|>|~)(.+)", re.DOTALL)


class SearchError(ValueError):
    """The message says which part of a search cannot be used."""


class JobRow(NamedTuple):
    id: str
    values: Flat  # by column
    text: str  # what is searched, in lower case


def row(
    job: Record,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    description: str,
    metrics: Mapping[str, Record],
) -> JobRow:
    """`metrics`: by name, each with `last`, `min` and `max`."""
    values: Flat = {name: job[name] for name in (*ABOUT_JOB, "epochs_done", "submitted_at")}
    if job["started_at"] is not None and job["ended_at"] is not None:
        values["seconds"] = job["ended_at"] - job["started_at"]
    if description:
        values["description"] = description
    values |= {f"annotation.{key}": value for key, value in job["annotations"].items()}
    for name, value in comparison.configuration(job, params, tags).items():
        if not name.startswith(_LEFT_OUT):
            values[name] = value
    for name, record in metrics.items():
        for statistic in STATISTICS:
            if (value := record[statistic]) is not None:
                values[f"{statistic}.{name}"] = value
    return JobRow(job["id"], values, _searched(job["id"], values))


def _searched(job_id: str, values: Flat) -> str:
    about = [job_id, *(str(values[name]) for name in ABOUT_JOB), str(values.get("description", ""))]
    own = [
        f"{key.partition('.')[2]}={value}"
        for key, value in values.items()
        if key.startswith(("param.", "tag.", "label.", "annotation."))
    ]
    return "\n".join(about + own).lower()


# --- columns ------------------------------------------------------------------------------------


def columns(rows: Sequence[JobRow]) -> list[Record]:
    """All that there are: how many jobs have a value there, and how many different ones."""
    present: Counter[str] = Counter()
    different: dict[str, set[str]] = {}
    for each in rows:
        present.update(each.values.keys())
        for name, value in each.values.items():
            kinds = different.get(name)
            if kinds is None:
                kinds = different[name] = set()
            # As identity() but for 1 and 1.0, and much faster.
            kinds.add(value if type(value) is str else repr(value))
    return [
        {"name": name, "jobs": present[name], "different": len(different[name])}
        for name in sorted(present)
    ]


def choose(known: Sequence[Mapping[str, Any]], jobs: int) -> list[str]:
    """The columns of a table for which none were chosen: what differs, and what was measured."""
    varying = [each for each in known if each["different"] > 1 or 1 < each["jobs"] < jobs]
    chosen = [each["name"] for each in varying if each["name"] in ("user", "experiment")]
    params = sorted(
        (each for each in varying if each["name"].startswith(("param.", "label."))),
        key=lambda each: (-each["jobs"], each["name"]),
    )
    metrics = sorted(
        (each for each in known if each["name"].startswith("last.") and _subject(each) < STEERING),
        key=lambda each: (_subject(each), -each["jobs"], each["name"]),
    )
    chosen += [each["name"] for each in params[:PARAMS_CHOSEN]]
    for each in metrics[:METRICS_CHOSEN]:
        name = each["name"].removeprefix("last.")
        chosen.append(f"{'max' if comparison.rises(name) else 'last'}.{name}")
    ended = any(each["name"] == "seconds" for each in known)
    return [*chosen, *(["seconds"] if ended else []), "submitted_at"]


def _subject(column: Mapping[str, Any]) -> int:
    return comparison.by_subject(column["name"].removeprefix("last."))[0]


# --- search -------------------------------------------------------------------------------------


def search(rows: Sequence[JobRow], text: str) -> list[JobRow]:
    """Rows in which all terms hold. A term is a part of a name, an id, a description or of
    `key=value`, or a condition on a column: `lr<=0.01`, `min.loss<0.3`, `state!=FAILED`, `net~res`.
    A column can be named without its beginning. Raises SearchError."""
    found = rows
    for quoted, word in _TERM.findall(text):
        condition = None if quoted else _CONDITION.fullmatch(word)
        if condition:
            holds = _condition(rows, *condition.groups())
            found = [each for each in found if holds(each)]
        else:
            wanted = (quoted or word).lower()
            found = [each for each in found if wanted in each.text]
    return list(found)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _condition(rows: Iterable[JobRow], name: str, sign: str, text: str) -> Callable[[JobRow], bool]:
    column = _meant(name, {key for each in rows for key in each.values})
    wanted = comparison.read_param(text)
    if sign == "~":
        return lambda each: text.lower() in str(each.values.get(column, "")).lower()
    if sign in ("=", "!="):
        same = {comparison.identity(wanted), comparison.identity(text)}
        return lambda each: (
            (comparison.identity(each.values.get(column, comparison.ABSENT)) in same)
            == (sign == "=")
        )
    if not _is_number(wanted):
        raise SearchError(f"{name}{sign}{text}: {text!a} is not a number")
    compared = _COMPARISONS[sign]
    return lambda each: _is_number(value := each.values.get(column)) and compared(value, wanted)


_BEGINNINGS = ("", "param.", "last.", "label.", "tag.", "annotation.", "option.")


def _meant(name: str, known: Collection[str]) -> str:
    for beginning in _BEGINNINGS:
        if f"{beginning}{name}" in known:
            return f"{beginning}{name}"
    raise SearchError(f"no job has a column {name!a}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- order --------------------------------------------------------------------------------------


def ordered(rows: Iterable[JobRow], column: str, ascending: bool) -> list[JobRow]:
    """Jobs without a value come last, in both directions. Those of one value are by id."""
    there, missing = list[JobRow](), list[JobRow]()
    for each in sorted(rows, key=lambda row: row.id):
        (missing if each.values.get(column) is None else there).append(each)
    there.sort(key=lambda row: _order(row.values[column]), reverse=not ascending)
    return there + missing


def _order(value: Any) -> tuple[int, Any]:
    """Numbers before texts, and all else by its text."""
    if isinstance(value, int | float):
        return (0, value) if value == value else (1, 0)
    return (2, value.lower()) if isinstance(value, str) else (3, comparison.identity(value))


def page_of(rows: Sequence[JobRow], cursor: str, limit: int) -> tuple[list[JobRow], str]:
    """The rows after a cursor, and the cursor of the page after them; empty: this is the last."""
    place, _, after = cursor.partition(":")
    first = int(place) if place.isdecimal() else 0
    if after:
        ids = [each.id for each in rows]
        first = ids.index(after) + 1 if after in ids else first
    page = list(rows[first : first + limit])
    last = first + len(page)
    return page, f"{last}:{page[-1].id}" if page and last < len(rows) else ""
