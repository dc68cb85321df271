"""scheduler-files over a real sshd and the system's ssh, for Slurm and for a scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.storage import script_storage
from tests.cli.conftest import MAINS, Done
from tests.clients.sshd import SshServer, needs_sshd
from tests.support import BIN, eventually

pytestmark = [pytest.mark.clients, needs_sshd]

Files = Callable[..., Done]
CONTEXTS = """\
contexts:
  cluster:
    type: slurm
    slurm:
      host: login
  lab:
    server: login:7443
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    made = SshServer(tmp_path_factory.mktemp("ssh"), {"LANG": "C.UTF-8"})
    made.start()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def cache(server: SshServer) -> Iterator[str]:
    """With a short name, as a socket's path must be: all commands share one connection."""
    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as folder:
        yield folder
        control = f"ControlPath={folder}/epoch-scheduler/ssh/%C"
        words = ["ssh", "-F", str(server.config), "-O", "exit", "-o", control, "login"]
        assert subprocess.run(words, capture_output=True).returncode == 0, "it was not shared"


@pytest.fixture
def there(server: SshServer, cache: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The storage of the cluster."""
    config = tmp_path / "config/epoch-scheduler"
    config.mkdir(parents=True)
    (config / "config.yaml").write_text(CONTEXTS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("PATH", f"{server.path}:{BIN}:{os.environ['PATH']}")
    monkeypatch.delenv("SCHEDULER_SERVER", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folder = tmp_path / "there is"
    folder.mkdir()
    return folder


@pytest.fixture
def files(there: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    def call(*words: str) -> Done:
        capsys.readouterr()
        return Done(MAINS["scheduler-files"](list(words)), *capsys.readouterr())

    return call


@pytest.fixture
def tree(there: Path) -> Path:
    made = there / "out"
    (made / "epochs/deep").mkdir(parents=True)
    (made / "epochs/3 'q\"$(touch ran).pt").write_bytes(b"w" * 5000)
    (made / "epochs/deep/new\nline").write_text("x")
    (made / "empty").touch()
    (made / "last.ckpt").symlink_to("epochs/3 'q\"$(touch ran).pt")
    return made


@pytest.mark.parametrize("context", ["cluster", "lab"])
def test_a_folder_comes_and_goes_back(files: Files, tree: Path, there: Path, context: str) -> None:
    done = files("get", f"{context}:{tree}", "mine")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == "copied 4 files (9.8 KiB) to mine\n"
    assert files("get", f"{context}:{tree}", "mine").out.endswith("; 4 were there already\n")
    done = files("put", "mine", f"{context}:{there}/new/copy")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == f"copied 4 files (9.8 KiB) to login:{there}/new/copy\n"
    done = files("put", "mine", f"{context}:{there}/new/copy")
    assert done.out.endswith("; 4 were there already\n"), done.err
    subprocess.run(["diff", "-r", tree, there / "new/copy"], check=True)
    assert not list(there.rglob("ran"))
    assert not Path("ran").exists()


def test_it_is_listed_and_removed(files: Files, tree: Path) -> None:
    done = files("ls", f"cluster:{tree}")
    assert [line.split("  ")[-1] for line in done.out.splitlines()] == [
        "NAME",
        "empty",
        "epochs/",
        "last.ckpt",
    ]
    assert "4.9 KiB" in done.out
    assert files("rm", f"cluster:{tree}/last.ckpt", "--yes").exit_code == 0
    assert not (tree / "last.ckpt").is_symlink()
    assert (tree / "epochs/3 'q\"$(touch ran).pt").exists()
    assert files("rm", f"cluster:{tree}", "--yes").exit_code == 0
    assert not tree.exists()
    done = files("ls", f"cluster:{tree}")
    assert (done.exit_code, done.err) == (
        2,
        f"scheduler-files: login:{tree}: no such file or folder\n",
    )


def test_home_there_is_found(files: Files) -> None:
    assert files("ls", "cluster:~/").exit_code == 0


@pytest.mark.parametrize("path", ["home", "home/", "home/..", "."])
def test_home_there_is_kept(tmp_path: Path, path: str) -> None:
    """The script alone: the home of this machine's root is not for tests."""
    (tmp_path / "home/kept").mkdir(parents=True)
    script = script_storage.REMOVE.format(path=f"{tmp_path}/{path}")
    done = subprocess.run(
        ["sh", "-c", script], env={"HOME": f"{tmp_path}/home"}, capture_output=True, text=True
    )
    assert (done.returncode, (tmp_path / "home/kept").exists()) == (4, True)
    assert done.stderr == "it is not removed: it contains your home\n"


def test_links_that_leave_are_left_out_and_none_is_followed_by_a_put(
    files: Files, tree: Path, there: Path
) -> None:
    (tree / "secret").symlink_to("/etc/passwd")
    (tree / "folder").symlink_to("epochs")
    (tree / "nowhere").symlink_to("not")
    os.mkfifo(tree / "pipe")
    done = files("get", f"cluster:{tree}", "mine")
    assert done.exit_code == 1
    assert done.out.endswith("; 4 were left out\n")
    for why in ("a link that leaves the folder", "a link to a folder", "a link to nowhere"):
        assert done.err.count(why) == 1, done.err
    assert "neither a file nor a folder" in done.err
    outside, target = there / "outside", there / "target"
    outside.mkdir()
    target.mkdir()
    (target / "epochs").symlink_to(outside)
    done = files("put", "mine", f"cluster:{target}")
    assert done.exit_code == 1
    assert "epochs is a link or a file, which is not followed" in done.err
    assert list(outside.iterdir()) == []
    assert (target / "last.ckpt").exists()


@pytest.mark.parametrize("trap", ["symlink", "hard link"])
def test_a_partial_copy_that_is_not_ours_is_not_written_to(
    files: Files, there: Path, trap: str
) -> None:
    Path("x").write_bytes(b"content")
    own = there / "own"
    own.write_text("mine")
    partial = there / _partial_of("x")
    if trap == "symlink":
        partial.symlink_to(own)
    else:
        partial.hardlink_to(own)
    assert files("put", "x", f"cluster:{there}/").exit_code == 0
    assert (own.read_text(), (there / "x").read_bytes()) == ("mine", b"content")
    assert sorted(path.name for path in there.iterdir()) == ["own", "x"]


def _partial_of(name: str) -> str:
    from cli.storage.folder_storage import FolderStorage, partial_name
    from cli.storage.stored_files import CopySource

    storage = FolderStorage()
    return partial_name(name, CopySource(name, storage.look(name), lambda _: iter(())))


@pytest.mark.parametrize("action", ["get", "put"])
def test_a_copy_that_was_killed_goes_on_where_it_stopped(
    files: Files, there: Path, action: str
) -> None:
    content = os.urandom(1024 * 1024) * 300
    source = there / "big" if action == "get" else Path("big")
    target = Path("mine") if action == "get" else there / "mine"
    source.write_bytes(content)
    words = (f"cluster:{source}", "mine/") if action == "get" else ("big", f"cluster:{target}/")
    started = _start(action, *words)
    eventually(lambda: _size(target) > 3_000_000 or started.poll() is not None)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    (partial,) = target.iterdir()
    assert partial.name.endswith(".part"), "killed too late"
    node = partial.stat().st_ino
    done = files(action, *words)
    assert (done.exit_code, done.err) == (0, "")
    (whole,) = target.iterdir()
    assert (whole.name, whole.stat().st_ino) == ("big", node)
    assert whole.read_bytes() == content


def test_a_file_that_changes_while_it_is_fetched_is_no_copy(files: Files, there: Path) -> None:
    (there / "big").write_bytes(os.urandom(1024 * 1024) * 300)
    started = _start("get", f"cluster:{there}/big", "mine/")
    eventually(lambda: _size(Path("mine")) > 0 or started.poll() is not None)
    started.send_signal(signal.SIGSTOP)
    with (there / "big").open("r+b") as opened:
        opened.write(b"x")
    started.send_signal(signal.SIGCONT)
    _, said = started.communicate()
    assert started.returncode == 1
    assert said.decode().endswith("changed while it was copied: run the command again\n")
    assert list(Path("mine").iterdir()) == []


def test_what_ssh_says_is_told_in_one_line(
    files: Files, server: SshServer, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = files("get", f"cluster:{there}/not")
    assert (done.exit_code, done.err.count("\n")) == (2, 1)
    (there / "file").touch()
    Path("x").touch()
    done = files("put", "x", f"cluster:{there}/file/x")
    assert (done.exit_code, done.err.count("\n")) == (1, 1)
    assert f"login:{there}/file/x: " in done.err
    monkeypatch.setenv("XDG_CACHE_HOME", f"{there}/{'long' * 20}")  # no connection is kept
    server.write_config(key="host")
    try:
        done = files("ls", f"cluster:{there}")
    finally:
        server.write_config()
    assert (done.exit_code, done.err.count("\n")) == (3, 1)
    assert "Permission denied" in done.err
    assert "`ssh login` has to work without a question" in done.err


def _start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([BIN / "scheduler-files", *words], stderr=subprocess.PIPE)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0
