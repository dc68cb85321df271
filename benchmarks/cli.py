"""The cost of `scheduler-state`: `python -m benchmarks.cli --json`.

A real daemon has 20 jobs. `scheduler-state` runs repeatedly, as a user would run it, in turns with
an interpreter that does nothing. CPU time is user and system time of the median run, including the
start of the process, on a warm machine: files and bytecode are cached after the first runs.

    cpu_ms     of `scheduler-state`
    python_ms  of `python -c pass`
    ratio      of the two
    runs       of each command
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import options, show
from tests.support import BIN, Daemon

JOBS = 20
WARM_UP = 3


def main() -> None:
    given = options(__doc__, runs=40)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "2x16384").start()
        try:
            for number in range(JOBS):
                daemon.submit("--hold", f"job-{number}", "--", "true")
            state, nothing = _measure(daemon.address, given.runs)
        finally:
            daemon.end()
    show(
        cpu_ms=round(1000 * state, 1),
        python_ms=round(1000 * nothing, 1),
        ratio=round(state / nothing, 2),
        runs=given.runs,
    )


def _measure(address: str, runs: int) -> tuple[float, float]:
    environment = {**os.environ, "SCHEDULER_SERVER": address}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise bytecode would not be cached
    state, nothing = [str(BIN / "scheduler-state")], [sys.executable, "-c", "pass"]
    for _ in range(WARM_UP):
        _cpu_seconds(state, environment)
    used = [[_cpu_seconds(words, environment) for words in (state, nothing)] for _ in range(runs)]
    return statistics.median(each[0] for each in used), statistics.median(each[1] for each in used)


def _cpu_seconds(words: Sequence[str], environment: dict[str, str]) -> float:
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{words[0]} exited with code {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
