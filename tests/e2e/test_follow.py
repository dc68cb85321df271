"""`scheduler-get-logs --follow` while the daemon is restarted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import BIN, DEADLINE_SECONDS, Daemon, Gate

SCRIPT = """exec 3< {gate}
for i in 1 2 3 4 5 6; do head -c 1 <&3 > {folder}/took; echo "line $i"; done"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state").start()
    yield made
    made.end()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_following_continues_where_it_was_when_the_daemon_is_back(
    end: str, daemon: Daemon, gate: Gate, tmp_path: Path
) -> None:
    script = SCRIPT.format(gate=gate.path, folder=tmp_path)
    job = daemon.submit("--num_gpus", "0", "demo", "--", "sh", "-c", script)
    log = daemon.state / "logs" / job / "attempt-1" / "rank0.log"
    gate.open(2)
    daemon.wait_state(demo="RUNNING")
    follows = subprocess.Popen(
        [BIN / "scheduler-get-logs", "--follow", "--tail", "100", "demo"],
        env={**os.environ, "SCHEDULER_SERVER": daemon.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follows.stdout is not None
    assert follows.stderr is not None
    seen = [follows.stdout.readline() for _ in range(2)]
    getattr(daemon, end)()
    lost = next(line for line in follows.stderr if "no output yet" not in line)
    gate.open(2)  # it writes while nobody listens
    daemon.start()
    seen += [follows.stdout.readline() for _ in range(2)]
    gate.open(2)
    out, err = follows.communicate(timeout=DEADLINE_SECONDS)
    assert follows.returncode == 0
    assert "".join(seen) + out == log.read_text() == "".join(f"line {i}\n" for i in range(1, 7))
    assert "lost the connection" in lost
    assert err == ""
