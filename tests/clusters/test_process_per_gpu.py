"""A shell that starts a process for each GPU, gives each its rank, and exits as they do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from scheduler.clusters.process_per_gpu import one_for_each_gpu

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
# Twenty times as fast as for jobs (e2e/test_s19_processes.py), and the same shell script.
GRACE_LOOKS, SLEEP_SECONDS = 20, 0.05
TOLD = {"LOCAL_WORLD_SIZE": "3", "RANK": "4", "WORLD_SIZE": "7"}


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    name = request.param
    return [name, "sh"] if name == "busybox" else [name]


def started(shell: Sequence[str], script: str, *words: str) -> subprocess.Popen[str]:
    _, *rest = one_for_each_gpu(["sh", "-c", script, "sh", *words], GRACE_LOOKS, SLEEP_SECONDS)
    environment = {**os.environ, **TOLD}
    return subprocess.Popen([*shell, *rest], env=environment, stdout=subprocess.PIPE, text=True)


def ended(shell: Sequence[str], script: str, *words: str) -> tuple[int, list[str]]:
    process = started(shell, script, *words)
    said, _ = process.communicate(timeout=60)
    return process.returncode, sorted(said.splitlines())


def test_each_has_its_rank_and_every_word_as_it_was_given(shell: list[str]) -> None:
    ranks = "$LOCAL_RANK $RANK $WORLD_SIZE $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_LOCAL_SIZE"
    code, said = ended(shell, f'echo "{ranks}|$1|$#"', "two  words; $HOME", "")
    assert code == 0
    assert said == [f"{n} {4 + n} 7 {4 + n} 3|two  words; $HOME|2" for n in range(3)]


@pytest.mark.parametrize(
    ("exits", "code"),
    [
        ((0, 0, 0), 0),
        ((85, 85, 85), 85),
        ((0, 85, 0), 85),
        ((0, 0, 3), 3),
        ((85, 4, 85), 4),
    ],
)
def test_it_ends_as_they_do(shell: list[str], exits: tuple[int, ...], code: int) -> None:
    script = 'shift $LOCAL_RANK; exit "$1"'
    assert ended(shell, script, *map(str, exits)) == (code, [])


def test_who_would_wait_for_one_that_failed_is_told_to_end(
    shell: list[str], tmp_path: Path
) -> None:
    script = """
        trap 'echo told; exit 0' TERM
        : > "$1/$LOCAL_RANK"
        while [ $LOCAL_RANK != 1 ] || ! [ -e "$1/0" ] || ! [ -e "$1/2" ]; do sleep 0.1; done
        exit 7
    """
    assert ended(shell, script, str(tmp_path)) == (7, ["told", "told"])


def test_who_does_not_heed_that_is_killed(shell: list[str]) -> None:
    script = "[ $LOCAL_RANK != 0 ] || exit 7; trap '' TERM; while :; do sleep 0.1; done"
    assert ended(shell, script) == (7, [])


def test_a_sigterm_reaches_all(shell: list[str], tmp_path: Path) -> None:
    script = """
        trap 'echo left; exit 85' TERM
        : > "$1/$LOCAL_RANK"
        while :; do sleep 0.1; done
    """
    process = started(shell, script, str(tmp_path))
    while len(list(tmp_path.iterdir())) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.split()) == (85, ["left"] * 3)
