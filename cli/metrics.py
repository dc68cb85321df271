"""scheduler-metrics: what jobs have logged: what each metric has come to, its points, a plot."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from cli import command
from cli.command import CommandError, Parser, UsageError, note, say
from cli.connection import connect
from cli.gateway import GatewayClient
from cli.terminal import screen
from scheduler.presentation import metrics_view
from scheduler.presentation.records import Record
from scheduler.presentation.render import Cell, Column, table

JOBS_MAX = 100
POINTS_MAX = 1_000_000  # of all metrics of a job
PLOTTED_MAX = 2_000  # points of a curve
NAMES_AT_ONCE = 50  # in one request
BATCH_BYTES = 800_000  # of an import, in one request

ABOUT = """\
Print what jobs have logged: the last, least and greatest value of each metric,
and at which step. JOB is an id, the end of an id, or a name. Of a step that
several attempts have been at, the newest one counts."""

EXAMPLES = """\
  scheduler-metrics demo
  scheduler-metrics demo --measurement loss --last
  scheduler-metrics good bad --measurement '^loss$' --plot
  scheduler-metrics demo --all --csv > points.csv
  scheduler-metrics demo --import mlruns/0/4f1e8c1c
  scheduler-metrics demo --sql 'SELECT metric, avg(value) FROM points
    WHERE step >= 100 GROUP BY metric'"""

_OF_POINTS = ("attempt", "from_step", "to_step")
_SQL = (
    "print what this query answers; it has the tables series (job, job_name, user, metric, "
    "measurement, field, tags, kind, last, last_step, min, min_step, max, max_step, points, "
    "last_at) and points (job, job_name, metric, step, time, value)"
)


def parser() -> Parser:
    this = Parser("scheduler-metrics", "JOB.. [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which metrics")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job that has logged them")
    group.add_argument(
        "--measurement",
        metavar="RE",
        type=_pattern,
        help="those whose name, or measurement, has a match of this regular expression",
    )
    group.add_argument(
        "--tags",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="those with this tag; may be repeated",
    )
    group = this.add_argument_group("which of their points, for --all, --plot, --sql and --export")
    group.add_argument(
        "--attempt", metavar="N", type=command.whole_number(1), help="points of this attempt"
    )
    group.add_argument(
        "--from_step",
        metavar="N",
        type=command.whole_number(0),
        help="points from this step on",
    )
    group.add_argument(
        "--to_step", metavar="N", type=command.whole_number(0), help="points up to this step"
    )
    group = this.add_argument_group("what to show")
    what = group.add_mutually_exclusive_group()
    what.add_argument("--last", action="store_true", help="only the last value of each metric")
    what.add_argument("--min", action="store_true", help="only the least")
    what.add_argument("--max", action="store_true", help="only the greatest")
    what.add_argument("--all", action="store_true", help="all points")
    what.add_argument("--plot", action="store_true", help="a plot of each metric")
    what.add_argument("--sql", metavar="SELECT", help=_SQL)
    group.add_argument("--csv", action="store_true", help="for a spreadsheet")
    group = this.add_argument_group("files")
    what = group.add_mutually_exclusive_group()
    what.add_argument(
        "--export",
        metavar="PATH",
        help="write all points to PATH, if it ends with .csv or .parquet, and else the jobs as runs"
        " of an MLflow file store into the folder PATH",
    )
    what.add_argument(
        "--import",
        metavar="PATH",
        dest="import_",
        help="add to JOB, which must be yours, what another program has recorded: a .csv file, a "
        "run of an MLflow file store, an offline run of wandb, or a folder with event files of "
        "TensorBoard",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), show, argv)


