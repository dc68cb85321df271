"""How jobs are submitted to a Slurm cluster: the settings of a context, and `resources`. Pure."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass, fields
from typing import Any

from cli.command import CommandError, UsageError, duration, memory_mib
from cli.contexts.context_file import Context, guess

REFUSED = 4  # the exit code
GPU_FLAGS = ("gres", "gpus")
IDLE_SECONDS = 300.0  # of a pilot


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    host: str = ""  # where Slurm's commands are, for ssh; "": here
    partition: str = ""
    account: str = ""
    qos: str = ""
    name: str = ""  # of the context
    resources: str = ""  # e.g. "cpu=4 mem=16G gpu=2 time=4h", for each job
    pilot: str = ""  # e.g. "gpus=4 time=8h": jobs run in allocations of this size
    python: str = "python3"  # on the cluster, with this project: for pilots
    folder: str = ""  # of the jobs' files, which all nodes see; "": ~/.epoch-scheduler
    setup: str = ""  # lines of shell before the command, e.g. "module load cuda"
    gpu_flag: str = "gres"  # how GPUs are asked for: --gres=gpu:N, or --gpus=N
    warning_seconds: int = 120  # before its time ends, a run is asked to stop
    flags: str = ""  # more flags of sbatch, e.g. "--constraint=a100 --exclude=n7"

    def __post_init__(self) -> None:
        if self.gpu_flag not in GPU_FLAGS:
            raise refused(f"gpu_flag {self.gpu_flag!r} is neither gres nor gpus")
        if self.host.startswith("-") or not re.fullmatch(r"[^\s\x00-\x1f]*", self.host):
            raise refused(f"host {self.host!r} is not the name of a machine")
        if not 30 <= self.warning_seconds <= 65_535:
            raise refused(f"warning_seconds {self.warning_seconds} must be 30 to 65535")
        if self.pilot:
            read_pilot(self.pilot)
        if self.pilot and self.resources:
            raise refused("resources are of jobs outside of pilots: put cpu, mem and time in pilot")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job gets besides what its own flags say; 0 and "": what the cluster gives."""

    cpus: int = 0  # of each node
    memory_mib: int = 0  # of each node
    gpus: int | None = None
    gpu_type: str = ""
    gpus_per_node: int = 0
    seconds: float = 0.0  # of each run


@dataclass(frozen=True, slots=True)
class PilotSize:
    asked: Resources  # of its node
    idle_seconds: float  # it ends when no job has wanted a GPU for so long


def settings(context: Context) -> SlurmSettings:
    """Of a context of this type. Raises CommandError."""
    found = context.keys.get("slurm")
    given: dict[str, Any] = dict(found.value) if found and isinstance(found.value, dict) else {}
    own = ("name", "resources", "pilot")
    known = [field.name for field in fields(SlurmSettings) if field.name not in own]
    for name in given:
        if name not in known:
            where = context.where("slurm")
            raise UsageError(f"{where}: no setting {name!r}{guess(name, known)}")
    if "warning_seconds" in given:
        given["warning_seconds"] = _count(given["warning_seconds"])
    given |= {name: context.text(name) for name in ("resources", "pilot")}
    return SlurmSettings(name=context.name, **given)


def read_resources(text: str) -> Resources:
    found: dict[str, int | str | float] = {}
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        try:
            found |= _read(key, value)
        except (argparse.ArgumentTypeError, ValueError) as error:
            why = str(error) if isinstance(error, argparse.ArgumentTypeError) else "it has no value"
            raise refused(f"resource {word}: {why}") from None
    return Resources(**found)  # type: ignore[arg-type]  # by their names


def read_pilot(text: str) -> PilotSize:
    """`gpus=4 time=8h`. Raises CommandError."""
    words, idle = [], IDLE_SECONDS
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        if key == "nodes" and value != "1":
            raise refused(f"pilot: {word}: a pilot has one node: leave it out")
        if key == "idle":
            try:
                idle = duration(value)
            except argparse.ArgumentTypeError as error:
                raise refused(f"pilot: {word}: {error}") from None
        elif key != "nodes":
            words.append(word)
    asked = read_resources(" ".join(words))
    if not asked.gpus:
        raise refused(f"pilot {text!r} has no GPUs: give gpus=4, or the context's resources")
    if asked.gpus_per_node:
        raise refused("pilot: gpus_per_node: a pilot has one node: give gpus")
    return PilotSize(asked, idle)


def _read(key: str, value: str) -> dict[str, int | str | float]:
    match key:
        case "cpu" | "cpus":
            return {"cpus": _count(value)}
        case "mem" | "memory":
            return {"memory_mib": memory_mib(value)}
        case "gpu" | "gpus":
            kind, _, count = value.rpartition(":")
            if kind and not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
                raise argparse.ArgumentTypeError(f"{kind!r} is not a type of GPUs")
            return {"gpu_type": kind, "gpus": _count(count, least=0)}
        case "gpus_per_node":
            return {"gpus_per_node": _count(value)}
        case "time":
            return {"seconds": duration(value)}
    raise refused(
        f"unsupported resource {key}; supported: cpu, mem, gpu, gpus_per_node and time,"
        " as in cpu=4 mem=16G gpu=a100:2 time=4h"
    )


def _count(text: str, least: int = 1) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def minutes(seconds: float) -> int:
    """As Slurm counts time limits."""
    return max(1, math.ceil(seconds / 60))


def refused(what: str) -> CommandError:
    return CommandError(f"slurm: {what}", REFUSED)
