"""What a step gives is whole or not there, and its own only."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.step_wrapper.folder_store import DataError, FolderStore

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(name: str, text: str = "x", mode: int = 0o644) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return made


def store(folder: Path, step: str = "train") -> FolderStore:
    return FolderStore(str(folder / "store"), "w1", step)


def test_files_and_folders_come_out_as_they_went_in(tmp_path: Path, write: Write) -> None:
    write("model/run.sh", "echo hi", 0o755)
    write("model/deep/weights", "1 2 3")
    (tmp_path / "model/latest").symlink_to("deep/weights")
    store(tmp_path).keep(
        "a-1", {"loss": "0.5"}, {"model": str(tmp_path / "model"), "log": write("log", "said")}
    )
    found = store(tmp_path, "test")
    assert found.parameters("train") == {"loss": "0.5"}
    target = tmp_path / "in/model"
    target.mkdir(parents=True)
    (target / "own").touch()
    assert found.bring("train", "model", str(target))
    assert found.bring("train", "log", str(tmp_path / "new/log.txt"))
    assert (tmp_path / "new/log.txt").read_text() == "said"
    assert (target / "deep/weights").read_text() == "1 2 3"
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o755
    assert str((target / "latest").readlink()) == "deep/weights"
    assert (target / "own").exists()  # nothing else is touched
    assert not found.bring("train", "other", str(tmp_path / "other"))
    assert not found.bring("never", "model", str(tmp_path / "other"))
    assert found.parameters("never") == {}


def test_another_attempt_replaces_its_own_only(tmp_path: Path, write: Write) -> None:
    store(tmp_path, "other").keep("b-1", {}, {"m": write("m", "other")})
    for attempt in ("a-1", "a-2"):
        store(tmp_path).keep(attempt, {"n": attempt}, {"m": write("m", attempt)})
    found = store(tmp_path, "test")
    assert found.parameters("train") == {"n": "a-2"}
    assert found.bring("train", "m", str(tmp_path / "t"))
    assert (tmp_path / "t").read_text() == "a-2"
    assert found.bring("other", "m", str(tmp_path / "t"))
    assert (tmp_path / "t").read_text() == "other"
    left = sorted(path.name for path in (tmp_path / "store/w1/train").iterdir())
    assert left == ["a-2", "outputs.json"]


def test_an_attempt_that_dies_while_it_keeps_changes_nothing(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its calls that change the file system."""
    store(tmp_path).keep("a-1", {"n": "1"}, {"m": write("m", "first")})
    count, calls = 0, 0

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls > count:
                raise KeyboardInterrupt
            return real(*args, **named)

        return call

    for name in ("rename", "replace", "fsync", "makedirs"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    while True:
        calls = 0
        try:
            store(tmp_path).keep("a-2", {"n": "2"}, {"m": write("m", "second")})
            break
        except KeyboardInterrupt:
            count += 1
        found = json.loads((tmp_path / "store/w1/train/outputs.json").read_text())
        text = (tmp_path / "store/w1/train" / found["attempt"] / "m").read_text()
        assert (found["parameters"]["n"], text) in (("1", "first"), ("2", "second"))
    assert count > 5


def test_what_cannot_be_a_part_of_a_path_is_refused(tmp_path: Path, write: Write) -> None:
    for name in ("..", ".x", "a/b", ""):
        with pytest.raises(DataError, match="cannot be a part of a path"):
            FolderStore(str(tmp_path), name, "s")
        with pytest.raises(DataError, match="cannot be a part of a path"):
            store(tmp_path).bring(name, "m", str(tmp_path / "t"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: is neither a file nor a folder"):
        store(tmp_path).keep("a-1", {}, {"m": str(tmp_path / "pipe")})
