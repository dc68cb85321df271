"""A gateway that sends on what it keeps to Debian's InfluxDB, while both are killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler.core.model import Job
from tests.clients.influxd import INFLUXD, free_ports, influxd
from tests.gateway.serving_http import Gateway, gateway
from tests.serving import serving
from tests.support import eventually

pytestmark = pytest.mark.skipif(INFLUXD is None, reason="needs Debian's influxdb")
SECOND = 10**9
START = 1_600_000_000 * SECOND


def log(served: Gateway, job: Job, steps: Sequence[int], **fields: Any) -> None:
    """As a relay delivers it."""
    points = [
        ["loss", {"rank": "0"}, name, START + step * SECOND, step, value]
        for step in steps
        for name, value in {"value": 1 / (step + 1), **fields}.items()
    ]
    with served.client(job.token) as relay:
        answer = relay.post(
            f"/api/v1/tracking?attempt=1&spool=s{steps[0]}&first=0",
            content=json.dumps({"points": points}),
        )
        assert answer.status_code == 200, answer.text


def rows(client: httpx.Client, query: str) -> list[list[Any]]:
    asked = {"db": "training", "q": query, "epoch": "ns"}
    (result,) = client.get("/query", params=asked).json()["results"]
    return [row for series in result.get("series", ()) for row in series["values"]]


def test_nothing_is_missing_and_nothing_is_there_twice_after_kills(tmp_path: Path) -> None:
    ports = free_ports(2)
    flags = ["--folder", str(tmp_path / "series")]
    flags += ["--forward", f"http://127.0.0.1:{ports[1]}/write?db=training"]
    for folder in ("series", "influxd", "daemon"):
        (tmp_path / folder).mkdir()
    with serving(tmp_path / "daemon") as daemon:
        job = daemon.job(daemon.submit("logs"))
        server = f"127.0.0.1:{daemon.server.port}"
        with gateway(server, *flags) as served:  # the InfluxDB is not there yet
            log(served, job, range(1000))
            served.process.kill()
        with gateway(server, *flags) as served:
            with influxd(tmp_path / "influxd", ports) as client:
                count = "SELECT count(value) FROM loss"
                eventually(lambda: rows(client, count) == [[0, 1000]])
            log(served, job, range(1000, 2000))  # now it is away
            with influxd(tmp_path / "influxd", ports) as client:
                eventually(lambda: rows(client, count) == [[0, 2000]])
                found = rows(client, "SELECT value, job, rank FROM loss")
    assert found == [[START + step * SECOND, 1 / (step + 1), job.id, "0"] for step in range(2000)]


def test_a_line_that_it_refuses_is_dropped_alone(tmp_path: Path) -> None:
    """There, the field is a text since somebody wrote one."""
    ports = free_ports(2)
    folder = tmp_path / "series"
    for each in (folder, tmp_path / "daemon"):
        each.mkdir()
    with influxd(tmp_path, ports) as client:
        client.post("/query", params={"q": "CREATE DATABASE training"})
        spoilt = {"db": "training", "precision": "ns"}
        line = f'loss,job=other note="a text" {START}'
        assert client.post("/write", params=spoilt, content=line).status_code == 204
        url = f"http://127.0.0.1:{ports[1]}/write?db=training"
        with (
            serving(tmp_path / "daemon") as daemon,
            gateway(
                f"127.0.0.1:{daemon.server.port}", "--folder", str(folder), "--forward", url
            ) as served,
        ):
            job = daemon.job(daemon.submit("logs"))
            log(served, job, range(999), good=True)
            log(served, job, [5000], note=7)
            eventually(lambda: rows(client, "SELECT count(good) FROM loss") == [[0, 999]])
            assert (
                rows(client, f"SELECT value FROM loss WHERE time = {START + 5000 * SECOND}") == []
            )
