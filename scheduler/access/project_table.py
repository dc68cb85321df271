"""The table `projects` of the settings: projects whose pods are in a namespace of their own, and
who may submit jobs of them. For the embedded cluster, a project is a label and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.access.user_table import NAMESPACE
from scheduler.core.errors import ConfigError


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespace: str = ""  # empty: made from the project's name
    users: tuple[str, ...] = ()  # who may submit its jobs; empty: all


def namespace(project: str) -> str:
    """`My_Project.X` is `my-project-x`; empty if nothing of the name is left."""
    return re.sub(r"[^a-z0-9]+", "-", project.lower())[:63].strip("-")


def projects(given: Mapping[str, Any]) -> dict[str, Project]:
    """Converts the table as TOML has it. Raises ConfigError, which names the key."""
    found = {name: _project(name, values) for name, values in given.items()}
    known: dict[str, str] = {}
    for name, project in found.items():
        other = known.setdefault(project.namespace, name)
        if other != name:
            raise ConfigError(
                f"projects: {other} and {name} would share the namespace {project.namespace}:"
                " give one of them another"
            )
    return found


def _project(name: str, values: Any) -> Project:
    try:
        project = msgspec.convert(values, Project)
    except msgspec.ValidationError as error:
        words, _, path = str(error).replace("`", "").partition(" - at $")
        raise ConfigError(f"projects.{name}{path}: {words[:1].lower()}{words[1:]}") from error
    project = msgspec.structs.replace(project, namespace=project.namespace or namespace(name))
    if not NAMESPACE.fullmatch(project.namespace):
        raise ConfigError(
            f"projects.{name}.namespace: {project.namespace!r} is not a valid namespace name"
        )
    return project
