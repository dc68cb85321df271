"""Workflows as Argo's clients send them: read with the place of each value, without what clients
add of their own, and compiled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from scheduler.gateway.problems import Problem
from scheduler.workflows.compiler import CompiledWorkflow, compile_workflow
from scheduler.workflows.document import Located, WorkflowError
from scheduler.workflows.json_document import read_json

_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
_OF_SERVERS = ("creationTimestamp", "uid", "resourceVersion", "generation", "managedFields")
# Clients in Go send these even if nothing is in them.
_EMPTY = ("arguments", "inputs", "metadata", "outputs", "resources", "strategy", "name")


@dataclass(frozen=True, slots=True)
class Manifest:
    located: Located
    plain: dict[str, Any]  # as JSON, for replies

    @property
    def metadata(self) -> Mapping[str, Any]:
        return mapping(self.plain.get("metadata"))

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.plain.get("spec"))

    @property
    def name(self) -> str:
        """Empty: it is to be generated."""
        return str(self.metadata.get("name") or "")

    @property
    def labels(self) -> dict[str, str]:
        return {key: str(value) for key, value in mapping(self.metadata.get("labels")).items()}

    def compiled(self, name: str) -> CompiledWorkflow:
        """Raises Problem."""
        try:
            return compile_workflow(self.located, name=name)
        except WorkflowError as error:
            raise refused(error) from None


@dataclass(frozen=True, slots=True)
class SentWorkflow:
    manifest: Manifest
    dry_run: bool


def refused(error: WorkflowError) -> Problem:
    return Problem(400, f"line {error.line}, column {error.column}: {error}")


def sent_workflow(body: bytes) -> SentWorkflow:
    """`{"workflow": {...}}` and the options beside it. Raises Problem."""
    try:
        text = body.decode()
        root = read_json(text)
        fields = root.mapping()
        if "workflow" not in fields:
            raise root.error('must be an object with the field "workflow"')
        located = _tidied(fields["workflow"])
        located.mapping()
    except UnicodeDecodeError:
        raise Problem(400, "the body is not UTF-8") from None
    except WorkflowError as error:
        raise refused(error) from None
    options = msgspec.json.decode(body)
    plain = options["workflow"]
    created = mapping(options.get("createOptions"))
    dry_run = bool(options.get("serverDryRun")) or bool(created.get("dryRun"))
    return SentWorkflow(Manifest(located, plain), dry_run)


def manifest_of(plain: dict[str, Any]) -> Manifest:
    """Of a document that was kept."""
    return Manifest(_tidied(read_json(encoded(plain).decode())), plain)


def encoded(plain: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(plain)


@lru_cache(maxsize=64)
def compiled_again(document: bytes, name: str) -> CompiledWorkflow | None:
    """What a document that was kept was compiled to; None: this version does not compile it."""
    try:
        return compile_workflow(_tidied(read_json(document.decode())), name=name)
    except (WorkflowError, UnicodeDecodeError):
        return None


def _tidied(workflow: Located) -> Located:
    """Without what only a server sets, and without empty fields of which Argo's clients send many.
    Paths begin at the workflow, as people know it."""
    if not isinstance(workflow.value, Mapping):
        return workflow
    own = f"{workflow.path}." if workflow.path else ""
    fields = {}
    for name, entry in workflow.value.items():
        if name == "status":
            continue
        if name == "metadata" and isinstance(entry.value, Mapping):
            entry = _with(
                entry,
                {
                    key: value
                    for key, value in entry.value.items()
                    if key not in _OF_SERVERS and (value.value or key in _METADATA)
                },
            )
        fields[name] = _without_empty(entry, own)
    return Located(fields, "", workflow.line, workflow.column)


def _without_empty(entry: Located, prefix: str) -> Located:
    value = entry.value
    if isinstance(value, Mapping):
        value = {
            name: _without_empty(below, prefix)
            for name, below in value.items()
            if below.value or name not in _EMPTY
        }
    elif isinstance(value, tuple):
        value = tuple(_without_empty(each, prefix) for each in value)
    return Located(value, entry.path.removeprefix(prefix), entry.line, entry.column)


def _with(entry: Located, fields: dict[str, Located]) -> Located:
    return Located(fields, entry.path, entry.line, entry.column)


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
