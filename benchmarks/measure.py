"""What one `measure()` costs a training script: python -m benchmarks.measure [--json]"""

from __future__ import annotations

import argparse
import json
import sys
from timeit import repeat

from kubernetesdlprofile.kubeprofiler import KubeProfiler

CALLS = 20_000
REPEATS = 200  # the best of many short ones: what the code costs, not the machine's other load


class Empty:
    def measure(self) -> None:
        """The least that a method call can cost."""


def nanoseconds(subject: object) -> float:
    """Per call, with the loop around it."""
    runs = repeat("subject.measure()", globals={"subject": subject}, number=CALLS, repeat=REPEATS)
    return min(runs) / CALLS * 1e9


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    profiler = KubeProfiler()
    profiler.start_epoch()
    ns, empty_ns = nanoseconds(profiler), nanoseconds(Empty())
    result = {"ns": round(ns, 1), "ratio": round(ns / empty_ns, 2)}
    text = json.dumps(result) if options.json else f"{ns:.0f} ns, {ns / empty_ns:.1f} empty calls"
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
