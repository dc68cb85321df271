"""run-scheduler: submits a job, or many. Prints their ids, and nothing else, on stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from cli import command, notes, run_flags, waiting
from cli.command import Parser, UsageError, note, say
from cli.connection import Connection, connect, is_here, is_local
from cli.contexts.registry import in_registry
from scheduler.presentation import views
from scheduler.presentation.outlook import end_forecast, start_forecast
from scheduler.presentation.records import job as job_record
from scheduler.presentation.records import pairs
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Submit a training job. Its id is printed as soon as the job is safely on disk.
With --script_path, the words after `--` are the arguments of the script;
without it, they are the command itself. They are passed on unchanged, blanks
included. All users of a machine can see the arguments of a program: give
passwords with --secret, never as arguments."""

EXAMPLES = """\
  run-scheduler --image pytorch --script_path /custom/train.py --custom_dir ~/code \\
      --max_epochs 30 --estimated_memory 6000 demo -- --lr 0.1
  run-scheduler --num_gpus 0 hello -- echo "hello, world"
  run-scheduler --min_gpus 1 --max_gpus 4 --priority 5 --wait big -- python train.py
  run-scheduler --sweep lr=0.1,0.01 --sweep seed=1,2,3 grid -- python t.py {lr} {seed}"""


def parser() -> Parser:
    this = Parser(
        "run-scheduler",
        "[OPTION..] JOB_NAME [-- COMMAND|ARGUMENT..] | --spec FILE",
        ABOUT,
        EXAMPLES,
    )
    this.takes_command = True
    this.describes_job = True
    group = this.add_argument_group("the job")
    group.add_argument(
        "job_name",
        metavar="JOB_NAME",
        nargs="?",
        help="name of the job; several jobs may have the same name",
    )
    group.add_argument(
        "--spec",
        metavar="FILE",
        help="submit the job that FILE (-: stdin) describes, in the format of "
        "`scheduler-state JOB --output json` or yaml; FILE.py[:FUNCTION]: the jobs that this "
        "function (default: spec) returns",
    )
    group.add_argument(
        "--project_file",
        metavar="FILE|none",
        help="file with defaults of this project; default: scheduler.yaml of this folder, or the "
        "nearest one above it in the same git work tree",
    )
    run_flags.add_what(this.add_argument_group("what to run"))
    run_flags.add_gpus(this.add_argument_group("which GPUs"))
    run_flags.add_order(this.add_argument_group("when to run, and labels"))
    run_flags.add_many(this.add_argument_group("many jobs at once: all are accepted, or none"))
    group = this.add_argument_group("jobs with the same label `sweep`")
    run_flags.add_sweep(group)
    run_flags.add_search(group)
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), submit, argv)


def submit(options: argparse.Namespace) -> int:
    if options.requirements and options.spec is None:
        _add_requirements(options)
    if options.search:
        from cli import search

        if is_local(options):
            raise UsageError("--local runs one job: leave out --search")
        return search.search(options)
    if options.trials:
        raise UsageError("--trials: how many jobs --search submits; give --search")
    if options.sweep or options.repeat > 1 or ".py" in (options.spec or ""):
        from cli import sweep  # rarely needed

        if sweep.is_asked_for(options):
            if is_local(options):
                raise UsageError("--local runs one job: leave out what makes several")
            return sweep.submit(options)
    for flag in ("shuffle", "limit"):
        if getattr(options, flag):
            raise UsageError(f"--{flag}: chooses among many jobs: give --sweep, or --spec FILE.py")
    if options.interactive:
        from cli import interactive  # rarely needed

        return interactive.attend(options)
    if options.hours:
        raise UsageError("--hours: is of --interactive; --time_limit limits other jobs")
    if is_local(options):
        for flag in ("dry_run", "code", "hold"):
            if getattr(options, flag):
                raise UsageError(f"--{flag} is for jobs that are submitted, and not with --local")
    asked = spec(options)
    secrets = secret_values(options.secret, asked)
    request = pb.SubmitRequest(
        job_id=str(uuid.uuid4()), spec=asked, dry_run=options.dry_run, secrets=secrets
    )
    if is_local(options):
        from cli import local_run  # slow, and used only here

        return local_run.run(request)
    client = connect(options)
    add_package(client, request.spec, options)
    reply = client.submit(request)
    say_notes(reply)
    if options.dry_run:
        _say_what_would_run(reply, request.spec, options.output)
        return 0
    say_id(reply, options.output)
    return waiting.wait_for_job(client, reply.job.id) if options.wait else 0


