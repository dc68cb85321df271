"""scheduler-run-interactive: a shell on GPUs that are the user's alone, for some hours."""

from __future__ import annotations

import argparse
import uuid

from cli import command, run
from cli.command import CommandError, Parser, UsageError, note
from cli.connect import run_beside
from cli.connection import Connection, connect
from cli.waiting import wait_for_start
from scheduler.v1 import scheduler_pb2 as pb

NAME, HOURS = "interactive", 2.0
# It only holds the GPUs: all that is done there is done beside it.
HOLDS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")

ABOUT = """\
Open a shell on GPUs that no other job uses at the same time, or run the command
after `--` there: the same as run-scheduler --interactive. It waits for the GPUs,
and ends when its shell does, and after --hours (default: 2); 10 minutes and 1
minute before that the shell is told. After a lost connection, scheduler-connect
returns to the job; what ran in its shell has ended."""

EXAMPLES = """\
  scheduler-run-interactive
  scheduler-run-interactive --num_gpus 2 --hours 8 --image pytorch
  scheduler-run-interactive try -- python -i model.py"""


def parser() -> Parser:
    this = run.parser()
    this.prog, this.description = "scheduler-run-interactive", ABOUT
    this.usage = f"{this.prog} [OPTION..] [JOB_NAME] [-- COMMAND..]"
    this.epilog = f"examples:\n{EXAMPLES}\n\n{command.EXIT_CODES}"
    this.set_defaults(interactive=True)
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), run.submit, argv)


def attend(options: argparse.Namespace) -> int:
    """Returns the exit code of the shell."""
    for flag in ("wait", "hold", "dry_run", "script_path", "spec", "time_limit", "debug_wait"):
        if getattr(options, flag):
            raise UsageError(f"--{flag}: is not for interactive jobs")
    words, options.command = options.command, [*HOLDS]
    hours = options.hours or HOURS
    options.job_name = options.job_name or NAME
    options.time_limit, options.disable_gpu_sharing = hours * 3600, True
    asked = run.spec(options)
    secrets = run.secret_values(options.secret, asked)
    client = connect(options)
    reply = client.submit(pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=asked, secrets=secrets))
    job_id = reply.job.id
    is_lost = False
    try:
        wait_for_start(client, job_id)
        note(f"job {job_id} ends with this shell, and in {hours:g} h at the latest")
        return run_beside(client, job_id, words)
    except CommandError as error:
        is_lost = error.exit_code == 3
        if is_lost:
            note(f"the job goes on: `scheduler-connect {job_id}` returns to it")
        raise
    finally:
        if not is_lost:
            _end(client, job_id)


def _end(client: Connection, job_id: str) -> None:
    try:
        client.cancel_job(job_id, graceful=False)
    except CommandError as error:
        note(f"scheduler-run-interactive: job {job_id} may go on: {error}")
