"""Jobs of a sweep that have logged curves, for the pages that compare them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.series.delivering import entries
from tests.gateway.serving_http import Gateway
from tests.serving import Serving

EPOCH_STEPS = 50


@dataclass
class Sweep:
    """What is submitted to this API, and delivered to this gateway as by the relays of the jobs."""

    daemon: Serving
    gateway: Gateway
    told: dict[str, int] = field(default_factory=dict)  # entries by spool

    def submit(self, name: str, params: Mapping[str, Any] | None = None, **spec: Any) -> str:
        labels = [pb.KeyValue(key="sweep", value="7")]
        given = {"held": True, "experiment": "sweep", "labels": labels, **spec}
        job = self.daemon.submit(name, **given)
        if params:
            self.tell(job, {"params": dict(params)})
        return job

    def tell(self, job: str, *records: object, attempt: int = 1) -> None:
        spool = f"{job}-{attempt}"
        first = self.told.get(spool, 0)
        with self.gateway.client(self.daemon.job(job).token) as client:
            query: dict[str, str | int] = {"attempt": attempt, "spool": spool, "first": first}
            answer = client.post("/api/v1/tracking", params=query, content=entries(*records))
            assert answer.status_code == 200, answer.text
            assert answer.json()["refused"] == 0, answer.text
        self.told[spool] = first + len(records)

    def log(
        self, job: str, steps: range, values: Mapping[str, Sequence[float]], attempt: int = 1
    ) -> None:
        """One value for each step; a step took 0.4 s, and the last one is now."""
        now = time.time()
        points = [
            ["metrics", {}, name, int((now - 0.4 * (steps[-1] - step)) * 1e9), step, value]
            for name, each in values.items()
            for step, value in zip(steps, each, strict=True)
        ]
        self.tell(job, {"points": points}, attempt=attempt)


RATES, DEPTHS = (0.3, 0.1, 0.03, 0.01), (18, 34, 50)


def make_grid(sweep: Sweep, steps: int = 400) -> list[str]:
    """A run for each learning rate and depth, of which one diverges."""
    jobs = []
    for number, (rate, depth) in enumerate((rate, depth) for rate in RATES for depth in DEPTHS):
        optimizer = "adam" if number % 2 else "sgd"
        params = {"lr": rate, "net": {"depth": depth, "kind": "resnet"}, "optimizer": optimizer}
        job = sweep.submit(f"resnet{depth}-lr{rate}", params | {"seed": number, "batch_size": 64})
        diverges = (rate, depth) == (0.3, 50)
        curves = dict(_curves(rate, depth, steps, random.Random(number), diverges))
        sweep.log(job, range(steps), curves)
        jobs.append(job)
    return jobs


def _curves(
    rate: float, depth: int, steps: int, chance: random.Random, diverges: bool
) -> Iterator[tuple[str, list[float]]]:
    speed, floor = 90 / (1 + 12 * rate), 0.1 + 0.8 * abs(math.log10(rate / 0.05)) / depth**0.5
    losses = [
        floor + 2.2 * math.exp(-step / speed) * (1 + 0.12 * chance.gauss(0, 1))
        for step in range(steps)
    ]
    if diverges:
        losses = losses[: steps // 3] + [math.nan] * (steps - steps // 3)
    yield "loss", losses
    yield (
        "val_acc",
        [max(0.0, min(1.0, 1 - each / 2.6 + chance.gauss(0, 0.008))) for each in losses],
    )
    yield "lr", [rate * 0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]
    yield "epoch", [step / EPOCH_STEPS for step in range(steps)]
    yield "grad_norm", [10 ** (chance.gauss(-0.4, 0.15) - step / steps) for step in range(steps)]
