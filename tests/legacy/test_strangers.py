"""The listener for old images and processes of other users of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Daemon

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Everything is imported first, because other users may not be able to read root's Python.
CALL = """
import encodings.idna, http.client, os, sys
uid, host, port, method, path = sys.argv[1:]
os.setgroups([])
os.setuid(int(uid))
caller = http.client.HTTPConnection(host, int(port))
caller.request(method, path, '{"done": 2}', {"Content-Type": "application/json"})
reply = caller.getresponse()
print(reply.status, reply.read().decode().strip())
"""
NOBODY = 65534


@pytest.fixture
def everywhere(legacy: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The port of a listener at all addresses of this machine."""
    port = legacy.rpartition(":")[2]
    monkeypatch.setenv("SCHEDULER_LEGACY__LISTEN", f"0.0.0.0:{port}")
    return port


@pytest.fixture
def daemon(tmp_path: Path, everywhere: str) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state")
    made.start()
    yield made
    made.end()


def own_addresses() -> list[str]:
    """127.0.0.1, and the address by which this machine would call others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ["127.0.0.1"]
        return ["127.0.0.1", probe.getsockname()[0]]


def test_another_user_cannot_speak_for_a_job_and_its_own_processes_can_from_any_address(
    daemon: Daemon, everywhere: str
) -> None:
    job_id = daemon.submit("--max_epochs", "5", "victim", "--", "sleep", "1000")
    daemon.wait_state(victim="RUNNING")

    def call(uid: int, host: str, method: str, path: str) -> str:
        words = [str(uid), host, everywhere, method, f"/{path}/{job_id}"]
        done = subprocess.run(
            [sys.executable, "-I", "-c", CALL, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for host in own_addresses():
        for method, path in (("GET", "has_to_stop"), ("POST", "end_epoch"), ("POST", "signal_end")):
            refused = "403 no token: nobody has no jobs of root"
            assert call(NOBODY, host, method, path) == refused
        assert call(0, host, "GET", "has_to_stop") == "200 0"
    assert daemon.job_of(job_id)["epochs_done"] == 0
    assert call(0, own_addresses()[-1], "POST", "end_epoch") == "200"
    assert daemon.job_of(job_id)["epochs_done"] == 2
