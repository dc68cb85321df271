"""How jobs really behave: what a policy never sees, and the simulated world goes by.

A truth answers two questions, how long an epoch takes alone and how much a neighbour slows it down,
from measured tables (`measured_tables.py`) or by a formula. It is asked at each epoch, so answers
are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import JobSpec

# Lucid's 2,720 measured directed pairs, fitted with one parameter: mean absolute error 0.07.
SLOWDOWN = 0.38


class Truth(Protocol):
    """How a job really behaves; the policy never sees it."""

    @property
    def memory_mib(self) -> int:
        """What it really takes of each GPU."""

    @property
    def gpu_util(self) -> float:
        """From 0 to 1, alone on its GPUs."""

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        """Alone on so many GPUs of so many nodes; math.inf: it cannot run so."""

    def speed_beside(self, other: Truth, type: str) -> float:
        """Relative to alone, in (0, 1], where one other job shares its GPUs."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One line of a trace: when it comes, what is asked for, and what will really happen."""

    submit_at: float  # seconds since the trace began
    spec: JobSpec  # as a person would submit it
    truth: Truth


class Times(Protocol):
    def seconds(self, type: str, count: int, nodes: int) -> float:
        """Of one epoch, alone; math.inf: it cannot run so."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured speeds of two jobs on one GPU, relative to alone."""

    speeds: Mapping[tuple[str, str, str], float]  # (GPU type, model, the model beside it)
    type: str = ""  # the one type that was measured, and stands for all; empty: each its own

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
    """A part of each epoch that no second GPU shortens, and a rest that it halves.

    All types of GPU are as fast, and it does not matter how many nodes they are on.
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
    """A pod that was given a slice of a GPU's time, and keeps to it.

    As long as the slices of a GPU add up to no more than one, nobody is slowed down.
    """

    memory_mib: int
    gpu_util: float  # the slice
    seconds: float  # of an epoch, on the GPUs it asked for

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.seconds

    def speed_beside(self, other: Truth, type: str) -> float:
        return 1.0 / max(1.0, self.gpu_util + other.gpu_util)


def speed_by_utilisation(util: float, beside: float) -> float:
    """What is expected of a pair that nobody measured."""
    return 1.0 / (1.0 + SLOWDOWN * util * beside)
