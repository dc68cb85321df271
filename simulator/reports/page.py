"""The results of a study as one self-contained HTML page with a table and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise

from scheduler.core.memory import all_gpus
from scheduler.core.model import GpuKey
from simulator.reports.charts import (
    Axis,
    Block,
    Frame,
    Points,
    gantt_chart,
    line_chart,
    step_corners,
)
from simulator.reports.report import LEGEND, Study, mean, table_columns
from simulator.reports.style import LINES, STYLE
from simulator.trials.outcome import GanttBar, Result, Sample, quantile

WIDE, NARROW = (600.0, 320.0), (350.0, 260.0)  # pixels; the style sheet shows one or the other
GANTT_WIDE, GANTT_NARROW = 1200.0, 350.0
GANTT_ROWS_MAX = 512
CDF_POINTS_MAX = 400
SIZES = {1: "1 GPU", 2: "2 or 3", 4: "4 to 7", 8: "8 and more"}
# Less is better.
BEST = {
    *("mean_h", "median_h", "p90_h", "p99_h", "queued_h", "slowdown", "slowdown_p99", "makespan_h"),
}


def page(study: Study, timing: bool = False, origin: str = "") -> str:
    """`origin` says in the last line how and when the page was made: all else depends only on the
    study."""
    title = escape(f"{study.trace} on {study.gpus} GPUs")
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{escape(_description(study))}</p>",
        _table(study, table_columns(study, timing)),
        '<div class="pair">',
        *_distribution(study),
        *_over_time(study),
        "</div>",
        *_gantts(study),
        *([f"<footer>{escape(origin)}</footer>"] if origin else []),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _description(study: Study) -> str:
    first = study.entries[0].result
    seeds = study.seeds()
    words = [
        f"{len(first.jobs)} jobs on {study.cluster} (nodes x GPUs x MiB: type).",
        f"There is a plan every {study.plan_every_seconds:g} s;",
        f"a run takes {study.restart_seconds:g} s from its launch to its first epoch.",
    ]
    if first.refused:
        words.append(
            f"{len(first.refused)} jobs were refused because they do not fit on the nodes."
        )
    if len(seeds) > 1:
        said = ", ".join(map(str, seeds))
        words.append(f"Seeds {said}: means, and below them the smallest and largest values.")
    else:
        words.append(f"Seed {seeds[0]}.")
    return " ".join(words)


# --- the table ----------------------------------------------------------------------------------


def _table(study: Study, columns: Mapping[str, tuple[str, str]]) -> str:
    grouped = [
        (policy, [entry.result.summary() for entry in entries])
        for policy, entries in study.policies()
    ]
    means = {policy: mean(summaries) for policy, summaries in grouped}
    best = {key: min(summary[key] for summary in means.values()) for key in columns}
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head, _ in columns.values())
    rows = []
    for policy, summaries in grouped:
        cells = [f"<td>{escape(policy)}</td>"]
        for key, (head, form) in columns.items():
            said = form.format(means[policy][key])
            if key in BEST and said == form.format(best[key]) and len(grouped) > 1:
                said = f"<strong>{said}</strong>"
            if len(summaries) > 1:
                least, most = (form.format(f(s[key] for s in summaries)) for f in (min, max))
                said += f"<small>{least} to {most}</small>" if least != most else ""
            cells.append(f'<td data-label="{escape(head)}"><span>{said}</span></td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<figure><table><thead><tr><th scope="col">policy</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
        f"<figcaption>{escape(LEGEND)} Bold: the smallest value in a column.</figcaption></figure>"
    )


# --- charts -------------------------------------------------------------------------------------


def _distribution(study: Study) -> Iterator[str]:
    """Two charts of completion times: near zero, where most jobs are, and all."""
    results = {policy: [e.result for e in entries] for policy, entries in study.policies()}
    pooled = {p: sorted(t for r in rs for t in r.completion_times()) for p, rs in results.items()}
    counts = {p: sum(len(r.jobs) for r in rs) for p, rs in results.items()}
    long = max((times[-1] for times in pooled.values() if times), default=0.0)
    short = max((quantile(times, 0.9) for times in pooled.values() if times), default=0.0)
    for most, heading, caption in (
        (
            short,
            "Completion times: nine of ten jobs",
            "Share of all submitted jobs that were completed within a time after submission."
            " The time axis ends where the slowest policy has completed nine tenths of the jobs"
            " that it completes.",
        ),
        (long, "Completion times: all", "The same, up to the longest completion time."),
    ):
        seconds, unit = _unit(most)
        x = Axis(f"{unit} from submission to end", most / seconds)
        series = {p: _cumulate(pooled[p], counts[p], seconds, x.most) for p in pooled}
        yield _chart(heading, caption, x, Axis("jobs completed", 1.0, percent=True), series)


def _cumulate(times: Sequence[float], count: int, unit: float, most: float) -> Points:
    """Points (time, share of the jobs that took no longer), thinned out if there are many."""
    every = max(1, len(times) // CDF_POINTS_MAX)
    picked = [n for n in range(len(times)) if n % every == 0 or n == len(times) - 1]
    points = [(times[n] / unit, (n + 1) / count) for n in picked]
    return step_corners([(0.0, 0.0), *points], most)


def _over_time(study: Study) -> Iterator[str]:
    seconds, unit = _unit(_end(study))
    x = Axis(f"{unit} since the trace began", _end(study) / seconds)
    queued: dict[str, Points] = {}
    busy: dict[str, Points] = {}
    for policy, entries in study.policies():
        series = entries[0].result.series
        stuck = sum(job.outcome is None for job in entries[0].result.jobs)
        after = [Sample(2 * series[-1].at - series[-2].at, stuck, 0.0)] if series else []
        levels = [*series, *after]
        queued[policy] = step_corners([(s.at / seconds, s.queued) for s in levels], x.most)
        busy[policy] = step_corners([(s.at / seconds, s.busy) for s in levels], x.most)
    means = f"Each level is the mean over a 240th of the policy's own time{_of_seed(study)}."
    most = max((y for points in queued.values() for _, y in points), default=0.0)
    yield _chart("Queue", f"Waiting jobs. {means}", x, Axis("jobs", most or 1.0), queued)
    caption = f"GPUs on which at least one job trains, of {study.gpus}. {means}"
    yield _chart("GPUs in use", caption, x, Axis("GPUs", study.gpus), busy)


def _chart(heading: str, caption: str, x: Axis, y: Axis, series: Mapping[str, Points]) -> str:
    wide, narrow = (line_chart(Frame(x, y, *size), series, heading) for size in (WIDE, NARROW))
    sample = '<svg viewBox="0 0 26 8" aria-hidden="true"><path class="line c{}" d="M0 4H26"/></svg>'
    legend = [(sample.format(number % LINES), policy) for number, policy in enumerate(series)]
    return _figure(heading, legend, wide, narrow, caption)


def _figure(
    heading: str, legend: Sequence[tuple[str, str]], wide: str, narrow: str, caption: str
) -> str:
    items = "".join(f"<li>{sample}{escape(name)}</li>" for sample, name in legend)
    return (
        f'<figure><h2>{escape(heading)}</h2><ul class="legend">{items}</ul>'
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _unit(seconds: float) -> tuple[float, str]:
    """The unit for a time of this length, in seconds, and its name."""
    if seconds < 2 * 3600:
        return 60.0, "minutes"
    return (3600.0, "hours") if seconds <= 96 * 3600 else (86400.0, "days")


def _end(study: Study) -> float:
    """The last end under any policy, in seconds since the trace began."""
    results = [entries[0].result for _, entries in study.policies()]
    return max((job.ended_at or 0.0 for result in results for job in result.jobs), default=0.0)


def _of_seed(study: Study) -> str:
    seeds = study.seeds()
    return f" (seed {seeds[0]})" if len(seeds) > 1 else ""


# --- Gantt --------------------------------------------------------------------------------------


def _gantts(study: Study) -> Iterator[str]:
    """One chart for each policy, all with the same time axis, so that they can be compared."""
    keys = list(all_gpus(study.nodes))
    order = {key: row for row, key in enumerate(keys[:GANTT_ROWS_MAX])}
    first: dict[str, int] = {}
    for (node, _), row in order.items():
        first.setdefault(node, row)
    names = {row: node for node, row in first.items()}
    seconds, unit = _unit(_end(study))
    x = Axis(f"{unit} since the trace began", _end(study) / seconds)
    legend = [
        (f'<svg viewBox="0 0 26 8"><path class="g{size}" d="M0 0h26v8h-26z"/></svg>', name)
        for size, name in SIZES.items()
    ]
    rest = f" The first {len(order)} of {len(keys)} GPUs." if len(order) < len(keys) else ""
    caption = (
        "One row for each GPU, node by node. A bar is a run from launch to end; its colour shows"
        " how many GPUs the run has, and every other job is lighter. Runs that share a GPU share"
        f" the height of its row{_of_seed(study)}.{rest}"
    )
    for policy, entries in study.policies():
        blocks = list(_blocks(entries[0].result, order, seconds))
        heading = f"GPUs under {policy}"
        wide, narrow = (
            gantt_chart(x, len(order), names, blocks, width, heading)
            for width in (GANTT_WIDE, GANTT_NARROW)
        )
        yield _figure(heading, legend, wide, narrow, caption)


def _blocks(result: Result, order: Mapping[GpuKey, int], unit: float) -> Iterator[Block]:
    sizes = Counter((bar.job, bar.attempt) for bar in result.bars)
    parity = {job.id: number % 2 for number, job in enumerate(result.jobs)}

    def shade(bar: GanttBar) -> str:
        size = max(size for size in SIZES if size <= sizes[bar.job, bar.attempt])
        return f"g{size} odd" if parity[bar.job] else f"g{size}"

    for key, bars in groupby(result.bars, key=lambda bar: (bar.node, bar.gpu)):
        if key in order:
            for begin, end, there in _constant_spans(list(bars)):
                for place, bar in enumerate(there):
                    low, high = place / len(there), (place + 1) / len(there)
                    yield Block(order[key], low, high, shade(bar), begin / unit, end / unit)


def _constant_spans(bars: Sequence[GanttBar]) -> Iterator[tuple[float, float, list[GanttBar]]]:
    """The runs on one GPU, with the span in which they do not change."""
    moments = sorted({at for bar in bars for at in (bar.from_at, bar.to_at)})
    coming = sorted(bars, key=lambda bar: (bar.from_at, bar.job))
    there: list[GanttBar] = []
    for begin, end in pairwise(moments):
        there = [bar for bar in there if bar.to_at > begin]
        while coming and coming[0].from_at <= begin:
            there.append(coming.pop(0))
        if there:
            yield begin, end, there
