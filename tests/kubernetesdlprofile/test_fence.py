"""Leftover processes of an older run do not change the checkpoints of a newer run."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetesdlprofile import checkpoints
from kubernetesdlprofile.fence import Fence
from tests.kubernetesdlprofile.conftest import JOB_ID, Environment, Start

RUNS = 5
SAVES = 200


def writes(text: str) -> Callable[[str], Any]:
    return lambda name: Path(name).write_text(text)


def test_an_older_run_cannot_save_any_more_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "last.ckpt"
    old = Fence(str(tmp_path), 1)
    assert checkpoints.save(path, writes("old"), old)
    new = Fence(str(tmp_path), 2)
    for _ in range(3):
        assert not checkpoints.save(path, writes("older"), old)
    assert path.read_text() == "old", "the newer run begins with it"
    assert checkpoints.save(path, writes("new"), new)
    assert not checkpoints.save(path, writes("older"), old)
    assert path.read_text() == "new"
    (record,) = caplog.records
    assert "a newer run of this job has begun" in record.getMessage()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["last.ckpt"]


def test_an_older_run_that_begins_later_is_kept_out_too(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    new = Fence(str(tmp_path), 10)
    old = Fence(str(tmp_path), 9)
    assert not checkpoints.save(path, writes("old"), old)
    assert checkpoints.save(path, writes("new"), new)
    assert not checkpoints.save(path, writes("old"), Fence(str(tmp_path), 2))
    assert path.read_text() == "new"


def test_the_processes_of_one_run_save_all_of_them(tmp_path: Path) -> None:
    one, other = Fence(str(tmp_path), 3), Fence(str(tmp_path), 3)
    for fence in (one, other, one):
        assert checkpoints.save(tmp_path / "last.ckpt", writes("whole"), fence)


def test_a_writer_that_makes_folders_does_not_get_past_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "last.ckpt"
    old = Fence(str(tmp_path), 1)
    assert checkpoints.save(path, writes("old"), old)
    Fence(str(tmp_path), 2)

    def determined(name: str) -> None:
        for folder in (Path(name).parent, tmp_path / ".run-1"):
            folder.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("older")

    assert not checkpoints.save(path, determined, old)
    assert path.read_text() == "old"


def test_what_is_saved_elsewhere_is_saved_without_it(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk here")
    path = shm / f"{tmp_path.name}-{os.getpid()}.ckpt"
    try:
        assert checkpoints.save(path, writes("whole"), Fence(str(tmp_path), 1))
        assert path.read_text() == "whole"
    finally:
        path.unlink()


def test_a_folder_where_nothing_can_be_made_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Fence(str(tmp_path / "absent"), 1)
    (record,) = caplog.records
    assert "older runs of this job may still" in record.getMessage()


def test_checkpoints_are_found_past_what_it_makes(tmp_path: Path) -> None:
    fence = Fence(str(tmp_path), 1)
    assert checkpoints.save(tmp_path / "last.ckpt", writes("whole"), fence)
    left = next(tmp_path.glob(".run-1-*")) / ".7-killed.ckpt"
    left.write_text("between two moves")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "last.ckpt")
    Fence(str(tmp_path), 2)
    assert not left.exists()


@given(st.integers(0, 12))
def test_wherever_a_newer_run_comes_between_the_older_ones_file_is_whole_or_not_there(
    tmp_path_factory: pytest.TempPathFactory, moment: int
) -> None:
    """Interrupts a save at each of its calls to the file system, in turn."""
    folder = tmp_path_factory.mktemp("job")
    path, old = folder / "last.ckpt", Fence(str(folder), 1)
    found: list[str] = []
    calls = 0

    def between(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == moment + 1 and not found:
            Fence(str(folder), 2)
            found.append(path.read_text() if path.exists() else "")
        return function(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "mkdir", "stat", "rmdir", "iterdir"):
            patch.setattr(Path, name, _hooked(between, getattr(Path, name)))
        saved = checkpoints.save(path, writes("old"), old)
    if found:
        assert (path.read_text() if path.exists() else "") == found[0]
    else:
        assert saved


def _hooked(between: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    busy = False

    def hooked(*given: Any, **named: Any) -> Any:
        nonlocal busy
        if busy:
            return function(*given, **named)
        busy = True
        try:
            return between(function, *given, **named)
        finally:
            busy = False

    return hooked


def train(folder: str, attempt: int, begun: Any, last: Any) -> None:
    """Saves as fast as it can, long after the next run has begun. Fails if it ever finds a
    checkpoint that is neither its own nor the one that it began with."""
    path = Path(folder, "last.ckpt")
    fence = Fence(folder, attempt)
    began_with = path.read_text() if path.exists() else ""
    begun.set()
    own = ""
    for number in range(SAVES * (RUNS - attempt + 1)):
        text = f"{attempt} {number}"
        saved = checkpoints.save(path, writes(text), fence)
        own = text if saved else own
        there = path.read_text() if path.exists() else ""
        newest = int(there.split()[0]) if there else 0
        if newest <= attempt and not fence.closed:
            assert there == (own or began_with), (attempt, there, own, began_with)
    assert saved or not last, "no run is newer"


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_save_at_the_same_time_leave_the_newest_ones_checkpoint(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    context = multiprocessing.get_context("fork")
    runs = []
    for attempt in range(1, RUNS + 1):
        begun = context.Event()
        words = (str(tmp_path), attempt, begun, attempt == RUNS)
        runs.append(context.Process(target=train, args=words))
        runs[-1].start()
        assert begun.wait(30)
        begun.wait(chance.random() * 0.01)
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0] * RUNS
    newest = (tmp_path / "last.ckpt").read_text()
    assert newest == f"{RUNS} {SAVES - 1}"
    left = {p.name.split("-")[1] for p in tmp_path.glob(".run-*")}
    assert left == {str(RUNS)}


def test_a_zombie_of_an_older_attempt_leaves_the_newer_ones_checkpoint_alone(
    start_script: Start, job_environment: Environment, tmp_path: Path
) -> None:
    source = """
import sys
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
print(api.checkpoint_path(), flush=True)
for line in sys.stdin:
    with_it = lambda name: open(name, "w").write(line)
    print(api.save("last.ckpt", with_it), flush=True)
"""

    def says(process: Any, line: str) -> str:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return str(process.stdout.readline().strip())

    path = tmp_path / "snapshots" / JOB_ID / "last.ckpt"
    zombie = start_script(source, job_environment)
    assert zombie.stdout.readline() == "None\n"  # type: ignore[union-attr]  # a pipe
    assert says(zombie, "first") == "True"
    again = {"KUBEPROFILER_ATTEMPT": "2", "JOB_RESTARTED": "TRUE"}
    newer = start_script(source, job_environment, **again)
    assert newer.stdout.readline() == f"{path}\n"  # type: ignore[union-attr]
    assert says(zombie, "late") == "False"
    assert path.read_text() == "first\n"
    assert says(newer, "second") == "True"
    assert says(zombie, "later still") == "False"
    assert path.read_text() == "second\n"
    _, said = zombie.communicate()
    assert said.count("a newer run of this job has begun") == 1


def test_a_job_folder_can_be_deleted_between_two_runs(tmp_path: Path) -> None:
    root = tmp_path / "job"
    root.mkdir()
    old = Fence(str(root), 1)
    assert checkpoints.save(root / "last.ckpt", writes("old"), old)
    shutil.rmtree(root)
    assert not checkpoints.save(root / "last.ckpt", partial(shutil.copy, __file__), old)
