"""scheduler-compare: what differs between jobs, in what was set and in what was measured."""

from __future__ import annotations

import argparse
import sys

from cli import command
from cli.client import CallError
from cli.command import CommandError, Parser, UsageError, note, say
from cli.connection import Connection, connect
from cli.gateway import GatewayClient
from cli.terminal import screen
from scheduler.presentation import comparison_view, views
from scheduler.presentation.comparison_view import Sections
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

JOBS_MAX = 100

ABOUT = """\
Compare jobs, a column for each: what was set differently, and what the metrics
that at least two of them have logged have come to. JOB is an id, the end of an
id, or a name. Or select the jobs by their experiment, project or labels."""

EXAMPLES = """\
  scheduler-compare 60ce2fc7 99ce2fc7
  scheduler-compare --experiment lr-sweep --metrics
  scheduler-compare --label sweep=7 --config --all
  scheduler-compare good bad --html report.html
  scheduler-compare good bad --output json"""

_FILTERS = ("project", "experiment", "label", "user", "all_users")


def parser() -> Parser:
    this = Parser("scheduler-compare", "[JOB..] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which jobs")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job to compare")
    command.add_labels(
        group,
        project="compare your jobs of this project",
        experiment="compare your jobs of this experiment",
        label="compare your jobs with this label",
    )
    group.add_argument("--user", metavar="USER", default="", help="of this user, instead of you")
    group.add_argument("--all_users", action="store_true", help="of all users")
    group = this.add_argument_group("what to show; without any of the first three, all of them")
    group.add_argument(
        "--config",
        action="store_true",
        help="params and tags that were logged, arguments, labels, and options of the submission",
    )
    group.add_argument(
        "--metrics",
        action="store_true",
        help="the last, least and greatest value of each metric, and the step of the best one",
    )
    group.add_argument("--code", action="store_true", help="the code packages, with a diff")
    group.add_argument("--all", action="store_true", help="also what is the same in all jobs")
    group.add_argument(
        "--html",
        metavar="FILE",
        default="",
        help="write a page with the curves, too, that needs nothing else, and print its name",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), compare, argv)


def compare(options: argparse.Namespace) -> int:
    given = [f"--{name}" for name in _FILTERS if getattr(options, name)]
    if options.jobs and given:
        raise UsageError(
            f"jobs and filters exclude each other: leave out {options.jobs[0]!r} or {given[0]}"
        )
    client = connect(options)
    jobs = options.jobs or _selected(client, options, given)
    if len(jobs) < 2:
        raise UsageError(f"two jobs or more can be compared; {jobs[0]!r} is the only one")
    if len(jobs) > JOBS_MAX:
        raise UsageError(f"{JOBS_MAX} jobs can be compared at once, not {len(jobs)}")
    if options.html:
        query = {"job": jobs, "all": "true" if options.all else ""}
        _write(options.html, GatewayClient(client).content("/compare/export", query))
        return 0
    record = client.compare(jobs, options.all)
    for remark in record["remarks"]:
        note(f"note: {remark}")
    if options.output != "table":
        say(command.document(record, options.output))
        return 0
    for line in comparison_view.comparison(record, _sections(options), screen(sys.stdout)):
        say(line)
    if options.code:
        _say_code(client, [job["id"] for job in record["jobs"]])
    return 0


def _say_code(client: Connection, jobs: list[str]) -> None:
    """What differs between the package of the first job and those of the others."""
    from cli.packages import code_diff, upload  # slow, and used only here

    first, *others = [client.get_job(job).job for job in jobs]
    for other in others:
        if not (first.spec.code and other.spec.code) or first.spec.code == other.spec.code:
            continue
        say(f"\n{views.title(first)} and {views.title(other)}:")
        try:
            store = upload.store_of(client)
            for line in code_diff.difference(store, first.spec.code, other.spec.code):
                say(printable(line))
        except CallError as error:
            if error.status != "NOT_FOUND":
                raise
            say(f"cannot be compared: {error}")


def _write(file: str, content: bytes) -> None:
    try:
        with open(file, "wb") as opened:  # noqa: PTH123 - pathlib is slow
            opened.write(content)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", 1) from None
    say(file)


def _sections(options: argparse.Namespace) -> Sections:
    if not (options.config or options.metrics or options.code):
        return Sections(everything=options.all)
    return Sections(options.config, options.metrics, options.code, options.all)


def _selected(client: Connection, options: argparse.Namespace, given: list[str]) -> list[str]:
    """The ids, the oldest job first."""
    if not given:
        raise UsageError("JOB is missing: name two jobs or more, or give --experiment or --label")
    request = pb.ListJobsRequest(
        all_users=options.all_users,
        user=options.user,
        project=options.project,
        experiment=options.experiment,
        labels=[pb.KeyValue(key=key, value=value) for key, value in options.label],
        limit=JOBS_MAX + 1,
    )
    reply = client.list_jobs(request)
    if reply.total > JOBS_MAX:
        raise UsageError(
            f"{reply.total} jobs match, and {JOBS_MAX} can be compared at once: add a filter"
        )
    if not reply.jobs:
        others = "" if options.all_users or options.user else "; --all_users looks at all users'"
        raise UsageError(f"no job matches{others}")
    return [job.id for job in reversed(reply.jobs)]
