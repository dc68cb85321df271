# ruff: noqa: PTH208  # names, and how many

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.packages.folders import Beneath


def test_no_link_on_the_way_or_at_the_end_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "way").symlink_to(outside)
    (root / "d" / "end").symlink_to(outside / "secret")
    with Beneath(str(root)) as beneath:
        for path in ("way/secret", "d/end", "way"):
            with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
                beneath.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            beneath.open("way/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    assert sorted(os.listdir(outside)) == ["secret"]


def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(tmp_path: Path) -> None:
    """Whoever exchanges it after it was listed gains nothing."""
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/d/file").write_text("ours")
    (tmp_path / "root/x").write_text("")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("theirs")
    with Beneath(str(tmp_path / "root")) as beneath:
        listed = beneath.open("d/file", os.O_RDONLY)
        assert os.read(listed, 9) == b"ours"
        os.close(listed)
        os.close(beneath.open("x", os.O_RDONLY))  # leaves d, so that it is opened again
        (tmp_path / "root/d").rename(tmp_path / "root/was")
        (tmp_path / "root/d").symlink_to(tmp_path / "outside")
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            beneath.open("d/file", os.O_RDONLY)


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Beneath(str(tmp_path)) as beneath:
        os.close(beneath.open("pipe", os.O_RDONLY))


def test_few_files_are_open_at_any_depth(tmp_path: Path) -> None:
    deep = "/".join("d" for _ in range(100))
    before = len(os.listdir("/proc/self/fd"))
    with Beneath(str(tmp_path)) as beneath:
        for name in "abc":
            os.close(beneath.open(f"{deep}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(tmp_path / deep)) == ["a", "b", "c"]