def add_package(client: Connection, asked: pb.JobSpec, options: argparse.Namespace) -> None:
    """Gives the job the package that --code names, if it does."""
    if options.code:
        from cli.packages import upload  # slow, and used only here

        store = upload.store_of(client)
        asked.code = upload.package_of(store, options.code, options.include)


# --- the request --------------------------------------------------------------------------------


def spec(options: argparse.Namespace) -> pb.JobSpec:
    if options.spec is not None:
        return _spec_of_file(options)
    if options.job_name is None:
        raise UsageError(f"JOB_NAME is missing; usage: {parser().usage}")
    words = options.command
    if not (options.script_path or words):
        raise UsageError("nothing to run: give --script_path PATH, or a command after `--`")
    if options.num_gpus is not None and (options.min_gpus, options.max_gpus) != (None, None):
        raise UsageError("--num_gpus sets both bounds: leave out --min_gpus and --max_gpus")
    if options.include and not options.code:
        raise UsageError("--include takes files into a package: give --code too")
    exactly = options.num_gpus
    directory, exported = taken_along(options)
    return pb.JobSpec(
        name=options.job_name,
        image=_image(options),
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
        time_limit_seconds=options.time_limit,
        after=options.after,
        keep_library=options.keep_library,
        no_tracking=options.no_tracking,
        debug_wait=options.debug_wait,
        process_per_gpu=options.processes_per_node == "gpu",
        project=options.project,
        experiment=options.experiment,
        parallel=options.parallel,
        metric=options.metric,
        maximize=options.mode == "max",
        prune=options.prune,
        prune_after=options.prune_after,
        labels=_key_values(options.label),
        held=options.hold,
        folders=_key_values(options.folder),
        volumes=[_volume(text) for text in options.volumes],
        directory=directory,
        exported=_key_values(exported),
        secrets=[text.partition("=")[0] for text in options.secret],
        storage=options.storage,
        storage_size=options.default_pvc_size,
        registry_secret=options.registry_secret,
    )


def _image(options: argparse.Namespace) -> str:
    return in_registry(options.image or "", _registry_url(options))


def _registry_url(options: argparse.Namespace) -> str:
    return options.in_context.text("registry_url") if options.in_context else ""


def _add_requirements(options: argparse.Namespace) -> None:
    """The image becomes the one that has them. What else is wrong is found before it is built."""
    from cli import image_building  # rarely needed

    base = options.base_image or options.image or ""
    image = image_building.required_image(options.requirements, base, _registry_url(options))
    options.image = image.name
    asked = spec(options)
    if not options.sweep:  # whose words are not filled in yet
        secrets = secret_values(options.secret, asked)
        connect(options).submit(
            pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=asked, dry_run=True, secrets=secrets)
        )
    image.ensure(options.dry_run)


def _spec_of_file(options: argparse.Namespace) -> pb.JobSpec:
    from cli import spec_file  # rarely needed

    check_describes_all(options)
    asked = spec_file.read(options.spec)
    asked.name = options.job_name or asked.name
    asked.held = options.hold or asked.held
    return asked


def check_describes_all(options: argparse.Namespace) -> None:
    """Raises UsageError if there is something beside --spec that describes a job."""
    for action in parser()._actions:
        given = getattr(options, action.dest, action.default) != action.default
        if given and action.dest not in _WITH_SPEC:
            raise UsageError(
                f"--spec describes the whole job: leave out {action.option_strings[0]}"
            )
    if options.command:
        raise UsageError("--spec describes the whole job: leave out the words after `--`")


_WITH_SPEC = (
    "repeat",
    "shuffle",
    "limit",
    "yes",
    "job_name",
    "spec",
    "secret",
    "wait",
    "dry_run",
    "local",
    "context",
    "project_file",
    "server",
    "ca",
    "output",
    "debug",
    "hold",
)


