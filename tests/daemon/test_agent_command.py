"""A node's agent as a process of its own: it reports to a daemon, and goes on when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduler.access import issued_tokens
from scheduler.access.identity import user_token
from scheduler.gpus.usage import LIBRARY, WATCHDOG
from tests.nvml.machine import Machine
from tests.serving import SECRET, Serving
from tests.support import BIN, eventually


@contextmanager
def reporting(server: str, *words: str, **given: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(BIN / "scheduler-agent"), "--server", server, "--node", "n1"]
    command += ["--every_seconds", "0.1", *words]
    environment = {**os.environ, **given}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def server_of(served: Serving) -> str:
    return f"127.0.0.1:{served.server.ports[0]}"


def node_token(folder: Path, node: str = "n1") -> str:
    database = folder / "scheduler.db"
    return issued_tokens.issue_for_node(database, node, "", time.time(), 1000.0)[1]


def heard(process: subprocess.Popen[str], words: str) -> None:
    """Wait until it says so."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it never said: {words}")


def test_what_changes_on_a_node_is_soon_known_to_the_daemon(
    served: Serving, nvml: Machine, tmp_path: Path
) -> None:
    nvml.gpu("GPU-a")
    with reporting(server_of(served), SCHEDULER_TOKEN=node_token(tmp_path)) as process:
        eventually(served.reports.newest)
        (report,) = served.reports.newest()
        assert (report.node, report.keeps) == ("n1", WATCHDOG)
        assert [reading.gpu.uuid for reading in report.cards] == ["GPU-a"]
        nvml.process(0, process.pid, 3000)
        eventually(lambda: served.reports.newest()[0].cards[0].used_mib == 3000)
        nvml.lose(0)
        eventually(lambda: served.reports.newest()[0].cards[0].gpu.lost)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_node_without_a_driver_reports_as_well(
    served: Serving, nvml: Machine, tmp_path: Path
) -> None:
    nvml.unload()
    with reporting(server_of(served), SCHEDULER_TOKEN=node_token(tmp_path)):
        eventually(served.reports.newest)
        (report,) = served.reports.newest()
        assert (report.cards, report.keeps) == ((), LIBRARY)


def test_an_agent_that_is_rejected_says_so_and_tries_again(
    served: Serving, nvml: Machine, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(user_token(SECRET, "agent"))
    with reporting(server_of(served), SCHEDULER_TOKEN_FILE=str(token)) as process:
        heard(process, "UNAUTHENTICATED: this is not a token of a node: an agent needs one that")
        token.write_text(node_token(tmp_path, "n2"))
        heard(process, "PERMISSION_DENIED: this token is of the agent on 'n2', which may not")
        token.write_text(node_token(tmp_path))
        eventually(served.reports.newest)


def test_a_certificate_that_is_not_there_is_named(nvml: Machine) -> None:
    with reporting("127.0.0.1:1", "--ca", "/nowhere/ca.crt") as process:
        assert process.stderr is not None
        assert process.stderr.read() == (
            "scheduler-agent: --ca /nowhere/ca.crt: No such file or directory\n"
        )
        assert process.wait() == 2
