"""run-scheduler: submits one job. Prints its id, and nothing else, on stdout."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path

from cli import command, views
from cli.client import Client
from cli.command import Parser, UsageError, note, say
from cli.records import pairs
from cli.render import printable
from cli.terminal import ProgressLine
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Submit a training job. Its id is printed as soon as the job is safely on disk.
With --script_path, the words after `--` are the arguments of the script;
without it, they are the command itself. They are passed on unchanged, blanks
included."""

EXAMPLES = """\
  run-scheduler --image pytorch --script_path /custom/train.py --custom_dir ~/code \\
      --max_epochs 30 --estimated_memory 6000 demo -- --lr 0.1
  run-scheduler --num_gpus 0 hello -- echo "hello, world"
  run-scheduler --min_gpus 1 --max_gpus 4 --priority 5 --wait big -- python train.py"""


def parser() -> Parser:
    this = Parser("run-scheduler", "[OPTION..] JOB_NAME [-- COMMAND|ARGUMENT..]", ABOUT, EXAMPLES)
    this.takes_command = True
    group = this.add_argument_group("the job")
    group.add_argument("job_name", metavar="JOB_NAME", help="any name; it need not be unique")
    _add_what(this.add_argument_group("what to run"))
    _add_gpus(this.add_argument_group("which GPUs"))
    _add_order(this.add_argument_group("when to run, and labels"))
    this.add_common()
    return this


def _add_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--image", "--image_name", metavar="IMAGE", help="container image")
    group.add_argument("--script_path", metavar="PATH", help="script to run with python")
    group.add_argument(
        "--custom_dir", metavar="DIR", help="folder of your code: /custom in the job"
    )
    group.add_argument(
        "--snapshots_dir", metavar="DIR", help="folder for checkpoints: /snapshots in the job"
    )
    group.add_argument(
        "--env",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="environment variable of the job; may be repeated",
    )
    group.add_argument(
        "--port_mapping",
        metavar="HOST:JOB,..",
        type=_ports,
        default=[],
        help="ports of the host, and the ports of the job that they lead to",
    )
    group.add_argument(
        "--keep_library",
        action="store_true",
        help="keep the job's own kubernetesdlprofile, even if it is older than this project",
    )
    for flag, of_what in (
        ("--max_epochs", "number of epochs to train; used for forecasts"),
        ("--batch_size", "together with --training_set_size: gives the number of steps per epoch"),
        ("--training_set_size", "number of samples, without the validation set"),
    ):
        group.add_argument(flag, metavar="N", type=command.whole_number(1), help=of_what)


def _add_gpus(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--num_gpus",
        metavar="N",
        type=command.whole_number(0),
        help="exactly N GPUs; 0: none; default 1",
    )
    group.add_argument(
        "--min_gpus", metavar="N", type=command.whole_number(0), help="at least N GPUs"
    )
    group.add_argument(
        "--max_gpus", metavar="N", type=command.whole_number(0), help="at most N GPUs"
    )
    group.add_argument(
        "--estimated_memory",
        metavar="MIB",
        type=command.whole_number(1),
        help="memory that the job needs on each GPU; default: whole GPUs until it is measured",
    )
    group.add_argument(
        "--processes_per_node",
        choices=("1", "gpu"),
        default="1",
        help="gpu: one process for each GPU of the job, with RANK and LOCAL_RANK; default 1",
    )
    for flag, what in (
        ("--is_single_gpu", "never use more than one GPU"),
        ("--disable_gpu_sharing", "never share a GPU with another job; the job may wait longer"),
    ):
        group.add_argument(
            flag,
            metavar="true|false",
            type=command.parse_bool,
            nargs="?",
            const=True,
            default=False,
            help=what,
        )


def _add_order(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--priority",
        metavar="N",
        type=command.whole_number(-command.INT_MAX),
        help="jobs with a higher priority go first; default 1",
    )
    group.add_argument(
        "--est_nhours", metavar="HOURS", type=_hours, help="expected duration in hours; more than 1"
    )
    group.add_argument(
        "--retries",
        metavar="N",
        type=command.whole_number(0),
        default=0,
        help="number of retries after the job itself fails; default 0",
    )
    group.add_argument(
        "--project", metavar="P", default="", help="project of the job, to filter by"
    )
    group.add_argument("--experiment", metavar="E", default="", help="experiment, to filter by")
    group.add_argument(
        "--label",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="label, to filter by; may be repeated",
    )
    group.add_argument(
        "--hold", action="store_true", help="do not start the job until it is released"
    )
    group.add_argument(
        "--wait",
        action="store_true",
        help="wait until the job ends; exit code 1 unless it FINISHED",
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="check everything and print what would run; submit nothing",
    )


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), submit, argv)


