from __future__ import annotations

import pytest

from scheduler.relay.mlflow_runs import LoggedMetric, LoggedRun
from scheduler.relay.mlflow_search import BadFilter, matches

RUN = LoggedRun(
    "id-1",
    "0",
    "first try",
    1000,
    params={"lr": "0.1", "net": "resnet"},
    tags={"mlflow.user": "ada", "a b": "c"},
    metrics={"acc": LoggedMetric(0.9, 1, 2), "val/loss": LoggedMetric(0.1, 1, 2)},
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", True),
        ("metrics.acc > 0.8", True),
        ("metric.acc>=0.9 AND params.lr = '0.1'", True),
        ("metrics.acc > 0.8 and params.lr != '0.1'", False),
        ("metrics.`val/loss` < 1", True),
        ("metrics.nothing < 1", False),
        ('tags.mlflow.user = "ada"', True),
        ("tags.`a b` = 'c'", True),
        ("params.net LIKE 'res%'", True),
        ("params.net LIKE 'RES%'", False),
        ("params.net ILIKE 'RES___'", True),
        ("attributes.status = 'RUNNING'", True),
        ("attributes.run_id IN ('id-1', 'id-2')", True),
        ("attributes.run_id NOT IN ('id-1')", False),
        ("run_name = 'first try'", True),
        ("attributes.start_time > 999", True),
    ],
)
def test_a_filter_holds_or_does_not(text: str, found: bool) -> None:
    assert matches(RUN, text) is found


@pytest.mark.parametrize(
    "text",
    [
        "metrics.acc",
        "metrics.acc > much",
        "attributes.colour = 'red'",
        "metrics.acc > 0 or metrics.acc < 1",
        "'; DROP TABLE runs",
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(BadFilter, match="filter: "):
        matches(RUN, text)
