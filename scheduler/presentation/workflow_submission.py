"""What is sent to the scheduler for a workflow: its jobs in one request, and its document. Pure.

No process holds a workflow. What is left of it are its jobs, which these labels bring together, and
the document that the first of them carries (ADR 56).
"""

from __future__ import annotations

import hashlib
import json
import random
import string
import uuid
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from scheduler.presentation.workflow_tree import STEP, WORKFLOW, WORKFLOW_ID
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.workflows.compiler import CompiledWorkflow
from scheduler.workflows.step_jobs import StepJob

PACKED_BYTES_MAX = 32 * 1024  # as the scheduler takes it
UNPACKED_BYTES_MAX = 4 * 2**20


def derived_id(*words: str) -> str:
    """A UUID4 by its form. The same words give the same id, so a request that is sent again makes
    no second job."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def name_suffix() -> str:
    """Of a name that is to be generated."""
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


def submission(
    made: CompiledWorkflow,
    workflow_id: str,
    document: Mapping[str, Any],
    project: str = "",
    labels: Mapping[str, str] | None = None,
    code: str = "",
) -> pb.SubmitManyRequest:
    """`labels`: of the workflow as a whole. `code`: the id of the package of all steps."""
    packed = pack(document)
    ids = job_ids(made.steps, workflow_id)
    every = {WORKFLOW: made.name, WORKFLOW_ID: workflow_id}
    jobs = [
        pb.SubmitRequest(
            job_id=ids[step.name],
            spec=pb.JobSpec(
                name=step.name,
                image=step.image,
                command=step.command,
                env=_pairs(dict(step.env)),
                labels=_pairs({**(labels or {}), **dict(step.labels), **every, STEP: step.name}),
                gpus_min=step.gpus,
                gpus_max=step.gpus,
                memory_mib=step.memory_mib or None,
                disable_gpu_sharing=step.gpus > 0 and not step.shareable,
                retries=step.retries,
                max_epochs=step.max_epochs or None,
                volumes=step.volumes,
                parallel=made.parallel,
                time_limit_seconds=step.time_limit_seconds or None,
                after=[pb.After(job=ids[name], when=when) for name, when in step.after],
                step=_told(step, workflow_id, code),
                workflow=packed if ids[step.name] == workflow_id else b"",
            ),
        )
        for step in made.steps
    ]
    return pb.SubmitManyRequest(jobs=jobs, common=pb.JobSpec(project=project, code=code))


def document(text: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """As JSON, of YAML that compiles; with the values that were given to its parameters."""
    found: dict[str, Any] = yaml.load(text, Loader=_Loader)
    arguments = (found.get("spec") or {}).get("arguments") or {}
    for each in arguments.get("parameters") or ():
        if each.get("name") in parameters:
            each["value"] = parameters[each["name"]]
    return found


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Dates stay texts, as JSON has them. What is read is known not to be nested too deeply."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in these if not tag.endswith(":timestamp")]
    for first, these in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def job_ids(steps: Iterable[StepJob], workflow_id: str) -> dict[str, str]:
    """By step. The first job is the workflow's."""
    names = [step.name for step in steps]
    return {
        name: derived_id(workflow_id, name) if name != names[0] else workflow_id for name in names
    }


def pack(document: Mapping[str, Any]) -> bytes:
    """Empty: it is too long."""
    packed = zlib.compress(msgspec.json.encode(document), 9)
    return packed if len(packed) <= PACKED_BYTES_MAX else b""


def unpacked(packed: bytes) -> dict[str, Any]:
    """Empty: there is none, or it cannot be read."""
    try:
        content = zlib.decompressobj().decompress(packed, UNPACKED_BYTES_MAX)
        found = msgspec.json.decode(content)
    except (zlib.error, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _pairs(values: Mapping[str, str]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in values.items()]


def _told(step: StepJob, workflow_id: str, code: str) -> str:
    """What the wrapper of the step has to do. The data of a workflow are kept under its id."""
    if not step.data:
        return ""
    data = dict(step.data)
    if "memoize" in data:
        data["memoize"] = {**data["memoize"], "code": code}
    return json.dumps({"workflow": workflow_id, "step": step.name, **data})
