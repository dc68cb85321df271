"""Draws random jobs for a trace in this project's format: `python -m simulator.generate --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scheduler.core.model import Gpu, JobSpec
from simulator.traces import own_format
from simulator.traces.assumptions import estimate_mib
from simulator.traces.behaviour import SerialTruth, TraceJob

KINDS = 12  # job families; jobs of one family differ only in length and size
USERS = 5
LENGTH_SECONDS_BOUNDS = 60.0, 5 * 86_400.0
EPOCH_SECONDS = 240.0, 0.8
EPOCH_SECONDS_BOUNDS = 30.0, 1800.0
MEMORY_MIB = 5000.0, 0.6
MEMORY_MIB_LEAST = 1000.0


@dataclass(frozen=True, slots=True)
class TraceShape:
    """What jobs ask for, and how they arrive."""

    sizes: Sequence[tuple[int, float]]  # a number of GPUs, and how often jobs ask for it
    length_seconds: tuple[float, float]  # lognormal: median, and the deviation of the logarithm
    burst: float = 1.0  # variance of the gaps divided by their squared mean; 1: Poisson


SHAPES = {
    "usual": TraceShape(((1, 0.70), (2, 0.12), (4, 0.10), (8, 0.08)), (1800.0, 1.4)),
    # Similar to Philly's traces: most jobs are small and short, a few take days, and they arrive in
    # bursts. (There, the deviation of the lengths' logarithms is 1.5 to 2.9, and that of the gaps
    # is 2.7 to 3.3 times their mean.)
    "philly": TraceShape(((1, 0.82), (2, 0.06), (4, 0.12)), (1600.0, 2.0), burst=9.0),
}


@dataclass(frozen=True, slots=True)
class DrawnFamily:
    """What the jobs of one project have in common."""

    project: str
    batch_size: int
    training_set_size: int
    truth: SerialTruth


def generate(
    count: int,
    *,
    seed: int,
    load: float = 0.8,
    gpus: int = 64,
    elastic: float = 0.5,
    gpu_mib: int = 16_384,
    shape: str = "usual",
) -> list[TraceJob]:
    """`count` jobs, which arrive independently of each other.

    load      GPU time of all jobs, as a part of what `gpus` GPUs provide while jobs arrive
    elastic   the part of the jobs for several GPUs that can also run on fewer
    gpu_mib   the memory of a GPU that each job fits on
    shape     one of SHAPES
    """
    drawn = SHAPES[shape]
    chance = np.random.default_rng(seed)
    kinds = [_draw_family(chance, f"kind-{i}", Gpu("", 0, "", gpu_mib)) for i in range(KINDS)]
    specs = [_draw_spec(chance, i, kinds, elastic, drawn) for i in range(count)]
    wanted = sum(_gpu_seconds(spec, kind) for spec, kind in specs)
    gap = wanted / max(count, 1) / (load * gpus)
    arrivals = np.cumsum(chance.gamma(1.0 / drawn.burst, gap * drawn.burst, count))
    return [
        TraceJob(round(float(at), 3), spec, kind.truth)
        for at, (spec, kind) in zip(arrivals, specs, strict=True)
    ]


def _draw_family(chance: np.random.Generator, project: str, gpu: Gpu) -> DrawnFamily:
    truth = SerialTruth(
        memory_mib=int(_draw(chance, MEMORY_MIB, (MEMORY_MIB_LEAST, 0.9 * gpu.capacity_mib))),
        gpu_util=round(float(chance.uniform(0.2, 1.0)), 3),
        seconds=round(_draw(chance, EPOCH_SECONDS, EPOCH_SECONDS_BOUNDS), 3),
        serial=round(float(chance.uniform(0.01, 0.2)), 3),
    )
    batch_size = 2 ** int(chance.integers(5, 10))
    return DrawnFamily(project, batch_size, batch_size * int(chance.integers(100, 5000)), truth)


def _draw_spec(
    chance: np.random.Generator,
    number: int,
    kinds: list[DrawnFamily],
    elastic: float,
    shape: TraceShape,
) -> tuple[JobSpec, DrawnFamily]:
    """Draws a length for the job on the GPUs that it asks for."""
    kind = kinds[int(chance.integers(len(kinds)))]
    sizes, often = zip(*shape.sizes, strict=True)
    gpus = int(chance.choice(sizes, p=often))
    seconds = _draw(chance, shape.length_seconds, LENGTH_SECONDS_BOUNDS)
    epochs = max(1, round(seconds / kind.truth.epoch_seconds("", gpus, 1)))
    spec = JobSpec(
        name=f"job-{number}",
        user=f"user-{chance.integers(USERS)}",
        project=kind.project,
        max_epochs=epochs,
        batch_size=kind.batch_size,
        training_set_size=kind.training_set_size,
        gpus_min=1 if chance.random() < elastic else gpus,
        gpus_max=gpus,
        memory_mib=estimate_mib(kind.truth.memory_mib),
    )
    return spec, kind


def _gpu_seconds(spec: JobSpec, kind: DrawnFamily) -> float:
    gpus = spec.gpus_max
    return spec.max_epochs * kind.truth.epoch_seconds("", gpus, 1) * gpus


def _draw(
    chance: np.random.Generator, lognormal: tuple[float, float], bounds: tuple[float, float]
) -> float:
    median, deviation = lognormal
    drawn = median * float(np.exp(deviation * chance.standard_normal()))
    return min(max(drawn, bounds[0]), bounds[1])


def main(argv: Sequence[str] | None = None) -> None:
    this = argparse.ArgumentParser("python -m simulator.generate", description=__doc__)
    this.add_argument("file", metavar="FILE", type=Path, help="the trace to write")
    this.add_argument("--jobs", metavar="N", type=int, default=200, help="200")
    this.add_argument("--seed", metavar="N", type=int, default=1, help="1")
    this.add_argument("--gpus", metavar="N", type=int, default=64, help="GPUs of the cluster; 64")
    this.add_argument(
        "--load", metavar="X", type=float, default=0.8, help="load of these GPUs; 0.8"
    )
    this.add_argument("--shape", choices=SHAPES, default="usual", help="usual")
    given = this.parse_args(argv)
    jobs = generate(
        given.jobs, seed=given.seed, load=given.load, gpus=given.gpus, shape=given.shape
    )
    own_format.write(given.file, jobs)


if __name__ == "__main__":
    main()
