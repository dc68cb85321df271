"""What one `measure()` costs a training script, in ns and in calls of an empty method."""

from __future__ import annotations

from timeit import timeit

from benchmarks import figures
from kubernetesdlprofile.kubeprofiler import KubeProfiler


class Empty:
    def measure(self) -> None:
        """The least that a method call can cost."""


def nanoseconds(subject: object, calls: int) -> float:
    """Per call, with the loop around it."""
    return timeit("subject.measure()", globals={"subject": subject}, number=calls) / calls * 1e9


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
    figures.show(ns=round(ns, 1), ratio=round(ns / empty_ns, 2))


if __name__ == "__main__":
    main()