def submit(options: argparse.Namespace) -> int:
    client = Client(options.server, options.ca)
    request = pb.SubmitRequest(
        job_id=str(uuid.uuid4()), spec=spec(options), dry_run=options.dry_run
    )
    reply = client.submit(request)
    for each in reply.notes:
        note(f"note: {each}")
    if options.dry_run:
        _say_what_would_run(reply, request.spec, options.output)
        return 0
    _say_id(reply, options.output)
    return _wait(client, reply.job.id) if options.wait else 0


# --- the request --------------------------------------------------------------------------------


def spec(options: argparse.Namespace) -> pb.JobSpec:
    words = options.command
    if not (options.script_path or words):
        raise UsageError("nothing to run: give --script_path PATH, or a command after `--`")
    if options.num_gpus is not None and (options.min_gpus, options.max_gpus) != (None, None):
        raise UsageError("--num_gpus sets both bounds: leave out --min_gpus and --max_gpus")
    exactly = options.num_gpus
    return pb.JobSpec(
        name=options.job_name,
        image=options.image or "",
        command=[] if options.script_path else words,
        args=words if options.script_path else [],
        script_path=options.script_path or "",
        custom_dir=_absolute(options.custom_dir),
        snapshots_dir=_absolute(options.snapshots_dir),
        env=_key_values(options.env),
        ports=options.port_mapping,
        max_epochs=options.max_epochs,
        batch_size=options.batch_size,
        training_set_size=options.training_set_size,
        gpus_min=options.min_gpus if exactly is None else exactly,
        gpus_max=options.max_gpus if exactly is None else exactly,
        memory_mib=options.estimated_memory,
        is_single_gpu=options.is_single_gpu,
        disable_gpu_sharing=options.disable_gpu_sharing,
        priority=options.priority,
        hours_estimate=options.est_nhours,
        retries=options.retries,
        keep_library=options.keep_library,
        process_per_gpu=options.processes_per_node == "gpu",
        project=options.project,
        experiment=options.experiment,
        labels=_key_values(options.label),
        held=options.hold,
    )


def _key_values(pairs: list[tuple[str, str]]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in pairs]


def _absolute(folder: str | None) -> str:
    """The daemon runs in another folder, so `.` would mean something else there."""
    return str(Path(folder).expanduser().absolute()) if folder else ""


def _ports(text: str) -> list[pb.PortMapping]:
    mappings = []
    for part in text.split(","):
        host, colon, container = part.partition(":")
        if not (colon and host.isdecimal() and container.isdecimal()):
            raise argparse.ArgumentTypeError(
                f"{part!r} must be HOST_PORT:JOB_PORT, e.g. 31346:6006,31347:8888"
            )
        ports = [command.whole_number(1, 65535)(port) for port in (host, container)]
        mappings.append(pb.PortMapping(host=ports[0], container=ports[1]))
    return mappings


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours") from None
    if not hours > 1:
        raise argparse.ArgumentTypeError(f"{text} must be more than 1")
    return hours


# --- the answer ---------------------------------------------------------------------------------


def _say_id(reply: pb.SubmitReply, output: str) -> None:
    if output == "json":
        say(json.dumps({"id": reply.job.id, "notes": list(reply.notes)}))
    else:
        say(reply.job.id)
    sys.stdout.flush()


def _say_what_would_run(reply: pb.SubmitReply, asked: pb.JobSpec, output: str) -> None:
    args, run = list(asked.args), list(reply.command)
    if output == "json":
        record = {
            "command": run,
            "args": args,
            "env": pairs(reply.env),
            "gpus": views.gpu_request(reply.job.spec),
            "notes": list(reply.notes),
        }
        say(json.dumps(record))
        return
    say(f"command  {_compact_json(run)}")
    say(f"args     {_compact_json(args)}")
    say(f"gpus     {views.gpu_request(reply.job.spec)}")
    say("environment")
    for pair in reply.env:
        say(f"  {pair.key}={printable(pair.value)}")


def _compact_json(words: list[str]) -> str:
    return json.dumps(words, separators=(",", ":"), ensure_ascii=False)


def _wait(client: Client, job_id: str) -> int:
    """Waits until the job ends. ^C ends only the waiting, not the job."""
    shown = ProgressLine(sys.stderr)
    try:
        job = _wait_for_end(client, job_id, shown)
    finally:
        shown.clear()
    if job.state == "FINISHED":
        return 0
    note(f"run-scheduler: {job.spec.name}: {job.state}: {job.reason}")
    return 1


def _wait_for_end(client: Client, job_id: str, shown: ProgressLine) -> pb.Job:

    def lost() -> None:
        shown.clear()
        note(
            f"run-scheduler: lost the connection to {client.server};"
            " the job is not affected; waiting for the scheduler"
        )

    request = pb.ListJobsRequest(jobs=[job_id], all_users=True)
    for reply in client.watch_jobs(request, lost):
        for job in reply.jobs:
            shown.draw(views.progress(job))
            if job.HasField("ended_at"):
                return job
    raise AssertionError("a watch never ends")
