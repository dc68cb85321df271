"""The dashboard of trainings: its data source, variables and queries, asked as Grafana does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import yaml

from scheduler.daemon import own_series
from tests.clients.tracked_job import EPOCHS, TrackedJob, tracked_job
from tests.deploy.monitoring import DEPLOY
from tests.support import eventually

FOLDER = DEPLOY / "grafana"
LOGS = Path(__file__).parents[1] / "e2e" / "logs.py"


class Grafana:
    """Its backend for InfluxQL (pkg/tsdb/influxdb): a form, and basic authentication."""

    def __init__(self, url: str, token: str) -> None:
        (source,) = yaml.decode((FOLDER / "datasource.yml").read_text())["datasources"]
        assert (source["type"], source["access"]) == ("influxdb", "proxy")
        assert source["jsonData"]["version"] == "InfluxQL"
        assert source["jsonData"]["httpMode"] == "POST"
        password = source["secureJsonData"]["password"].replace("$EPOCH_SCHEDULER_TOKEN", token)
        self._database = source["jsonData"]["dbName"]
        self._http = httpx.Client(
            base_url=url,
            auth=(source["user"], password),
            headers={"user-agent": "Grafana/12.1.0"},
            timeout=60,
            trust_env=False,
        )

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Its series."""
        place = {"db": self._database, "epoch": "ms"}
        answer = self._http.post("/query", params=place, data={"q": query})
        assert answer.status_code == 200, answer.text
        (result,) = answer.json()["results"]
        assert "error" not in result, result
        found: list[dict[str, Any]] = result.get("series", [])
        return found

    def values(self, query: str) -> list[str]:
        """Of a variable, each once: the second of two columns, but of fields and of policies the
        first."""
        is_first = query.lower().startswith(("show field keys", "show retention policies"))
        rows = [row for each in self.ask(query) for row in each["values"]]
        return [*dict.fromkeys(row[0] if is_first or len(row) == 1 else row[1] for row in rows)]

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrackedJob]:
    with tracked_job(tmp_path) as made:
        yield made


def dashboard() -> dict[str, Any]:
    made: dict[str, Any] = json.loads((FOLDER / "trainings.json").read_text())
    return made


def test_a_token_of_its_own_is_named_and_none_is_in_the_file() -> None:
    text = (FOLDER / "datasource.yml").read_text()
    assert "password: $EPOCH_SCHEDULER_TOKEN" in text
    assert "scheduler-daemon token issue" in text


def test_every_query_of_the_dashboard_is_answered_with_data(
    job: TrackedJob, request: pytest.FixtureRequest
) -> None:
    job.gate.open(EPOCHS)
    job.submit(sys.executable, str(LOGS))
    job.daemon.wait_state(job="FINISHED")
    write_what_is_seen_on_a_gpu(job)
    grafana = Grafana(job.url, job.daemon.token("root"))
    request.addfinalizer(grafana.close)
    eventually(lambda: {own_series.PROFILE, "metrics"} <= {*grafana.values("SHOW measurements")})
    variables = {
        each["name"]: grafana.values(each["query"])
        for each in dashboard()["templating"]["list"]
        if each["type"] == "query"
    }
    assert variables["job"] == [job.id]
    assert {"loss", "accuracy"} <= {*variables["metric"]}
    for panel in dashboard()["panels"]:
        for metric in ("loss", "accuracy") if panel.get("repeat") == "metric" else ("",):
            for target in panel["targets"]:
                query = filled(target["query"], job.id, metric)
                series = grafana.ask(query)
                assert [each["tags"]["job"] for each in series] == [job.id], query
                assert any(value is not None for _, value in series[0]["values"]), query
                assert_named(target["alias"], series[0])


def write_what_is_seen_on_a_gpu(job: TrackedJob) -> None:
    """As the daemon would: none is pretended to be seen."""
    line = f"{own_series.GPU},job={job.id},node=n,gpu=GPU-1 memory_mib=900i,sm_share=0.5"
    token = job.daemon.token("root")
    answer = httpx.post(
        f"{job.url}/write",
        content=line,
        headers={"authorization": f"Bearer {token}"},
        trust_env=False,
    )
    assert answer.status_code == 204, answer.text


def filled(query: str, job: str, metric: str) -> str:
    """As Grafana fills its variables in: several values are a choice."""
    recently = "time >= now() - 1h and time <= now()"
    query = query.replace("$timeFilter", recently).replace("$__interval", "1s")
    query = query.replace("/^$job$/", f"/^({job}|another)$/").replace("$metric", metric)
    assert "$" not in query.replace("$/", ""), query
    return query


def assert_named(alias: str, series: dict[str, Any]) -> None:
    """A name in a legend is a tag of the series."""
    named = [word.removeprefix("$tag_") for word in alias.split() if word.startswith("$tag_")]
    assert named
    assert {*named} <= {*series["tags"]}, alias
