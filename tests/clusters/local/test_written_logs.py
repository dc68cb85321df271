from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scheduler.clusters.local.written_logs import (
    descendants,
    has_logs,
    left_logs,
    logs_in,
    open_logs,
)
from tests.support import eventually

EVENTS = "events.out.tfevents.1700000000.host"


def test_descendants_are_children_and_theirs() -> None:
    text = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", text]) as child:
        eventually(lambda: descendants(child.pid))
        (grandchild,) = descendants(child.pid)
        assert {child.pid, grandchild} <= descendants(os.getpid())
        child.kill()
        os.kill(grandchild, signal.SIGKILL)
    assert descendants(child.pid) == set()


def test_what_a_process_has_open_is_found(tmp_path: Path) -> None:
    for name in (EVENTS, "run-a.wandb", "weights.bin"):
        (tmp_path / name).touch()
    with (tmp_path / EVENTS).open(), (tmp_path / "weights.bin").open():
        found = open_logs([os.getpid()])
    assert {path for path in found if path.startswith(str(tmp_path))} == {str(tmp_path / EVENTS)}
    assert not [path for path in open_logs([os.getpid()]) if path.startswith(str(tmp_path))]
    assert open_logs([2**22 + 1]) == set()


def test_what_was_closed_is_known_by_its_process_or_its_job(tmp_path: Path) -> None:
    runs, mine = tmp_path / "runs", f"{EVENTS}.{os.getpid()}.0"
    for name in (
        *(f"a/{mine}", f"a/{EVENTS}.1.0", f"b/{EVENTS}"),
        *("run-job.wandb", "run-other.wandb", "run-job.txt"),
    ):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / name).touch()
    old = runs / f"{mine}.v2"
    old.touch()
    os.utime(old, (1, 1))
    found = left_logs([str(runs)], [], time.time() - 60, {os.getpid()}, "job")
    assert found == {str(runs / f"a/{mine}"), str(runs / "run-job.wandb")}


def test_beside_a_file_that_was_open_all_is_its_runs_unless_others_write_there(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    (runs / "a" / "hparams").mkdir(parents=True)
    for path in (runs / EVENTS, runs / "a" / EVENTS, runs / "a" / "hparams" / EVENTS):
        path.touch()
    since, shared = time.time() - 60, [str(runs)]
    assert left_logs(shared, [str(runs / "a" / EVENTS)], since, set(), "job") == {
        str(runs / "a" / EVENTS),
        str(runs / "a" / "hparams" / EVENTS),
    }
    assert left_logs(shared, [str(runs / EVENTS)], since, set(), "job") == set()


def test_beside_such_a_folder_what_bears_its_number_is_found(tmp_path: Path) -> None:
    mine = tmp_path / "lightning_logs" / "version_1" / f"{EVENTS}.{os.getpid()}.1"
    others = mine.with_name(f"{EVENTS}.1.0")
    known = tmp_path / "plain" / EVENTS
    for path in (mine, others, known):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = left_logs([], [str(known)], time.time() - 60, {os.getpid()}, "job")
    assert found == {str(mine), str(known)}


def test_of_a_huge_folder_a_part_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[logs_in.__module__], "ENTRIES_MAX", 10)
    for at in range(20):
        (tmp_path / f"{EVENTS}.{at}").touch()
    assert len([*logs_in(str(tmp_path))]) == 10
    assert has_logs(str(tmp_path))
    assert not has_logs(str(tmp_path / "nothing"))
