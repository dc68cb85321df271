"""Shells and ports of real pods on real nodes, by the API server's exec and port-forward."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.terminals import Terminal
from tests.kube.conftest import IMAGE
from tests.kube.nodes import Nodes
from tests.kube.processes import free_port
from tests.kube.trainings import Lab
from tests.support import BIN, DEADLINE_SECONDS, eventually

SERVER = (
    "from socket import *; s = create_server(('127.0.0.1', 6006)); "
    "[(lambda c: (c.sendall(c.recv(100)[::-1]), c.close()))(s.accept()[0]) for _ in iter(int, 1)]"
)


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


def test_a_shell_a_command_and_a_port_of_a_pod(lab: Lab, tmp_path: Path) -> None:
    daemon = lab.start()
    folders = ("--snapshots_dir", str(lab.shared), "--custom_dir", str(lab.shared))
    flags = ("--image_name", IMAGE, "--num_gpus", "0", *folders, "--env", "COLOUR=blue")
    job_id = daemon.submit(*flags, "dbg", "--", "python3", "-c", SERVER)
    lab.wait_until_running(job_id)
    connect = ("scheduler-connect", "dbg")

    script = "cat; echo $COLOUR; id -u; env; echo wrong >&2; exit 7"
    done = daemon.run(*connect, "--", "sh", "-c", script, answer="typed\n")
    assert (done.returncode, done.stderr) == (7, "wrong\n")
    assert done.stdout.startswith("typed\nblue\n1000\n")
    assert "KUBEPROFILER_TOKEN" not in done.stdout
    assert f"JOB_UUID={job_id}" in done.stdout
    missing = daemon.run(*connect, "--", "nosuch")
    assert missing.returncode == 127
    assert "nosuch" in missing.stderr
    refused = daemon.run(*connect, "--", "true", user="nobody")
    assert refused.returncode == 4

    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address, "TERM": "xterm"}
    shell = Terminal([BIN / connect[0], "dbg"], environment, tmp_path)
    shell.type("echo $TERM-$COLOUR; sleep 1000\r")
    eventually(lambda: b"xterm-blue" in shell.shown)
    shell.type("\x03")
    shell.type("echo inter''rupted; exit 9\r")
    assert shell.wait() == 9
    assert b"interrupted" in shell.shown

    def remaining() -> str:
        look = "for f in /proc/[0-9]*/cmdline; do cat $f; echo; done"
        return daemon.run(*connect, "--", "sh", "-c", look).stdout

    killed = Terminal([BIN / connect[0], "dbg", "--", "sleep", "4321"], environment, tmp_path)
    eventually(lambda: "sleep\x004321" in remaining())
    killed.process.kill()
    eventually(lambda: "sleep\x004321" not in remaining())
    killed.wait()

    here = free_port()
    words: list[str | Path] = [BIN / connect[0], "dbg", "--port", f"6006:{here}"]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as forwarding:
        assert forwarding.stderr
        eventually(lambda: _reversed(here) == b"cba")
        assert daemon.run("scheduler-cancel-job", "dbg").returncode == 0
        assert forwarding.wait(DEADLINE_SECONDS) == 1
        assert b"has ended" in forwarding.stderr.read()
    ended = daemon.run(*connect, "--", "true")
    assert ended.returncode == 1
    assert "is not running" in ended.stderr


def _reversed(port: int) -> bytes:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(b"abc")
        return made.recv(100)
    return b""
