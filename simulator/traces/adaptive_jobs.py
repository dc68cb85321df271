"""Sia's applications as *adaptive* jobs: they choose their batch for the GPUs that they have.

A larger batch makes better use of the GPUs, but each of its samples teaches less. As in Pollux
(Qiao et al., OSDI 2021, equations 1 to 4) the speed of a training is its *goodput*: samples per
second, times the efficiency of the batch,

    efficiency(m) = (noise + 1) / (noise + m / m0)

where m0 is the smallest batch, for which it is 1, and the noise of the gradients, in units of m0,
grows during the training: later on larger batches are efficient. So epochs, of equal progress,
become shorter, the more so on more GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from scheduler.estimates.arrays import Floats
from simulator.traces.assumptions import ADAPTIVE, APPLICATIONS
from simulator.traces.behaviour import Truth, speed_by_utilisation
from simulator.traces.measured_tables import StepTimes

BATCHES = 25  # that are considered, from the smallest to the largest, evenly by logarithm

_Where = tuple[str, int, int]  # type, GPUs, nodes


@dataclass(frozen=True)
class AdaptiveTimes:
    """An application with its best batch for each epoch on any number of GPUs."""

    data: Path
    application: str
    cached: dict[_Where, tuple[float, ...]] = field(default_factory=dict, compare=False, repr=False)

    def seconds(self, type: str, count: int, nodes: int) -> float:
        """The mean over all epochs."""
        each = self.each(type, count, nodes)
        return math.fsum(each) / len(each)

    def each(self, type: str, count: int, nodes: int) -> Sequence[float]:
        """Seconds of one epoch after the other."""
        key = type, count, nodes
        if key not in self.cached:
            self.cached[key] = tuple(self._seconds(key).tolist())
        return self.cached[key]

    def _seconds(self, where: _Where) -> Floats:
        application, adaptive = APPLICATIONS[self.application], ADAPTIVE[self.application]
        least, most = adaptive.batches
        batches = np.geomspace(least, most, BATCHES).round()
        steps = [
            StepTimes(self.data, self.application, int(batch), 1.0, True).seconds(*where)
            for batch in batches
        ]
        noise = noise_of_epochs(adaptive.noise, application.passes * application.parts)[:, None]
        efficiency = (noise + 1.0) / (noise + batches / least)
        samples = application.samples / application.parts
        seconds = samples / (batches * efficiency) * np.array(steps)
        return np.asarray(adaptive.slowness * seconds.min(axis=1))


def noise_of_epochs(stages: Sequence[float], epochs: int) -> Floats:
    """Between stages at equal distances, from the first epoch to the last one, the logarithm
    changes evenly."""
    places = np.linspace(0.0, len(stages) - 1.0, epochs)
    return np.asarray(np.exp(np.interp(places, np.arange(len(stages)), np.log(stages))))


@cache
def adaptive_times(data: Path, application: str) -> AdaptiveTimes:
    """Equal jobs share what was computed for them."""
    return AdaptiveTimes(data, application)


@dataclass(frozen=True, slots=True)
class AdaptiveTruth:
    """A job whose batch fills its GPUs."""

    memory_mib: int
    gpu_util: float
    times: AdaptiveTimes

    def epoch_seconds(self, type: str, count: int, nodes: int) -> float:
        return self.times.seconds(type, count, nodes)

    def epoch_seconds_at(self, epoch: int, type: str, count: int, nodes: int) -> float:
        each = self.times.each(type, count, nodes)
        return each[min(epoch, len(each) - 1)]

    def speed_beside(self, other: Truth, type: str) -> float:
        return speed_by_utilisation(self.gpu_util, other.gpu_util)
