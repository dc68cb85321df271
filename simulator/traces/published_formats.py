"""Reads published traces, one job per row. Where a trace says less about a job than the simulator
needs, `assumptions.py` has the value that is used instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from scheduler.core.admission import INT_MAX
from scheduler.core.model import Gpu, JobSpec
from simulator.traces.adaptive_jobs import AdaptiveTruth, adaptive_times
from simulator.traces.assumptions import (
    ADAPTIVE,
    APPLICATIONS,
    GAVEL_LENGTH_TYPE,
    GAVEL_MEMORY_MIB,
    LAW_SECOND_GPU,
    LAW_TYPES,
    MIB_STEP,
    PHILLY_NODE_GPUS,
    Application,
    epochs_of,
    estimate_mib,
)
from simulator.traces.behaviour import MeasuredTruth, Pairs, SlicedTruth, TraceJob
from simulator.traces.measured_tables import (
    LikeTimes,
    Profiled,
    RateTimes,
    StepTimes,
    gavel_pairs,
    gavel_rates,
    lucid_pairs,
    lucid_profiles,
)
from simulator.traces.text_rows import (
    GPUS_MAX,
    SECONDS_MAX,
    Row,
    TraceError,
    with_header,
    without_header,
)

USER = "trace"  # the owner of jobs in a trace without users

HEADERS = {
    "sia": ("name", "time", "application", "num_replicas", "batch_size"),
    "philly": ("timestamp", "duration", "num_gpus", "cluster"),
    "alibaba": (
        "name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time",
    ),
}  # fmt: skip

_GAVEL = "model", "command", "directory", "steps_argument", "needs_data", "steps", "gpus"
COLUMNS = {
    "gavel": (*_GAVEL, "weight", "objective", "arrival"),
    "shockwave": (*_GAVEL, "mode", "weight", "objective", "duration", "arrival"),
}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a loader besides the file; see `loader.load`."""

    data: Path
    chance: np.random.Generator
    elastic: bool | None
    gpu: Gpu
    adaptive: bool = False


# --- Sia ----------------------------------------------------------------------------------------


def sia(path: Path, options: LoadOptions) -> list[TraceJob]:
    """Jobs of six applications: with a fixed global batch, on one GPU up to the number asked for;
    or adaptive ones, on any number."""
    return [_sia_job(row, options) for row in with_header(path, HEADERS["sia"])]


def _sia_job(row: Row, options: LoadOptions) -> TraceJob:
    name, batch = row.text("application"), row.whole("batch_size", 1)
    application = APPLICATIONS.get(name)
    if application is None:
        raise row.error("application", f"unknown {name!r}; known: {', '.join(APPLICATIONS)}")
    gpus = row.whole("num_replicas", 1, GPUS_MAX)
    if options.adaptive:
        return TraceJob(row.number("time"), *_adaptive_job(row, name, application, options))
    samples = math.ceil(application.samples / application.parts)
    spec = JobSpec(
        name=row.text("name"),
        user=USER,
        project=name,
        max_epochs=application.passes * application.parts,
        batch_size=batch,
        training_set_size=samples,
        gpus_min=gpus if options.elastic is False else 1,
        gpus_max=gpus,
        memory_mib=estimate_mib(application.memory_mib),
    )
    truth = MeasuredTruth(
        model=application.twin or name,
        memory_mib=application.memory_mib,
        gpu_util=application.gpu_util,
        times=_sia_times(options.data, name, batch, samples / batch),
        pairs=lucid_pairs(options.data),
    )
    return TraceJob(row.number("time"), spec, truth)


def _adaptive_job(
    row: Row, name: str, application: Application, options: LoadOptions
) -> tuple[JobSpec, AdaptiveTruth]:
    """Its batch fills the memory of its GPUs, so it does not share them."""
    memory, util = application.memory_mib, application.gpu_util
    spec = JobSpec(
        name=row.text("name"),
        user=USER,
        project=name,
        max_epochs=application.passes * application.parts,
        batch_size=ADAPTIVE[name].batches[0],
        training_set_size=math.ceil(application.samples / application.parts),
        gpus_min=1,
        gpus_max=GPUS_MAX,
        memory_mib=estimate_mib(memory),
        shareable=False,
    )
    return spec, AdaptiveTruth(memory, util, adaptive_times(options.data, name))


