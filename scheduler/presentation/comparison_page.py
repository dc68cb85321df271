"""Jobs compared, as one HTML page that needs nothing else: curves, and what differs. Pure.

The records are what the gateway answers to `GET /compare` and `GET /points`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from scheduler.presentation.comparison import identity
from scheduler.presentation.comparison_view import ABSENT, best_statistic, value_text
from scheduler.presentation.html_page import html_page, html_text, section
from scheduler.presentation.records import Record
from scheduler.presentation.render import clock, span
from scheduler.presentation.svg_curves import Axes, DrawnCurve, short, svg_curves

EPOCH_NAMES = ("epoch",)  # what may say in which epoch a job was, also with a path before it
RAW_MAX = 12  # curves beside which the values before smoothing are shown, too
_WINDOWS = 300  # a weight of smoothing is for this part of what is shown
_SHORT_ID = 8
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_HUES = (210, 25, 140, 350, 275, 185, 50, 320, 95, 240)
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "1 5")

_STYLE = """\
main { max-width: 76rem; }
.curves { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } svg { width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--muted); } .axis { stroke: var(--line); }
.curve { fill: none; stroke: currentColor; stroke-width: 1.4; }
.jobs { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0;
  margin: 0 0 .8rem; }
.jobs i { display: inline-block; width: .8em; height: .8em; border-radius: 3px;
  background: currentColor; margin-right: .4em; }
