"""A real Telegraf with deploy/telegraf.conf tells the gateway how busy its node is."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from scheduler.access import issued_tokens
from tests.clients.telegraf import TELEGRAF
from tests.gateway.conftest import served as served
from tests.gateway.serving_http import Served

CONFIG = Path(__file__).parents[2] / "deploy" / "telegraf.conf"

needs_telegraf = pytest.mark.skipif(TELEGRAF.program() is None, reason="needs `make telegraf`")


def tell(served: Served, token: str) -> list[str]:
    """Of one look at the node, returns what Telegraf said of errors."""
    program = TELEGRAF.program()
    assert program is not None
    variables = {"SCHEDULER_GATEWAY": served.gateway.url, "SCHEDULER_TOKEN": token}
    done = subprocess.run(
        [program, "--config", CONFIG, "--once"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [line for line in done.stderr.splitlines() if " E! " in line or " W! " in line]


@needs_telegraf
def test_what_a_node_tells_is_shown_by_its_name(served: Served) -> None:
    _, token = issued_tokens.issue_for_node(
        served.daemon.database, "westworld", "", time.time(), 600.0
    )
    said = tell(served, token)
    assert not [line for line in said if "outputs.influxdb" in line], said
    with served.by("ada") as ada:
        query = "SELECT used_percent FROM mem GROUP BY node"
        answer = ada.get("/query", params={"db": "telegraf", "q": query}).json()
        (series,) = answer["results"][0]["series"]
        assert series["tags"] == {"node": "westworld"}
        assert 0 < series["values"][0][1] < 100
        shown = ada.get("/query", params={"db": "telegraf", "q": "SHOW MEASUREMENTS"}).json()
        assert {"disk", "mem", "system"} <= {
            row[0] for row in shown["results"][0]["series"][0]["values"]
        }


@needs_telegraf
def test_a_token_that_was_revoked_is_told(served: Served) -> None:
    assert any("401" in line for line in tell(served, "of nobody"))
