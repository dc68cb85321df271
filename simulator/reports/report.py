"""The results of a study as a text table and as JSON. (As a page: page.py.)"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from scheduler.core.model import Node
from simulator.trials.outcome import HOUR
from simulator.trials.study import Entry

# Key in a summary: heading and format.
COLUMNS = {
    "mean_h": ("mean h", "{:.3f}"),
    "median_h": ("median h", "{:.3f}"),
    "p90_h": ("p90 h", "{:.3f}"),
    "p99_h": ("p99 h", "{:.3f}"),
    "queued_h": ("queued h", "{:.3f}"),
    "slowdown": ("slowdown", "{:.2f}"),
    "slowdown_p99": ("p99 slowdown", "{:.2f}"),
    "fairness": ("fairness", "{:.3f}"),
    "makespan_h": ("makespan h", "{:.2f}"),
    "utilisation": ("used", "{:.1%}"),
    "effective": ("effective", "{:.1%}"),
    "restarts_per_job": ("restarts", "{:.2f}"),
    "restarts_per_job_hour": ("per hour", "{:.3f}"),
    "finished": ("finished", "{:.0f}"),
}
# These columns appear only if a policy has one that is not zero.
MISHAPS = {key: (key, "{:.0f}") for key in ("failed", "unfinished", "refused")}
TIMING = {"steps": ("steps", "{:.0f}"), "cpu_seconds": ("CPU s", "{:.1f}")}
JOB_COLUMNS = (
    *("job", "user", "gpus", "submitted h", "queued h", "hours", "slowdown", "restarts"),
    *("preempted", "outcome"),
)
LEGEND = """\
Times are those of finished jobs, from submission to end; queued: the part of it without a run.
slowdown: this time divided by the time of the same job at its best placement, at once and alone;
fairness: Jain's index of 1 / slowdown over the jobs, 1 if all are slowed down alike.
used: GPU time with at least one job that trains, of all GPU time until the last end; effective:
the same, times the sum of the speeds of the jobs that share a GPU, relative to each job alone.
restarts: launches after a job's first, per job and per hour in which a job holds its GPUs."""

Summary = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Study:
    """The input and the results of a study."""

    trace: str
    nodes: Sequence[Node]
    plan_every_seconds: float
    restart_seconds: float
    entries: Sequence[Entry]

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def cluster(self) -> str:
        """`16x4x16384:t4`, as on the command line."""
        alike = Counter((len(n.gpus), n.gpus[0].memory_mib, n.gpus[0].type) for n in self.nodes)
        return ",".join(f"{count}x{gpus}x{mib}:{t}" for (gpus, mib, t), count in alike.items())

    def policies(self) -> list[tuple[str, list[Entry]]]:
        """Each policy with its entries, in the order of the command line."""
        grouped = groupby(self.entries, key=lambda entry: entry.policy)
        return [(policy, list(entries)) for policy, entries in grouped]

    def seeds(self) -> list[int]:
        return list(dict.fromkeys(entry.seed for entry in self.entries))


def mean(summaries: Sequence[Summary]) -> dict[str, float]:
    """The mean of each figure over several seeds."""
    return {key: math.fsum(s[key] for s in summaries) / len(summaries) for key in summaries[0]}


# --- text ---------------------------------------------------------------------------------------


def text(study: Study, timing: bool = False, jobs: bool = False) -> str:
    """`jobs`: with a table of all jobs for each policy and seed."""
    columns = table_columns(study, timing)
    rows = [["policy", "seed", *(heading for heading, _ in columns.values())]]
    for policy, entries in study.policies():
        summaries = [entry.result.summary() for entry in entries]
        lines = [(str(e.seed), s) for e, s in zip(entries, summaries, strict=True)]
        if len(entries) > 1:
            lines.append(("mean", mean(summaries)))
        for seed, summary in lines:
            figures = (form.format(summary[key]) for key, (_, form) in columns.items())
            rows.append([policy, seed, *figures])
    refused = {line: None for entry in study.entries for line in entry.result.refused}
    parts = [[_heading(study), ""], _table(rows), ["", LEGEND], (f"refused: {r}" for r in refused)]
    if jobs:
        parts += [_jobs_table(entry) for entry in study.entries]
    return "\n".join(line for part in parts for line in part) + "\n"


def _jobs_table(entry: Entry) -> Iterator[str]:
    yield from ("", f"jobs under {entry.policy}, seed {entry.seed}")
    rows = [list(JOB_COLUMNS)]
    for job in entry.result.jobs:
        times = (job.submitted_at / HOUR, job.queued_seconds / HOUR, job.seconds / HOUR)
        figures = [*(f"{hours:.3f}" for hours in times), f"{job.slowdown:.2f}"]
        rows.append(
            [
                *(job.name, job.user, str(job.gpus)),
                *("-" if figure == "nan" else figure for figure in figures),
                *(str(job.restarts), str(job.preemptions)),
                job.outcome.value if job.outcome else "unfinished",
            ]
        )
    yield from _table(rows)


def table_columns(study: Study, timing: bool) -> dict[str, tuple[str, str]]:
    """The columns of a table by their keys in a summary."""
    summaries = [entry.result.summary() for entry in study.entries]
    mishaps = {key: column for key, column in MISHAPS.items() if any(s[key] for s in summaries)}
    return COLUMNS | mishaps | (TIMING if timing else {})


def _heading(study: Study) -> str:
    return (
        f"{study.trace} on {study.cluster} ({study.gpus} GPUs), a plan every"
        f" {study.plan_every_seconds:g} s, a restart costs {study.restart_seconds:g} s"
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligns text to the left and figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


# --- JSON ---------------------------------------------------------------------------------------


def as_json(study: Study, timing: bool = False) -> str:
    """Times are in seconds since the trace began, except the hours in summaries. A missing figure
    is null."""
    results = [_entry(entry, timing) for entry in study.entries]
    said = {
        "trace": study.trace,
        "cluster": study.cluster,
        "gpus": study.gpus,
        "plan_every_seconds": study.plan_every_seconds,
        "restart_seconds": study.restart_seconds,
        "results": results,
    }
    return json.dumps(_plain(said), indent=1, allow_nan=False) + "\n"


def _entry(entry: Entry, timing: bool) -> dict[str, object]:
    result = entry.result
    summary = result.summary()
    kept = {key: v for key, v in summary.items() if timing or key != "cpu_seconds"}
    return {
        "policy": entry.policy,
        "seed": entry.seed,
        "summary": kept,
        "refused": result.refused,
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "user": job.user,
                "gpus": job.gpus,
                "submitted_at": job.submitted_at,
                "started_at": job.started_at,
                "ended_at": job.ended_at,
                "outcome": job.outcome,
                "seconds": job.seconds,
                "queued_seconds": job.queued_seconds,
                "alone_seconds": job.alone_seconds,
                "restarts": job.restarts,
                "preemptions": job.preemptions,
            }
            for job in result.jobs
        ],
        "series": [{"at": s.at, "queued": s.queued, "busy": s.busy} for s in result.series],
        "bars": [
            [bar.node, bar.gpu, bar.job, bar.attempt, bar.from_at, bar.to_at] for bar in result.bars
        ],
    }


def _plain(said: object) -> object:
    """Rounds to the microsecond, and replaces values that JSON cannot express."""
    match said:
        case float():
            return round(said, 6) if math.isfinite(said) else None
        case dict():
            return {key: _plain(value) for key, value in said.items()}
        case list() | tuple():
            return [_plain(value) for value in said]
    return said
