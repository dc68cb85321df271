"""S20: the lines of the job monitor's document, and where they arrive."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.clients.influxd import free_ports, influxd, needs_influxd
from tests.clients.tracked_job import python_with, tracked_job
from tests.support import eventually

pytestmark = [pytest.mark.clients, needs_influxd]


def rows(client: httpx.Client, query: str) -> list[list[object]]:
    (result,) = client.get("/query", params={"db": "training", "q": query}).json()["results"]
    return [row for series in result.get("series", ()) for row in series["values"]]


def test_the_lines_of_the_document_arrive_here_and_in_influxdb(tmp_path: Path) -> None:
    python = python_with("telegraf")
    ports = free_ports(2)
    (tmp_path / "influxd").mkdir()
    url = f"http://127.0.0.1:{ports[1]}/write?db=training"
    with tracked_job(tmp_path, forward=url) as job:
        job.submit(python, "as_documented.py", epochs=1)
        job.daemon.wait_state(job="FINISHED")
        job.await_delivery()

        words = ("job", "--measurement", "test_metric", "--tags", "server_name=my-server", "--last")
        told = job.daemon.run("scheduler-metrics", *words, "--output", "json")
        assert told.returncode == 0, told.stderr
        (shown,) = json.loads(told.stdout)["jobs"][0]["series"]
        assert (shown["last"], shown["tags"]) == (123, {"server_name": "my-server"})
        assert "123" in job.daemon.run("scheduler-metrics", *words).stdout

        # While it was away, all of it waited.
        with influxd(tmp_path / "influxd", ports) as client:
            eventually(lambda: rows(client, "SELECT value_a, value_b, value_c FROM test_metric"))
            query = "SELECT value, job FROM test_metric WHERE server_name = 'my-server'"
            assert [row[1:] for row in rows(client, query)] == [[123, job.id]]
            assert [row[1:] for row in rows(client, "SELECT value FROM training_loss")] == [[0.46]]
            assert [row[1:] for row in rows(client, "SELECT value FROM note")] == [['say "hi"']]
