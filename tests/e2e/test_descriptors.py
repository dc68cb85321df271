"""A daemon that may open few files, and others who want all of them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from benchmarks.malformed import GREETING
from tests.support import Daemon, eventually

IDLE = 600


@pytest.mark.parametrize("said", [b"", GREETING])
def test_idle_connections_leave_descriptors_for_jobs(tmp_path: Path, said: bytes) -> None:
    daemon = Daemon(tmp_path / "state", "1x16384")
    daemon.under = ("prlimit", "--nofile=256:256")
    try:
        daemon.start()
        port = int(daemon.address.rpartition(":")[2])
        with ExitStack() as opened:
            for _ in range(IDLE):
                raw = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                raw.sendall(said)
            job = daemon.submit("--image", "none", "demo", "--", "echo", "hello")
            daemon.wait_state(demo="FINISHED")
            assert daemon.run("scheduler-get-logs", job).stdout == "hello\n"
            process = psutil.Process(daemon.pid)
            eventually(lambda: process.num_fds() < 200)
    finally:
        daemon.end()


def test_the_daemon_raises_its_limit_and_not_that_of_jobs(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", "1x16384")
    daemon.under = ("prlimit", "--nofile=300:400")
    try:
        daemon.start()
        assert psutil.Process(daemon.pid).rlimit(psutil.RLIMIT_NOFILE) == (400, 400)
        job = daemon.submit("--image", "none", "demo", "--", "sh", "-c", "ulimit -n")
        daemon.wait_state(demo="FINISHED")
        assert daemon.run("scheduler-get-logs", job).stdout == "300\n"
    finally:
        daemon.end()
