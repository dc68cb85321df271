"""The cost of one `measure()` in a training script: in ns, in calls of an empty method, in bytes
that stay allocated, and the 99th percentile while the sender's thread is busy. Also the cost of the
start: CPU to import the library, without that of an interpreter that does nothing, and to make its
profiler outside the scheduler, which imports much that frameworks have imported anyway."""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import tempfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from timeit import timeit

import kubernetesdlprofile
from benchmarks import figures
from kubernetesdlprofile import courier, wire
from kubernetesdlprofile.kubeprofiler import KubeProfiler
from kubernetesdlprofile.transport import Unreachable

IMPORT = "from kubernetesdlprofile import kubeprofiler"
MAKE = f"{IMPORT}; kubeprofiler.KubeProfiler()"
PACKAGE = Path(kubernetesdlprofile.__file__).parent


class Empty:
    def measure(self) -> None:
        """An empty method, for the least cost of a call."""


class Failing:
    """A scheduler that is away, so that the sender is busy all the time."""

    def call(self, method: str, message: object, timeout_seconds: float) -> tuple[bool, str]:
        wire.encode_profiles([PROFILE] * 100)
        raise Unreachable("gone")

    def close(self) -> None:
        """Does nothing: no connection is open."""


PROFILE = wire.Profile("job", 1, 0, 1, 0.1, 1.0, 1.0, 0, 0.0, 1)


def nanoseconds(subject: object, calls: int) -> float:
    """The time per call, including the loop."""
    return timeit("subject.measure()", globals={"subject": subject}, number=calls) / calls * 1e9


def allocated(profiler: KubeProfiler, calls: int) -> float:
    """Bytes that stay allocated per call, after some calls to warm up."""
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
    """The percentile of single calls beside a thread that encodes and fails without a pause."""
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


def beginning(turns: int) -> dict[str, float]:
    """Runs interpreters in turns; the package is compiled, as pip installs it."""
    more: dict[str, list[float]] = {"import_ms": [], "make_ms": []}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder, PACKAGE.name))
        compileall.compile_dir(folder, quiet=2)
        environment = {"PYTHONPATH": folder, "TMPDIR": folder}
        for _ in range(turns):
            bare = cpu_ms("pass", environment)
            for key, code in (("import_ms", IMPORT), ("make_ms", MAKE)):
                more[key].append(cpu_ms(code, environment) - bare)
    low, high = figures.interval(more["import_ms"])
    shown = {key: median(values) for key, values in more.items()}
    shown.update(import_ms_low=low, import_ms_high=high)
    return {key: round(value, 1) for key, value in shown.items()}


def cpu_ms(code: str, environment: Mapping[str, str]) -> float:
    """CPU of a Python process that runs this code, from its first instruction to its last."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123  # a device
        quiet = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        pid = os.posix_spawn(
            sys.executable, [sys.executable, "-c", code], environment, file_actions=quiet
        )
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{code!r} failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def main() -> None:
    options = figures.options(__doc__, calls=20_000, repeats=300, turns=30)
    profiler, empty = KubeProfiler(), Empty()
    profiler.start_epoch()
    # The best of many short runs in turns, so that other work on the machine matters little.
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
        **beginning(options.turns),
    )


if __name__ == "__main__":
    main()
