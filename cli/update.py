"""scheduler-update-job: holds, releases and annotates jobs, changes their priority and length."""

from __future__ import annotations

import argparse

from cli import command
from cli.command import Parser, UsageError, say
from cli.connection import connect
from scheduler.presentation import records, views
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Change jobs that have not ended: hold or release them, and change their priority
or their number of epochs. JOB is an id, the end of an id, or a name. A name
selects the only live job with that name. A running job that is held stops at
the end of its current epoch, and continues after it is released. Annotations
are texts of yours by a key, such as a note or a star: ended jobs can have them,
too, and the page Experiments shows and searches them."""

EXAMPLES = """\
  scheduler-update-job demo --release
  scheduler-update-job 60ce2fc7 ce2fc8 --priority 10
  scheduler-update-job demo --max_epochs 60
  scheduler-update-job 60ce2fc7 --annotate star=yes --annotate note="best so far\""""


def parser() -> Parser:
    this = Parser("scheduler-update-job", "JOB.. [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which jobs")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job to change")
    group = this.add_argument_group("what to change")
    group.add_argument(
        "--hold", action="store_true", help="do not start the job until it is released"
    )
    group.add_argument("--release", action="store_true", help="end a hold: the job may start")
    group.add_argument(
        "--priority",
        metavar="N",
        type=command.whole_number(-command.INT_MAX),
        help="jobs with a higher priority go first",
    )
    group.add_argument(
        "--max_epochs",
        metavar="N",
        type=command.whole_number(1),
        help="number of epochs in total; more than its present run has are trained by another run",
    )
    group.add_argument(
        "--annotate",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="write VALUE on the job; KEY= removes it; may be repeated",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), update, argv)


def update(options: argparse.Namespace) -> int:
    if not options.jobs:
        raise UsageError("JOB is missing")
    if options.hold and options.release:
        raise UsageError("--hold and --release exclude each other")
    changes = pb.UpdateJobRequest(
        held=options.hold if options.hold or options.release else None,
        priority=options.priority,
        max_epochs=options.max_epochs,
        annotate=[pb.KeyValue(key=key, value=value) for key, value in options.annotate],
    )
    if not changes.ListFields():
        raise UsageError(
            "nothing to change: give --hold, --release, --priority, --max_epochs or --annotate"
        )
    client = connect(options)
    updated = []

    def update_one(job: str) -> None:
        changes.job = job
        updated.append(message := client.update_job(changes))
        if options.output == "table":
            say(views.update_result(changes, message))

    exit_code = command.for_each("scheduler-update-job", options.jobs, update_one)
    if options.output != "table":
        say(command.document({"jobs": list(map(records.job, updated))}, options.output))
    return exit_code
