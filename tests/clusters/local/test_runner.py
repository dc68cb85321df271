"""How real trainings on this machine end, by themselves or stopped, and what they print."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.clusters.machine import SAVES, SLEEP, Machine, is_alive, machine, make_launch
from tests.support import eventually

STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state", "exit_code", "reason"),
    [
        ("", "succeeded", 0, ""),
        ("exit(3)", "failed", 3, "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "failed", 139, "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "failed", 168, "killed by signal 40"),
        ("exit('CUDA out of memory. Tried ...')", "failed", 1, "out_of_memory"),
        ("print('CUDA out of memory'); exit(85)", "failed", 85, "exit code 85"),
        ("print('CUDA out of memory'); exit(0)", "succeeded", 0, ""),
    ],
)
def test_an_end_is_told(here: Machine, text: str, state: str, exit_code: int, reason: str) -> None:
    before = time.time()
    pod = here.wait_until_over(here.script(text))
    assert (pod.state, pod.exit_code, pod.reason) == (state, exit_code, reason)
    assert pod.said == ("CUDA out of memory. Tried ..." if reason == "out_of_memory" else "")
    assert pod.at is not None
    assert before <= pod.at <= time.time()


@pytest.mark.parametrize(
    ("command", "code", "trouble"),
    [
        ("/no/such/program", 127, "No such file or directory"),
        ("no-such-program", 127, "No such file or directory"),
        ("/etc/passwd", 127, "Permission denied"),
        ("nul\0inside", 127, "execve: embedded null character in path"),
    ],
)
def test_what_cannot_be_executed_is_named_in_the_log_and_in_the_reason(
    here: Machine, command: str, code: int, trouble: str
) -> None:
    key = here.launch(command, env=(("PATH", "/usr/bin:/bin"),))
    pod = here.wait_until_over(key)
    assert (pod.state, pod.exit_code) == ("failed", code)
    assert pod.reason == f"cannot start: {command}: {trouble}".replace(
        "nul\0inside: ", "nul\0inside: "
    )
    assert here.log_text(key) == f"[epoch-scheduler] {pod.reason}\n"


def test_an_end_leaves_no_zombie_and_stays_what_it_was(here: Machine) -> None:
    key = here.script("")
    pod = here.wait_until_over(key)
    eventually(here.is_reaped)
    here.cluster.perform(make_launch(here.state, job_id=key[0]))
    assert here.pod(key) is pod, "what has ended is not started again"


# --- how it is stopped --------------------------------------------------------------------------


def test_a_stop_gives_time_to_save(here: Machine) -> None:
    key = here.up(SAVES)
    here.remove(key)
    here.remove(key)
    pod = here.wait_until_over(key)
    assert (pod.state, pod.exit_code) == ("succeeded", 0)
    assert here.log_text(key) == "up\nsaved\n"


def test_what_ends_by_the_signal_was_stopped(here: Machine) -> None:
    key = here.up()
    here.remove(key)
    assert here.wait_until(key, lambda pod: pod.state != "running").state in (
        "terminating",
        "failed",
    )
    pod = here.wait_until_over(key)
    assert (pod.exit_code, pod.reason) == (143, "stopped")


def test_what_ignores_the_signal_is_killed_after_the_grace(here: Machine) -> None:
    key = here.up(STUBBORN)
    here.remove(key)
    pod = here.wait_until_over(key)
    assert (pod.exit_code, pod.reason) == (137, "killed: it did not stop when it was asked to")


def test_helpers_have_the_grace_even_if_their_leader_goes_first(tmp_path: Path) -> None:
    with machine(tmp_path / "state", grace_seconds=1000.0) as here:
        key = here.launch("sh", "-c", '"$0" -c "$1" & wait', sys.executable, SAVES)
        here.wait_for_output(key, "up\n")
        here.remove(key)
        assert here.wait_until_over(key).reason == "stopped"
        assert here.log_text(key) == "up\nsaved\n"


@pytest.mark.parametrize("escape", ["", "setsid", "timeout 1000"])
def test_what_a_training_leaves_behind_dies_with_it(here: Machine, escape: str) -> None:
    key = here.launch("sh", "-c", f"{escape} sleep 1000 & echo $!; exit 3")
    assert here.wait_until_over(key).exit_code == 3
    assert not is_alive(int(here.log_text(key)))


def test_grandchildren_die_when_it_is_stopped(here: Machine) -> None:
    text = 'setsid sh -c "trap : TERM; echo \\$\\$; sleep 1000; sleep 1000" & wait'
    key = here.launch("sh", "-c", text)
    eventually(lambda: here.log_text(key).strip())
    here.remove(key)
    here.wait_until_over(key)
    assert not is_alive(int(here.log_text(key)))


def test_a_run_may_be_stopped_before_it_starts(here: Machine) -> None:
    key = here.launch("echo", "never")
    here.remove(key)  # the runner, a Python process, takes longer to start than this
    assert here.wait_until_over(key).reason == "stopped before it started"
    assert here.log_text(key) == ""


def test_the_log_stays_when_a_run_is_forgotten(here: Machine) -> None:
    key = here.launch("echo", "kept")
    here.wait_until_over(key)
    here.remove(key)
    assert here.pod(key) is None
    assert list((here.state / "runs").iterdir()) == []
    assert here.log_text(key) == "kept\n"


# --- its output ---------------------------------------------------------------------------------


def test_a_job_that_prints_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    with machine(tmp_path / "state", log_mib=1) as here:
        text = "echo begin; yes $(seq 2000) | head -c 200000000; echo; echo the end; exit 3"
        key = here.launch("sh", "-c", text)
        log = here.cluster.logs / key[0] / "attempt-1" / "rank0.log"
        most = 0

        def is_over() -> bool:
            nonlocal most
            most = max(most, log.stat().st_blocks * 512 if log.exists() else 0)
            return here.wait_until(key, bool).exit_code == 3

        eventually(is_over)
        assert most <= 2**20 + 2 * 2**16
        assert log.stat().st_size > 200_000_000, "places in the file are those in the output"
        with log.open("rb") as file:
            assert file.readline() == b"begin\n"
            file.seek(-8, os.SEEK_END)
            assert file.read() == b"the end\n"


def test_a_job_cannot_change_what_it_has_said(here: Machine) -> None:
    text = "echo one; truncate -s 4T /proc/self/fd/1; : > /dev/stderr; echo two >> /dev/stderr"
    key = here.launch("sh", "-c", text)
    here.wait_until_over(key)
    said = here.log_text(key).splitlines()
    assert (said[0], said[-1]) == ("one", "two")


def test_last_words_without_end_do_not_fill_the_disk(here: Machine, tmp_path: Path) -> None:
    """Also while another process keeps them open after the end."""
    words = '"$KUBEPROFILER_LAST_WORDS"'
    text = f"head -c 50000000 /dev/zero > {words}; readlink {words}; cat {tmp_path}/go"
    os.mkfifo(tmp_path / "go")
    key = here.launch("sh", "-c", text)
    here.wait_for_output(key, "\n")
    training = here.read_started(key)["pid"]
    (place,) = (
        file for file in Path(f"/proc/{training}/fd").iterdir() if "words" in str(file.readlink())
    )
    with place.open("ab", buffering=0) as held:
        assert not str(place.readlink()).startswith(str(here.state))
        (tmp_path / "go").write_text("")
        assert here.wait_until_over(key).state == "succeeded"
        held.write(b"late")
    on_disk = [file.stat().st_blocks * 512 for file in here.folder(key).iterdir()]
    assert sum(on_disk) < 2 * 2**20


def test_a_process_outside_of_the_run_that_has_its_output_does_not_keep_it_from_ending(
    here: Machine, tmp_path: Path
) -> None:
    key = here.launch("sh", "-c", f"echo up; head -c 1 {tmp_path}/go; echo done")
    os.mkfifo(tmp_path / "go")
    here.wait_for_output(key, "up")
    training = here.read_started(key)["pid"]
    with Path(f"/proc/{training}/fd/1").open("ab", buffering=0) as held:
        (tmp_path / "go").write_text(".")
        assert here.wait_until_over(key).state == "succeeded"
        assert here.log_text(key) == "up\n.done\n"
        eventually(here.is_reaped)
        with pytest.raises(BrokenPipeError):
            held.write(b"late")
