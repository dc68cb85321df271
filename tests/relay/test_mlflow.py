from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduler.relay import entries as format_of_entries
from scheduler.relay.http import Incoming
from scheduler.relay.mlflow import Mlflow
from scheduler.relay.mlflow_runs import LoggedRuns

JOB = "8d3b4b0a-9c4e-4a8e-9e0a-0123456789ab"


class Tracked:
    def __init__(self, folder: Path, attempt: int = 1) -> None:
        self.runs = LoggedRuns(folder / "mlflow.json", JOB, attempt, "mnist", 1000)
        self.entries: list[Any] = []
        self.lost: list[str] = []
        self._mlflow = Mlflow(self.runs, self._keep, lambda n, why: self.lost.append(why))

    def _keep(self, entries: Sequence[bytes]) -> None:
        for entry in entries:
            assert format_of_entries.parse(entry) is not None
            self.entries.append(json.loads(entry))

    def ask(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        query = {key: str(value) for key, value in body.items()} if method == "GET" else {}
        request = Incoming(method, f"/{path}", query, {}, json.dumps(body).encode())
        answer = self._mlflow.answer(request, path, 2000)
        return answer.status, json.loads(answer.body)

    def post(self, path: str, **body: Any) -> Any:
        status, told = self.ask("POST", path, **body)
        assert status == 200, told
        return told

    def get(self, path: str, **query: Any) -> Any:
        status, told = self.ask("GET", path, **query)
        assert status == 200, told
        return told

    @property
    def points(self) -> list[list[Any]]:
        return [point for entry in self.entries for point in entry.get("points", ())]


@pytest.fixture
def tracked(tmp_path: Path) -> Tracked:
    return Tracked(tmp_path)


def test_a_metric_becomes_a_point(tracked: Tracked) -> None:
    tracked.post("runs/log-metric", run_id=JOB, key="loss", value=0.5, timestamp=17, step=3)
    tracked.post("runs/log-metric", run_id=JOB, key="loss", value="NaN", timestamp="18", step="4")
    first, second = tracked.points
    assert first == ["metrics", {}, "loss", 17_000_000, 3, 0.5]
    assert math.isnan(second[5])
    assert second[3:5] == [18_000_000, 4]


def test_steps_within_a_millisecond_are_points_of_their_own(tracked: Tracked) -> None:
    metrics = [{"key": "a", "value": at, "timestamp": 17, "step": at} for at in range(1200)]
    tracked.post("runs/log-batch", run_id=JOB, metrics=metrics)
    times = [point[3] for point in tracked.points]
    assert times == sorted(set(times))
    assert len(times) == 1200
    assert times[-1] < 18_000_000


def test_the_first_run_is_the_jobs_and_others_have_names(tracked: Tracked) -> None:
    created = [
        tracked.post("runs/create", experiment_id="0", run_name=name)["run"]["info"]["run_id"]
        for name in ("first", "second", "")
    ]
    assert created == [JOB, f"{JOB}-2", f"{JOB}-3"]
    for id in created:
        tracked.post("runs/log-metric", run_id=id, key="a", value=1, timestamp=1, step=0)
        tracked.post("runs/log-parameter", run_id=id, key="lr", value="0.1")
    assert [point[1] for point in tracked.points] == [{}, {"run": "second"}, {"run": "run 3"}]
    params = [entry["params"] for entry in tracked.entries if "params" in entry]
    assert params == [{"lr": "0.1"}, {"second/lr": "0.1"}, {"run 3/lr": "0.1"}]


def test_after_start_run_the_next_run_is_another(tracked: Tracked) -> None:
    assert tracked.get("runs/get", run_id=JOB)["run"]["info"]["status"] == "RUNNING"
    run = tracked.post("runs/create", experiment_id="0")["run"]
    assert run["info"]["run_id"] == f"{JOB}-2"


def test_after_a_preemption_runs_are_the_same_again(tmp_path: Path) -> None:
    def train(tracked: Tracked) -> list[str]:
        ids = []
        for name in ("a", "b"):
            run = tracked.post("runs/create", experiment_id="0", run_name=name)["run"]["info"]
            tracked.post("runs/log-parameter", run_id=run["run_id"], key="n", value=name)
            tracked.post("runs/update", run_id=run["run_id"], status="FINISHED", end_time=5)
            ids.append(run["run_id"])
        tracked.runs.save()
        return ids

    first, second = (train(Tracked(tmp_path, attempt)) for attempt in (1, 2))
    assert first == second
    again = Tracked(tmp_path, 3).get("runs/get", run_id=JOB)["run"]
    assert again["info"]["status"] == "RUNNING"
    assert again["data"]["params"] == [{"key": "n", "value": "a"}]


def test_histories_go_on_after_a_preemption_without_a_step_twice(tmp_path: Path) -> None:
    def history(tracked: Tracked) -> list[tuple[int, float]]:
        told = tracked.get("metrics/get-history", run_id=JOB, metric_key="a")["metrics"]
        return [(each["step"], each["value"]) for each in told]

    for attempt, steps in ((1, range(6)), (2, range(4, 8))):
        tracked = Tracked(tmp_path, attempt)
        for step in steps:
            body = {"key": "a", "value": attempt, "timestamp": step, "step": step}
            tracked.post("runs/log-metric", run_id=JOB, **body)
        tracked.runs.save()
        tracked.runs.save_all()
    assert history(tracked) == [*((step, 1) for step in range(4)), *((n, 2) for n in range(4, 8))]
    assert history(Tracked(tmp_path, 3)) == history(tracked)


def test_of_a_long_history_the_last_values_are_told(tracked: Tracked) -> None:
    metrics = [{"key": "a", "value": at, "timestamp": at, "step": at} for at in range(5000)]
    tracked.post("runs/log-batch", run_id=JOB, metrics=metrics)
    told = tracked.get("metrics/get-history", run_id=JOB, metric_key="a", max_results=25_000)
    assert [each["step"] for each in told["metrics"]] == [*range(4000, 5000)]


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    for text in ("", "[]", '{"runs": [{}]}', '{"runs": [], "experiments": {}}', "\0"):
        (tmp_path / "mlflow.json").write_text(text)
        assert Tracked(tmp_path).get("runs/get", run_id=JOB)["run"]["info"]["run_id"] == JOB


def test_the_run_is_in_the_experiment_that_the_script_names(tracked: Tracked) -> None:
    assert tracked.get("experiments/get", experiment_id="0")["experiment"]["name"] == "mnist"
    status, told = tracked.ask("GET", "experiments/get-by-name", experiment_name="mine")
    assert (status, told["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    id = tracked.post("experiments/create", name="mine")["experiment_id"]
    assert tracked.get("runs/get", run_id=JOB)["run"]["info"]["experiment_id"] == id
    tracked.get("experiments/get-by-name", experiment_name="mnist")
    assert tracked.get("runs/get", run_id=JOB)["run"]["info"]["experiment_id"] == "0"
    assert len(tracked.post("experiments/search")["experiments"]) == 2


def test_histories_are_told_in_pages(tracked: Tracked) -> None:
    for step in range(5):
        tracked.post("runs/log-metric", run_id=JOB, key="a", value=step, timestamp=1, step=step)
    asked: dict[str, Any] = {"run_id": JOB, "metric_key": "a", "max_results": 3}
    page = tracked.get("metrics/get-history", **asked)
    rest = tracked.get("metrics/get-history", page_token=page["next_page_token"], **asked)
    steps = [each["step"] for each in (*page["metrics"], *rest["metrics"])]
    assert steps == [0, 1, 2, 3, 4]
    assert "next_page_token" not in rest
    assert tracked.get("metrics/get-history", run_id=JOB, metric_key="b") == {"metrics": []}


def test_a_note_is_the_description(tracked: Tracked) -> None:
    tags = [{"key": "mlflow.note.content", "value": "why"}, {"key": "team", "value": "v"}]
    tracked.post("runs/log-batch", run_id=JOB, tags=tags)
    assert tracked.entries == [{"describes": "why"}, {"tags": {"team": "v"}}]
    tracked.post("runs/set-tag", run_id=JOB, key="team", value="w")
    tracked.post("runs/delete-tag", run_id=JOB, key="mlflow.note.content")
    shown = tracked.get("runs/get", run_id=JOB)["run"]["data"]["tags"]
    assert shown == [{"key": "team", "value": "w"}]


def test_what_cannot_be_kept_is_refused_alone(tracked: Tracked) -> None:
    metrics = [{"key": key, "value": 1, "timestamp": 1, "step": 0} for key in ("\0", "ok", "")]
    params = [{"key": "x" * 300, "value": "1"}, {"key": "long", "value": "é" * 20_000}]
    tracked.post("runs/log-batch", run_id=JOB, metrics=metrics, params=params)
    assert [point[2] for point in tracked.points] == ["ok"]
    assert len(tracked.lost) == 3
    assert tracked.entries[-1]["params"]["long"].endswith("é…")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "runs/delete", {"run_id": JOB}, 501),
        ("GET", "registered-models/list", {}, 501),
        ("POST", "runs/log-metric", {"run_id": "other", "key": "a", "value": 1}, 404),
        ("POST", "runs/log-metric", {"run_id": JOB}, 400),
        ("POST", "runs/log-metric", {"run_id": JOB, "key": "a", "value": "much"}, 400),
        ("POST", "runs/log-batch", {"run_id": JOB, "metrics": [1]}, 400),
        ("POST", "runs/search", {"experiment_ids": ["0"], "filter": "nonsense"}, 400),
        ("GET", "experiments/get", {"experiment_id": "7"}, 404),
    ],
)
def test_what_is_not_there_is_named(
    tracked: Tracked, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    found, told = tracked.ask(method, path, **body)
    assert found == status
    assert told["error_code"]
    if status == 501:
        assert path in told["message"]


def test_a_body_that_is_no_object_is_refused(tracked: Tracked) -> None:
    for body in (b"[]", b"{", b"\xff", b"3"):
        request = Incoming("POST", "/", {}, {}, body)
        assert tracked._mlflow.answer(request, "runs/create", 1).status == 400


def test_runs_are_found_by_what_they_have(tracked: Tracked) -> None:
    for name, acc in (("a", 0.5), ("b", 0.9)):
        run = tracked.post("runs/create", experiment_id="0", run_name=name)["run"]["info"]
        tracked.post(
            "runs/log-metric", run_id=run["run_id"], key="acc", value=acc, timestamp=1, step=0
        )
    found = tracked.post("runs/search", experiment_ids=["0"], filter="metrics.acc > 0.7")["runs"]
    assert [run["info"]["run_name"] for run in found] == ["b"]
    assert len(tracked.post("runs/search", experiment_ids=["0"], max_results=1)["runs"]) == 1
    assert tracked.post("runs/search", experiment_ids=["9"])["runs"] == []