def show(options: argparse.Namespace) -> int:
    if not options.jobs:
        raise UsageError("JOB is missing: whose metrics?")
    if len(options.jobs) > JOBS_MAX:
        raise UsageError(f"{JOBS_MAX} jobs can be asked for at once, not {len(options.jobs)}")
    if options.import_ is not None:
        return _import(options)
    pointed = options.all or options.plot or options.sql is not None or options.export is not None
    for name in _OF_POINTS:
        if getattr(options, name) is not None and not pointed:
            raise UsageError(
                f"--{name} chooses points: give it with --all, --plot, --sql or --export"
            )
    if options.csv and options.plot:
        raise UsageError("--plot is for people: leave out --csv")
    if options.csv and options.output != "table":
        raise UsageError(f"--csv and --output {options.output} exclude each other")
    gateway = GatewayClient(connect(options))
    jobs = _jobs(gateway, options)
    for job in jobs:
        for remark in job["remarks"]:
            note(f"note: {job['job_name']}: {remark}")
    if options.export is not None:
        _export(gateway, options, jobs)
    elif pointed:
        _show_points(options, jobs, _curves(gateway, jobs, options))
    else:
        _show_summary(options, jobs)
    return 0


# --- what is asked for --------------------------------------------------------------------------


def _jobs(gateway: GatewayClient, options: argparse.Namespace) -> list[Record]:
    """With the metrics that were chosen."""
    jobs = [gateway.get(f"/jobs/{job}/series") for job in options.jobs]
    jobs = list({job["job"]: job for job in jobs}.values())  # each once
    known = [series["name"] for job in jobs for series in job["series"]]
    for job in jobs:
        job["series"] = [series for series in job["series"] if _is_chosen(series, options)]
    if not any(job["series"] for job in jobs):
        raise CommandError(_nothing(jobs, known, options), 1)
    return jobs


def _is_chosen(series: Record, options: argparse.Namespace) -> bool:
    re_ = options.measurement
    if re_ and not (re_.search(series["name"]) or re_.search(series["measurement"])):
        return False
    if options.attempt is not None and options.attempt not in series["attempts"]:
        return False
    return all(series["tags"].get(key) == value for key, value in options.tags)


def _nothing(jobs: Sequence[Record], known: Sequence[str], options: argparse.Namespace) -> str:
    who = repr(jobs[0]["job_name"]) if len(jobs) == 1 else "these jobs"
    if not known:
        return f"{who} {'has' if len(jobs) == 1 else 'have'} logged no metrics"
    names = list(dict.fromkeys(known))
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"no metric of {who} is like that; there are {shown}"


def _curves(
    gateway: GatewayClient, jobs: Sequence[Record], options: argparse.Namespace
) -> list[Record]:
    """By metric, then by job."""
    found: dict[tuple[str, str], Record] = {}
    query = {"attempt": options.attempt, "from_step": options.from_step, "to_step": options.to_step}
    most = PLOTTED_MAX if options.plot else POINTS_MAX
    thinned = 0
    for job in jobs:
        for names in _parts([series["name"] for series in job["series"]]):
            path = f"/jobs/{job['job']}/points"
            answer = gateway.get(path, {**query, "name": names, "points_max": most})
            for curve in answer["curves"]:
                found[curve["name"], curve["job"]] = curve
                thinned += curve["points"] - len(curve["times"])
    if thinned and not options.plot:
        note(f"note: {thinned:,} points are left out, so that the shape of each curve stays")
    order = metrics_view.in_order(jobs)
    keys = [(series["name"], job["job"]) for job, series in order]
    return [found[key] for key in keys if key in found]


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), NAMES_AT_ONCE):
        yield names[first : first + NAMES_AT_ONCE]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


# --- files --------------------------------------------------------------------------------------


def _export(gateway: GatewayClient, options: argparse.Namespace, jobs: Sequence[Record]) -> None:
    from pathlib import Path  # these are slow to import, and used only here

    from cli import metrics_export

    curves, path = _curves(gateway, jobs, options), Path(options.export)
    if path.suffix.lower() in (".csv", ".parquet"):
        parquet = path.suffix.lower() == ".parquet"
        write = metrics_export.write_parquet if parquet else metrics_export.write_csv
        write(path, jobs, curves)
        say(str(path))
        return
    for job in jobs:
        where = f"/jobs/{job['job']}"
        own = [curve for curve in curves if curve["job"] == job["job"]]
        read = partial(_artifact, gateway, where)
        run = metrics_export.write_mlflow(path, job, gateway.get(f"{where}/record"), own, read)
        say(str(run))


