"""The tables and plots of the documents, from the figures of one run of `make bench` and one of
`make bench-kube`.

A table is between `<!-- table NAME -->` and `<!-- end -->`; that text is never written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import ROOT
from benchmarks.wanted import DAEMON, KUBERNETES, LIBRARY, OPTIMIZER, Figure
from simulator.reports.charts import comparison_chart

DOCUMENTS = ("docs/simulator.md", "docs/benchmarks.md", "docs/library.md")
PLOTS = {
    "mean_h": "Mean completion time relative to gpu_sharing",
    "p99_h": "99th percentile of completion times relative to gpu_sharing",
    "makespan_h": "Makespan relative to gpu_sharing",
}
OURS = "gpu_sharing"
REGRET_MAX, BY_ELASTIC_MAX = 0.1, 1.1  # in strange worlds
TAIL = 1.05  # 99th percentile and makespan, relative to the best other policy

Run = Mapping[str, Any]  # what a run wrote: values of many kinds
Table = Mapping[str, Mapping[str, Mapping[str, float]]]  # trace, policy, figure


def written(run: Run) -> dict[Path, str]:
    """The new text of each file."""
    texts = {ROOT / name: filled((ROOT / name).read_text(), run) for name in DOCUMENTS}
    table: Table = run["figures"].get("policies", {})
    for key, title in PLOTS.items() if table else ():
        bars = {
            trace: {policy: figures[key] for policy, figures in _ours_first(row).items()}
            for trace, row in table.items()
            if OURS in row
        }
        texts[ROOT / "docs" / "plots" / f"{key}.svg"] = comparison_chart(bars, title)
    return texts


def filled(text: str, run: Run) -> str:
    """A document with all of its tables regenerated."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- table {name} -->\n{TABLES[name](run)}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", made, text, flags=re.S)


# --- figures ------------------------------------------------------------------------------------


def _figures(wanted: Sequence[Figure], run: Run) -> str:
    rows = []
    for figure in wanted:
        value = figure.found(run["figures"])
        words = figure.told(run["figures"])
        if value is not None and not figure.met(value):
            words = f"**{words}**"
        rows.append([figure.what, words, figure.wanted(), f"`{figure.called()}`"])
    return _table(["figure", "measured", "wanted", "command"], rows)


def _made(run: Run) -> str:
    minutes = sum(run["seconds"].values()) / 60
    parts = ", ".join(f"{part} {_clock(seconds)}" for part, seconds in run["seconds"].items())
    if not run["finished"]:
        return "Assembled from several runs, while other work ran on the machine."
    return (
        f"Started {run['at']}, {run['cores']} cores, Python {run['python']}; {minutes:.0f} minutes "
        f"in total (minutes and seconds): {parts}.{_pace(run)}"
    )


def _pace(run: Run) -> str:
    """The speed of the machine during the run, which varies from hour to hour."""
    if not (measure := run["figures"].get("measure")):
        return ""
    return f" An empty method call took {measure['ns'] / measure['ratio']:.0f} ns."


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


# --- policies -----------------------------------------------------------------------------------


def _by_policy(key: str, words: str, least: bool, run: Run) -> str:
    """A table by trace and policy. The best value of a row is bold."""
    table: Table = run["figures"].get("policies", {})
    policies = list(dict.fromkeys(policy for row in table.values() for policy in _ours_first(row)))
    rows = []
    for trace, row in table.items():
        values = {policy: row[policy][key] for policy in policies if policy in row}
        best = (min if least else max)(values.values())
        cells = [_cell(values.get(policy), best, words) for policy in policies]
        # The time of a job that neither waits nor shares: no mean can be less.
        shortest = next(iter(row.values())).get("alone_h")
        rows.append([trace, "" if shortest is None else words.format(shortest), *cells])
    if key == "mean_h":
        return _table(["trace", "*alone*", *policies], rows)
    return _table(["trace", *policies], [[trace, *cells] for trace, _, *cells in rows])


def _cell(value: float | None, best: float, words: str) -> str:
    if value is None:
        return ""
    shown = words.format(value)
    return f"**{shown}**" if shown == words.format(best) else shown


def _ours_first(row: Mapping[str, Any]) -> dict[str, Any]:
    return {policy: row[policy] for policy in sorted(row, key=lambda policy: policy != OURS)}


def _left_out(run: Run) -> str:
    """The draws that each row is the mean of, and the jobs that are in no figure."""
    table: Table = run["figures"].get("policies", {})
    words = [
        f"{figures[key]:.3g} {key} on {trace} under {policy}"
        for trace, row in table.items()
        for policy, figures in row.items()
        for key in ("refused", "unfinished")
        if figures[key]
    ]
    draws = {
        trace: max(figures["seeds"] for figures in row.values()) for trace, row in table.items()
    }
    drawn = [f"{trace} of {count}" for trace, count in draws.items() if count > 1]
    means = f"Figures of {' and '.join(drawn)} draws are means. " if drawn else ""
    return f"{means}Jobs left out: {'; '.join(words) or 'none'}."


# --- strange worlds ---


