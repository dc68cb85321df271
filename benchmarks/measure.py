"""What one `measure()` costs a training script: in ns, in calls of an empty method, in bytes that
stay allocated, and at the 99th percentile while the sender's thread is busy."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from statistics import quantiles
from time import perf_counter_ns
from timeit import timeit

from benchmarks import figures
from kubernetesdlprofile import courier, wire
from kubernetesdlprofile.kubeprofiler import KubeProfiler
from kubernetesdlprofile.transport import Unreachable

IMPORT = """
import sys, time
began = time.process_time()
from kubernetesdlprofile import kubeprofiler
print((time.process_time() - began) * 1e3)
"""


class Empty:
    def measure(self) -> None:
        """The least that a method call can cost."""


class Failing:
    """A scheduler that is gone: the sender is at work all the time."""

    def call(self, method: str, message: object, timeout_seconds: float) -> tuple[bool, str]:
        wire.encode_profiles([PROFILE] * 100)
        raise Unreachable("gone")

    def close(self) -> None:
        """Nothing is open."""


PROFILE = wire.Profile("job", 1, 0, 1, 0.1, 1.0, 1.0, 0, 0.0, 1)


def nanoseconds(subject: object, calls: int) -> float:
    """Per call, with the loop around it."""
    return timeit("subject.measure()", globals={"subject": subject}, number=calls) / calls * 1e9


def allocated(profiler: KubeProfiler, calls: int) -> float:
    """Bytes that stay, per call, after some calls to settle."""
    steps = range(calls)
    profiler.measure()
    tracemalloc.start()
    try:
        for _ in steps:
            profiler.measure()
        before, _ = tracemalloc.get_traced_memory()
        for _ in steps:
            profiler.measure()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / calls


def p99_us(profiler: KubeProfiler, calls: int) -> float:
    """Of single calls, beside a thread that encodes and fails without a pause."""
    courier.PAUSE_SECONDS = courier.PAUSE_SECONDS_MAX = 1e-4
    busy = courier.Courier(Failing(), 3600.0, lambda: None, lambda *_: None)
    busy.post_epoch(PROFILE)
    spent = []
    for _ in range(calls):
        began = perf_counter_ns()
        profiler.measure()
        spent.append(perf_counter_ns() - began)
    busy.close()
    return quantiles(spent, n=100)[98] / 1e3


def import_ms() -> float:
    """CPU time, the best of some, each in a Python of its own."""
    words = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(10)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    options = figures.options(__doc__, calls=20_000, repeats=300)
    profiler, empty = KubeProfiler(), Empty()
    profiler.start_epoch()
    # The best of many short runs, taken in turns, so that what else the machine does counts little.
    turns = [
        (nanoseconds(profiler, options.calls), nanoseconds(empty, options.calls))
        for _ in range(options.repeats)
    ]
    ns, empty_ns = (min(runs) for runs in zip(*turns, strict=True))
    figures.show(
        ns=round(ns, 1),
        ratio=round(ns / empty_ns, 2),
        bytes=allocated(profiler, 10 * options.calls),
        p99_us=round(min(p99_us(profiler, 10 * options.calls) for _ in range(3)), 2),
        import_ms=round(import_ms(), 1),
    )


if __name__ == "__main__":
    main()