@cache
def _sia_times(data: Path, application: str, batch: int, steps: float) -> StepTimes:
    """Equal jobs share the values that were interpolated for them."""
    return StepTimes(data, application, batch, steps)


# --- Philly -------------------------------------------------------------------------------------


def philly(path: Path, options: LoadOptions) -> list[TraceJob]:
    """Jobs with a known length on the GPUs they asked for; each gets one of Lucid's models."""
    rows = list(with_header(path, HEADERS["philly"]))
    fitting = [
        profile
        for profile in lucid_profiles(options.data)
        if estimate_mib(profile.memory_mib) <= options.gpu.capacity_mib
    ]
    if not fitting:
        raise TraceError(f"{path}: none of Lucid's models fits {options.gpu.memory_mib} MiB")
    laws = _laws(fitting, options)
    drawn = options.chance.integers(len(fitting), size=len(rows))
    moments = [_moment(row) for row in rows]
    began_at = min(moments, default=0.0)
    return [
        _philly_job(row, at - began_at, fitting[k], laws[fitting[k].project], options)
        for row, at, k in zip(rows, moments, drawn, strict=True)
    ]


def _laws(fitting: Sequence[Profiled], options: LoadOptions) -> dict[str, tuple[StepTimes, str]]:
    """How each model scales: like one of Sia's applications on one type of GPU, both drawn."""
    laws = [
        (times, type)
        for name, application in APPLICATIONS.items()
        for times in [StepTimes(options.data, name, application.batch, 1.0)]
        for type in LAW_TYPES
        if _scales(times, type)
    ]
    if not laws:
        raise TraceError(f"{options.data}: the tables have no application that scales")
    projects = sorted({profile.project for profile in fitting})
    drawn = options.chance.integers(len(laws), size=len(projects))
    return {project: laws[k] for project, k in zip(projects, drawn, strict=True)}


def _scales(times: StepTimes, type: str) -> bool:
    one, two = times.seconds(type, 1, 1), times.seconds(type, 2, 1)
    return math.isfinite(times.seconds(type, 2, 2)) and two <= LAW_SECOND_GPU * one


def _moment(row: Row) -> float:
    text = row.text("timestamp")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error("timestamp", f"{text!r} is not a date and time") from None


def _philly_job(
    row: Row, at: float, profile: Profiled, law: tuple[StepTimes, str], options: LoadOptions
) -> TraceJob:
    gpus, seconds = row.whole("num_gpus", 1, GPUS_MAX), row.positive("duration", SECONDS_MAX)
    epochs = epochs_of(seconds)
    nodes = math.ceil(gpus / PHILLY_NODE_GPUS)
    times = LikeTimes(seconds / epochs, (gpus, nodes), *law)
    # As many samples as the model can take in that time. So jobs of one model have the same speed
    # per sample, whatever their lengths, as in reality.
    samples = seconds / epochs * profile.samples_per_second * times.relative(1, 1)
    spec = JobSpec(
        name=f"philly-{row.line}",
        user=row.text("cluster"),
        project=profile.project,
        max_epochs=epochs,
        batch_size=profile.batch,
        training_set_size=min(max(1, round(samples)), INT_MAX),
        gpus_min=1 if options.elastic else gpus,
        gpus_max=gpus,
        memory_mib=estimate_mib(profile.memory_mib),
    )
    memory, util = profile.memory_mib, profile.gpu_util
    truth = MeasuredTruth(profile.model, memory, util, times, lucid_pairs(options.data))
    return TraceJob(at, spec, truth)


# --- Gavel and Shockwave ------------------------------------------------------------------------


def gavel(path: Path, options: LoadOptions) -> list[TraceJob]:
    """Jobs with a number of steps on P100s or K80s, and a fixed batch per GPU."""
    rows = without_header(path, COLUMNS["gavel"])
    return [_gavel_job(row, f"gavel-{row.line}", options) for row in rows]


