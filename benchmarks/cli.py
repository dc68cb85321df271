"""The cost of `scheduler-state`: `python -m benchmarks.cli --json`.

A real daemon has 20 jobs. `scheduler-state` runs repeatedly, as a user would run it, in turns with
an interpreter that does nothing. CPU time is user and system time of the median run, including the
start of the process, on a warm machine: files and bytecode are cached after the first runs.

    cpu_ms          of `scheduler-state`
    context_cpu_ms  of the same, which finds the daemon in one of 20 contexts
    python_ms       of `python -c pass`
    ratio           of the first and the last
    runs            of each command
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
CONTEXTS = 20
WARM_UP = 3


def main() -> None:
    given = options(__doc__, runs=40)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "2x16384").start()
        try:
            for number in range(JOBS):
                daemon.submit("--hold", f"job-{number}", "--", "true")
            (Path(folder) / "epoch-scheduler").mkdir()
            config = Path(folder) / "epoch-scheduler" / "config.yaml"
            config.write_text(_contexts(daemon.address))
            config.chmod(0o600)
            state, by_context, nothing = _measure(daemon.address, folder, given.runs)
        finally:
            daemon.end()
    show(
        cpu_ms=round(1000 * state, 1),
        context_cpu_ms=round(1000 * by_context, 1),
        python_ms=round(1000 * nothing, 1),
        ratio=round(state / nothing, 2),
        runs=given.runs,
    )


def _contexts(address: str) -> str:
    one = "server: {}\n    image: train:3\n    env: {{A: 1, B: 2}}\n    label: {{team: vision}}\n"
    others = (f"  c{number}:\n    {one.format('x:1')}" for number in range(CONTEXTS - 1))
    return f"current_context: lab\ncontexts:\n  lab:\n    {one.format(address)}{''.join(others)}"


def _measure(address: str, config: str, runs: int) -> list[float]:
    """The median CPU time of each command."""
    clean = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise bytecode would not be cached
    clean.pop("SCHEDULER_SERVER", None)
    state, nothing = [str(BIN / "scheduler-state")], [sys.executable, "-c", "pass"]
    commands = (
        (state, {**clean, "SCHEDULER_SERVER": address}),
        (state, {**clean, "XDG_CONFIG_HOME": config}),
        (nothing, clean),
    )
    for _ in range(WARM_UP):
        for words, environment in commands:
            _cpu_seconds(words, environment)
    used = [[_cpu_seconds(*each) for each in commands] for _ in range(runs)]
    return [statistics.median(each) for each in zip(*used, strict=True)]


def _cpu_seconds(words: Sequence[str], environment: dict[str, str]) -> float:
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{words[0]} exited with code {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
