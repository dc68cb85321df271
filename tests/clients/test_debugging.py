"""The real debugpy, attached to as VS Code does it, with the configuration of the document."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.clients.tracked_job import python_with
from tests.kube.processes import free_port
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "debugging" / "train.py"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "1x16384").start()
    try:
        yield made
    finally:
        made.end()


class DebugClient:
    """Speaks the Debug Adapter Protocol, as an editor does."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._wire = socket.create_connection(address, DEADLINE_SECONDS)
        self._file = self._wire.makefile("rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command}
        body = json.dumps({**message, "arguments": arguments}).encode()
        self._wire.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self._number

    def ask(self, command: str, **arguments: Any) -> Any:
        return self.answer(self.send(command, **arguments))

    def answer(self, number: int) -> Any:
        while True:
            message = self._read()
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return message.get("body")

    def event(self, name: str) -> Any:
        while not (found := [each for each in self._events if each["event"] == name]):
            self._read()
        self._events.remove(found[0])
        return found[0].get("body")

    def _read(self) -> dict[str, Any]:
        length = 0
        while line := self._file.readline().strip():
            length = int(line.partition(b":")[2])
        message: dict[str, Any] = json.loads(self._file.read(length))
        if message["type"] == "event":
            self._events.append(message)
        return message

    def close(self) -> None:
        self._file.close()
        self._wire.close()


def test_the_attach_configuration_of_the_document_works_as_printed(
    daemon: Daemon, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(EXAMPLE.read_text())
    python = python_with("debugpy")
    text = (ROOT / "docs" / "connecting.md").read_text()
    (block,) = re.findall(r"^```json\n(.*?)^```", text, re.S | re.M)
    attach = json.loads(block.replace("${workspaceFolder}", str(folder)))
    there, here = free_port(), attach["connect"]["port"]
    words = ("sh", "-c", f"cd {folder} && exec {python} train.py")
    flags = ("--no_tracking", "--max_epochs", "3", "--debug_wait", str(there))
    daemon.submit(*flags, "dbg", "--", *words)
    daemon.wait_state(dbg="RUNNING")
    logs = ("scheduler-get-logs", "dbg")
    eventually(lambda: f"waits for a debugger at port {there}" in daemon.run(*logs).stdout)
    forwarding = subprocess.Popen(
        [BIN / "scheduler-connect", "dbg", "--server", daemon.address, "--port", f"{there}:{here}"],
        stderr=subprocess.DEVNULL,
    )
    with forwarding:
        try:
            client = _attached(attach)
            _debug(client, folder / "train.py")
            client.close()
        finally:
            forwarding.kill()
    job = daemon.wait_state(dbg="FINISHED")["dbg"]
    assert job.epochs_done == 3
    assert job.spec.disable_gpu_sharing
    assert "epoch 1: loss 500.0" in daemon.run(*logs).stdout
    told = [fact.data_json for fact in daemon.story(job.id) if fact.kind == "run_visited"]
    assert len(told) == 1
    assert '"a debugger"' in told[0]


def _attached(attach: dict[str, Any]) -> DebugClient:
    made: list[DebugClient] = []

    def reached() -> bool:
        with suppress(OSError):
            made.append(DebugClient((attach["connect"]["host"], attach["connect"]["port"])))
        return bool(made)

    eventually(reached)
    return made[0]


def _debug(client: DebugClient, script: Path) -> None:
    """Stops at a line of the file as it is here, and changes what the job computes."""
    lines = script.read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "a good line" in text)
    client.ask("initialize", clientID="vscode", adapterID="debugpy", pathFormat="path")
    text = (ROOT / "docs" / "connecting.md").read_text()
    (block,) = re.findall(r"^```json\n(.*?)^```", text, re.S | re.M)
    attaching = client.send(
        "attach", **json.loads(block.replace("${workspaceFolder}", str(script.parent)))
    )
    client.event("initialized")
    at = client.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": line}])
    assert at["breakpoints"][0]["verified"]
    client.ask("configurationDone")
    client.answer(attaching)
    thread = client.event("stopped")["threadId"]
    frame = client.ask("stackTrace", threadId=thread)["stackFrames"][0]
    assert (frame["name"], frame["line"]) == ("main", line)
    assert frame["source"]["path"] == str(script)
    client.ask("evaluate", expression="loss = 1000.0", frameId=frame["id"], context="repl")
    client.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[])
    client.ask("continue", threadId=thread)
