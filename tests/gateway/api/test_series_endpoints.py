"""What trainings have logged, over HTTP: which metrics there are, and their points as curves."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler.gateway.api import curves
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.api.test_experiment_endpoints import tell
from tests.gateway.series.delivering import NOW, NOW_NS, SECOND, deliver, entries, metric
from tests.gateway.serving_http import Served

BINARY = "application/octet-stream"
STEPS = 3_000
START = NOW_NS // SECOND - 2 * STEPS


def losses(count: int, factor: float = 1.0, first: int = 0, start: int = START) -> Any:
    return {
        "points": [
            metric("loss", factor * math.sin(n / 50), n, (start + n) * SECOND)
            for n in range(first, first + count)
        ]
    }


@pytest.fixture(scope="module")
def job(served: Served) -> str:
    """Its second attempt began again at step 2,000."""
    job_id = served.daemon.submit("curve", experiment="curves")
    tell(served, job_id, losses(STEPS), {"points": [metric("note", "begun", 0, START * SECOND)]})
    tell(served, job_id, losses(STEPS, 10.0, 2_000, START + STEPS), attempt=2)
    return job_id


def get(served: Served, path: str, user: str = "ada", **query: Any) -> Any:
    with served.by(user) as client:
        answer = client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def refused(served: Served, path: str, user: str = "ada", **query: Any) -> tuple[int, str]:
    with served.by(user) as client:
        answer = client.get(f"/api/v1/{path}", params=query)
    return answer.status_code, answer.json()["error"]["message"]


def test_each_metric_is_listed_with_what_it_has_come_to(served: Served, job: str) -> None:
    found = get(served, f"jobs/{job}/series")
    assert found["job"] == job
    loss, note = found["series"]
    assert {key: loss[key] for key in ("name", "measurement", "field", "tags", "kind")} == {
        **{"name": "loss", "measurement": "metrics", "field": "loss", "tags": {}},
        "kind": "float",
    }
    assert loss["attempts"] == [1, 2]
    assert (loss["last_step"], loss["points"]) == (4_999, 6_000)
    assert loss["last"] == pytest.approx(10 * math.sin(4_999 / 50))
    assert loss["max_step"] > 2_000
    assert loss["last_at"] == START + STEPS + 4_999
    assert (note["last"], note["min"], note["kind"]) == ("begun", None, "string")


def test_a_curve_has_each_step_once(served: Served, job: str) -> None:
    (curve,) = get(served, f"jobs/{job}/points", name="loss", points_max=10_000)["curves"]
    assert curve["steps"] == list(range(5_000))
    assert curve["points"] == 5_000
    assert curve["values"][1_999:2_001] == [math.sin(1_999 / 50), 10 * math.sin(40)]
    assert curve["times"][0] == START


def test_an_attempt_can_be_seen_alone(served: Served, job: str) -> None:
    (curve,) = get(served, f"jobs/{job}/points", name="loss", attempt=1)["curves"]
    assert (curve["points"], len(curve["steps"]), curve["steps"][-1]) == (3_000, 2_000, 2_999)
    assert get(served, f"jobs/{job}/points", name="loss", attempt=7)["curves"] == []


def test_a_curve_is_thinned_out_to_2000_points(served: Served, job: str) -> None:
    (curve,) = get(served, f"jobs/{job}/points", name="loss")["curves"]
    assert [len(curve[each]) for each in ("times", "steps", "values")] == [2_000] * 3
    assert curve["points"] == 5_000


def test_a_part_is_chosen_by_steps(served: Served, job: str) -> None:
    query: dict[str, Any] = {"name": "loss", "from_step": 1_990, "to_step": 2_010}
    (curve,) = get(served, f"jobs/{job}/points", **query)["curves"]
    assert curve["steps"] == list(range(1_990, 2_011))


def test_what_an_attempt_did_again_is_hidden_also_where_only_the_older_one_is_seen(
    served: Served, job: str
) -> None:
    query: dict[str, Any] = {"name": "loss", "from": START + 1_990, "to": START + 2_010.5}
    (curve,) = get(served, f"jobs/{job}/points", **query)["curves"]
    assert curve["steps"] == list(range(1_990, 2_000))


def test_without_names_all_metrics_are_sent(served: Served, job: str) -> None:
    found = get(served, f"jobs/{job}/points")["curves"]
    assert [curve["name"] for curve in found] == ["loss", "note"]
    assert (found[1]["values"], found[1]["kind"]) == (["begun"], "string")


def test_curves_of_several_jobs_come_by_name_and_in_order(served: Served, job: str) -> None:
    other = served.daemon.submit("other", experiment="curves")
    tell(served, other, losses(5), {"points": [metric("acc", 0.5)]})
    found = get(served, "points", job=[other, job], name=["loss", "acc", "nothing"])["curves"]
    assert {(curve["name"], curve["job"]) for curve in found} == {
        *{("loss", job), ("loss", other)},
        ("acc", other),
    }
    assert [curve["name"] for curve in found] == ["loss", "loss", "acc"]
    assert found[2]["steps"] is None


def test_what_is_no_number_is_said_as_a_word(served: Served) -> None:
    job_id = served.daemon.submit("diverged")
    values: list[Any] = [1.0, "NaN", "Infinity", "-Infinity"]
    told = [metric("loss", float(value), step) for step, value in enumerate(values)]
    tell(served, job_id, {"points": told})
    (curve,) = get(served, f"jobs/{job_id}/points")["curves"]
    assert curve["values"] == values
    (series,) = get(served, f"jobs/{job_id}/series")["series"]
    assert (series["min"], series["max"], series["last"]) == ("-Infinity", "Infinity", "-Infinity")


def test_points_of_which_some_have_no_step(served: Served) -> None:
    job_id = served.daemon.submit("steps")
    tell(served, job_id, {"points": [metric("a", 1, None), metric("a", 2, 0, NOW_NS + 1)]})
    (curve,) = get(served, f"jobs/{job_id}/points")["curves"]
    assert (curve["steps"], curve["values"]) == ([None, 0], [1, 2])
    (curve,) = get(served, f"jobs/{job_id}/points", to_step=5)["curves"]
    assert curve["values"] == [2]


def test_others_jobs_are_seen_as_in_lists(served: Served, job: str) -> None:
    """Which is what the daemon decides."""
    assert get(served, f"jobs/{job}/points", "eve", name="loss")["curves"]


def test_what_is_not_there_is_said(served: Served, job: str) -> None:
    assert refused(served, "jobs/nothing/points")[0] == 404
    assert refused(served, "jobs/nothing/series")[0] == 404
    assert refused(served, "points", job=[job, "nothing"], name="loss")[0] == 404
    assert refused(served, "points", name="loss") == (400, "job: the points of which jobs?")
    assert "of which metrics?" in refused(served, "points", job=job)[1]
    status, words = refused(served, f"jobs/{job}/points", **{"from": "yesterday"})
    assert (status, words) == (400, "from 'yesterday': is not a number")
    assert refused(served, f"jobs/{job}/points", **{"to": "nan"})[0] == 400
    assert refused(served, f"jobs/{job}/points", points_max=1)[0] == 400


def test_a_gateway_that_keeps_no_series_says_so(served_without_series: Served) -> None:
    job_id = served_without_series.daemon.submit("none")
    status, words = refused(served_without_series, f"jobs/{job_id}/series")
    assert (status, words) == (503, "this gateway keeps no series: its log says why")


def test_a_record_has_all_that_a_job_has_told_of_itself(served: Served) -> None:
    job_id = served.daemon.submit("told")
    with served.gateway.client(served.daemon.job(job_id).token) as relay:
        records = (
            {"params": {"lr": "0.1"}},
            {"tags": {"kind": "test"}},
            {"describes": "a try"},
            {"points": [metric("loss", math.nan, 1)]},
            {"lost": 3, "why": "its disk was full"},
            {"nonsense": 1},
        )
        relay.post(
            "/api/v1/tracking",
            params={"attempt": 1, "spool": "s", "first": 0},
            content=entries(*records),
        )
    found = get(served, f"jobs/{job_id}/record")
    metrics = found.pop("metrics")
    assert found == {
        "job": job_id,
        "params": {"lr": "0.1"},
        "tags": {"kind": "test"},
        "description": "a try",
        "artifacts": [],
        "remarks": [
            "1 point or entry was refused: an entry of an unknown kind: 'nonsense'",
            "3 points or entries were lost: its disk was full",
        ],
        "refused": {"an entry of an unknown kind: 'nonsense'": 1},
        "lost": {"its disk was full": 3},
    }
    assert metrics["loss"]["last"] == "NaN"
    page = get(served, f"jobs/{job_id}")["text"]["fields"]
    assert {
        "name": "not logged",
        "text": "3 points or entries were lost: its disk was full",
    } in page
    assert get(served, f"jobs/{served.daemon.submit('silent')}/record")["metrics"] == {}


def test_a_file_is_taken_from_its_job_and_given_back(served: Served) -> None:
    job_id = served.daemon.submit("files")
    content = bytes(range(256)) * 8192  # more than other requests may have
    with served.gateway.client(served.daemon.job(job_id).token) as relay:
        for path in ("model/the model.bin", "plot.PNG", "page.html"):
            answer = relay.put(f"/api/v1/tracking/artifacts/{path}?attempt=1", content=content)
            assert answer.status_code == 200, answer.text
    assert answer.json()["sha256"] == hashlib.sha256(content).hexdigest()
    found = get(served, f"jobs/{job_id}/artifacts")["artifacts"]
    assert [each["path"] for each in found] == ["model/the model.bin", "page.html", "plot.PNG"]
    with served.by() as client:
        path = f"/api/v1/jobs/{job_id}/artifacts"
        model = client.get(f"{path}/model/the model.bin")
        assert (model.content, model.headers["content-length"]) == (content, str(len(content)))
        assert "attachment" in model.headers["content-disposition"]
        assert client.get(f"{path}/plot.PNG").headers["content-type"] == "image/png"
        assert client.get(f"{path}/page.html").headers["content-type"] == BINARY
        part = client.get(f"{path}/page.html", headers={"range": "bytes=3-5"})
        assert (part.status_code, part.content) == (206, content[3:6])
        missing = client.get(f"{path}/nothing")
        assert missing.status_code == 404
        assert missing.json()["error"]["message"].endswith("has no artifact 'nothing'")


def test_only_a_job_gives_files_and_only_below_its_run(served: Served) -> None:
    job_id = served.daemon.submit("hostile")
    where = "/api/v1/tracking/artifacts/"
    with served.by() as person:
        assert person.put(f"{where}x", content=b"x").status_code == 403
    with served.gateway.client(served.daemon.job(job_id).token) as relay:
        for path in ("a/%2e%2e/b", "%2Fetc/passwd", "x%00y"):
            answer = relay.put(where + path, content=b"x")
            assert answer.status_code == 400, (path, answer.text)
    assert get(served, f"jobs/{job_id}/artifacts")["artifacts"] == []


def test_a_curve_of_very_many_points_keeps_its_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in pieces, each thinned out alone."""
    monkeypatch.setattr(curves, "AT_ONCE_MAX", 50_000)
    old = NOW_NS - 7200 * SECOND
    with SeriesStore(tmp_path) as store:
        for attempt in (1, 2):
            told = [
                metric("loss", math.sin(i / 5_000), i, old + (attempt * 100_000 + i) * 1_000)
                for i in range(0 if attempt == 1 else 40_000, 80_000)
            ]
            told[30_000][-1] = 1e6
            parts = [{"points": told[at : at + 5_000]} for at in range(0, len(told), 5_000)]
            assert deliver(store, *parts, attempt=attempt).refused == 0
        store.tidy(NOW)
        choice = curves.CurveChoice(None, None, None, None, None, None, 1_000)
        (curve,) = curves.curves(store, ["a"], choice)["curves"]
    assert (curve["points"], len(curve["values"])) == (80_000, 1_000)
    assert curve["steps"] == sorted(set(curve["steps"]))
    spikes = [
        step for step, value in zip(curve["steps"], curve["values"], strict=True) if value > 1
    ]
    assert spikes == [30_000, 70_000]
    assert max(np.diff(curve["steps"])) < 1_000