def _regret(run: Run) -> str:
    """A row for each world; figures that miss the goal are bold."""
    found = run["figures"].get("regret")
    if found is None:
        return "Not measured yet."
    head = ["world", "regret", "by seed", "by `elastic`", "by `srtf`"]
    head += ["hours: learned, true", "GPU-hours: learned, true", "restarts: learned, true"]
    rows = []
    for world, row in found["worlds"].items():
        by_seed = ", ".join(f"{regret:+.0%}" for regret in row["regret_seeds"])
        cells = [world, _bold_above(row["regret"], REGRET_MAX, "{:+.1%}"), by_seed]
        cells += [_bold_above(row["by_elastic"], BY_ELASTIC_MAX, "{:.2f}")]
        cells += [f"{row['by_srtf']:.2f}"]
        for key, words in (
            ("hours", "{:.2f}"),
            ("gpu_hours", "{:.0f}"),
            ("restarts_per_job", "{:.1f}"),
        ):
            cells.append(", ".join(words.format(row[f"{of}{key}"]) for of in ("", "true_")))
        rows.append(cells)
    return _table(head, rows)


def _trying(run: Run) -> str:
    """What trying costs in each world, and what it gains."""
    found = run["figures"].get("regret")
    if found is None:
        return "Not measured yet."
    head = ["world", "tries", "of these faster", "GPU-hours spent on it", "of all GPU-hours"]
    head += ["mean time, by that without tries", "by seed", "GPU-hours without tries"]
    rows = []
    for world, row in found["worlds"].items():
        spent, of_all = row["tried_gpu_hours"], row["gpu_hours"]
        rows.append(
            [
                *(world, f"{row['tries']:.1f}", f"{row['tries_faster']:.1f}", f"{spent:.1f}"),
                *(f"{spent / of_all:.1%}", f"{row['by_untried']:.2f}"),
                ", ".join(f"{ratio:.2f}" for ratio in row["by_untried_seeds"]),
                f"{of_all + row['saved_gpu_hours']:.0f}",
            ]
        )
    return _table(head, rows)


def _bold_above(value: float, most: float, words: str) -> str:
    shown = words.format(value)
    return f"**{shown}**" if value > most else shown


# --- goals --------------------------------------------------------------------------------------


def aims(trace: str, others: Sequence[str]) -> list[tuple[str, tuple[str, ...], float]]:
    """The goals of `gpu_sharing` on a trace: a figure, the other policies (the best of them
    counts), and the largest ratio to it."""
    tails = [("p99_h", tuple(others), TAIL), ("makespan_h", tuple(others), TAIL)]
    if trace.startswith("sia"):
        return [("mean_h", ("elastic",), 0.80 if trace.endswith("t4") else 0.88), *tails]
    if trace.startswith("philly"):
        means = [("mean_h", ("packing",), 0.80), ("mean_h", ("fifo", "srtf", "las"), 0.75)]
        return [*means, *tails]
    return [("mean_h", tuple(others), 1.0), *tails]


NAMES = {"mean_h": "mean", "p99_h": "99th percentile", "makespan_h": "makespan"}


def _goals(run: Run) -> str:
    """A table of `goal / now`, and below it how many goals are missed, and by how much."""
    table: Table = run["figures"].get("policies", {})
    rows, missed, all_there_are = [], [], 0
    for trace, row in table.items():
        cells: dict[str, list[str]] = {key: [] for key in NAMES}
        others = [policy for policy in row if policy != OURS]
        for key, against, goal in aims(trace, others):
            if OURS not in row or not set(against) <= set(row):
                cells[key].append("not measured")
                continue
            best = min(against, key=lambda policy: row[policy][key])
            now = row[OURS][key] / row[best][key]
            all_there_are += 1
            words = f"{goal:.2f} / {now:.2f}"
            if now > goal:
                missed.append(f"{trace}, {NAMES[key]} relative to {best}: {now - goal:.2f}")
                words = f"{goal:.2f} / **{now:.2f}**"
            cells[key].append(f"{words} {best}")
        rows.append([trace, *("; ".join(cells[key]) for key in NAMES)])
    head = _table(["trace", *(f"{name}: goal / now" for name in NAMES.values())], rows)
    met = f"Met: {all_there_are - len(missed)} of {all_there_are}."
    by = "".join(f"\n- {words}" for words in missed)
    return f"{head}\n\n{met}" + (f" Missed, and by how much:\n{by}" if missed else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: Mapping[str, Callable[[Run], str]] = {
    "daemon": lambda run: _figures(DAEMON, run),
    "kubernetes": lambda run: _figures(KUBERNETES, run["kubernetes"]),
    "made_kubernetes": lambda run: _made(run["kubernetes"]),
    "library": lambda run: _figures(LIBRARY, run),
    "optimizer": lambda run: _figures(OPTIMIZER, run),
    "made": _made,
    "goals": _goals,
    "regret": _regret,
    "trying": _trying,
    "left_out": _left_out,
    "mean_h": lambda run: _by_policy("mean_h", "{:.2f}", True, run),
    "median_h": lambda run: _by_policy("median_h", "{:.2f}", True, run),
    "p99_h": lambda run: _by_policy("p99_h", "{:.2f}", True, run),
    "makespan_h": lambda run: _by_policy("makespan_h", "{:.2f}", True, run),
    "utilisation": lambda run: _by_policy("utilisation", "{:.2f}", False, run),
    "restarts_per_job": lambda run: _by_policy("restarts_per_job", "{:.2f}", True, run),
}
