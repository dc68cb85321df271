from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Done
from tests.cli.terminals import Terminal
from tests.serving import Serving
from tests.support import BIN, eventually


@pytest.fixture
def files(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str, **_: str) -> Done:
        return command("scheduler-files", *words)

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "storage/out"
    (folder / "epochs").mkdir(parents=True)
    (folder / "log.txt").write_text("hello")
    (folder / "epochs/3.pt").write_bytes(b"w" * 2048)
    return folder


def context(command: Command, *words: str) -> None:
    assert command("scheduler-context", "add", *words).exit_code == 0


def test_a_folder_is_listed(files: Command, out: Path, in_utc: None) -> None:
    for each in (out / "log.txt", out / "epochs"):
        os.utime(each, (1e9, 1e9))
    assert files("ls", str(out)).out == (
        "   SIZE  MODIFIED          NAME\n"
        "      -  2001-09-09 01:46  epochs/\n"
        "5 bytes  2001-09-09 01:46  log.txt\n"
    )
    listed = json.loads(files("ls", str(out), "--output", "json").out)
    assert listed["path"] == str(out)
    assert listed["files"][1] == {
        "name": "log.txt",
        "kind": "file",
        "bytes": 5,
        "modified_at": 1e9,
    }
    assert files("ls", f"{out}/log.txt").out.endswith("log.txt\n")


def test_what_is_not_there_is_named(files: Command, out: Path) -> None:
    done = files("ls", f"{out}/not")
    assert (done.exit_code, done.out) == (2, "")
    assert done.err == f"scheduler-files: {out}/not: no such file or folder\n"


def test_a_folder_becomes_the_folder_that_is_named(
    files: Command, out: Path, tmp_path: Path
) -> None:
    done = files("get", str(out), "./mine")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == "copied 2 files (2.0 KiB) to ./mine\n"
    assert (tmp_path / "mine/epochs/3.pt").read_bytes() == b"w" * 2048
    (out / "log.txt").write_text("hello again")
    assert files("get", str(out), "./mine").out == (
        "copied 1 file (11 bytes) to ./mine; 1 was there already\n"
    )
    assert (tmp_path / "mine/log.txt").read_text() == "hello again"


def test_without_dest_it_has_the_same_name_here(files: Command, out: Path, tmp_path: Path) -> None:
    assert files("get", f"{out}/").exit_code == 0
    assert files("get", f"{out}/epochs/3.pt").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["epochs", "log.txt"]
    assert (tmp_path / "3.pt").exists()


def test_a_file_goes_into_a_folder_or_gets_a_new_name(
    files: Command, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    for to in ("there", "new/", "renamed.txt"):
        assert files("put", f"{out}/log.txt", f"{tmp_path}/{to}").exit_code == 0
    for name in ("there/log.txt", "new/log.txt", "renamed.txt"):
        assert (tmp_path / name).read_text() == "hello"


def test_what_cannot_be_copied_is_counted(files: Command, out: Path) -> None:
    (out / "bad\x1b]0;title\x07").symlink_to("/etc")
    done = files("get", str(out), "./mine")
    assert done.exit_code == 1
    assert done.out.endswith("to ./mine; 1 was left out\n")
    assert "a link that leaves the folder" in done.err
    assert "\x1b" not in done.err + done.out + files("ls", str(out)).out


def test_a_context_on_this_machine_is_its_files(
    files: Command, command: Command, out: Path
) -> None:
    context(command, "here", "--server", "localhost:7070")
    assert files("get", f"here:{out}/log.txt", "x").exit_code == 0
    done = files("ls", "here:out")
    assert done.exit_code == 2
    assert done.err == "scheduler-files: here:out: the path must begin with / or ~/\n"
    done = files("ls", "hree:/out")
    assert done.exit_code == 2
    assert "no context 'hree' (did you mean 'here'?)" in done.err


def test_a_path_with_a_colon_is_reached_by_a_slash(files: Command, tmp_path: Path) -> None:
    (tmp_path / "a:b").write_text("x")
    assert files("ls", "./a:b").exit_code == 0


def test_in_pods_there_is_no_home(files: Command, command: Command) -> None:
    context(command, "gke", "--type", "kubernetes", "--server", "x:1")
    done = files("ls", "gke:~/storage")
    assert done.exit_code == 2
    assert "gke:~/storage: a path in pods must begin with /" in done.err


def test_the_snapshots_of_a_job_are_named_by_it(
    files: Command, server: Serving, out: Path, tmp_path: Path
) -> None:
    server.submit("demo", held=True, snapshots_dir=str(out))
    server.submit("other", held=True)
    assert files("get", "job://demo/epochs", "mine").exit_code == 0
    assert (tmp_path / "mine/3.pt").exists()
    done = files("ls", "job://demo/../..")
    assert (done.exit_code, done.out) == (2, "")
    done = files("ls", "job://other")
    assert done.exit_code == 1
    assert "'other' was submitted without --snapshots_dir" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mv", "a", "b"), "unknown action 'mv': give one of ls, get, put, rm"),
        (("ls", "a", "b"), "usage: scheduler-files ls PATH"),
        (("put", "a"), "usage: scheduler-files put SOURCE PATH"),
        (("put", "s3://a/b", "/c"), "one side of a copy must be a file or a folder of this"),
        (("get", "/"), "/ has no name of its own"),
    ],
)
def test_wrong_words_are_told(files: Command, words: tuple[str, ...], told: str) -> None:
    done = files(*words)
    assert done.exit_code == 2
    assert told in done.err


# --- removing -----------------------------------------------------------------------------------


def test_without_a_terminal_nothing_is_removed_unless_it_is_said(files: Command, out: Path) -> None:
    done = files("rm", str(out))
    assert done.exit_code == 2
    assert "rm asks before it removes, and here is no terminal: give --yes" in done.err
    assert out.exists()
    assert files("rm", str(out), "--yes").exit_code == 0
    assert not out.exists()


@pytest.mark.parametrize(("typed", "gone"), [("\n", False), ("n\n", False), ("y\n", True)])
def test_rm_asks_and_enter_means_no(out: Path, tmp_path: Path, typed: str, gone: bool) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "vt100"}
    terminal = Terminal([BIN / "scheduler-files", "rm", str(out)], environment, tmp_path)
    eventually(lambda: b"[y/N]" in terminal.shown)
    assert f"remove {out} with 2 files (2.0 KiB)? [y/N]".encode() in terminal.shown
    terminal.type(typed)
    assert terminal.wait() == (0 if gone else 1)
    assert out.exists() != gone


@pytest.mark.parametrize("path", [".", "home", "~", "home/.."])
def test_home_and_what_it_is_in_are_not_removed(files: Command, tmp_path: Path, path: str) -> None:
    (tmp_path / "home/kept").mkdir(parents=True)
    done = files("rm", path, "--yes")
    assert done.exit_code == 4
    assert "is not removed" in done.err
    assert (tmp_path / "home/kept").exists()
