"""scheduler-metrics: what jobs have logged: what each metric has come to, its points, a plot."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cli import command
from cli.client import Client
from cli.command import CommandError, Parser, UsageError, note, say
from cli.gateway import GatewayClient
from cli.terminal import screen
from scheduler.presentation import metrics_view
from scheduler.presentation.records import Record
from scheduler.presentation.render import Cell, Column, table

JOBS_MAX = 100
POINTS_MAX = 1_000_000  # of all metrics of a job
PLOTTED_MAX = 2_000  # points of a curve
NAMES_AT_ONCE = 50  # in one request

ABOUT = """\
Print what jobs have logged: the last, least and greatest value of each metric,
and at which step. JOB is an id, the end of an id, or a name. Of a step that
several attempts have been at, the newest one counts."""

EXAMPLES = """\
  scheduler-metrics demo
  scheduler-metrics demo --measurement loss --last
  scheduler-metrics good bad --measurement '^loss$' --plot
  scheduler-metrics demo --all --csv > points.csv
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
    group = this.add_argument_group("which of their points, for --all, --plot and --sql")
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
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), show, argv)


def show(options: argparse.Namespace) -> int:
    if not options.jobs:
        raise UsageError("JOB is missing: whose metrics?")
    if len(options.jobs) > JOBS_MAX:
        raise UsageError(f"{JOBS_MAX} jobs can be asked for at once, not {len(options.jobs)}")
    pointed = options.all or options.plot or options.sql is not None
    for name in _OF_POINTS:
        if getattr(options, name) is not None and not pointed:
            raise UsageError(f"--{name} chooses points: give it with --all, --plot or --sql")
    if options.csv and options.plot:
        raise UsageError("--plot is for people: leave out --csv")
    if options.csv and options.output != "table":
        raise UsageError(f"--csv and --output {options.output} exclude each other")
    gateway = GatewayClient(Client(options.server, options.ca))
    jobs = _jobs(gateway, options)
    for job in jobs:
        for remark in job["remarks"]:
            note(f"note: {job['job_name']}: {remark}")
    if pointed:
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
