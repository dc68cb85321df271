"""The real TensorBoard beside a job, read on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest

from cli import connect, tensorboard
from tests.clients.tracked_job import python_with
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

pytestmark = pytest.mark.clients

WRITES = """
import sys, time
from tensorboardX import SummaryWriter
writer = SummaryWriter(sys.argv[1])
for step in range(10): writer.add_scalar("loss", 1 / (step + 1), step)
writer.flush()
print("written", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "1x16384").start()
    try:
        yield made
    finally:
        made.end()


def _submit(daemon: Daemon, tmp_path: Path, python: str) -> None:
    path = f"{Path(python).parent}:/usr/bin:/bin"
    flags = ("--no_tracking", "--env", f"PATH={path}", "--env", f"TENSORBOARD_DIR={tmp_path}/logs")
    words = (python, "-c", WRITES, f"{tmp_path}/logs/first")
    daemon.submit(*flags, "dbg", "--", *words)
    daemon.wait_state(dbg="RUNNING")
    eventually(lambda: "written" in daemon.run("scheduler-get-logs", "dbg").stdout)


def _show(daemon: Daemon) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "scheduler-connect", "dbg", "--tensorboard"],
        env={**os.environ, "SCHEDULER_SERVER": daemon.address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _boards() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if "--path_prefix" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_its_page_is_read_here_and_it_ends_with_the_job(daemon: Daemon, tmp_path: Path) -> None:
    _submit(daemon, tmp_path, python_with("tensorboard", "tensorboardX"))
    with _show(daemon) as shown:
        assert shown.stdout
        url = shown.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        eventually(lambda: json.load(urlopen(f"{url}data/runs")) == ["first"])
        assert b"TensorBoard" in urlopen(url).read()
        with pytest.raises(HTTPError):  # who does not know the path
            urlopen(f"{url.rsplit('/', 2)[0]}/data/runs")
        assert daemon.run("scheduler-cancel-job", "dbg").returncode == 0
        assert shown.wait(DEADLINE_SECONDS) == 1
        assert shown.stderr
        assert "has ended: it is CANCELED" in shown.stderr.read()
    eventually(lambda: not _boards())


def test_it_ends_when_its_user_has_seen_enough(daemon: Daemon, tmp_path: Path) -> None:
    _submit(daemon, tmp_path, python_with("tensorboard", "tensorboardX"))
    with _show(daemon) as shown:
        assert shown.stdout
        assert shown.stdout.readline()
        shown.send_signal(signal.SIGINT)
        assert shown.wait(DEADLINE_SECONDS) == 130
    eventually(lambda: not _boards())
    daemon.wait_state(dbg="RUNNING")


def test_it_ends_when_nobody_looks(
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tensorboard, "IDLE_SECONDS", 0.0)  # otherwise as long as a night
    monkeypatch.setattr(tensorboard, "LOOK_SECONDS", 0.0)
    monkeypatch.setenv("SCHEDULER_SERVER", daemon.address)
    _submit(daemon, tmp_path, python_with("tensorboard", "tensorboardX"))
    assert connect.main(["dbg", "--tensorboard"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("http://127.0.0.1:")
    assert "nobody has looked at it for 12 hours: it is ended" in shown.err
    eventually(lambda: not _boards())
    daemon.wait_state(dbg="RUNNING")


def test_a_job_without_it_says_so(daemon: Daemon, tmp_path: Path) -> None:
    daemon.submit("--no_tracking", "--env", "PATH=/usr/bin:/bin", "dbg", "--", "sleep", "1000")
    daemon.wait_state(dbg="RUNNING")
    with _show(daemon) as shown:
        _, err = shown.communicate(timeout=DEADLINE_SECONDS)
    assert shown.returncode == 127
    assert "the job's Python has no TensorBoard" in err
