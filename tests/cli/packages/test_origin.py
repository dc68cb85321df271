from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cli.packages import origin
from cli.packages.origin import origin_of, summary, without_password
from cli.packages.selection import select
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.packages.conftest import git, repository, write


def test_what_git_says_is_kept(tmp_path: Path) -> None:
    root = repository(tmp_path, {"train.py": "lr = 0.1\n", "lib/x.py": "x = 1\n"})
    git(root, "remote", "add", "origin", "https://ada:hunter2@example.org/vision.git")
    clean = origin_of(select(str(root)))
    assert (clean.dirty, clean.diff, clean.branch) == (False, "", "main")
    write(root, {"train.py": "lr = 0.2\n", "new.py": ""})
    git(root, "add", "new.py")
    write(root, {"newer.py": ""})
    said = origin_of(select(str(root)))
    assert said.commit == git(root, "rev-parse", "HEAD").decode().strip()
    assert said.author == "Ada <ada@example.org>"
    assert said.remote == "https://example.org/vision.git"
    assert said.dirty
    assert "-lr = 0.1\n+lr = 0.2\n" in said.diff
    assert "new.py" in said.diff
    assert list(said.untracked) == ["newer.py"]
    assert summary(said) == f"git {said.commit[:7]} dirty"


def test_the_diff_is_of_the_folder_alone(tmp_path: Path) -> None:
    root = repository(tmp_path, {"a": "1\n", "below/b": "1\n"})
    write(root, {"a": "2\n"})
    assert not origin_of(select(str(root / "below"))).dirty
    write(root, {"below/b": "2\n"})
    assert "--- a/b\n+++ b/b\n" in origin_of(select(str(root / "below"))).diff


def test_without_git_or_a_commit_there_is_less_to_say(tmp_path: Path) -> None:
    write(tmp_path / "plain", {"a": ""})
    said = origin_of(select(str(tmp_path / "plain")))
    assert said == pb.CodeOrigin(folder=f"{socket.gethostname()}:{tmp_path}/plain")
    write(tmp_path / "r", {"a": ""})
    git(tmp_path / "r", "init", "--quiet", "--initial-branch", "main")
    said = origin_of(select(str(tmp_path / "r")))
    assert (said.commit, said.branch, list(said.untracked)) == ("", "main", ["a"])
    assert summary(said) == ""


def test_no_program_that_a_repository_names_is_run(tmp_path: Path) -> None:
    root = repository(tmp_path, {"a": "1\n", ".gitattributes": "a diff=evil\n"})
    git(root, "config", "diff.evil.command", f"touch {tmp_path}/ran; true")
    git(root, "config", "diff.evil.textconv", f"touch {tmp_path}/ran; cat")
    git(root, "config", "diff.external", f"touch {tmp_path}/ran; true")
    write(root, {"a": "2\n"})
    assert "+2" in origin_of(select(str(root))).diff
    assert not (tmp_path / "ran").exists()


def test_a_long_diff_is_cut_off_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "DIFF_BYTES_MAX", 200)
    monkeypatch.setattr(origin, "UNTRACKED_MAX", 2)
    root = repository(tmp_path, {"a": "1\n"})
    write(root, {"a": "2\n" * 500, "x": "", "y": "", "z": ""})
    said = origin_of(select(str(root)))
    assert len(said.diff) < 300
    assert said.diff.endswith("more bytes\n")
    assert list(said.untracked) == ["x", "y", "..."]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ada:hunter2@example.org/x.git", "https://example.org/x.git"),
        ("https://token@example.org:8443/x.git?k=v", "https://example.org:8443/x.git"),
        ("git@example.org:ada/x.git", "git@example.org:ada/x.git"),
        ("/srv/x.git", "/srv/x.git"),
        ("https://[::1/x", ""),
    ],
)
def test_no_password_is_kept(url: str, kept: str) -> None:
    assert without_password(url) == kept
