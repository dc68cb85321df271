"""What happened, in sentences, derived only from the facts that the daemon recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from scheduler.v1 import scheduler_pb2

Facts = Sequence[scheduler_pb2.Fact]


def story(jobs: Mapping[str, scheduler_pb2.Job], facts: Mapping[str, Facts]) -> Iterator[str]:
    spans = {name: list(_spans(told)) for name, told in facts.items()}
    for one, other in combinations(jobs, 2):
        for gpu in sorted({a[2] for a in spans[one] for b in spans[other] if _together(a, b)}):
            yield f"{one} and {other} shared {gpu}"
    for name, job in jobs.items():
        if job.spec.disable_gpu_sharing:
            neighbours = [o for o in jobs if o != name and _shared_gpu(spans[name], spans[o])]
            yield f"{name} shared with {' and '.join(neighbours) or 'no other job, as requested'}"
    for name, told in facts.items():
        yield from _stops(name, told)
    for name, job in jobs.items():
        yield f"{name} {job.state.lower()}: {job.epochs_done} of {job.max_epochs} epochs"


def _stops(name: str, told: Facts) -> Iterator[str]:
    stopped: int | None = None
    for fact in told:
        data = json.loads(fact.data_json)
        if fact.kind == "run_ended" and "preempted for" in data["reason"]:
            stopped, why = data["epochs_done"], re.findall("preempted (for [^,]+)", data["reason"])
        elif fact.kind == "run_started" and stopped is not None:
            lost = stopped - data["epochs_done"]
            what = "nothing lost" if lost == 0 else f"{lost} epochs lost"
            yield (
                f"{name} stopped {why[0]} after epoch {stopped},"
                f" resumed at epoch {data['epochs_done'] + 1}, {what}"
            )
            stopped = None


def _spans(told: Facts) -> Iterator[tuple[float, float, str]]:
    """Start, end and GPU of each period in which the job was on a GPU."""
    started: tuple[float, list[str]] | None = None
    for fact in told:
        if fact.kind == "run_started":
            started = fact.at, re.findall(r"gpu\d+", json.loads(fact.data_json)["gpus"])
        elif fact.kind == "run_ended" and started:
            for gpu in started[1]:
                yield started[0], fact.at, gpu


def _together(a: tuple[float, float, str], b: tuple[float, float, str]) -> bool:
    return a[2] == b[2] and a[0] < b[1] and b[0] < a[1]


def _shared_gpu(
    some: Sequence[tuple[float, float, str]], others: Sequence[tuple[float, float, str]]
) -> bool:
    return any(_together(a, b) for a in some for b in others)