def shockwave(path: Path, options: LoadOptions) -> list[TraceJob]:
    """As in Gavel's format. Changes of the batch size during a training are left out."""
    rows = without_header(path, COLUMNS["shockwave"])
    return [_gavel_job(row, f"shockwave-{row.line}", options) for row in rows]


def _gavel_job(row: Row, name: str, options: LoadOptions) -> TraceJob:
    model, gpus, steps = row.text("model"), row.whole("gpus", 1, GPUS_MAX), row.whole("steps", 1)
    rate = gavel_rates(options.data).rate(GAVEL_LENGTH_TYPE, model, gpus, 1)
    if rate == 0.0 or model not in GAVEL_MEMORY_MIB:
        raise row.error("model", f"{model!r} was not measured on {gpus} GPUs")
    epochs = epochs_of(steps / rate)
    batch = _batch(model)
    spec = JobSpec(
        name=name,
        user=USER,
        project=model,
        max_epochs=epochs,
        batch_size=batch,
        training_set_size=max(1, round(steps / epochs * batch)),
        gpus_min=1 if options.elastic else gpus,
        gpus_max=gpus,
        memory_mib=estimate_mib(GAVEL_MEMORY_MIB[model]),
    )
    pairs = gavel_pairs(options.data)
    truth = MeasuredTruth(
        model=model,
        memory_mib=GAVEL_MEMORY_MIB[model],
        gpu_util=gavel_util(model, pairs),
        times=RateTimes(gavel_rates(options.data), model, steps / epochs),
        pairs=pairs,
    )
    return TraceJob(row.number("arrival"), spec, truth)


def _batch(model: str) -> int:
    """64 for "ResNet-18 (batch size 64)"; the batch size of "A3C" is not known."""
    size = model.rpartition("(batch size ")[2].rstrip(")")
    return int(size) if size.isdecimal() else 1


def gavel_util(model: str, pairs: Pairs) -> float:
    """The utilisation, which was not measured. Beside a copy of itself, a job that keeps a GPU busy
    for a part u of the time has a speed of 1 / max(1, 2 u). A job of which two do not fit on a GPU
    is assumed to be busy all the time."""
    beside_twin = pairs.speed(model, model, GAVEL_LENGTH_TYPE)
    return min(1.0, 0.5 / beside_twin) if beside_twin else 1.0


# --- Alibaba ------------------------------------------------------------------------------------


def alibaba(path: Path, options: LoadOptions) -> list[TraceJob]:
    """Pods with a part of one GPU, or with whole GPUs. Pods without a GPU are left out."""
    rows = [row for row in with_header(path, HEADERS["alibaba"]) if row.whole("num_gpu") > 0]
    moments = [row.number("creation_time") for row in rows]
    began_at = min(moments, default=0.0)
    return [
        _alibaba_job(row, at - began_at, options) for row, at in zip(rows, moments, strict=True)
    ]


def _alibaba_job(row: Row, at: float, options: LoadOptions) -> TraceJob:
    """The pod ran from the moment it was scheduled, or else from its creation."""
    gpus, part = row.whole("num_gpu", 1, GPUS_MAX), row.number("gpu_milli", 1, 1000) / 1000
    since = "scheduled_time" if row.values["scheduled_time"] else "creation_time"
    seconds = row.number("deletion_time") - row.number(since)
    if seconds < 0.0:
        raise row.error("deletion_time", f"is before {since}")
    epochs = epochs_of(seconds)
    # Rounded down, so that parts fit on a GPU if they add up to at most one.
    memory = max(MIB_STEP, int(part * options.gpu.capacity_mib) // MIB_STEP * MIB_STEP)
    spec = JobSpec(
        name=row.text("name"),
        user=USER,
        max_epochs=epochs,
        gpus_min=gpus,
        gpus_max=gpus,
        memory_mib=memory,
        shareable=part < 1.0,
    )
    return TraceJob(at, spec, SlicedTruth(memory, part, max(1.0, seconds) / epochs))
