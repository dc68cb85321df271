"""scheduler-files through a scheduler: scripts beside a job that sees what jobs of a context see.

The pods of the context are processes of this machine here, with the same visits as in a cluster.
(Real pods: tests/kube/test_files_on_nodes.py.)
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from cli.storage.helper_job import WAITS
from tests.e2e.conftest import Daemons
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

Files = Callable[..., subprocess.CompletedProcess[str]]
SIZE = 30_000_000


@pytest.fixture
def daemon(daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    daemon = daemons("0")
    contexts = tmp_path / "config" / "epoch-scheduler" / "config.yaml"
    contexts.parent.mkdir(parents=True)
    keys = f"type: kubernetes, server: '{daemon.address}', snapshots_dir: {tmp_path}/snap"
    contexts.write_text(f"contexts:\n  gke: {{{keys}}}\n")
    contexts.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return daemon


@pytest.fixture
def files(daemon: Daemon, tmp_path: Path) -> Files:
    return lambda *words: daemon.run("scheduler-files", *words)


def test_what_is_copied_is_what_was_there(files: Files, daemon: Daemon, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "a b").mkdir(parents=True)
    (there / "a b" / "ünïcode\n").write_bytes(os.urandom(SIZE))
    (there / "none").touch()
    (there / "out").symlink_to("/etc/passwd")
    got = files("get", f"gke:{there}", str(here))
    assert (got.returncode, got.stdout) == (
        1,
        f"copied 2 files (28.6 MiB) to {here}; 1 was left out\n",
    ), got.stderr
    for name in ("a b/ünïcode\n", "none"):
        assert (here / name).read_bytes() == (there / name).read_bytes()
    put = files("put", str(here), f"gke:{there}/more")
    assert put.returncode == 0, put.stderr
    for name in ("a b/ünïcode\n", "none"):
        assert (there / "more" / name).read_bytes() == (there / name).read_bytes()
    (there / "more" / "a b").chmod(0o500)
    removed = files("rm", f"gke:{there}/more", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert not (there / "more").exists()
    missing = files("ls", f"gke:{there}/more")
    told = f"scheduler-files: gke:{there}/more: no such file or folder\n"
    assert (missing.returncode, missing.stderr) == (2, told)
    (job,) = daemon.state_of()["jobs"]
    assert (job["name"], job["state"]) == ("files", "RUNNING"), "one for all of them"


def test_what_was_copied_before_the_command_was_killed_is_not_copied_again(
    files: Files, daemon: Daemon, tmp_path: Path
) -> None:
    source, there = tmp_path / "big", tmp_path / "there"
    there.mkdir()
    with source.open("wb") as file:
        for _ in range(20):
            file.write(os.urandom(SIZE // 2))

    def partial() -> int:
        return sum(each.stat().st_size for each in there.glob("*.part"))

    words: list[str | Path] = [BIN / "scheduler-files", "put", source, f"gke:{there}/big"]
    with subprocess.Popen(words) as process:
        eventually(lambda: partial() > SIZE)
        process.kill()
    assert SIZE < partial() < 10 * SIZE
    begun = next(there.glob("*.part")).stat().st_ino
    put = files("put", str(source), f"gke:{there}/big")
    assert put.returncode == 0, put.stderr
    assert (there / "big").stat().st_ino == begun
    assert subprocess.run(["cmp", source, there / "big"]).returncode == 0


def test_a_job_that_has_ended_meanwhile_is_named_and_the_next_command_has_another(
    files: Files, daemon: Daemon, tmp_path: Path
) -> None:
    assert files("ls", f"gke:{tmp_path}").returncode == 0
    (job,) = daemon.state_of()["jobs"]
    assert daemon.run("scheduler-cancel-job", job["id"]).returncode == 0
    assert files("ls", f"gke:{tmp_path}").returncode == 0
    assert len(daemon.state_of()["jobs"]) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a process namespace")
def test_the_job_does_not_outlive_its_last_command_for_long() -> None:
    """It runs in a process namespace of its own, as in a container. Here it looks when it is told
    to, and says how often in a row it was alone."""
    look = WAITS.replace("sleep 2 & wait $!", "read go; echo $quiet")
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", look]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as job:
        assert job.stdin
        assert job.stdout

        def look_again() -> bytes:
            job.stdin.write(b"\n")  # type: ignore[union-attr]
            job.stdin.flush()  # type: ignore[union-attr]
            return job.stdout.readline()  # type: ignore[union-attr]

        assert look_again() == b"0\n"
        (inside,) = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        enter = ["nsenter", "--target", inside, "--pid", "cat"]
        with subprocess.Popen(enter, stdin=PIPE, stdout=PIPE) as command:
            assert command.stdin
            assert command.stdout
            command.stdin.write(b"in\n")
            command.stdin.flush()
            assert command.stdout.readline() == b"in\n"
            assert {look_again() for _ in range(50)} <= {b"0\n", b"1\n"}
            assert look_again() == b"0\n"
        last = b""
        with suppress(BrokenPipeError):
            while said := look_again():
                last = said
        assert last == b"29\n"
        assert job.wait(DEADLINE_SECONDS) == 0


def test_a_job_is_read_beside_itself_while_it_runs(
    files: Files, daemon: Daemon, tmp_path: Path
) -> None:
    reached = files("ls", "gke:job://nope/x")
    assert reached.returncode == 2
    assert "nope" in reached.stderr
    outside = files("ls", "gke:job://nope/../x")
    assert (outside.returncode, outside.stderr) == (
        2,
        "scheduler-files: job://nope/../x: `..` leaves the job's folder\n",
    )
