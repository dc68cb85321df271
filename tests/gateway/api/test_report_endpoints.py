"""Jobs compared as a file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.sweeps import Sweep
from tests.gateway.serving_http import Served


@pytest.fixture(scope="module")
def jobs(served: Served) -> list[str]:
    sweep = Sweep(served.daemon, served.gateway)
    found = [sweep.submit(f"run-{rate}", {"lr": rate}) for rate in (0.1, 0.01)]
    for job in found:
        values = [1 / (step + 1) for step in range(5000)]
        sweep.log(job, range(5000), {"loss": values, "epoch": list(range(5000))})
    return found


def export(served: Served, **query: Any) -> Any:
    with served.by() as client:
        return client.get("/api/v1/compare/export", params=query)


def test_a_file_is_sent_that_is_small_and_never_shown_in_place(
    served: Served, jobs: list[str]
) -> None:
    answer = export(served, job=jobs)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.text.count('<path class="curve') == 2, "of loss; epoch is no result"
    assert "param.lr" in answer.text
    assert len(answer.content) < 60_000


def test_it_is_made_as_it_was_asked_for(served: Served, jobs: list[str]) -> None:
    query = {"metric": ["loss"], "x": "epoch", "cols": "param.lr", "smooth": 0.5, "logy": True}
    answer = export(served, job=jobs, **query)
    assert answer.status_code == 200, answer.text
    assert answer.text.count("<svg") == 2


@pytest.mark.parametrize(
    ("query", "field"),
    [({"x": "day"}, "x"), ({"smooth": 2}, "smooth"), ({"opacity": 0}, "opacity"), ({}, "job")],
)
def test_what_makes_no_sense_is_refused(query: dict[str, Any], field: str, served: Served) -> None:
    answer = export(served, **({"job": "x"} if query else {}), **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field


def test_without_series_it_has_what_was_set(served_without_series: Served) -> None:
    served = served_without_series
    jobs = [served.daemon.submit("bare", command=["t", "--lr", lr]) for lr in "12"]
    answer = export(served, job=jobs)
    assert answer.status_code == 200
    assert "keeps no series" in answer.text
    assert "param.lr" in answer.text


def test_strange_values_break_nothing(served: Served) -> None:
    sweep = Sweep(served.daemon, served.gateway)
    jobs = [sweep.submit(f"strange-{n}", {"lr": lr}) for n, lr in enumerate(("NaN", None, [1]))]
    sweep.log(jobs[0], range(3), {"loss": [float("nan")] * 3, "same": [3.0, 3.0, 3.0]})
    sweep.log(jobs[1], range(1), {"loss": [float("inf")], "same": [-3.0]})
    sweep.tell(jobs[2], {"points": [["metrics", {}, "loss", 1_700_000_000 * 10**9, None, "text"]]})
    queries: list[dict[str, Any]] = [
        {},
        {"x": "epoch"},
        {"logx": True, "logy": True, "x": "time", "smooth": 0.9},
        {"hue": "param.lr", "cols": "param.lr", "pattern": "last.loss", "metric": "loss"},
    ]
    for query in queries:
        answer = export(served, job=jobs, **query)
        assert answer.status_code == 200, answer.text
