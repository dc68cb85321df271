"""A small network in plain numpy. Stopped after any epoch, it ends with the very same weights."""

import json
from functools import partial
from typing import Any

import numpy as np

from kubernetesdlprofile import kubeprofiler

SAMPLES, BATCH, HIDDEN = 16384, 32, 256


def main() -> None:
    data = np.random.default_rng(seed=1)
    inputs = data.normal(size=(SAMPLES, 32))
    targets = np.sin(inputs @ data.normal(size=(32, 1)) / 3)
    with kubeprofiler.KubeProfiler(epochs=5) as api:
        state, chance, api.epoch = resumed(api.checkpoint_path())
        for epoch in api.epochs():
            loss = 0.0
            for rows in chance.permutation(SAMPLES).reshape(-1, BATCH):
                loss += step(state, inputs[rows], targets[rows])
                api.measure()
            said = json.dumps(chance.bit_generator.state)
            kept: dict[str, Any] = {**state, "epoch": epoch + 1, "chance": said}
            api.save("last.npz", partial(np.savez, **kept))
            print(f"epoch {epoch + 1}: loss {loss * BATCH / SAMPLES!r}", flush=True)


def resumed(path: str | None) -> tuple[dict[str, np.ndarray], np.random.Generator, int]:
    """Weights with their momentum, the generator that shuffles, and the epochs they include."""
    chance = np.random.default_rng(seed=2)
    if path:
        with np.load(path) as kept:
            state: dict[str, Any] = dict(kept)
        chance.bit_generator.state = json.loads(str(state.pop("chance")))
        return state, chance, int(state.pop("epoch"))
    first, second = chance.normal(size=(32, HIDDEN)) / 8, chance.normal(size=(HIDDEN, 1)) / 16
    speeds = {"first_speed": np.zeros_like(first), "second_speed": np.zeros_like(second)}
    return {"first": first, "second": second, **speeds}, chance, 0


def step(state: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> float:
    """Gradient descent with momentum, in place."""
    hidden = np.tanh(inputs @ state["first"])
    error = hidden @ state["second"] - targets
    back = (error @ state["second"].T) * (1 - hidden**2)
    for name, gradient in (("first", inputs.T @ back), ("second", hidden.T @ error)):
        speed = state[f"{name}_speed"]
        speed *= 0.9
        speed -= 0.02 * gradient / len(inputs)
        state[name] += speed
    return float(np.mean(error**2))


if __name__ == "__main__":
    main()
