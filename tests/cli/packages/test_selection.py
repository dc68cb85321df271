from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cli.command import CommandError
from cli.packages.selection import FOUND, TRACKED, UNTRACKED, select
from tests.cli.packages.conftest import git, repository, write


def test_git_says_what_is_taken_and_each_file_names_its_rule(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"train.py": "", "gone.py": "", ".gitignore": "*.log\n"})
    write(root, {"new.py": "", "x.log": "", "sub/y.log": "", "data/big": ""})
    (root / "gone.py").unlink()
    write(root, {".jobignore": "# not for jobs\ndata/\n"})
    chosen = select(str(root), explain=True)
    assert chosen.taken == {
        ".gitignore": TRACKED,
        ".jobignore": UNTRACKED,
        "new.py": UNTRACKED,
        "train.py": TRACKED,
    }
    assert chosen.left_out == {
        "data/big": ".jobignore:2: data/",
        "x.log": ".gitignore:1: *.log",
        "sub/y.log": ".gitignore:1: *.log",
    }


def test_a_job_ignore_file_leaves_out_what_git_tracks(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a": "", "docs/b": "", "docs/c": "", ".jobignore": "docs/*"})
    write(root, {"docs/.jobignore": "!c\n"})
    assert {*select(str(root)).taken} == {"a", ".jobignore", "docs/c"}


def test_a_folder_of_a_repository_is_taken_alone(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a": "", "below/b": "", "below/c.log": ""})
    write(root, {".gitignore": "*.tmp\n", "below/d.tmp": "", "below/e": ""})
    assert {*select(str(root / "below")).taken} == {"b", "c.log", "e"}


def test_submodules_and_repositories_inside_are_taken_by_their_own_rules(tmp_path: Path) -> None:
    repository(tmp_path / "lib", {"lib.py": "", ".gitignore": "*.so\n"})
    root = repository(tmp_path / "r", {"train.py": ""})
    add = ("submodule", "--quiet", "add", str(tmp_path / "lib"), "third/lib")
    git(root, "-c", "protocol.file.allow=always", *add)
    write(root, {"third/lib/x.so": "", "third/lib/new.py": ""})
    repository(root / "scratch", {"s.py": ""})
    assert {*select(str(root)).taken} == {
        *(".gitmodules", "train.py", "scratch/s.py"),
        *("third/lib/.gitignore", "third/lib/lib.py", "third/lib/new.py"),
    }


def test_outside_of_git_ignore_files_count_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", "b.log": "", "sub/c": "", "sub/.gitignore": "c\n"})
    write(tmp_path, {".gitignore": "*.log\n", ".jobignore": "a.*\n", "keep": ""})
    chosen = select(str(tmp_path))
    assert chosen.taken == dict.fromkeys(
        [".gitignore", ".jobignore", "keep", "sub/.gitignore"], FOUND
    )
    assert chosen.left_out == {
        "a.py": ".jobignore:1: a.*",
        "b.log": ".gitignore:1: *.log",
        "sub/c": "sub/.gitignore:1: c",
    }


def test_without_git_on_this_machine_the_rules_are_still_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "r", {"a": "", ".gitignore": "*.log\n"})
    write(root, {"x.log": ""})
    monkeypatch.setenv("PATH", "/nonexistent")
    assert {*select(str(root)).taken} == {"a", ".gitignore"}
    assert capsys.readouterr().err == (
        f"note: git does not answer for {root}: .gitignore files are read without it\n"
    )


def refusal(root: Path, *include: str) -> str:
    with pytest.raises(CommandError) as refused:
        select(str(root), include)
    assert refused.value.exit_code == 4
    return str(refused.value)


def test_what_is_too_large_or_a_checkpoint_is_refused_the_three_largest_by_name(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"train.py": "", "checkpoints/a": "12", "b.pt": "1", "wandb/run/c": "123"})
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(101 * 2**20)
    assert refusal(tmp_path) == (
        "data.bin (large, 101.0 MiB), wandb/run/c (of wandb, 3 bytes), checkpoints/a (a checkpoint,"
        " 2 bytes) and 1 more do not belong into a package: name them in .jobignore, or take them"
        " with --include PATTERN"
    )
    some = ("data.bin", "wandb/", "*.pt")
    assert refusal(tmp_path, *some).startswith("checkpoints/a (a checkpoint, 2 bytes) does not")
    assert len(select(str(tmp_path), [*some, "checkpoints/"]).taken) == 5
    write(tmp_path, {".jobignore": "data.bin\nwandb/\n*.pt\ncheckpoints\n"})
    assert {*select(str(tmp_path)).taken} == {".jobignore", "train.py"}


@pytest.mark.parametrize("name", [".env", "id_rsa", "certs/server.pem", "creds.yaml"])
def test_what_may_be_a_secret_needs_to_be_included(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", name: "x"})
    assert f"{name} (may be a secret, 1 bytes)" in refusal(tmp_path)
    assert name in select(str(tmp_path), [name]).taken


def test_what_is_ignored_can_be_included(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a": "", ".gitignore": "data/\n.env\n"})
    write(root, {"data/x/y": "", ".env": "", "data/z": ""})
    chosen = select(str(root), ["data/x/", "/.env"])
    assert chosen.taken == {
        **{".gitignore": TRACKED, "a": TRACKED},
        **{"data/x/y": "--include data/x/", ".env": "--include /.env"},
    }


def test_git_itself_is_never_part_of_a_package(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a": ""})
    assert {*select(str(root), [".git/", "*"]).taken} == {"a"}


def test_what_is_neither_a_file_nor_a_link_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a": ""})
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path) == "pipe: is neither a file nor a link: name it in .jobignore"
    (tmp_path / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        assert "socket: is neither" in refusal(tmp_path)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path, {"a/b": ""})
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    assert {*select(str(tmp_path)).taken} == {"a/b", "a/up", "self"}


@pytest.mark.parametrize("name", ["new\nline", "a\udcff"])
def test_a_name_that_is_no_text_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert "rename it, or name it in .jobignore" in refusal(tmp_path)
    assert refusal(tmp_path).isprintable()


def test_an_empty_or_missing_folder_is_said(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: nothing to package: it has no files"
    root = repository(tmp_path / "r", {".gitignore": "*\n"})
    git(root, "rm", "--quiet", "--cached", "-f", "-r", "--ignore-unmatch", ".")
    assert "git or .jobignore ignores all of it" in refusal(root)
    with pytest.raises(CommandError, match="nope: no such folder"):
        select(str(tmp_path / "nope"))
    with pytest.raises(CommandError, match=r"\.gitignore: is not a folder"):
        select(str(root / ".gitignore"))


def test_a_tree_of_too_many_files_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.packages.manifest.FILES_MAX", 10)
    write(tmp_path, {f"d{n}/f": "" for n in range(11)})
    assert "11 files, and a package has 10 at most" in refusal(tmp_path)
