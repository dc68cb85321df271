"""A real training: a small network on generated data, with a checkpoint after each epoch.

It does what any script for epoch-scheduler does: it resumes from the checkpoint, tells the library
where epochs start and end, and saves before the next one starts.
"""

import hashlib
import os
from pathlib import Path

import numpy as np

from kubernetesdlprofile import kubeprofiler

STEPS = 160


def main() -> None:
    prof = kubeprofiler.KubeProfiler()
    checkpoint = Path(prof.root_dir) / "network.npz"
    data = np.random.default_rng(7)
    inputs = data.normal(size=(4096, 64))
    targets = np.sin(inputs @ data.normal(size=(64, 1)))
    network, first = restored(checkpoint)
    prof.epoch = first  # the checkpoint knows better what it contains
    if prof.RESTARTED:
        print(f"resumes at epoch {first + 1} of {prof.EPOCHS}")
    for epoch in range(first, prof.EPOCHS):
        prof.start_epoch()
        batches = np.random.default_rng(
            epoch
        )  # the same batches, however often the job was interrupted
        for _ in range(STEPS):
            rows = batches.integers(0, len(inputs), size=512)
            loss = step(network, inputs[rows], targets[rows])
            prof.measure()
        save(checkpoint, network, epoch + 1)
        prof.end_epoch()
        print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)
    digest = hashlib.sha256(b"".join(part.tobytes() for part in network)).hexdigest()
    print(f"network {digest[:12]}", flush=True)
    prof.end()


def step(network: list[np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> float:
    """One step of gradient descent, in place."""
    first, second = network
    hidden = np.tanh(inputs @ first)
    error = hidden @ second - targets
    back = (error @ second.T) * (1 - hidden**2)
    second -= 0.05 * hidden.T @ error / len(inputs)
    first -= 0.05 * inputs.T @ back / len(inputs)
    return float(np.mean(error**2))


def restored(checkpoint: Path) -> tuple[list[np.ndarray], int]:
    if checkpoint.exists():
        with np.load(checkpoint) as kept:
            return [kept["first"], kept["second"]], int(kept["epoch"])
    random = np.random.default_rng(1)
    return [random.normal(size=(64, 256)) / 8, random.normal(size=(256, 1)) / 16], 0


def save(checkpoint: Path, network: list[np.ndarray], epoch: int) -> None:
    """Saves completely or not at all, because a training may be killed at any moment."""
    fresh = checkpoint.with_suffix(".new.npz")
    np.savez(fresh, first=network[0], second=network[1], epoch=epoch)
    os.replace(fresh, checkpoint)  # noqa: PTH105 - the usual call in training scripts


if __name__ == "__main__":
    main()
