"""scheduler-run-workflow: submits the jobs of a workflow in Argo's language, all or none."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import command, run, waiting
from cli.command import Parser, UsageError, note, say
from cli.connection import connect
from scheduler.presentation.render import printable
from scheduler.presentation.workflow_tree import WORKFLOW, branches

if TYPE_CHECKING:
    from scheduler.workflows.step_jobs import StepJob

STORE = "EPOCH_SCHEDULER_STORE"  # the variable by which the wrapper of a step finds it

ABOUT = """\
Submit the steps of a workflow, in Argo's language, as jobs: each starts when
those before it have ended as it says. All of them are accepted, or none. The
name of the workflow is printed; it is the label `workflow` of its jobs."""

EXAMPLES = """\
  scheduler-run-workflow train.yaml
  scheduler-run-workflow train.yaml -p epochs=30 -p lr=0.1 --wait
  scheduler-run-workflow train.yaml --params '{"epochs": 30}' --dry_run"""


def parser() -> Parser:
    this = Parser("scheduler-run-workflow", "FILE [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("the workflow")
    group.add_argument(
        "file", metavar="FILE", nargs="?", help="the workflow as YAML or JSON; -: stdin"
    )
    group.add_argument(
        "-p",
        "--parameter",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="value of a parameter of the workflow; may be repeated",
    )
    group.add_argument(
        "--params", metavar="JSON", type=_json, default={}, help="several of them, as an object"
    )
    group.add_argument(
        "--start",
        metavar="STEP",
        default="",
        help="run only this step and those behind it, as if those before had succeeded",
    )
    group.add_argument("--name", metavar="NAME", default="", help="instead of the document's name")
    group = this.add_argument_group("the jobs")
    group.add_argument(
        "--code",
        metavar="DIR",
        default="",
        help="all of them see the files of this folder, or of a stored package, as /code",
    )
    group.add_argument(
        "--snapshots_dir",
        metavar="DIR",
        default="",
        help="folder in which they save, and give each other what they have made",
    )
    group.add_argument(
        "--storage",
        metavar="PATH",
        default="",
        help="on Kubernetes, mount the storage of the project at PATH, and keep it there",
    )
    group.add_argument(
        "--store",
        metavar="s3://SET[/PATH]",
        default="",
        help="where what steps give is kept, instead of the folder of their snapshots",
    )
    group.add_argument(
        "--credentials",
        metavar="FILE",
        default="",
        help="file with the S3 stores, instead of ~/.config/epoch-scheduler/creds.yaml",
    )
    group.add_argument("--project", metavar="NAME", default="", help="project of the jobs")
    group.add_argument("--wait", action="store_true", help="wait until all of them have ended")
    group.add_argument(
        "--dry_run", action="store_true", help="submit nothing; check all and print the graph"
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), submit, argv)


def submit(options: argparse.Namespace) -> int:
    from scheduler.presentation.workflow_submission import (
        document,
        job_ids,
        name_suffix,
        submission,
    )
    from scheduler.workflows.compiler import compile_workflow  # they need YAML, which is slow
    from scheduler.workflows.document import WorkflowError

    if options.file is None:
        raise UsageError("FILE is missing: name the file with the workflow")
    text = _text(options.file)
    parameters = {**options.params, **dict(options.parameter)}
    try:
        made = compile_workflow(text, parameters, options.name, name_suffix(), options.start)
    except WorkflowError as error:
        raise UsageError(f"{options.file}:{error.line}:{error.column}: {error}") from None
    for line in made.warnings:
        note(f"note: {options.file}: {line}")
    if not made.steps:
        raise UsageError(f"{options.file}: no step of it is to run")
    keys = store_settings(options.store, options.credentials) if options.store else ""
    if not keys and (wants := next(filter(wants_store, made.steps), None)):
        raise UsageError(f"step {wants.name}: it has an artifact in S3: give --store s3://SET")
    client, code = connect(options), ""
    if options.code:
        from cli.packages import upload  # slow, and used only here

        code = upload.package_of(upload.store_of(client), options.code)
    workflow_id = str(uuid.uuid4())
    ids = job_ids(made.steps, workflow_id)
    written = document(text, parameters)
    request = submission(made, workflow_id, written, options.project, code=code)
    request.dry_run = options.dry_run
    request.common.snapshots_dir = options.snapshots_dir
    request.common.storage = options.storage
    if keys:
        request.common.secrets.append(STORE)
        request.secrets.add(key=STORE, value=keys)
    run.say_notes(client.submit_many(request))
    if options.output != "table":
        steps = [
            {
                "step": step.name,
                "id": "" if options.dry_run else ids[step.name],
                "after": [{"step": name, "when": when} for name, when in step.after],
            }
            for step in made.steps
        ]
        record = {"workflow": made.name, "steps": steps, "left_out": list(made.left_out)}
        say(command.document(record, options.output))
    elif options.dry_run:
        for line in tree({step.name: dict(step.after) for step in made.steps}):
            say(printable(line))
        for step in made.steps:
            say(printable(f"{step.name}: {shlex.join(step.command)}"))
            for line in exchanged(step.data):
                say(printable(f"  {line}"))
    else:
        say(made.name)
    sys.stdout.flush()
    for name in made.left_out if options.dry_run else ():
        note(f"{printable(name)} does not run")
    if options.dry_run:
        return 0
    note(f"{len(made.steps)} jobs; scheduler-state --label {WORKFLOW}={made.name}")
    if not options.wait:
        return 0
    by = "scheduler-run-workflow"
    return waiting.wait_for_jobs(client, (WORKFLOW, made.name), ids.values(), by, may_skip=True)


def wants_store(step: StepJob) -> bool:
    outputs = step.data.get("outputs", {}).get("artifacts", ())
    return any("key" in each for each in (*step.data.get("inputs", ()), *outputs))


def store_settings(place: str, credentials: str) -> str:
    """As the wrapper of a step reads them."""
    from cli.storage import s3_settings

    name, _, path = place.removeprefix("s3://").partition("/")
    if not place.startswith("s3://") or not name:
        raise UsageError(f"--store {place}: must be s3://SET, or s3://SET/PATH")
    found = s3_settings.find(name, credentials or s3_settings.default_file())
    try:
        certificate = Path(found.cert_path).read_text() if found.cert_path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{found.cert_path}: {getattr(error, 'strerror', error)}") from None
    if not found.access_key:
        raise UsageError(f"--store {place}: the store has no access key, which jobs need")
    folder = path.strip("/")
    return json.dumps(
        {
            "prefix": found.prefix + (f"{folder}/" if folder else ""),
            "certificate": certificate,
            **{name: getattr(found, name) for name in ("address", "bucket", "region")},
            **{name: getattr(found, name) for name in ("access_key", "secret_key")},
            **{name: getattr(found, name) for name in ("tls", "cert_verify")},
        }
    )


def exchanged(data: Mapping[str, Any]) -> Iterator[str]:
    """What the wrapper of a step will do, a line each."""
    for condition in data.get("when", ()):
        yield f"if {condition}"
    for each in data.get("inputs", ()):
        source = "nothing: it is absent"
        if "raw" in each:
            source = f"{len(each['raw'])} characters"
        elif "step" in each:
            source = f"{each['artifact']} of {each['step']}"
        elif "key" in each:
            source = f"{each['key']} of the store"
        yield f"takes {each['path']}: {source}"
    outputs = data.get("outputs", {})
    for each in (*outputs.get("parameters", ()), *outputs.get("artifacts", ())):
        yield f"gives {each['name']}: {each['path']}"


def tree(after: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Each step once, below the last of those that it waits for; the others are named."""
    for drawn, name, parent in branches(after):
        told = [_OWN[after[name][parent]]] if parent else []
        others = ((each, when) for each, when in after[name].items() if each != parent)
        words = ", ".join(filter(None, [*told, *(_OTHERS[when].format(of) for of, when in others)]))
        yield f"{drawn}{name}{f'  ({words})' if words else ''}"


_OWN = {
    "succeeded": "",
    "failed": "if it fails",
    "finished": "also if it fails",
    "skipped-or-succeeded": "also if it is skipped",
    "ended": "however it ends",
}
_OTHERS = {
    "succeeded": "after {}",
    "failed": "if {} fails",
    "finished": "after {}, also if that fails",
    "skipped-or-succeeded": "after {}, also if that is skipped",
    "ended": "after {}, however that ends",
}


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{file}: {why}") from None


def _json(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('must be an object: {"epochs": 30}')
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()
    }
