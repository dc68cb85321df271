"""The keys of a context and of a project file, and what each may hold.

A context has keys of its own, and each flag of run-scheduler that describes a job: a new flag is
a new key. A project file comes with a repository, which somebody else may have written: it has
only keys that choose neither where a job goes, nor what of the user's it gets or starts.
"""

from __future__ import annotations

import argparse
import re
from functools import cache
from typing import NamedTuple

from cli import run_flags
from cli.client import address
from cli.command import UsageError, duration, key_value, memory_mib, parse_bool
from cli.contexts.registry import registry

TYPES = ("server", "slurm", "local")
TYPE_NAMES = {"kubernetes": "server"}  # whether its jobs are pods is the scheduler's business
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
IGNORED = {"neptune": "the scheduler itself keeps what jobs log"}
TEXT, LIST, MAPPING, BOOL = "a text", "a list", "a mapping", "true or false"

_NOT_KEYS = ("wait", "dry_run", "local", "help")  # flags that say how to submit, not what
_OF_PROJECTS = (
    *("image", "max_epochs", "batch_size", "training_set_size", "num_gpus", "min_gpus", "max_gpus"),
    *("estimated_memory", "processes_per_node", "is_single_gpu", "disable_gpu_sharing"),
    *("time_limit", "est_nhours", "retries", "project", "experiment", "label"),
)
# Of flags that exclude each other, those that are given (or set in the stronger file) count.
RIVALS = ({"num_gpus"}, {"min_gpus", "max_gpus"})


class ContextKey(NamedTuple):
    name: str
    kind: str
    help: str
    action: argparse.Action | None = None  # the flag of run-scheduler


_OWN = (
    ("type", TEXT, "server (the default), slurm or local: what the commands talk to"),
    ("server", TEXT, "HOST:PORT of the scheduler"),
    ("ca", TEXT, "file (PEM) with the authority that signed the scheduler's certificate"),
    ("token_file", TEXT, "file with your token for this scheduler; only you may read it"),
    ("registry_url", TEXT, "registry of images that name none, such as https://jfrog.com"),
    ("resources", TEXT, 'what a job gets, such as "gpu=2 time=4h"'),
    (
        "pilot",
        TEXT,
        'on Slurm, allocations in which jobs share GPUs, such as "gpus=4 time=8h"',
    ),
    ("tags", LIST, "labels NAME=true of its jobs"),
    ("namespace", TEXT, argparse.SUPPRESS),  # refused, with what to set instead
    ("slurm", MAPPING, "settings of a context of type slurm: host, partition, account and more"),
)


@cache
def of_contexts() -> dict[str, ContextKey]:
    described = argparse.ArgumentParser()
    for add in (run_flags.add_what, run_flags.add_gpus, run_flags.add_order):
        add(described.add_argument_group())
    own = {name: ContextKey(name, kind, about) for name, kind, about in _OWN}
    flags = {
        action.dest: ContextKey(action.dest, _kind(action), action.help or "", action)
        for action in described._actions
        if action.dest not in _NOT_KEYS and action.help is not argparse.SUPPRESS
    }
    return {**own, **flags}


@cache
def of_projects() -> dict[str, ContextKey]:
    return {name: key for name, key in of_contexts().items() if name in _OF_PROJECTS}


def _kind(action: argparse.Action) -> str:
    if isinstance(action, argparse._AppendAction):
        return MAPPING if action.type is key_value else LIST
    return BOOL if action.nargs == 0 or action.type is parse_bool else TEXT


def check(key: ContextKey, value: object) -> None:
    """`value`: a str, a list of str, or a dict of str. Raises ValueError, in words that begin with
    a verb or the value."""
    for text in _texts(value):
        if not text.isprintable():
            raise ValueError(f"{text!a} contains what cannot be printed")
        if key.action is None:
            _check_own(key.name, text)
        elif key.kind in (BOOL, LIST, TEXT) and key.action.nargs != 0:
            flag_value(key.action, text)
        elif key.kind == BOOL and text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else [str(value)]


def flag_value(action: argparse.Action, text: str) -> object:
    """As the parser converts it. Raises ValueError."""
    convert = action.type
    try:
        value = convert(text) if callable(convert) else text
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from None
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is not what {action.option_strings[0]} takes") from None
    if action.choices is not None and value not in action.choices:
        raise ValueError(f"{text!r} is not one of {', '.join(map(str, action.choices))}")
    return value


def _check_own(name: str, text: str) -> None:
    if name == "type" and text not in (*TYPES, *TYPE_NAMES):
        raise ValueError(f"{text!r} is not one of {', '.join(TYPES)}")
    if name == "server":
        try:
            address(text)
        except UsageError:
            raise ValueError(f"{text!r} is not HOST:PORT") from None
    if name == "namespace":
        raise ValueError(
            f"{text!r} cannot be chosen here: an admin gives projects their namespaces; set project"
        )
    if name == "registry_url":
        registry(text)
    if name in ("resources", "pilot"):
        resources(text)


def resources(text: str) -> dict[str, str]:
    """`gpu=2 time=4h`: by name. Raises ValueError; what a context of this type cannot give is
    refused when a job is submitted."""
    found = {}
    for part in text.replace(",", " ").split():
        name, equals, value = part.partition("=")
        name = {"memory": "mem", "gpus": "gpu", "cpus": "cpu"}.get(name, name)
        if not (name.isidentifier() and equals and value):
            raise ValueError(f"{part!r} is not NAME=VALUE, such as gpu=2")
        if name in found:
            raise ValueError(f"names {name} twice")
        try:
            number = value.rpartition(":")[2] if name == "gpu" else value  # a100:2, on Slurm
            if name in ("gpu", "cpu") and not number.isdecimal():
                raise ValueError(f"{part!r} is not a whole number of them")
            if name == "mem":
                memory_mib(value)
            if name == "time":
                duration(value)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{name}: {error}") from None
        found[name] = value
    return found