def _artifact(gateway: GatewayClient, where: str, path: str) -> bytes:
    return gateway.content(f"{where}/artifacts/{path}")


def _import(options: argparse.Namespace) -> int:
    from collections import Counter
    from pathlib import Path

    from cli.metrics_import import ImportedRun, counted

    if len(options.jobs) != 1:
        raise UsageError("--import adds to one job: name one")
    gateway = GatewayClient(connect(options))
    run, taken = ImportedRun(Path(options.import_)), Counter[str]()
    refused: dict[str, None] = {}
    for content in _batches(run.entries()):
        answer = gateway.post(f"/jobs/{options.jobs[0]}/entries", content, "application/x-ndjson")
        taken["refused"] += answer["refused"]
        refused |= dict.fromkeys(answer["reasons"])
        for entry in content.splitlines():
            taken += counted(entry)
    for why, times in run.skipped.items():
        note(f"note: {times:,} left out: {why}")
    for why in refused:
        note(f"note: refused: {why}")
    kinds = ("points", "params", "tags", "refused")
    if options.output != "table":
        say(command.document({kind: taken[kind] for kind in kinds}, options.output))
    else:
        told = ", ".join(f"{taken[kind]:,} {kind}" for kind in kinds[:3])
        say(f"{told} sent, {taken['refused']:,} of them refused")
    return 1 if taken["refused"] else 0


def _batches(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Together not more than a request may have."""
    batch, size = list[bytes](), 0
    for entry in entries:
        if batch and size + len(entry) > BATCH_BYTES:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(entry)
        size += len(entry) + 1
    if batch:
        yield b"\n".join(batch)


# --- shown --------------------------------------------------------------------------------------


def _show_summary(options: argparse.Namespace, jobs: Sequence[Record]) -> None:
    chosen = [each for each in metrics_view.STATISTICS if getattr(options, each)]
    chosen = chosen or list(metrics_view.STATISTICS)
    if options.csv:
        _say_csv(metrics_view.summary_rows(jobs, chosen))
    elif options.output != "table":
        say(command.document({"jobs": jobs}, options.output))
    else:
        for line in metrics_view.summary(jobs, chosen, time.time(), screen(sys.stdout)):
            say(line)


def _show_points(
    options: argparse.Namespace, jobs: Sequence[Record], curves: Sequence[Record]
) -> None:
    if options.sql is not None:
        _show_answer(options, jobs, curves)
    elif options.csv:
        _say_csv(metrics_view.points_rows(jobs, curves))
    elif options.output != "table":
        say(command.document({"curves": curves}, options.output))
    else:
        draw = metrics_view.plots if options.plot else _points
        for line in draw(jobs, curves, screen(sys.stdout)):
            say(line)


def _points(jobs: Sequence[Record], curves: Sequence[Record], shown_on: Any) -> list[str]:
    return metrics_view.points(jobs, curves, time.time(), shown_on)


def _show_answer(
    options: argparse.Namespace, jobs: Sequence[Record], curves: Sequence[Record]
) -> None:
    from cli import metrics_tables  # SQLite is slow to import, and used only here

    answer = metrics_tables.query(options.sql, jobs, curves)
    if answer.cut:
        note(f"note: these are the first {len(answer.rows):,} rows; LIMIT and OFFSET show others")
    if options.csv:
        _say_csv([answer.columns, *answer.rows])
    elif options.output != "table":
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        say(command.document({"rows": rows}, options.output))
    else:
        numeric = [
            all(isinstance(row[place], int | float | None) for row in answer.rows)
            for place in range(len(answer.columns))
        ]
        columns = [
            Column(name, right=right, least=8)
            for name, right in zip(answer.columns, numeric, strict=True)
        ]
        rows_ = [[Cell(metrics_view.text_of(each)) for each in row] for row in answer.rows]
        for line in table(columns, rows_, screen(sys.stdout)):
            say(line)


def _say_csv(rows: Iterable[Sequence[Any]]) -> None:
    import csv

    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
