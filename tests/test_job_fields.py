"""Every field of a job reaches every place where people and programs expect it.

A field of JobSpec that is missing somewhere fails here, and the failure names the field and the
place. A field that does not belong in a place is in EXEMPT, with the reason. (scheduler/legacy is
not among the places: what old images submit does not change any more.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cli import run
from scheduler.api import wire
from scheduler.api.status import status
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import After, Job, JobId, JobSpec, View, When
from scheduler.presentation import records, views
from scheduler.presentation.render import Screen
from scheduler.v1 import scheduler_pb2 as pb
from simulator.traces import own_format
from simulator.traces.behaviour import SerialTruth, TraceJob

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schema" / "state.json").read_text())["$defs"]
FIELDS = [field.name for field in fields(JobSpec)]
BASE = JobSpec("demo", "ada", command=("ls",), gpus_max=4)

# Fields that have another name on the wire, and so in JSON.
ON_THE_WIRE = {"shareable": "disable_gpu_sharing"}

# What a person adds to `run-scheduler demo` to set this field, and no other.
ARGUMENTS = {
    "image": "--image torch",
    "project": "--project vision",
    "experiment": "--experiment e1",
    "labels": "--label sweep=7",
    "env": "--env LR=0.1",
    "script_path": "--script_path /custom/train.py",
    "custom_dir": "--custom_dir /home/ada",
    "snapshots_dir": "--snapshots_dir /snapshots",
    "ports": "--port_mapping 31346:6006",
    "max_epochs": "--max_epochs 30",
    "batch_size": "--batch_size 32",
    "training_set_size": "--training_set_size 1000",
    "gpus_min": "--min_gpus 2",
    "gpus_max": "--max_gpus 5",
    "memory_mib": "--estimated_memory 6000",
    "shareable": "--disable_gpu_sharing",
    "priority": "--priority 5",
    "held": "--hold",
    "hours_estimate": "--est_nhours 2.5",
    "retries": "--retries 2",
    "keep_library": "--keep_library",
    "no_tracking": "--no_tracking",
    "storage": "--storage /storage",
    "storage_size": "--default_pvc_size 10Gi",
    "registry_secret": "--registry_secret lab",
    "folders": "--folder key=value",
    "volumes": "--volume data:/data",
    "process_per_gpu": "--processes_per_node gpu",
    "exported": "--export HOME",
    "secrets": "--secret HOME",
    "time_limit_seconds": "--time_limit 2h",
    "parallel": "--parallel 2",
    "metric": "--metric val_loss",
    "maximize": "--mode max",
    "debug_wait": "--debug_wait 3000",
    "prune": "--prune asha",
    "prune_after": "--prune_after 3",
    "after": "--after prepare:finished",
}

NO_PROGRAM = "the simulator starts no program"
NO_SWEEP = "no job of a trace is compared with others"
NO_FLAG = {
    "name": "the positional argument JOB_NAME",
    "user": "the token says who submits",
    "command": "the words after `--`",
    "args": "the words after `--`, with --script_path",
    "directory": "the folder in which run-scheduler is called",
    "code": "--code, when the package has been uploaded",
    "workflow": "it is set for the first job of a workflow",
    "step": "scheduler-run-workflow, which compiles it",
}
NOT_SHOWN = {"workflow": "no person reads it; GetJob has it for programs"}
EXEMPT: dict[str, dict[str, str]] = {
    "stored": dict.fromkeys(("name", "user"), "stored since the first version"),
    **dict.fromkeys(("record", "schema", "details"), NOT_SHOWN),
    "flag": NO_FLAG,
    "documentation": NO_FLAG,
    "admission": {
        "user": "known by its token",
        "gpus_min": "checked by admission.gpu_range when the message is read",
        "gpus_max": "checked by admission.gpu_range when the message is read",
        "memory_mib": "checked by admission.estimated_memory when the message is read",
        "hours_estimate": "checked by admission.estimated_hours when the message is read",
        "shareable": "true and false are both possible",
        "held": "true and false are both possible",
        "keep_library": "true and false are both possible",
        "no_tracking": "true and false are both possible",
        "process_per_gpu": "true and false are both possible",
        "maximize": "true and false are both possible",
    },
    "trace": {
        **dict.fromkeys(("image", "command", "args", "script_path", "custom_dir"), NO_PROGRAM),
        **dict.fromkeys(("snapshots_dir", "env", "ports", "keep_library"), NO_PROGRAM),
        **dict.fromkeys(("process_per_gpu", "directory", "exported", "secrets"), NO_PROGRAM),
        **dict.fromkeys(("no_tracking", "code", "folders", "volumes"), NO_PROGRAM),
        "debug_wait": NO_PROGRAM,
        **dict.fromkeys(("storage", "storage_size", "registry_secret"), NO_PROGRAM),
        "experiment": "a heading for people",
        "labels": "a heading for people",
        **dict.fromkeys(("parallel", "metric", "maximize", "prune", "prune_after"), NO_SWEEP),
        "step": NO_PROGRAM,
        "after": "jobs of a trace come at their times, whatever became of others",
        "workflow": "jobs of a trace belong to no workflow",
        "held": "there is nobody to release it",
        "time_limit_seconds": "jobs of a trace have as long as they need",
        "retries": "jobs of a trace do not fail by themselves",
    },
}


# --- the places: each check returns what is missing, or nothing ----------------------------------


def _message(field: str) -> str | None:
    """proto/scheduler/v1/scheduler.proto"""
    if ON_THE_WIRE.get(field, field) not in pb.JobSpec.DESCRIPTOR.fields_by_name:
        return "message JobSpec has no such field; add it, and run `make proto`"
    return None


def _wire(field: str) -> str | None:
    """scheduler/api/wire.py"""
    asked = _change(field)
    if getattr(wire.spec(wire.spec_message(asked), asked.user), field) != getattr(asked, field):
        return "it does not survive spec_message and spec"
    if getattr(wire.spec(pb.JobSpec(name="demo"), "ada"), field) != getattr(
        JobSpec("demo", "ada"), field
    ):
        return "a message without it is not read as the default of JobSpec"
    return None


def _stored(field: str) -> str | None:
    """scheduler/core/model.py"""
    if JobSpec.__dataclass_fields__[field].default is MISSING:
        return "it has no default, so that specifications stored before it cannot be read"
    return None


def _record(field: str) -> str | None:
    """scheduler/presentation/records.py"""
    key = ON_THE_WIRE.get(field, field)
    before, after = (records.job(_job_message(spec)) for spec in (BASE, _change(field)))
    if before.get(key) == after.get(key) and before["spec"].get(key) == after["spec"].get(key):
        return f"neither `job` nor `spec_of` has it as {key!r}"
    return None


def _schema(field: str) -> str | None:
    """docs/schema/state.json"""
    key = ON_THE_WIRE.get(field, field)
    described = (SCHEMA[name] for name in ("job", "spec"))
    if not any(key in each["properties"] and key in each["required"] for each in described):
        return f"neither `job` nor `spec` has {key!r} among its properties and in `required`"
    return None


def _details(field: str) -> str | None:
    """scheduler/presentation/views.py"""
    before, after = (
        views.record(pb.GetJobReply(job=_job_message(spec)), 9.0, Screen(), extended=True)
        for spec in (BASE, _change(field))
    )
    return None if before != after else "`scheduler-state --extended JOB` does not show it"


def _flag(field: str) -> str | None:
    """cli/run.py"""
    if field not in ARGUMENTS:
        return "no flag sets it; if one does, add it to ARGUMENTS of this test"
    added = ARGUMENTS[field].split()
    before, after = _submit([]), _submit(added)
    if field == "script_path":  # with it, the words after `--` are its arguments
        after = replace(after, command=after.args, args=())
    changed = [name for name in FIELDS if getattr(before, name) != getattr(after, name)]
    return None if changed == [field] else f"{ARGUMENTS[field]} sets {changed or 'nothing'}"


def _documentation(field: str) -> str | None:
    """docs/commands.md"""
    if field not in ARGUMENTS:
        return "it has no flag that could be told of"
    flag = ARGUMENTS[field].split()[0]
    text = (ROOT / "docs" / "commands.md").read_text()
    section = re.findall(r"^## run-scheduler\n(.*?)^## ", text, re.S | re.M)[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| `--"))
    if not re.search(rf"`[^`]*{flag}\b[^`]*`", table):
        return f"the table of flags does not tell of {flag}"
    return None


def _admission(field: str) -> str | None:
    """scheduler/core/admission.py"""
    for value in _impossible(getattr(BASE, field)):
        try:
            admission.check(replace(BASE, **{field: value}))
        except Rejected:
            continue
        return f"`check` takes {str(value)[:20]!r}"
    return None


def _trace(field: str) -> str | None:
    """simulator/traces/own_format.py"""
    asked = _change(field)
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.csv")
        own_format.write(path, [TraceJob(0.0, asked, SerialTruth(1000, 1.0, 60.0, 0.0))])
        (job,) = own_format.read(path)
    return None if getattr(job.spec, field) == getattr(asked, field) else "it is not written there"


PLACES: dict[str, Callable[[str], str | None]] = {
    "proto": _message,
    "wire": _wire,
    "stored": _stored,
    "record": _record,
    "schema": _schema,
    "details": _details,
    "flag": _flag,
    "documentation": _documentation,
    "admission": _admission,
    "trace": _trace,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_a_job_reaches_every_place(field: str, place: str) -> None:
    missing = PLACES[place](field)
    if reason := EXEMPT.get(place, {}).get(field):
        assert missing, f"JobSpec.{field} is in {place}: remove it from EXEMPT ({reason})"
    elif missing:
        pytest.fail(f"JobSpec.{field}, {PLACES[place].__doc__}: {missing}", pytrace=False)


# --- examples -----------------------------------------------------------------------------------


def _change(field: str) -> JobSpec:
    return replace(BASE, **{field: _another(getattr(BASE, field), field)})


def _another(value: Any, field: str) -> Any:  # a value of the type that the field has
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 2.5
        case str():
            return "/other"
        case bytes():
            return b"other"
    hint = JobSpec.__annotations__[field]
    if "After" in hint:
        return (After(JobId("job-2"), When.FAILED),)
    if hint == "tuple[str, ...]":
        return ("other",)
    return ((31_346, 6006),) if "int" in hint else (("key", "value"),)


def _impossible(value: Any) -> list[Any]:
    match value:
        case bool():
            return [value, not value]
        case int() | float():
            return [-(2**40), 2**40]
        case str():
            return ["two\nlines"]
        case bytes():
            return [bytes(admission.WORKFLOW_BYTES_MAX + 1)]
    return [(("word", "word"),) * (admission.WORDS_MAX + 1)]


def _job_message(spec: JobSpec) -> pb.Job:
    job = Job.submitted(JobId("job-1"), spec, 1.0)
    return wire.job_message(job, status(job, View(), None, 0.0))


def _submit(added: list[str]) -> JobSpec:
    words = ["demo", "--min_gpus", "1", "--max_gpus", "4", *added, "--", "ls"]
    return wire.spec(run.spec(run.parser().read(words)), "ada")
