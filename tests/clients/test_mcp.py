"""scheduler-mcp with the client of the package `mcp`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import BIN, Daemon

pytestmark = pytest.mark.clients

PROGRAM = """
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=[], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        begun = await session.initialize()
        tools = (await session.list_tools()).tools
        spec = {"name": "demo", "command": ["echo", "hello"], "gpus_min": 0, "gpus_max": 0}
        made = await session.call_tool("submit", {"spec": spec})
        job = json.loads(made.content[0].text)["id"]
        for _ in range(300):
            found = await session.call_tool("job", {"job": job})
            if json.loads(found.content[0].text)["state"] == "FINISHED":
                break
            await asyncio.sleep(0.1)
        logs = await session.call_tool("logs", {"job": job})
        wrong = await session.call_tool("why", {"job": "nosuch"})
        print(json.dumps([[tool.name for tool in tools], logs.content[0].text,
                          wrong.content[0].text]))

asyncio.run(main())
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "1x16384").start()
    yield made
    made.end()


def test_the_real_client_submits_a_job_and_reads_its_log(daemon: Daemon) -> None:
    environment = {**os.environ, "SCHEDULER_SERVER": daemon.address}
    words = [os.environ["CLIENTS"], "-c", PROGRAM, str(BIN / "scheduler-mcp")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    tools, logs, wrong = json.loads(done.stdout)
    assert {"submit", "why", "what_if", "logs", "compare", "triage", "preview"} <= set(tools)
    assert (logs, wrong) == ("hello\n", "no job matches 'nosuch'")
