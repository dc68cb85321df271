"""scheduler-cancel-job: ends jobs. The files that they wrote stay."""

from __future__ import annotations

import argparse
import sys
import time

from cli import command, state
from cli.command import Parser, UsageError, note, say
from cli.connection import Connection, connect
from cli.terminal import screen
from scheduler.presentation import records, views
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
End jobs immediately, or with --graceful at the end of their current epoch. JOB
is an id, the end of an id, or a name. A name selects the only live job with
that name. With filters, the command lists your live jobs that match, and ends
them if you confirm. The files that the jobs wrote stay."""

EXAMPLES = """\
  scheduler-cancel-job 60ce2fc7 ce2fc8
  scheduler-cancel-job --graceful demo
  scheduler-cancel-job --with_dependents prepare
  scheduler-cancel-job --experiment sweep-7 --status QUEUED"""

LIMIT = 1000  # the scheduler lists no more than this
_LIVE = ("HELD", "QUEUED", "STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE")


def parser() -> Parser:
    this = Parser("scheduler-cancel-job", "JOB.. | FILTER.. [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which jobs")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job to end")
    state.add_filters(group)
    group = this.add_argument_group("how")
    group.add_argument(
        "--graceful", action="store_true", help="let each job finish its current epoch"
    )
    group.add_argument(
        "--with_dependents",
        action="store_true",
        help="also cancel the jobs that wait for its end (--after), and those behind them",
    )
    group.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), cancel, argv)


def cancel(options: argparse.Namespace) -> int:
    filters = options.status or options.project or options.experiment or options.label
    if bool(options.jobs) == bool(filters):
        raise UsageError("name jobs or give filters" + (", not both" if filters else ""))
    client = connect(options)
    jobs = options.jobs
    if filters:
        matching = _matching(client, options)
        if not matching:
            note("scheduler-cancel-job: none of your live jobs matches; nothing to cancel")
        elif not (options.yes or _confirm(matching)):
            note("scheduler-cancel-job: nothing cancelled")
            return 1
        jobs = [job.id for job in matching]
    return _cancel_all(client, jobs, options)


def _matching(client: Connection, options: argparse.Namespace) -> list[pb.Job]:
    request = pb.ListJobsRequest(
        limit=LIMIT,
        states=options.status or _LIVE,
        project=options.project,
        experiment=options.experiment,
        labels=[pb.KeyValue(key=key, value=value) for key, value in options.label],
    )
    reply = client.list_jobs(request)
    if reply.total > len(reply.jobs):
        note(f"{reply.total} jobs match; these are the newest {len(reply.jobs)}")
    return [job for job in reply.jobs if job.state not in views.ENDED]


def _confirm(jobs: list[pb.Job]) -> bool:
    """Asks on stderr, because stdout is for what has been done. No answer means no."""
    for line in views.jobs(jobs, time.time(), screen(sys.stderr), users=False):
        note(line)
    sys.stderr.write(
        f"cancel {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}? [y/N] "
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _cancel_all(client: Connection, jobs: list[str], options: argparse.Namespace) -> int:
    replies = []

    def cancel_one(job: str) -> None:
        replies.append(reply := client.cancel_job(job, options.graceful, options.with_dependents))
        if options.output == "table":
            for line in views.cancel_result(reply, options.graceful):
                say(line)
        if left := views.left_behind(reply):
            note(f"scheduler-cancel-job: {left}")

    exit_code = command.for_each("scheduler-cancel-job", jobs, cancel_one)
    if options.output != "table":
        done = [
            {**records.job(job), "already_ended": reply.already_ended and job is reply.job}
            for reply in replies
            for job in (reply.job, *reply.dependents)
        ]
        say(command.document({"jobs": done}, options.output))
    return exit_code
