"""scheduler-resubmit-job: submits a job again. Prints the new id, and nothing else, on stdout."""

from __future__ import annotations

import argparse
import uuid

from cli import command
from cli.command import CommandError, Parser, UsageError, note
from cli.connection import connect
from cli.run import say_id, say_notes, secret_values
from scheduler.presentation.job_document import refuses_again
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Submit a job again, with the same options and a new id, which is printed as soon
as the new job is safely on disk. The old job stays as it is. JOB is an id, the
end of an id, or a name. A name selects the only live job with that name or, if
there is none, the only ended job with it."""

EXAMPLES = """\
  scheduler-resubmit-job 60ce2fc7
  new=$(scheduler-resubmit-job demo)"""


def parser() -> Parser:
    this = Parser("scheduler-resubmit-job", "JOB [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what")
    group.add_argument("job", metavar="JOB", nargs="?", help="job to submit again")
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), resubmit, argv)


def resubmit(options: argparse.Namespace) -> int:
    if options.job is None:
        raise UsageError("JOB is missing")
    client = connect(options)
    spec = client.get_job(options.job).job.spec
    if refusal := refuses_again(spec, printable(spec.name)):
        raise CommandError(refusal, 4)
    secrets = secret_values([], spec)
    reply = client.submit(pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec, secrets=secrets))
    say_notes(reply)
    if spec.held:
        note(f"note: it is held; scheduler-update-job {reply.job.id[-8:]} --release starts it")
    say_id(reply, options.output)
    return 0
