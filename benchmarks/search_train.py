"""A small network on data of its own: the task of benchmarks/search.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from kubernetesdlprofile import kubeprofiler

SAMPLES, FEATURES, BATCH = 600, 8, 50


def main(lr: float, momentum: float, decay: float, width: int) -> None:
    api = kubeprofiler.KubeProfiler()
    data = np.random.default_rng(0)
    x = data.normal(size=(SAMPLES, FEATURES))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + np.abs(x[:, 2]) + 0.1 * data.normal(size=SAMPLES)
    (train_x, test_x), (train_y, test_y) = np.split(x, [400]), np.split(y, [400])
    begin = np.random.default_rng(1)
    weights = [begin.normal(size=(FEATURES, width)) / FEATURES**0.5, np.zeros(width)]
    weights += [begin.normal(size=width) / width**0.5, np.zeros(1)]
    speed = [np.zeros_like(each) for each in weights]
    checkpoint = Path(api.root_dir, "weights.npz")
    if checkpoint.exists():
        kept = np.load(checkpoint)
        weights, speed = [kept[f"w{n}"] for n in range(4)], [kept[f"s{n}"] for n in range(4)]
    for epoch in api.epochs():
        order = np.random.default_rng(epoch + 2).permutation(len(train_x))
        for first in range(0, len(order), BATCH):
            chosen = order[first : first + BATCH]
            hidden = np.tanh(train_x[chosen] @ weights[0] + weights[1])
            error = (hidden @ weights[2] + weights[3] - train_y[chosen])[:, None] / BATCH
            back = error * weights[2] * (1 - hidden**2)
            slopes = [train_x[chosen].T @ back, back.sum(0), (error * hidden).sum(0), error.sum(0)]
            for n, slope in enumerate(slopes):
                speed[n] = momentum * speed[n] - lr * (slope + decay * weights[n])
                weights[n] = weights[n] + speed[n]
            api.measure()
        guess = np.tanh(test_x @ weights[0] + weights[1]) @ weights[2] + weights[3]
        named = {f"w{n}": w for n, w in enumerate(weights)} | {
            f"s{n}": s for n, s in enumerate(speed)
        }
        np.savez(checkpoint.with_suffix(".new.npz"), **named)
        checkpoint.with_suffix(".new.npz").replace(checkpoint)
        api.log_metric("val_loss", float(((guess - test_y) ** 2).mean()))


np.seterr(all="ignore")  # a rate that is too high ends in infinity, and is pruned for it
rate, inertia, loss = map(float, sys.argv[1:4])
main(rate, inertia, loss, int(sys.argv[4]))
