"""Experiments over HTTP: the table, the search, jobs compared; only what a person may see."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.series.delivering import entries, metric
from tests.gateway.serving_http import Served
from tests.serving import by
from tests.support import eventually


def tell(served: Served, job_id: str, *records: object, attempt: int = 1) -> None:
    """As the relay of this job."""
    with served.gateway.client(served.daemon.job(job_id).token) as client:
        answer = client.post(
            "/api/v1/tracking",
            params={"attempt": attempt, "spool": f"s{attempt}", "first": 0},
            content=entries(*records),
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["refused"] == 0


def trained(served: Served, name: str, lr: float, loss: float, **spec: Any) -> str:
    """A job that has logged two steps."""
    job_id = served.daemon.submit(name, **{"experiment": "sweep", **spec})
    tell(
        served,
        job_id,
        {"params": {"lr": lr, "net": {"depth": 3}}},
        {"points": [metric("loss", 2 * loss, 1), metric("loss", loss, 2)]},
        {"points": [metric("val_acc", 1 - loss, 2)]},
    )
    return job_id


@pytest.fixture(scope="module")
def sweep(served: Served) -> list[str]:
    return [trained(served, f"run-{n}", lr=10.0**-n, loss=n / 10) for n in (1, 2, 3)]


def table(served: Served, user: str = "ada", **query: Any) -> Any:
    with served.by(user) as client:
        answer = client.get("/api/v1/experiments", params={"experiment": "sweep", **query})
        assert answer.status_code == 200, answer.text
        return answer.json()


def names(found: Any) -> list[str]:
    return [row["name"] for row in found["rows"]]


def test_without_columns_the_table_has_what_differs_and_what_was_measured(
    served: Served, sweep: list[str]
) -> None:
    found = table(served, order="param.lr", ascending=True)
    assert found["columns"] == ["param.lr", "last.loss", "max.val_acc", "submitted_at"]
    assert names(found) == ["run-3", "run-2", "run-1"]
    assert found["rows"][0]["values"][:3] == [0.001, 0.3, 0.7]
    known = {each["name"]: each for each in found["known"]}
    assert known["param.net.depth"] == {"name": "param.net.depth", "jobs": 3, "different": 1}


def test_columns_are_chosen(served: Served, sweep: list[str]) -> None:
    found = table(served, column=["min.loss", "param.nothing", "name"], search="run-1")
    assert found["columns"] == ["min.loss", "param.nothing", "name"]
    assert [row["values"] for row in found["rows"]] == [[0.1, None, "run-1"]]


def test_a_search_has_words_and_conditions(served: Served, sweep: list[str]) -> None:
    assert names(table(served, search="RUN-2")) == ["run-2"]
    assert names(table(served, search="lr<=0.01 min.loss<0.3")) == ["run-2"]
    assert names(table(served, search="net.depth=3 run-3")) == ["run-3"]
    with served.by() as client:
        wrong = client.get("/api/v1/experiments", params={"search": "depht=3"})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "search")
    assert "no job has a column 'depht'" in wrong.json()["error"]["message"]


def test_pages_follow_each_other(served: Served, sweep: list[str]) -> None:
    query: dict[str, Any] = {"order": "name", "ascending": True, "limit": 2}
    first = table(served, **query)
    second = table(served, **query, cursor=first["next_cursor"])
    assert names(first) + names(second) == ["run-1", "run-2", "run-3"]
    assert (first["total"], second["next_cursor"]) == (3, "")


def test_only_what_differs_is_compared(served: Served, sweep: list[str]) -> None:
    with served.by() as client:
        found = client.get("/api/v1/compare", params={"job": [sweep[2], "run-1"]}).json()
        whole = client.get("/api/v1/compare", params={"job": sweep, "all": True}).json()
    assert [job["name"] for job in found["jobs"]] == ["run-3", "run-1"]
    (config,) = found["config"]
    assert config == {
        "key": "param.lr",
        "differs": True,
        "values": {sweep[0]: 0.1, sweep[2]: 0.001},
    }
    assert len(whole["config"]) == 1 + found["equal"]
    metrics = {each["name"]: each for each in found["metrics"]}
    assert metrics["loss"]["values"][sweep[2]] == {
        **{"last": 0.3, "last_step": 2, "min": 0.3, "min_step": 2, "max": 0.6, "max_step": 1},
        "points": 2,
    }
    assert (metrics["loss"]["rises"], metrics["val_acc"]["rises"]) == (False, True)
    assert found["code"] == "no package"


def test_a_job_compared_with_itself_has_no_differences(served: Served, sweep: list[str]) -> None:
    with served.by() as client:
        found = client.get("/api/v1/compare", params={"job": [sweep[0], sweep[0]]}).json()
    assert found["config"] == []


def test_a_resumed_job_counts_its_newest_attempt(served: Served) -> None:
    job_id = served.daemon.submit("resumed", experiment="again")
    tell(served, job_id, {"points": [metric("loss", 0.1, 5)]}, attempt=1)
    tell(served, job_id, {"points": [metric("loss", 0.4, 5)]}, attempt=2)
    found = table(served, experiment="again", column=["min.loss", "last.loss"])
    assert [row["values"] for row in found["rows"]] == [[0.4, 0.4]]


def test_a_table_shows_what_has_changed_since_the_last_one(served: Served) -> None:
    job_id = served.daemon.submit("changes", experiment="changes", held=True)
    query: dict[str, Any] = {"experiment": "changes", "column": ["state", "last.loss"]}
    assert [row["values"] for row in table(served, **query)["rows"]] == [["HELD", None]]
    tell(served, job_id, {"points": [metric("loss", 0.1, 5)]})
    assert [row["values"] for row in table(served, **query)["rows"]] == [["HELD", 0.1]]
    served.daemon.people.CancelJob(pb.CancelJobRequest(job=job_id), metadata=by("ada"))
    eventually(lambda: table(served, **query)["rows"][0]["values"] == ["CANCELED", 0.1])


def test_what_is_no_number_is_told_by_its_name(served: Served) -> None:
    job_id = served.daemon.submit("nan", experiment="broken")
    tell(served, job_id, {"points": [metric("loss", float("nan"), 1)]})
    found = table(served, experiment="broken", column=["last.loss", "min.loss"])
    assert [row["values"] for row in found["rows"]] == [["NaN", None]]


def test_others_see_what_the_daemon_shows_them(served: Served, sweep: list[str]) -> None:
    assert names(table(served, user="bob")) == []
    assert len(names(table(served, user="bob", all_users=True))) == 3


@pytest.mark.parametrize(("jobs", "status"), [([], 400), (["x"] * 101, 400), (["nothing"], 404)])
def test_what_cannot_be_compared_is_refused(jobs: list[str], status: int, served: Served) -> None:
    with served.by() as client:
        assert client.get("/api/v1/compare", params={"job": jobs}).status_code == status


def test_without_series_there_is_what_was_submitted(served_without_series: Served) -> None:
    served = served_without_series
    jobs = [
        served.daemon.submit("bare", experiment="bare", command=["t", "--lr", lr]) for lr in "12"
    ]
    with served.by() as client:
        compared = client.get("/api/v1/compare", params={"job": jobs}).json()
    assert [each["key"] for each in compared["config"]] == ["param.lr"]
    (remark,) = compared["remarks"]
    assert "keeps no series" in remark
    assert table(served, experiment="bare", search="lr=2")["remarks"] == [remark]
