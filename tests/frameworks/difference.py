"""Compares two checkpoints: `python difference.py ONE OTHER` prints the largest difference of two
numbers in them. It needs a Python with the framework that wrote them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def arrays(path: Path) -> Iterator[tuple[str, Any]]:
    """The state from which training resumes, by name."""
    if path.suffix == ".keras":
        import keras

        model = keras.models.load_model(path)
        # Not by name, because Keras gives other names to the second model in a process.
        yield from numbers("model", model.variables)
        yield from numbers("optimizer", model.optimizer.variables)
    elif path.is_dir():
        from safetensors.numpy import load_file

        yield from load_file(path / "model.safetensors").items()
        for name in ("optimizer.pt", "scheduler.pt"):
            yield from numbers(name, loaded(path / name))
    else:
        yield from numbers("", loaded(path))


def loaded(path: Path) -> Any:
    import torch

    return torch.load(path, map_location="cpu", weights_only=False)


def numbers(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from numbers(f"{name}/{key}", value)
    elif isinstance(found, list | tuple):
        yield from numbers(name, dict(enumerate(found)))
    elif hasattr(found, "numpy"):
        yield name, found.numpy()
    elif isinstance(found, int | float):
        yield name, np.asarray(found)


def distance(one: Any, other: Any) -> float:
    apart = np.abs(np.subtract(one, other, dtype=float))
    unlike = np.where(np.equal(one, other), 0.0, apart)  # Lightning keeps an infinite score
    return float(np.nan_to_num(unlike, nan=np.inf).max())


def main(one: str, other: str) -> None:
    first, second = dict(arrays(Path(one))), dict(arrays(Path(other)))
    assert first
    assert first.keys() == second.keys(), first.keys() ^ second.keys()
    apart = {name: distance(first[name], second[name]) for name in first}
    worst = max(apart, key=lambda name: apart[name])
    print(f"{apart[worst]!r} {worst}")


if __name__ == "__main__":
    main(*sys.argv[1:])
