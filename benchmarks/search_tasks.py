"""What searches try out: trainings with settings, and what these report, computed as it is asked.

`shipped` is examples/search. `late` is a task on which early epochs tell little: a regression whose
loss hardly moves in the first third, and with good settings rises first.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np

from benchmarks.figures import ROOT

EXAMPLE = ROOT / "examples" / "search" / "train.py"
EPOCHS = 27

Axes = Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Task:
    axes: Axes
    train: Callable[[float, float, float, int], Iterator[float]]  # yields a loss for each epoch

    def curve(self, values: Mapping[str, str]) -> Curve:
        lr, momentum, decay = (float(values[key]) for key in ("lr", "momentum", "decay"))
        return Curve(self.train(lr, momentum, decay, int(values["width"])))


class Curve:
    """Losses by epoch, from 0; it trains as far as it is asked."""

    def __init__(self, epochs: Iterator[float]) -> None:
        self._epochs, self._known = epochs, list[float]()

    def __getitem__(self, epoch: int) -> float:
        while len(self._known) <= epoch:
            with np.errstate(all="ignore"):  # a rate that is too high ends in infinity
                self._known.append(next(self._epochs))
        return self._known[epoch]

    def best(self) -> float:
        found = [self[epoch] for epoch in range(EPOCHS)]
        return min((loss for loss in found if math.isfinite(loss)), default=math.inf)


@cache
def example() -> ModuleType:
    made = importlib.util.spec_from_file_location("search_example", EXAMPLE)
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def _shipped(lr: float, momentum: float, decay: float, width: int) -> Iterator[float]:
    weights, _ = example().resumed(None, width)
    for epoch in range(EPOCHS):
        yield example().train(weights, epoch, lr, momentum, decay)


SAMPLES, FEATURES, BATCH = 600, 8, 50  # of the late task


@cache
def _late_data() -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(0)
    x = data.normal(size=(SAMPLES, FEATURES))
    noise = 0.1 * data.normal(size=SAMPLES)
    return x, np.sin(2 * x[:, 0]) * x[:, 1] + np.abs(x[:, 2]) + noise


def _late(lr: float, momentum: float, decay: float, width: int) -> Iterator[float]:
    x, y = _late_data()
    (train_x, test_x), (train_y, test_y) = np.split(x, [400]), np.split(y, [400])
    begin = np.random.default_rng(1)
    weights = [begin.normal(size=(FEATURES, width)) / FEATURES**0.5, np.zeros(width)]
    weights += [begin.normal(size=width) / width**0.5, np.zeros(1)]
    speed = [np.zeros_like(each) for each in weights]
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch + 2).permutation(len(train_x))
        for chosen in order.reshape(-1, BATCH):
            hidden = np.tanh(train_x[chosen] @ weights[0] + weights[1])
            error = (hidden @ weights[2] + weights[3] - train_y[chosen])[:, None] / BATCH
            back = error * weights[2] * (1 - hidden**2)
            slopes = [train_x[chosen].T @ back, back.sum(0), (error * hidden).sum(0), error.sum(0)]
            for n, slope in enumerate(slopes):
                speed[n] = momentum * speed[n] - lr * (slope + decay * weights[n])
                weights[n] = weights[n] + speed[n]
        guess = np.tanh(test_x @ weights[0] + weights[1]) @ weights[2] + weights[3]
        yield float(((guess - test_y) ** 2).mean())


TASKS = {
    "shipped": Task(
        (
            ("lr", ["1e-4..1.0:log"]),
            ("momentum", ["0.0..0.99"]),
            ("decay", ["1e-6..1e-1:log"]),
            ("width", ["4..128:log"]),
        ),
        _shipped,
    ),
    "late": Task(
        (
            ("lr", ["1e-5..3.0:log"]),
            ("momentum", ["0.0..0.99"]),
            ("decay", ["1e-6..1e-1:log"]),
            ("width", ["2..64:log"]),
        ),
        _late,
    ),
}
