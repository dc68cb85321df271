"""A small classifier in plain numpy, for searches: its settings are arguments (docs/sweeps.md).

Its data are random points, which a network has sorted into classes; a tenth of the labels is wrong.
So a network that is too wide learns these by heart, and one that is too small learns nothing.
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

from kubernetesdlprofile import kubeprofiler

FEATURES, CLASSES, SAMPLES, BATCH = 16, 5, 1000, 20
EPOCHS = 27
Weights = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("lr", 0.05), ("momentum", 0.9), ("decay", 1e-4)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--width", type=int, default=32)
    asked = parser.parse_args()
    np.seterr(all="ignore")  # a rate that is too high ends in infinity
    with kubeprofiler.KubeProfiler(epochs=EPOCHS) as api:
        weights, api.epoch = resumed(api.checkpoint_path(), asked.width)
        for epoch in api.epochs():
            loss = train(weights, epoch, asked.lr, asked.momentum, asked.decay, api.measure)
            kept: dict[str, Any] = {**weights, "epoch": epoch + 1}
            api.save("last.npz", partial(np.savez, **kept))
            api.log_metric("val_loss", loss)
            print(f"epoch {epoch + 1}: val_loss {loss!r}", flush=True)


def resumed(path: str | None, width: int) -> tuple[Weights, int]:
    """The weights with their momentum, and the epochs that they include."""
    if path:
        with np.load(path) as kept:
            state: dict[str, Any] = dict(kept)
        return state, int(state.pop("epoch"))
    chance = np.random.default_rng(seed=1)
    weights = {
        "first": chance.normal(size=(FEATURES, width)) * (2 / FEATURES) ** 0.5,
        "first_bias": np.zeros(width),
        "second": chance.normal(size=(width, CLASSES)) / width**0.5,
        "second_bias": np.zeros(CLASSES),
    }
    return weights | {f"{name}_speed": np.zeros_like(of) for name, of in weights.items()}, 0


def dataset() -> tuple[np.ndarray, np.ndarray]:
    """Of training and of validation, one after the other."""
    chance = np.random.default_rng(seed=0)
    inputs = chance.normal(size=(2 * SAMPLES, FEATURES))
    hidden = np.tanh(inputs @ chance.normal(size=(FEATURES, 12)))
    labels = (hidden @ chance.normal(size=(12, CLASSES))).argmax(axis=1)
    wrong = chance.random(2 * SAMPLES) < 0.1
    return inputs, np.where(wrong, chance.integers(CLASSES, size=2 * SAMPLES), labels)


INPUTS, LABELS = dataset()
ONE_HOT = np.eye(CLASSES)[LABELS]


def train(
    weights: Weights, epoch: int, lr: float, momentum: float, decay: float, measure: Any = int
) -> float:
    """Trains in place for one epoch, and returns the loss of what it has not seen. The order of
    the samples depends on nothing but the epoch."""
    order = np.random.default_rng(seed=epoch + 2).permutation(SAMPLES)
    for rows in order.reshape(-1, BATCH):
        hidden, logs = predicted(weights, INPUTS[rows])
        error = (np.exp(logs) - ONE_HOT[rows]) / BATCH
        back = (error @ weights["second"].T) * (hidden > 0)
        gradients = {
            "first": INPUTS[rows].T @ back,
            "first_bias": back.sum(axis=0),
            "second": hidden.T @ error,
            "second_bias": error.sum(axis=0),
        }
        for name, gradient in gradients.items():
            speed = weights[f"{name}_speed"]
            speed *= momentum
            speed -= lr * (gradient + decay * weights[name])
            weights[name] += speed
        measure()
    _, logs = predicted(weights, INPUTS[SAMPLES:])
    return float(-logs[np.arange(SAMPLES), LABELS[SAMPLES:]].mean())


def predicted(weights: Weights, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the logarithms of the probabilities of each class."""
    hidden = np.maximum(0, inputs @ weights["first"] + weights["first_bias"])
    scores = hidden @ weights["second"] + weights["second_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


if __name__ == "__main__":
    main()
