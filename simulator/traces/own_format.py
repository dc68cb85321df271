"""Our own format of traces, a CSV file that can be written by hand.

Each row is a job; a header names the columns, in any order. Required are

    submit_at         seconds since the trace began
    name
    gpus_min          the fewest GPUs that it can start with
    gpus_max          the most GPUs that it can use
    memory_mib        the memory that it takes on each GPU
    epochs
    epoch_seconds     of one epoch on one GPU, alone

These may be left out or empty (default in parentheses):

    user              the owner ("trace")
    project           jobs of one project are alike; speeds are learned from one another ("")
    batch_size        (1)
    training_set_size samples in an epoch (1)
    estimate_mib      the owner's estimate of its memory; 0: none (memory_mib, rounded up to 512)
    gpu_util          from 0 to 1, alone: two jobs slow each other by 1 / (1 + 0.38 u u') (1)
    scaling           the part s of an epoch that a second GPU does not shorten, from 0 to 1: on n
                      GPUs it takes epoch_seconds * (s + (1 - s) / n), on any type and nodes (0)
    priority          (1)
    shareable         1, or 0: it does not share its GPUs (1)
    hours_estimate    the owner's estimate; 0: none (0)
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from scheduler.core.admission import PRIORITIES
from scheduler.core.model import JobSpec
from simulator.traces.assumptions import estimate_mib
from simulator.traces.behaviour import SerialTruth, TraceJob
from simulator.traces.text_rows import GPUS_MAX, SECONDS_MAX, Row, with_header

NEEDED = "submit_at", "name", "gpus_min", "gpus_max", "memory_mib", "epochs", "epoch_seconds"
DEFAULTS = {
    "user": "trace",
    "project": "",
    "batch_size": "1",
    "training_set_size": "1",
    "estimate_mib": "",
    "gpu_util": "1",
    "scaling": "0",
    "priority": "1",
    "shareable": "1",
    "hours_estimate": "0",
}


def read(path: Path) -> list[TraceJob]:
    return [_job(row) for row in with_header(path, NEEDED, DEFAULTS)]


def _job(row: Row) -> TraceJob:
    memory, gpus_min = row.whole("memory_mib", 1), row.whole("gpus_min", 1, GPUS_MAX)
    estimated = row.values["estimate_mib"].strip()
    spec = JobSpec(
        name=row.text("name"),
        user=row.text("user"),
        project=row.values["project"],
        max_epochs=row.whole("epochs", 1),
        batch_size=row.whole("batch_size", 1),
        training_set_size=row.whole("training_set_size", 1),
        gpus_min=gpus_min,
        gpus_max=row.whole("gpus_max", gpus_min, GPUS_MAX),
        memory_mib=row.whole("estimate_mib") if estimated else estimate_mib(memory),
        shareable=row.flag("shareable"),
        priority=row.whole("priority", *PRIORITIES),
        hours_estimate=row.number("hours_estimate"),
    )
    truth = SerialTruth(
        memory_mib=memory,
        gpu_util=row.number("gpu_util", 0.0, 1.0),
        seconds=row.positive("epoch_seconds", SECONDS_MAX),
        serial=row.number("scaling", 0.0, 1.0),
    )
    return TraceJob(row.number("submit_at"), spec, truth)


def write(path: Path, jobs: Iterable[TraceJob]) -> None:
    """Writes jobs so that `read` returns the same ones. ValueError: no column can express it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*NEEDED, *DEFAULTS])
        writer.writerows(_values(job) for job in jobs)


def _values(job: TraceJob) -> list[str | int | float]:
    spec, truth = job.spec, job.truth
    if not isinstance(truth, SerialTruth):
        raise ValueError(f"{spec.name}: its scaling is a measured table, not one number")
    return [
        job.submit_at,
        spec.name,
        spec.gpus_min,
        spec.gpus_max,
        truth.memory_mib,
        spec.max_epochs,
        truth.seconds,
        spec.user,
        spec.project,
        spec.batch_size,
        spec.training_set_size,
        spec.memory_mib,
        truth.gpu_util,
        truth.serial,
        spec.priority,
        int(spec.shareable),
        spec.hours_estimate,
    ]
