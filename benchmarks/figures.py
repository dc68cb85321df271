"""What all benchmarks share: flags, output, and the time left. Each prints one JSON object."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import comb
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from statistics import mean
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "figures" / "bench.json"
PUBLISHED_KUBE = PUBLISHED.with_name("bench_kube.json")
CERTAINTY = 0.95
Result = TypeVar("Result")

PROGRAMS = ("benchmarks", "kubernetesdlprofile", "scheduler", "simulator")


def options(description: str | None, **defaults: float | str) -> argparse.Namespace:
    """Parses `--json`, and a flag for each default, with the default's type."""
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
    """Runs clients in parallel processes, one for each call, and returns their answers. A client
    puts its answer into the queue that is its last argument. Raises RuntimeError if one fails."""
    context = multiprocessing.get_context("spawn")
    answers: Queue[Any] = context.Queue()
    clients = [context.Process(target=client, args=(*call, answers)) for call in calls]
    for process in clients:
        process.start()
    parts: list[Any] = []
    while len(parts) < len(clients):
        try:
            parts.append(answers.get(timeout=1.0))
        except Empty:
            if any(process.exitcode for process in clients):
                for process in clients:
                    process.kill()
                raise RuntimeError("a client failed: see above") from None
    for process in clients:
        process.join()
    return parts


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values that enclose the median with some certainty, for any distribution: at both
    ends as many are left out as a fair coin allows."""
    ordered, count, out, chance = sorted(values), len(values), 0, 2.0 ** -len(values)
    while chance <= (1 - CERTAINTY) / 2:
        out += 1
        chance += comb(count, out) * 2.0**-count
    return ordered[max(0, out - 1)], ordered[-max(1, out)]


def measured() -> str:
    """The default folder of measured tables and traces."""
    return os.environ.get("EPOCH_SCHEDULER_DATA") or str(ROOT.parent / "shared" / "data")


def published() -> dict[str, Any]:  # Any: whatever they print
    """The figures for the documents; those of a cluster come from a separate run."""
    run: dict[str, Any] = json.loads(PUBLISHED.read_text())
    return {**run, "kubernetes": json.loads(PUBLISHED_KUBE.read_text())}


def sources() -> str:
    """A digest of all programs: only figures with the same digest belong in one table."""
    digest = hashlib.sha256()
    for path in sorted(path for name in PROGRAMS for path in (ROOT / name).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def write(path: Path, content: object) -> None:
    """Writes the file atomically, so that an interruption leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)


class Left:
    """Estimates the time left from what each task took last time and from today's speed."""

    def __init__(
        self, expected: Mapping[str, float | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Seconds of each task; one that has never run is assumed to be like the others."""
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


def in_processes(
    tasks: Mapping[str, Callable[[], Result]],
    expected: Mapping[str, float | None],
    tell: Callable[[Result], str],
    processes: int = 2,
) -> Iterator[tuple[str, Result]]:
    """Yields results by name as they come, and tells of each. The longest and the unknown start
    first, to keep all busy. `expected`: the seconds of each task."""
    left = Left(expected)
    names = sorted(tasks, key=lambda name: -(expected[name] or math.inf))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(tasks[name]): name for name in names}
        try:
            for future in as_completed(futures):
                name, found = futures[future], future.result()
                left.ended(name)
                sys.stderr.write(f"{name}: {tell(found)}; {left.words()}\n")
                yield name, found
        finally:
            pool.shutdown(cancel_futures=True)
