"""S23: a shell on GPUs that no other job uses, for some hours."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminals import Terminal
from tests.e2e.conftest import Daemons
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

INTERACTIVE = "scheduler-run-interactive"


@pytest.fixture
def daemon(daemons: Daemons) -> Daemon:
    return daemons("1x16384")


def _start(daemon: Daemon, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / INTERACTIVE, *words],
        env={**os.environ, "SCHEDULER_SERVER": daemon.address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_session_has_a_gpu_of_its_own_and_ends_with_its_command(daemon: Daemon) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; exit 3"
    done = daemon.run(INTERACTIVE, "--hours", "0.5", "try", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (3, "0\n")
    assert "ends with this shell, and in 0.5 h at the latest" in done.stderr
    job = daemon.wait_state(**{"try": "CANCELED"})["try"]
    assert (job.spec.disable_gpu_sharing, job.spec.time_limit_seconds) == (True, 1800)


def test_a_session_waits_for_its_gpu(daemon: Daemon) -> None:
    first = daemon.submit("--no_tracking", "first", "--", "sleep", "1000")
    daemon.wait_state(first="RUNNING")
    with _start(daemon, "--", "echo", "it is my turn") as session:
        daemon.wait_state(interactive="QUEUED")
        daemon.run("scheduler-cancel-job", first)
        out, err = session.communicate(timeout=DEADLINE_SECONDS)
    assert (session.returncode, out) == (0, "it is my turn\n"), err


def test_whoever_stops_waiting_gives_up_the_place(daemon: Daemon) -> None:
    daemon.submit("--no_tracking", "first", "--", "sleep", "1000")
    daemon.wait_state(first="RUNNING")
    with _start(daemon, "--", "true") as session:
        daemon.wait_state(interactive="QUEUED")
        session.send_signal(signal.SIGINT)
        assert session.wait(DEADLINE_SECONDS) == 130
    daemon.wait_state(interactive="CANCELED")


def test_a_shell_is_told_before_its_time_is_over(daemon: Daemon, tmp_path: Path) -> None:
    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address}
    words: list[str | Path] = [BIN / INTERACTIVE, "--hours", str(63 / 3600), "--", "sleep", "1000"]
    shell = Terminal(words, environment, tmp_path)
    eventually(lambda: b"job interactive ends in 1 min: its time is over then" in shell.shown)
    shell.process.terminate()
    assert shell.wait() == 143
    daemon.wait_state(interactive="CANCELED")


def test_the_time_ends_a_session(daemon: Daemon) -> None:
    with _start(daemon, "--hours", str(4 / 3600), "--", "sleep", "1000") as session:
        _, err = session.communicate(timeout=DEADLINE_SECONDS)
    assert session.returncode == 1
    assert "has ended: it is FAILED" in err
    reason = daemon.wait_state(interactive="FAILED")["interactive"].reason
    assert reason.startswith("time limit 4s reached")


def test_what_was_in_a_lost_shell_has_ended_and_the_session_can_be_returned_to(
    daemon: Daemon,
) -> None:
    with _start(daemon, "--", "sh", "-c", "echo ready; sleep 1000") as session:
        assert session.stdout
        assert session.stdout.readline() == "ready\n"
        session.kill()
    again = daemon.run("scheduler-connect", "interactive", "--", "echo", "back")
    assert (again.returncode, again.stdout) == (0, "back\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--hours", "0"], "--hours: 0 must be more than 0"),
        (["--hours", "two"], "--hours: 'two' is not a number of hours"),
        (["--wait"], "--wait: is not for interactive jobs"),
        (["--script_path", "x.py"], "--script_path: is not for interactive jobs"),
    ],
)
def test_what_makes_no_sense_is_refused(daemon: Daemon, words: list[str], why: str) -> None:
    done = daemon.run(INTERACTIVE, *words)
    assert (done.returncode, done.stderr) == (2, f"scheduler-run-interactive: {why}\n") or (
        done.returncode == 2 and done.stderr.startswith(f"scheduler-run-interactive: {why}")
    )
