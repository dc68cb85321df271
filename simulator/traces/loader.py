"""Loads traces: files of jobs in published formats or our own, with the truth about each job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scheduler.core.model import Gpu
from simulator.traces import own_format, published_formats
from simulator.traces.assumptions import MIB_STEP, estimate_mib
from simulator.traces.behaviour import TraceJob, Truth
from simulator.traces.published_formats import LoadOptions
from simulator.traces.text_rows import TraceError, first_line

__all__ = ["FORMATS", "TraceError", "TraceJob", "Truth", "load"]

GPU_MIB = 16_384

FORMATS: Mapping[str, Callable[[Path, LoadOptions], list[TraceJob]]] = {
    "own": lambda path, _: own_format.read(path),
    "sia": published_formats.sia,
    "philly": published_formats.philly,
    "alibaba": published_formats.alibaba,
    "gavel": published_formats.gavel,
    "shockwave": published_formats.shockwave,
}


def load(
    path: Path,
    *,
    data: Path,
    seed: int,
    format: str | None = None,
    elastic: bool | None = None,
    gpu_mib: int = GPU_MIB,
    memory_noise: float = 0.0,
    adaptive: bool = False,
) -> list[TraceJob]:
    """The jobs of a trace, in the order of their arrival. TraceError: `file:line: what is wrong`.

    data          the folder of measured tables (`scaling`, `colocation`); our own traces need none
    seed          decides what a trace leaves open: models for Philly's jobs, and the noise
    format        one of FORMATS; None: the first line decides
    elastic       whether a job may have fewer GPUs than it asked for; None: Sia's jobs may, those
                  of Philly, Gavel and Shockwave may not. Our own traces have a column for it
    gpu_mib       Philly's models are drawn from those that fit a GPU of this size, and Alibaba's
                  shares are shares of it
    memory_noise  how far users' estimates are from the truth: the deviation of their logarithm
    adaptive      whether Sia's jobs choose their batch for the GPUs that they have, any number of
                  them; no other trace says which application a job is
    """
    name = format if format is not None else _format(path)
    if name not in FORMATS:
        raise TraceError(f"{path}: unknown format {name!r}; known: {', '.join(FORMATS)}")
    if adaptive and name != "sia":
        raise TraceError(f"{path}: only the jobs of Sia's traces can be adaptive")
    gpu, chance = Gpu("", 0, "", gpu_mib), np.random.default_rng((seed, 0))
    jobs = FORMATS[name](path, LoadOptions(data, chance, elastic, gpu, adaptive))
    if not jobs:
        raise TraceError(f"{path}: the trace has no jobs")
    jobs.sort(key=lambda job: job.submit_at)
    if memory_noise:
        # Drawn from its own generator, so that all else is the same with and without noise.
        jobs = _misjudge_memory(jobs, memory_noise, np.random.default_rng((seed, 1)), gpu)
    return jobs


def _format(path: Path) -> str:
    line = first_line(path)
    columns = set(line.split(","))
    for name, needed in {"own": own_format.NEEDED, **published_formats.HEADERS}.items():
        if columns.issuperset(needed):
            return name
    width = line.count("\t") + 1
    for name, known in published_formats.COLUMNS.items():
        if width == len(known):
            return name
    raise TraceError(
        f"{path}:1: not a trace: this line is not a header with {', '.join(own_format.NEEDED)}, nor"
        f" one of {', '.join(name for name in FORMATS if name != 'own')}"
    )


def _misjudge_memory(
    jobs: Sequence[TraceJob], noise: float, chance: np.random.Generator, gpu: Gpu
) -> list[TraceJob]:
    """The jobs with noisy memory estimates, none larger than the GPU: those would be refused."""
    most = gpu.capacity_mib // MIB_STEP * MIB_STEP
    factors = np.exp(noise * chance.standard_normal(len(jobs)))
    misjudged = []
    for job, factor in zip(jobs, factors, strict=True):
        estimate = min(estimate_mib(job.truth.memory_mib * factor), max(most, job.spec.memory_mib))
        misjudged.append(replace(job, spec=replace(job.spec, memory_mib=estimate)))
    return misjudged
