"""scheduler-cancel-job: end jobs. Files they wrote stay."""

from __future__ import annotations

import argparse
import json
import sys
import time

from cli import command, records, state, views
from cli.client import Client
from cli.command import CommandError, Parser, UsageError, note, say
from cli.terminal import screen
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
End jobs: at once, or with --graceful at the end of the epoch they are in. JOB
is an id, the end of one, or the name of a live job, if only one has it. With
filters, your live jobs that match are listed, and end if you agree. Their
files stay."""

EXAMPLES = """\
  scheduler-cancel-job 60ce2fc7 ce2fc8
  scheduler-cancel-job --graceful demo
  scheduler-cancel-job --experiment sweep-7 --status QUEUED"""

LIMIT = 1000  # the most that the scheduler lists
_LIVE = ("HELD", "QUEUED", "STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE")


def parser() -> Parser:
    this = Parser("scheduler-cancel-job", "JOB.. | FILTER.. [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which jobs")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="these; or all that are")
    state.add_filters(group)
    group = this.add_argument_group("how")
    group.add_argument("--graceful", action="store_true", help="not before the epoch's end")
    group.add_argument("--yes", action="store_true", help="do not ask")
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), cancel, argv)


def cancel(options: argparse.Namespace) -> int:
    filters = options.status or options.project or options.experiment or options.label
    if bool(options.jobs) == bool(filters):
        raise UsageError("name jobs, or give filters" + (", not both" if filters else ""))
    client = Client(options.server, options.ca)
    jobs = options.jobs
    if filters:
        matching = _matching(client, options)
        if not matching:
            note("scheduler-cancel-job: no live job of yours matches: nothing to cancel")
        elif not (options.yes or _agreed(matching)):
            note("scheduler-cancel-job: nothing cancelled")
            return 1
        jobs = [job.id for job in matching]
    return _cancel_all(client, jobs, options)


def _matching(client: Client, options: argparse.Namespace) -> list[pb.Job]:
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


def _agreed(jobs: list[pb.Job]) -> bool:
    """Asked on stderr: stdout is for what has been done. No answer is no."""
    for line in views.jobs(jobs, time.time(), screen(sys.stderr), users=False):
        note(line)
    sys.stderr.write(
        f"cancel {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}? [y/N] "
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _cancel_all(client: Client, jobs: list[str], options: argparse.Namespace) -> int:
    """One that cannot be cancelled does not save the others."""
    replies, errors = [], []
    for job in jobs:
        try:
            reply = client.cancel_job(job, options.graceful)
        except CommandError as error:
            errors.append(error)
            if error.exit_code == 3:
                break
            note(f"scheduler-cancel-job: {error}")
            continue
        replies.append(reply)
        if options.output == "table":
            say(_told(reply, options.graceful))
    if options.output == "json":
        done = [
            {**records.job(reply.job), "already_ended": reply.already_ended} for reply in replies
        ]
        say(json.dumps({"jobs": done}))
    if errors and errors[-1].exit_code == 3:
        raise errors[-1]
    if len(jobs) == 1 and errors:
        return errors[0].exit_code
    return 1 if errors else 0


def _told(reply: pb.CancelJobReply, graceful: bool) -> str:
    job = reply.job
    who = f"{job.spec.name} ({job.id[-views.SHORT :]})"
    if reply.already_ended:
        return f"{who}: already {job.state.lower()}"
    if job.state == "CANCELED":
        return f"{who}: canceled"
    when = "at the end of its epoch" if graceful else "now"
    return f"{who}: stopping {when}"
