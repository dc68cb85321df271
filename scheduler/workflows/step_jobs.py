"""A `container` or `script` template becomes what a job runs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.workflows import step_data, step_volumes
from scheduler.workflows.document import Located
from scheduler.workflows.scope import Later
from scheduler.workflows.step_data import items

GPUS = "nvidia.com/gpu"
# Annotations of a template.
SHARING, MEMORY, EPOCHS = (f"gpu-scheduler/{name}" for name in ("sharing", "memory", "max_epochs"))
NOT_USED = ("cpu", "memory", "ephemeral-storage")
CONTAINER = (
    *("name", "image", "command", "args", "env", "ports", "resources", "imagePullPolicy"),
    *("workingDir", "volumeMounts"),
)
_RUNS_TEXT = re.compile(r"(python|pypy)[0-9.]*|(ba|da|k|z)?sh")  # with -c
_MEMORY = re.compile(r"([0-9]{1,7})(Mi|Gi|)")

Warn = Callable[[Located, str], None]


@dataclass(frozen=True, slots=True)
class StepJob:
    """One job of a workflow."""

    name: str
    template: str
    image: str = ""
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    gpus: int = 0
    memory_mib: int = 0  # on each GPU; 0: not given
    shareable: bool = False
    retries: int = 0
    max_epochs: int = 0  # 0: not given
    time_limit_seconds: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()
    volumes: tuple[str, ...] = ()  # as `--volume` has them
    after: tuple[tuple[str, str], ...] = ()  # the name of a step, and how it ends
    # What it takes from other steps and gives to them, as the wrapper reads it; empty: nothing.
    data: Mapping[str, Any] = field(default_factory=dict)


def step_job(
    name: str,
    template: Located,
    after: tuple[tuple[str, str], ...],
    volumes: Mapping[str, Located],
    warn: Warn,
) -> StepJob:
    """`template`: with all names replaced. `volumes`: of the workflow."""
    fields = template.mapping()
    body = fields["container"] if "container" in fields else fields["script"]
    source = "source" if "script" in fields else ""
    has = body.fields(*CONTAINER, "retryStrategy", *filter(None, [source]))
    if "retryStrategy" in has:
        place = f"{template.path}.retryStrategy"
        warn(has["retryStrategy"], f"belongs to the template, as {place}; it is used all the same")
    if "command" not in has:
        raise body.error("command is missing; that of the image is not known")
    command = tuple(word.text() for word in has["command"].items())
    if source:
        command = _script(command, has, body)
    elif "args" in has:
        command += tuple(word.text() for word in has["args"].items())
    if not command:
        raise has["command"].error("names no program")
    gpus = _gpus(has.get("resources"), warn)
    labels, memory_mib, shares, max_epochs = _metadata(fields.get("metadata"))
    retry = fields.get("retryStrategy", has.get("retryStrategy"))
    for port in has["ports"].items() if "ports" in has else ():
        known = port.fields("name", "containerPort", "hostPort", "protocol")
        if "hostPort" in known:
            warn(known["hostPort"], "is not used: ports of steps are not mapped")
    limit = fields.get("activeDeadlineSeconds")
    return StepJob(
        name=name,
        template=fields["name"].text(),
        image=has["image"].text() if "image" in has else "",
        command=command,
        env=tuple(_env(has["env"])) if "env" in has else (),
        gpus=gpus,
        memory_mib=memory_mib if gpus else 0,
        shareable=shares and memory_mib > 0,
        retries=_retries(retry, warn) if retry else 0,
        max_epochs=max_epochs,
        time_limit_seconds=float(limit.whole(1)) if limit else 0.0,
        labels=labels,
        volumes=step_volumes.mounted(items(has, "volumeMounts"), volumes, warn),
        after=after,
        data={"directory": has["workingDir"].text()} if "workingDir" in has else {},
    )


def _script(command: tuple[str, ...], has: object, body: Located) -> tuple[str, ...]:
    fields = body.mapping()
    if "source" not in fields:
        raise body.error("source is missing")
    program = command[0].rpartition("/")[2] if command else ""
    if not _RUNS_TEXT.fullmatch(program):
        raise fields["command"].error(f"{program!r}: a script must be of python or a shell")
    return (*command, "-c", fields["source"].text())


def _env(entry: Located) -> Iterator[tuple[str, str]]:
    for each in entry.items():
        has = each.fields("name", "value")
        if "name" not in has:
            raise each.error("name is missing")
        yield has["name"].text(), has["value"].text() if "value" in has else ""


def _gpus(resources: Located | None, warn: Warn) -> int:
    gpus = 0
    for kind in resources.fields("limits", "requests").values() if resources else ():
        for name, amount in kind.mapping().items():
            if name == GPUS:
                gpus = max(gpus, amount.whole())
            elif name in NOT_USED:
                warn(amount, "is not used: jobs are given GPUs only")
            else:
                raise amount.error(f"only {GPUS} can be given")
    return gpus


def _metadata(entry: Located | None) -> tuple[tuple[tuple[str, str], ...], int, bool, int]:
    has = entry.fields("labels", "annotations") if entry else {}
    labels = has["labels"].mapping() if "labels" in has else {}
    notes = has["annotations"].mapping() if "annotations" in has else {}
    memory_mib = 0
    if MEMORY in notes:
        match = _MEMORY.fullmatch(notes[MEMORY].text())
        if match is None:
            raise notes[MEMORY].error("must be a size like 6000Mi or 6Gi, for each GPU")
        memory_mib = int(match[1]) * (1024 if match[2] == "Gi" else 1)
    shares = SHARING in notes and notes[SHARING].flag()
    if shares and not memory_mib:
        raise notes[SHARING].error(f"needs {MEMORY} beside it: how much of each GPU")
    epochs = notes[EPOCHS].whole(1) if EPOCHS in notes else 0
    told = tuple((name, value.text()) for name, value in labels.items())
    return told, memory_mib, shares, epochs


def _retries(entry: Located, warn: Warn) -> int:
    has = entry.fields("limit", "retryPolicy", "backoff")
    if "backoff" in has:
        warn(has["backoff"], "is not used: the scheduler has its own pauses")
    policy = has["retryPolicy"].text() if "retryPolicy" in has else "OnFailure"
    if policy not in ("Always", "OnFailure"):
        raise has["retryPolicy"].error(f"{policy!r}: must be Always or OnFailure")
    if "limit" not in has:
        warn(entry, "has no limit: it is retried once")
        return 1
    return has["limit"].whole()


def with_data(
    job: StepJob,
    template: Located,
    brought: Sequence[Mapping[str, Any]],
    whens: Sequence[str],
    later: Later,
) -> StepJob:
    data: dict[str, Any] = dict(job.data)
    if whens:
        data["when"] = list(whens)
    if brought:
        data["inputs"] = list(brought)
    if "memoize" in template.mapping():
        data["memoize"] = {
            **step_data.memoized(template.mapping()["memoize"]),
            "image": job.image,
            "env": [name for name, _ in job.env],
        }
    if kept := step_data.stored(template):
        data["outputs"] = kept
    texts = (json.dumps(data, ensure_ascii=False), *job.command, *(word for _, word in job.env))
    if values := later.used(texts):
        data["values"] = values
    return replace(job, data=data) if data else job
