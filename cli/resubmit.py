"""scheduler-resubmit-job: submits jobs again. Prints the new ids, and nothing else, on stdout."""

from __future__ import annotations

import argparse
import uuid

from cli import command
from cli.client import CallError
from cli.command import CommandError, Parser, UsageError, note
from cli.connection import Connection, connect
from cli.run import say_id, say_notes, secret_values
from scheduler.presentation.job_document import refuses_again
from scheduler.presentation.render import printable
from scheduler.presentation.views import ENDED
from scheduler.v1 import scheduler_pb2 as pb

REFUSED = 4

ABOUT = """\
Submit jobs again, with the same options, the same package of code and new ids,
which are printed as soon as the new jobs are safely on disk. An old job of yours
that has not ended is canceled after its new one is accepted; if that is refused,
the old one goes on. JOB is an id, the end of an id, or a name. A name selects the
only live job with that name or, if there is none, the only ended job with it."""

EXAMPLES = """\
  scheduler-resubmit-job 60ce2fc7
  scheduler-resubmit-job demo --num_gpus 4 --latest_code
  new=$(scheduler-resubmit-job demo --keep)"""


def parser() -> Parser:
    this = Parser("scheduler-resubmit-job", "JOB.. [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job to submit again")
    group.add_argument(
        "--num_gpus",
        metavar="N",
        type=command.whole_number(0),
        help="the new job uses exactly N GPUs; default: as many as the old one might",
    )
    group.add_argument(
        "--latest_code",
        action="store_true",
        help="with the package that was uploaded last from the folder of the old job's package; "
        "default: with the same package",
    )
    group.add_argument(
        "--target_context", metavar="NAME", help="submit to the scheduler of this context"
    )
    group.add_argument("--keep", action="store_true", help="do not cancel the old job")
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), resubmit, argv)


def resubmit(options: argparse.Namespace) -> int:
    if not options.jobs:
        raise UsageError("JOB is missing")
    source = connect(options)
    target = source
    if options.target_context is not None:
        target = connect(parser().read(["job", "--context", options.target_context]))

    def again(job: str) -> None:
        _submit_again(source, target, job, options)

    return command.for_each("scheduler-resubmit-job", options.jobs, again)


def _submit_again(
    source: Connection, target: Connection, ref: str, options: argparse.Namespace
) -> None:
    found = source.get_job(ref)
    old, spec = found.job, pb.JobSpec()
    spec.CopyFrom(old.spec)
    if refusal := refuses_again(spec, printable(spec.name)):
        raise CommandError(refusal, REFUSED)
    secrets = secret_values([], spec)
    if options.num_gpus is not None:
        spec.gpus_min = spec.gpus_max = options.num_gpus
    if options.latest_code and not spec.code:
        raise CommandError(f"--latest_code: {printable(spec.name)} has no package of code", REFUSED)
    if spec.code:
        spec.code = _package(source, target, found, options.latest_code)
    if target is not source:  # where it was submitted, and with which programs, is another machine
        spec.directory = ""
        del spec.exported[:]
    request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec, secrets=secrets)
    reply = _accepted(target, request)
    say_notes(reply)
    if spec.held:
        note(f"note: it is held; scheduler-update-job {reply.job.id[-8:]} --release starts it")
    say_id(reply, options.output)
    is_ours = target is not source or old.spec.user == reply.job.spec.user
    if is_ours and not options.keep and old.state not in ENDED:
        _cancel(source, old, reply.job)


def _accepted(target: Connection, request: pb.SubmitRequest) -> pb.SubmitReply:
    """The options were good once, so whatever is wrong with them now is a refusal."""
    try:
        return target.submit(request)
    except CallError as error:
        code = REFUSED if error.exit_code == 2 else error.exit_code
        raise CommandError(f"{error}; the old job is as it was", code) from None


def _package(source: Connection, target: Connection, found: pb.GetJobReply, latest: bool) -> str:
    """Returns the package of the new job, which the target has then."""
    from cli.packages import upload  # slow, and rarely needed

    package, origin = found.job.spec.code, found.origin
    if latest:
        package = upload.store_of(source).find_package(package, latest=True).id
        origin = origin if package == found.job.spec.code else pb.CodeOrigin()
    if target is not source:
        upload.copy(upload.store_of(source), upload.store_of(target), package, origin)
    return package


def _cancel(source: Connection, old: pb.Job, new: pb.Job) -> None:
    try:
        source.cancel_job(old.id, graceful=False)
    except CommandError as error:
        told = f"{new.id[-8:]} is submitted, but {old.id[-8:]} is not canceled: {error}"
        raise CommandError(told, error.exit_code) from None
    note(f"{printable(old.spec.name)} ({old.id[-8:]}): canceled; {new.id[-8:]} takes its place")