.jobs span, .jobs bdi { color: var(--text); } .muted, small { color: var(--muted); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { white-space: nowrap; }
td { min-width: 6rem; max-width: 24rem; overflow-wrap: anywhere; }
tr.same { color: var(--muted); } td b { text-decoration: underline; }
"""


class ReportChoices(NamedTuple):
    """As in the address of the page Compare."""

    x: str = "step"  # or time, epoch
    smooth: float = 0.0
    log_x: bool = False
    log_y: bool = False
    hue: str = ""  # a key; empty: each job has its colour
    pattern: str = ""
    cols: str = ""  # a plot for each of its values
    hide: Sequence[str] = ()  # ids
    opacity: float = 1.0


class _JobLook(NamedTuple):
    name: str
    look: str
    dash: str


def comparison_page(
    record: Record, curves: Sequence[Record], choices: ReportChoices, now: float, server: str
) -> str:
    jobs = record["jobs"]
    keys = _keys(record)
    looks, style = _looks(jobs, keys, choices)
    names = ", ".join(dict.fromkeys(job["name"] for job in jobs))
    parts = [
        f"<h1>{len(jobs)} job{'s' if len(jobs) > 1 else ''} compared</h1>",
        *section("Curves", _curves(record, curves, keys, looks, choices)),
        *section("What was set", _config(record, looks)),
        *section("What it came to", _metrics(record, looks)),
        *(f'<p class="muted">{html_text(remark)}</p>' for remark in record["remarks"]),
        f"<footer>{html_text(f'As {server} told it at {clock(now, 0)}.')}</footer>",
    ]
    return html_page(names[:200], parts, _STYLE + style)


# --- how jobs look ------------------------------------------------------------------------------


def _keys(record: Record) -> dict[str, Mapping[str, Any]]:
    """What jobs can be told apart by: the value of each job by its id."""
    found = {each["key"]: each["values"] for each in record["config"] if each["differs"]}
    for metric in record["metrics"]:
        for statistic in filter(None, ("last", best_statistic(metric["rises"]))):
            found[f"{statistic}.{metric['name']}"] = {
                job: of[statistic] for job, of in metric["values"].items()
            }
    return found


def _looks(
    jobs: Sequence[Record], keys: Mapping[str, Mapping[str, Any]], choices: ReportChoices
) -> tuple[dict[str, _JobLook], str]:
    """By the id of the job; and the style that says what their classes are."""
    hues = _places(jobs, keys.get(choices.hue))
    dashes = _places(jobs, keys[choices.pattern]) if choices.pattern in keys else {}
    count = len(set(hues.values()))
    names = Counter(job["name"] for job in jobs)
    found = {}
    for job in jobs:
        name = job["name"]
        if names[name] > 1:
            name = f"{name} ({job['id'][-_SHORT_ID:]})"
        dash = _DASHES[dashes[job["id"]] % len(_DASHES)] if dashes else ""
        found[job["id"]] = _JobLook(name, f"h{hues[job['id']]}", dash)
    light = "".join(f".h{n} {{ color: {_colour(n, 40)}; }}\n" for n in range(count))
    dark = "".join(f".h{n} {{ color: {_colour(n, 66)}; }} " for n in range(count))
    return found, f"{light}@media (prefers-color-scheme: dark) {{ {dark}}}\n"


def _places(jobs: Sequence[Record], values: Mapping[str, Any] | None) -> dict[str, int]:
    """The number of the value of each job, in the order of the values."""
    if values is None:
        return {job["id"]: number for number, job in enumerate(jobs)}
    of = {job["id"]: values.get(job["id"]) for job in jobs}
    ordered = sorted({identity(value): value for value in of.values()}.values(), key=in_order)
    place = {identity(value): number for number, value in enumerate(ordered)}
    return {job: place[identity(value)] for job, value in of.items()}


def in_order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before texts."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, value, ""
    return 1, 0.0, value_text(value)


def _colour(number: int, light: int) -> str:
    if number < len(_HUES):
        return f"hsl({_HUES[number]} 72% {light}%)"
    return f"hsl({number * 137.5 % 360:.0f} {45 if number % 2 else 75}% {light}%)"


# --- curves -------------------------------------------------------------------------------------


def _curves(
    record: Record,
    curves: Sequence[Record],
    keys: Mapping[str, Mapping[str, Any]],
    looks: Mapping[str, _JobLook],
    choices: ReportChoices,
) -> str:
    jobs = [job for job in record["jobs"] if job["id"] not in choices.hide]
    by_name = defaultdict[str, dict[str, Record]](dict)
    for curve in curves:
        by_name[curve["name"]][curve["job"]] = curve
    epochs: dict[str, Record] = next((of for name, of in by_name.items() if is_epoch(name)), {})
    began = _beginnings(jobs, curves)
    axes = Axes(
        choices.log_x, choices.log_y, span if choices.x == "time" else None, choices.opacity
    )
    figures = []
    for name, of in by_name.items():
        if choices.x == "epoch" and of is epochs:
            continue
        drawn: dict[str, list[DrawnCurve]] = defaultdict(list)
        for job in jobs:
            if logged := of.get(job["id"]):
                points = columns(logged, choices.x, began[job["id"]], epochs.get(job["id"]))
                facet = _facet(job, keys, choices.cols)
                drawn[facet] += _lines(points, looks[job["id"]], choices.smooth, len(jobs))
        among = [curve for each in drawn.values() for curve in each]
        for facet in sorted(drawn, key=lambda text: _natural(text, keys, choices.cols)):
            title = f"<b>{html_text(name)}</b> <small>{html_text(facet)}</small>"
            label = f"{name} {facet}, along the {choices.x}"
            figure = svg_curves(label, drawn[facet], axes, among)
            figures.append(f"<figure><figcaption>{title}</figcaption>{figure}</figure>")
    if not figures:
        return ""
    return f'{_legend(jobs, looks, choices, keys)}<div class="curves">{"".join(figures)}</div>'


def is_epoch(name: str) -> bool:
    return name.replace(".", "/").rpartition("/")[2] in EPOCH_NAMES


def _facet(job: Record, keys: Mapping[str, Mapping[str, Any]], cols: str) -> str:
    return f"{cols} {value_text(keys[cols].get(job['id']))}" if cols in keys else ""


def _natural(text: str, keys: Mapping[str, Mapping[str, Any]], cols: str) -> Any:
    values = {f"{cols} {value_text(each)}": each for each in keys.get(cols, {}).values()}
    return in_order(values.get(text))


def _lines(
    points: tuple[list[float], list[float]], look: _JobLook, weight: float, jobs: int
) -> Iterator[DrawnCurve]:
    xs, ys = points
    if weight and jobs <= RAW_MAX:
        yield DrawnCurve(look.name, look.look, xs, ys, look.dash, faint=True)
    yield DrawnCurve(look.name, look.look, xs, smoothed(xs, ys, weight), look.dash)


def _beginnings(jobs: Sequence[Record], curves: Sequence[Record]) -> dict[str, float]:
    """When each job began: its start, or its first point if that is older or not known."""
    found = {job["id"]: job["started_at"] or math.inf for job in jobs}
    for curve in curves:
        if curve["job"] in found:
            found[curve["job"]] = min(found[curve["job"]], curve["times"][0])
    return found


def columns(
    curve: Record, x: str, began: float, epochs: Record | None
) -> tuple[list[float], list[float]]:
    """The points in the order of x; what is no number is a NaN."""
    times, values = curve["times"], [number(value) for value in curve["values"]]
    if x == "epoch":
        at = _along(epochs) if epochs else lambda _: math.nan
        xs = [at(time) for time in times]
    elif x == "time":
        xs = [time - began for time in times]
    elif curve["steps"]:
        xs = [math.nan if step is None else float(step) for step in curve["steps"]]
    else:
        xs = [float(place) for place in range(len(values))]
    there = [pair for pair in zip(xs, values, strict=True) if not math.isnan(pair[0])]
    there.sort(key=lambda pair: pair[0])
    return [x for x, _ in there], [y for _, y in there]


def number(value: Any) -> float:
    if isinstance(value, int | float):
        return float(value)
    return _NOT_NUMBERS.get(value, math.nan) if isinstance(value, str) else math.nan


def _along(curve: Record) -> Callable[[float], float]:
    """What the curve was at a moment, between its points as well."""
    times, values = curve["times"], [number(value) for value in curve["values"]]

    def at(time: float) -> float:
        after = bisect_right(times, time)
        if after == 0:
            return values[0]
        if after == len(times):
            return values[-1]
        before, width = times[after - 1], times[after] - times[after - 1]
        part = (time - before) / width if width else 0.0
        return values[after - 1] + (values[after] - values[after - 1]) * part

    return at


def smoothed(xs: Sequence[float], ys: Sequence[float], weight: float) -> list[float]:
    """Exponential mean, as on the page: it does not begin at 0, and a gap stays one."""
    if not weight or len(xs) < 3:
        return list(ys)
    unit = (xs[-1] - xs[0]) / _WINDOWS or 1.0
    found, total, counted, last = [], 0.0, 0.0, xs[0]
    for x, y in zip(xs, ys, strict=True):
        if not math.isfinite(y):
            found.append(math.nan)
            continue
        kept = weight ** max(0.05, (x - last) / unit)
        total, counted, last = total * kept + y * (1 - kept), counted * kept + (1 - kept), x
        found.append(total / counted)
    return found


# --- tables -------------------------------------------------------------------------------------


def _legend(
    jobs: Sequence[Record],
    looks: Mapping[str, _JobLook],
    choices: ReportChoices,
    keys: Mapping[str, Mapping[str, Any]],
) -> str:
    rows = (
        f'<li class="{looks[job["id"]].look}"><i></i><bdi>{html_text(looks[job["id"]].name)}</bdi>'
        f" <small>{html_text(job['state'])}</small></li>"
        for job in jobs
    )
    meant = [("colours", choices.hue), ("dashes", choices.pattern)]
    told = [f"{what} by {html_text(key)}" for what, key in meant if key in keys]
    if choices.smooth:
        told.append(f"smoothed by {choices.smooth:g}")
    note = f'<p class="muted">{", ".join(told)}</p>' if told else ""
    return f'<ul class="jobs">{"".join(rows)}</ul>{note}'


def _table(jobs: Sequence[Record], looks: Mapping[str, _JobLook], rows: Sequence[str]) -> str:
    heads = "".join(f"<th><bdi>{html_text(looks[job['id']].name)}</bdi></th>" for job in jobs)
    body = "".join(rows)
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _config(record: Record, looks: Mapping[str, _JobLook]) -> str:
    jobs, rows = record["jobs"], []
    for each in record["config"]:
        texts = [
            value_text(each["values"][job["id"]]) if job["id"] in each["values"] else ABSENT
            for job in jobs
        ]
        cells = "".join(f"<td><bdi>{html_text(text)}</bdi></td>" for text in texts)
        same = "" if each["differs"] else ' class="same"'
        rows.append(f"<tr{same}><th>{html_text(each['key'])}</th>{cells}</tr>")
    shown = _table(jobs, looks, rows) if rows else "<p>no differences</p>"
    if any(not each["differs"] for each in record["config"]):
        return shown
    return f'{shown}<p class="muted">{record["equal"]:,} more are the same in all</p>'


def _metrics(record: Record, looks: Mapping[str, _JobLook]) -> str:
    jobs, rows = record["jobs"], []
    for metric in record["metrics"]:
        best = best_statistic(metric["rises"])
        values = [of[best] for of in metric["values"].values()] if best else []
        numbers = [each for each in values if isinstance(each, int | float)]
        top = (max if metric["rises"] else min)(numbers) if len(set(numbers)) > 1 else None
        for statistic in ("last", "min", "max"):
            is_best = statistic == best
            cells = "".join(
                _figure(metric["values"].get(job["id"]), statistic, is_best, top) for job in jobs
            )
            name = f"{metric['name']} {statistic}{' (best)' if is_best else ''}"
            rows.append(f"<tr><th>{html_text(name)}</th>{cells}</tr>")
    return _table(jobs, looks, rows) if rows else ""


def _figure(of: Record | None, statistic: str, is_best: bool, top: float | None) -> str:
    value = of[statistic] if of else None
    if of is None or value is None:
        return f"<td>{ABSENT}</td>"
    text = short(value) if isinstance(value, int | float) else value_text(value)
    shown = html_text(text)
    if is_best and top is not None and value == top:
        shown = f"<b>{shown}</b>"
    step = of[f"{statistic}_step"] if is_best else None
    return f"<td>{shown}{'' if step is None else f' <small>at {step:,}</small>'}</td>"
