"""What all benchmarks share: their flags, how they print, and how long is left. Each prints one
JSON object."""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "figures" / "bench.json"
PUBLISHED_KUBE = PUBLISHED.with_name("bench_kube.json")
CERTAINTY = 0.95
PROGRAMS = ("benchmarks", "kubernetesdlprofile", "scheduler", "simulator")


def options(description: str | None, **defaults: float | str) -> argparse.Namespace:
    """`--json`, and a flag for each default, of its type."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line (the default prints more)"
    )
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def show(**figures: object) -> None:
    indent = None if "--json" in sys.argv else 2
    sys.stdout.write(json.dumps(figures, indent=indent) + "\n")


def answered(client: Callable[..., None], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What processes at once have to say, one for each call: a client puts its answer into the
    queue that it is given last."""
    context = multiprocessing.get_context("spawn")
    answers: Queue[Any] = context.Queue()
    clients = [context.Process(target=client, args=(*call, answers)) for call in calls]
    for process in clients:
        process.start()
    parts = [answers.get() for _ in clients]
    for process in clients:
        process.join()
    return parts


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of them that have the median between them with some certainty, whatever they are drawn
    from: as many are left out at either end as a fair coin allows."""
    ordered, count, out, chance = sorted(values), len(values), 0, 2.0 ** -len(values)
    while chance <= (1 - CERTAINTY) / 2:
        out += 1
        chance += comb(count, out) * 2.0**-count
    return ordered[max(0, out - 1)], ordered[-max(1, out)]


def measured() -> str:
    """The folder of measured tables and traces, if no flag names another."""
    return os.environ.get("EPOCH_SCHEDULER_DATA") or str(ROOT.parent / "shared" / "data")


def published() -> dict[str, Any]:  # Any: whatever they print
    """What the documents are made from: figures of a cluster have a run of their own."""
    run: dict[str, Any] = json.loads(PUBLISHED.read_text())
    return {**run, "kubernetes": json.loads(PUBLISHED_KUBE.read_text())}


def sources() -> str:
    """A digest of all programs: figures of the same digest may stand in one table."""
    digest = hashlib.sha256()
    for path in sorted(path for name in PROGRAMS for path in (ROOT / name).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def write(path: Path, content: object) -> None:
    """Whole or not at all, whenever we are interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)


class Left:
    """How long some tasks will take, by what each took the last time and how it goes today."""

    def __init__(
        self, expected: Mapping[str, float | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Seconds of each task; one that has never been done is taken to be like the others."""
        known = [seconds for seconds in expected.values() if seconds is not None]
        usual = mean(known) if known else None
        self._known = usual is not None
        self._left = {name: seconds or usual or 1.0 for name, seconds in expected.items()}
        self._count, self._spent = len(expected), 0.0
        self._clock, self._began = clock, clock()

    def ended(self, name: str) -> None:
        self._spent += self._left.pop(name)

    def words(self) -> str:
        """`3 of 16, 12:40 left`"""
        words = f"{self._count - len(self._left)} of {self._count}"
        rate = (self._clock() - self._began) / self._spent if self._spent else None
        if not self._left or (rate is None and not self._known):
            return words
        minutes, seconds = divmod(round(sum(self._left.values()) * (rate or 1.0)), 60)
        return f"{words}, {minutes}:{seconds:02} left"
