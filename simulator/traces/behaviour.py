"""How jobs really behave: the simulated world uses this, and a policy never sees it.

A truth answers two questions, how long an epoch takes alone and how much a neighbour slows it down,
from measured tables (`measured_tables.py`) or by a formula. Each epoch asks again, so answers are
cached. What differs from epoch to epoch is the job's course; what it reports may be a lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from scheduler.core.model import JobSpec

# Lucid's 2,720 measured directed pairs, fitted with one parameter: mean absolute error 0.07.
SLOWDOWN = 0.38


class Truth(Protocol):
    """How a job really behaves; a policy never sees it."""

    @property
    def memory_mib(self) -> int:
        """The memory that it really takes on each GPU."""

    @property
    def gpu_util(self) -> float:
        """Utilisation from 0 to 1, alone on its GPUs."""

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        """Alone on `count` GPUs of `nodes` nodes; math.inf: it cannot run there."""

    def speed_beside(self, other: Truth, type: str) -> float:
        """The speed relative to alone, in (0, 1], while one other job shares its GPUs."""


@runtime_checkable
class VaryingTruth(Truth, Protocol):
    """A truth in which some placements suit early epochs, and others late ones. `epoch_seconds` is
    the mean over all epochs."""

    def epoch_seconds_at(self, epoch: int, type: str, count: int, nodes: int) -> float:
        """Alone, of this epoch; the first is 0."""


@dataclass(frozen=True, slots=True)
class Course:
    """How the epochs of one job differ from each other; by default they do not."""

    # Factors on its first and on its last epoch; those in between change by equal steps.
    first: float = 1.0
    last: float = 1.0
    # Each run trains this many times more slowly until it has trained for so long.
    tuning: float = 1.0
    tuning_seconds: float = 0.0

    def epoch_seconds(self, alone: float, epoch: int, epochs: int, trained_seconds: float) -> float:
        """Seconds of one epoch of a job with `epochs` of them, in a run that has trained for
        `trained_seconds`; `alone`: of an epoch with the factor 1."""
        work = alone * self.factor(epoch, epochs)
        slow_seconds = max(0.0, self.tuning_seconds - trained_seconds)
        if work * self.tuning <= slow_seconds:
            return work * self.tuning
        return work + slow_seconds * (1.0 - 1.0 / self.tuning)

    def factor(self, epoch: int, epochs: int) -> float:
        part = epoch / (epochs - 1) if epochs > 1 else 0.0
        return self.first + part * (self.last - self.first)

    def mean_factor(self, epoch: int, epochs: int) -> float:
        """Over this epoch and all after it; the last one's if there is none."""
        last = epochs - 1
        return (self.factor(min(epoch, last), epochs) + self.factor(last, epochs)) / 2.0


@dataclass(frozen=True, slots=True)
class Lie:
    """How the reported seconds of an epoch differ from the true ones; by default they do not."""

    factors: tuple[float, ...] = (1.0,)  # of one epoch after the other, again and again
    per_gpu: float = 0.0  # the exponent of the number of GPUs by which they are divided
    jumps: tuple[float, ...] = (0.0,)  # of its clock, in seconds, in one epoch after the other

    def told_seconds(self, seconds: float, epoch: int, gpus: int) -> float:
        divisor: float = max(1, gpus) ** self.per_gpu
        told = seconds * self.factors[epoch % len(self.factors)] / divisor
        return told + self.jumps[epoch % len(self.jumps)]


STEADY, HONEST = Course(), Lie()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One line of a trace: when the job arrives, what it asks for, and how it really behaves."""

    submit_at: float  # seconds since the trace began
    spec: JobSpec  # as a user would submit it
    truth: Truth
    course: Course = STEADY
    lie: Lie = HONEST


class Times(Protocol):
    def seconds(self, type: str, count: int, nodes: int) -> float:
        """Seconds of one epoch, alone; math.inf: it cannot run there."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured speeds of two jobs on one GPU, relative to alone."""

    speeds: Mapping[tuple[str, str, str], float]  # (GPU type, model, the model beside it)
    type: str = (
        ""  # the one type that was measured, used for all types; empty: each type has its own
    )

    def speed(self, model: str, beside: str, type: str) -> float | None:
        return self.speeds.get((self.type or type, model, beside))


@dataclass(frozen=True, slots=True)
class MeasuredTruth:
    """A model that was measured: its step times by placement, its speed in pairs."""

    model: str
    memory_mib: int
    gpu_util: float
    times: Times
    pairs: Pairs

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.times.seconds(type, count, nodes)

    def speed_beside(self, other: Truth, type: str) -> float:
        if isinstance(other, MeasuredTruth) and other.pairs is self.pairs:
            measured = self.pairs.speed(self.model, other.model, type)
            if measured is not None:
                return measured
        return speed_by_utilisation(self.gpu_util, other.gpu_util)


@dataclass(frozen=True, slots=True)
class SerialTruth:
    """An epoch has a part that a second GPU does not shorten; a second GPU halves the rest.

    All types of GPU are equally fast, and the number of nodes does not matter.
    """

    memory_mib: int
    gpu_util: float
    seconds: float  # of an epoch on one GPU
    serial: float  # from 0, perfect scaling, to 1, none

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.seconds * (self.serial + (1.0 - self.serial) / count)

    def speed_beside(self, other: Truth, type: str) -> float:
        return speed_by_utilisation(self.gpu_util, other.gpu_util)


@dataclass(frozen=True, slots=True)
class SlicedTruth:
    """A pod that has a slice of a GPU's time and uses no more.

    As long as the slices on a GPU add up to at most one, no pod is slowed down.
    """

    memory_mib: int
    gpu_util: float  # the slice
    seconds: float  # of an epoch, on the GPUs it asked for

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.seconds

    def speed_beside(self, other: Truth, type: str) -> float:
        return 1.0 / max(1.0, self.gpu_util + other.gpu_util)


def speed_by_utilisation(util: float, beside: float) -> float:
    """The expected speed in a pair that was not measured."""
    return 1.0 / (1.0 + SLOWDOWN * util * beside)
