"""The truth about jobs: what they ask for, and how they really behave. Drawn, not measured."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler.core.model import Gpu, JobId, JobSpec, Node

# How much two trainings that keep a GPU busy all the time slow each other down: enough to be
# visible, but so little that several on one GPU are never slower than one after the other.
SLOWED = 0.6
SCALING = 0.8  # twice the GPUs are 2 ** SCALING times as fast


class ClientKind(StrEnum):
    LIBRARY = "library"  # reports through the client library and stops with exit code 85
    LEGACY = "legacy"  # like old images: exits with 0 when told to stop, and sends no farewell
    SILENT = "silent"  # never calls the scheduler


@dataclass(frozen=True, slots=True)
class TrueJob:
    """What one job will do. The scheduler never sees this."""

    job_id: JobId
    spec: JobSpec
    submit_at: float
    kind: ClientKind
    epoch_seconds: float  # on one GPU, alone
    memory_mib: int  # what it really takes on each GPU
    ranks: int = 1  # processes that ask at each epoch's start
    says_finished: bool = True
    measures_memory: float = 1.0  # how often it does
    deaf_to_term: bool = False  # ignores SIGTERM until it is killed
    deaf_to_stop: bool = False  # ignores the answer "stop" at an epoch's start
    fails_at: int | None = None  # exits with 1 in this epoch,
    fails_always: bool = False  # in every attempt or only in the first
    ends_early_at: int | None = None  # exits with 0 after this many epochs, by itself
    cancel_at: float | None = None
    cancel_gracefully: bool = False
    changes: tuple[tuple[float, str, int], ...] = ()  # (when, which field, its new value)
    gpu_util: float = 0.0  # how busy it keeps a GPU, and so how much it slows its neighbours
    warm_up_seconds: float = 0.0  # how much longer the first epoch of a run takes
    absurd: float = 0.0  # how often it reports nonsense as an epoch's length
    scaling: float = SCALING
    habit: str | None = None  # see scripts.py; None: its weights are not simulated
    quality: float = 0.0  # how good its metric becomes

    def score(self, epoch: int) -> float | None:
        """What it reports of its metric after so many epochs; infinite: not a number."""
        return self.quality * (1.0 - 0.5**epoch) if self.spec.metric else None

    def seconds(self, gpus: int, beside: Iterable[TrueJob]) -> float:
        """The length of an epoch on this number of GPUs, beside these jobs all the time."""
        slowed = 1.0 + SLOWED * self.gpu_util * sum(other.gpu_util for other in beside)
        return self.epoch_seconds / math.pow(max(1, gpus), self.scaling) * slowed


def draw_nodes(rng: random.Random) -> list[Node]:
    sizes = rng.choice([[1], [1], [2], [2], [1, 1], [1, 1], [2, 2], [4]])
    memory = rng.choice([8192, 16384])
    return [
        Node(
            f"node{i}",
            tuple(Gpu(f"gpu{k}", k, "pretended", memory, memory // 32) for k in range(size)),
        )
        for i, size in enumerate(sizes)
    ]


def draw_jobs(
    rng: random.Random, count: int, nodes: Sequence[Node], margin_mib: int
) -> list[TrueJob]:
    """Draws jobs each of which could run alone."""
    gpus_most = sum(len(node.gpus) for node in nodes)
    capacity = nodes[0].gpus[0].capacity_mib - margin_mib
    span = rng.choice([1.0, 200.0, 800.0])  # all at once, or one after another
    return [_draw_job(rng, JobId(f"job-{i}"), gpus_most, capacity, span) for i in range(count)]


def _draw_job(
    rng: random.Random, job_id: JobId, gpus_most: int, capacity: int, span: float
) -> TrueJob:
    epochs = rng.choice([1, 2, 3, 4, 6, 8])
    spec, memory = _draw_spec(rng, job_id, epochs, gpus_most, capacity)
    kind = rng.choices(
        [ClientKind.LIBRARY, ClientKind.LEGACY, ClientKind.SILENT], [0.75, 0.13, 0.12]
    )[0]
    submit_at = rng.uniform(0.0, span)
    changes = []
    if spec.held:
        changes.append((submit_at + rng.uniform(0.0, 600.0), "held", 0))
    if rng.random() < 0.2:
        changes.append((submit_at + rng.uniform(0.0, 600.0), "priority", rng.randint(0, 6)))
    if rng.random() < 0.1:
        changes.append((submit_at + rng.uniform(0.0, 600.0), "max_epochs", rng.randint(1, 6)))
    if rng.random() < 0.1:
        at = submit_at + rng.uniform(0.0, 400.0)
        changes += [(at, "held", 1), (at + rng.uniform(0.0, 300.0), "held", 0)]
    return TrueJob(
        job_id=job_id,
        spec=spec,
        submit_at=submit_at,
        kind=kind,
        epoch_seconds=rng.choice([20.0, 45.0, 90.0]),
        memory_mib=memory,
        ranks=2 if rng.random() < 0.25 else 1,
        says_finished=kind is ClientKind.LIBRARY and rng.random() < 0.7,
        measures_memory=rng.choice([1.0, 1.0, 0.5, 0.0]),
        deaf_to_term=rng.random() < 0.2,
        deaf_to_stop=rng.random() < 0.08,
        fails_at=rng.randrange(epochs) if rng.random() < 0.15 else None,
        fails_always=rng.random() < 0.3,
        ends_early_at=rng.randrange(epochs) if rng.random() < 0.08 else None,
        cancel_at=submit_at + rng.uniform(0.0, 500.0) if rng.random() < 0.2 else None,
        cancel_gracefully=rng.random() < 0.5,
        changes=tuple(changes),
        gpu_util=rng.choice([0.1, 0.4, 0.7, 1.0]),
        warm_up_seconds=rng.choice([0.0, 5.0, 20.0]),
        absurd=rng.choice([0.0, 0.0, 0.0, 0.3]),
    )


def _draw_spec(
    rng: random.Random, job_id: JobId, epochs: int, gpus_most: int, capacity: int
) -> tuple[JobSpec, int]:
    """Returns a specification, and the memory that the job will really take."""
    gpus_max = rng.randint(1, gpus_most) if rng.random() < 0.5 else 1
    gpus_min = rng.randint(1, gpus_max)
    if rng.random() < 0.06:
        gpus_min = gpus_max = 0
    memory = int(capacity * rng.choice([0.1, 0.2, 0.3, 0.45, 0.6, 0.95]))
    # Most users estimate well, some give no estimate, some are wrong in either direction.
    estimate = int(memory * rng.choice([0.0, 0.5, 0.8, 1.0, 1.0, 1.0, 1.3]))
    spec = JobSpec(
        name=job_id,
        user=rng.choice(["ada", "bob"]),
        image=rng.choice(["resnet", "bert", "gpt"]),
        max_epochs=epochs,
        gpus_min=gpus_min,
        gpus_max=gpus_max,
        memory_mib=min(estimate, capacity),
        shareable=rng.random() < 0.8,
        priority=rng.choice([0, 1, 1, 1, 3, 6]),
        held=rng.random() < 0.08,
        retries=rng.choice([0, 1, 3]),
    )
    return spec, memory
