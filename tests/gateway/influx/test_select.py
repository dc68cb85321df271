from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.clients.influxql import REFUSED, START, data, digest, equal, form, ours, recorded
from tests.gateway.influx.memory import Memory


def rows(memory: Memory, query: str) -> list[list[Any]]:
    """Of the first series."""
    (result,) = json.loads(ours(memory, query))["results"]
    values: list[list[Any]] = result["series"][0]["values"]
    return values


def test_answers_are_those_that_influxdb_gave() -> None:
    """tests/clients/test_influxql.py compares them with one that runs."""
    memory, answered = data(), recorded()
    for line in equal():
        assert digest(ours(memory, *form(line))) == answered[line], line


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_not_supported_is_refused_by_name(query: str) -> None:
    assert REFUSED[query] in json.loads(ours(data(), query))["error"]


def test_of_a_step_the_newest_attempt_counts() -> None:
    memory = Memory()
    for step in range(4):
        memory.add("metrics", {}, START + step, {"loss": 1.0 + step}, attempt=1, step=step)
    for step in range(2, 5):
        memory.add("metrics", {}, START + 10 + step, {"loss": 10.0 + step}, attempt=2, step=step)
    found = rows(memory, "SELECT loss FROM metrics")
    assert [value for _, value in found] == [1, 2, 12, 13, 14]
    assert rows(memory, f"SELECT count(loss) FROM metrics WHERE time < {START + 9}")[0][1] == 2


def test_what_is_not_a_number_is_no_value() -> None:
    memory = Memory()
    for index, value in enumerate((1.0, math.nan, math.inf, 4.0)):
        memory.add("metrics", {}, START + index, {"loss": value})
    assert [value for _, value in rows(memory, "SELECT loss FROM metrics")] == [1, 4]
    assert rows(memory, "SELECT mean(loss) FROM metrics")[0][1] == 2.5


def test_of_one_moment_the_last_value_counts() -> None:
    memory = Memory()
    for value in (1.0, 2.0):
        memory.add("metrics", {}, START, {"loss": value}, attempt=int(value))
    assert rows(memory, "SELECT loss FROM metrics") == [[START, 2]]


def test_jobs_may_differ_in_the_kind_of_a_field() -> None:
    memory = Memory()
    memory.add("m", {}, START, {"x": 1}, job="one")
    memory.add("m", {}, START + 1, {"x": 2.5}, job="two")
    memory.add("m", {}, START + 2, {"x": "text"}, job="three")
    assert [value for _, value in rows(memory, "SELECT x FROM m")] == [1, 2.5]


def test_more_windows_than_anybody_looks_at_are_refused() -> None:
    (result,) = json.loads(ours(data(), "SELECT mean(value) FROM cpu GROUP BY time(1u)"))["results"]
    assert "max-select-buckets limit exceeded" in result["error"]


def test_a_field_that_is_a_tag_elsewhere_can_be_asked_for_by_its_kind() -> None:
    memory = Memory()
    memory.add("m", {"x": "tag"}, START, {"x": 1.5})
    assert rows(memory, "SELECT x FROM m") == [[START, 1.5]]
    assert rows(memory, "SELECT x, x::tag FROM m") == [[START, 1.5, "tag"]]