def taken_along(options: argparse.Namespace) -> tuple[str, list[tuple[str, str]]]:
    """Returns the current folder and the variables of this shell that the job gets. A scheduler on
    another machine gets only what the user names: programs and folders are others there."""
    if options.export is not None:
        if missing := [name for name in options.export if name not in os.environ]:
            raise UsageError(f"--export {missing[0]}: your shell exports no such variable")
        names = options.export
    else:
        names = run_flags.EXPORTED if is_here(options) else ()
    return os.getcwd() if names else "", [  # noqa: PTH109 - as in `cli.client`
        (name, os.environ[name]) for name in names if name in os.environ
    ]


def secret_values(given: list[str], asked: pb.JobSpec) -> list[pb.KeyValue]:
    """Returns a value for each secret of the job: the content of a file that is given for it, else
    the variable of this shell. Never part of a command line."""
    files = dict(text.split("=", 1) for text in given if "=" in text)
    asked.secrets[:] = sorted({*asked.secrets, *(text.partition("=")[0] for text in given)})
    found = []
    for name in asked.secrets:
        if name not in files and name not in os.environ:
            raise UsageError(f"--secret {name}: export the variable, or give --secret {name}=FILE")
        try:
            value = Path(files[name]).read_text() if name in files else os.environ[name]
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"--secret {name}: {files[name]}: {why}") from None
        found.append(pb.KeyValue(key=name, value=value.removesuffix("\n")))
    return found


def _key_values(pairs: list[tuple[str, str]]) -> list[pb.KeyValue]:
    """Of a key that is there twice, the last: a context's come first."""
    return [pb.KeyValue(key=key, value=value) for key, value in dict(pairs).items()]


def _absolute(folder: str | None) -> str:
    """The daemon runs in another folder, so `.` would mean something else there."""
    return str(Path(folder).expanduser().absolute()) if folder else ""


def _volume(text: str) -> str:
    """A folder of this machine becomes absolute; anything else stays."""
    source, colon, rest = text.partition(":")
    return f"{_absolute(source)}{colon}{rest}" if source.startswith((".", "~")) else text


# --- the answer ---------------------------------------------------------------------------------


def say_notes(reply: pb.SubmitReply | pb.SubmitManyReply) -> None:
    """Each at most once a day: who submits many jobs knows them."""
    for each in notes.unsaid(list(reply.notes)):
        note(f"note: {each}")


def say_id(reply: pb.SubmitReply, output: str) -> None:
    if output != "table":
        say(command.document({"id": reply.job.id, "notes": list(reply.notes)}, output))
    else:
        say(reply.job.id)
    sys.stdout.flush()


def _say_what_would_run(reply: pb.SubmitReply, asked: pb.JobSpec, output: str) -> None:
    args, run = list(asked.args), list(reply.command)
    if output != "table":
        record = {
            "command": run,
            "args": args,
            "env": pairs(reply.env),
            "gpus": views.gpu_request(reply.job.spec),
            "notes": list(reply.notes),
            "job": job_record(reply.job),
        }
        say(command.document(record, output))
        return
    say(f"command  {_compact_json(run)}")
    say(f"args     {_compact_json(args)}")
    say(f"gpus     {views.gpu_request(reply.job.spec)}")
    for name, told in _what_would_happen(reply.job):
        say(f"{name:<8} {printable(told)}")
    say("environment")
    for pair in reply.env:
        say(f"  {pair.key}={printable(pair.value)}")


def _what_would_happen(job: pb.Job) -> Iterator[tuple[str, str]]:
    """What the policy would do with the job if it were submitted now."""
    now = time.time()
    if job.shares:
        gpus = ", ".join(f"{share.node} {share.gpu}" for share in job.shares)
        yield "starts", f"now, on {gpus}"
    elif job.state == "STARTING":
        yield "starts", "now"
    else:
        yield "waits", job.reason
        if starts := start_forecast(job, now):
            yield "starts", starts
    if ends := end_forecast(job, now):
        yield "ends", ends


def _compact_json(words: list[str]) -> str:
    return json.dumps(words, separators=(",", ":"), ensure_ascii=False)
