from __future__ import annotations

import json

import pytest

from scheduler.gateway.problems import Problem, of_call


def told(problem: Problem) -> object:
    return json.loads(bytes(problem.response().body))["error"]


def test_the_field_is_that_of_the_flag_that_the_message_names() -> None:
    problem = of_call("INVALID_ARGUMENT", "--estimated_memory 0: must be at least 1")
    assert problem.status == 400
    assert told(problem) == {
        "code": "invalid_argument",
        "message": "--estimated_memory 0: must be at least 1",
        "field": "memory_mib",
    }


def test_a_limit_says_when_to_come_again() -> None:
    assert of_call("RESOURCE_EXHAUSTED", "x").response().headers["retry-after"] == "2"
    assert "retry-after" not in of_call("NOT_FOUND", "x").response().headers


def test_an_unknown_status_is_a_fault_of_ours() -> None:
    assert of_call("DATA_LOSS", "x").status == 500


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("order 'x': is none of submitted, name", "order"),
        ("search: has 300 characters, 200 at most", "search"),
        ("command: train.py: No such file or directory", "command"),
        ("no node has a GPU; a job that needs none must be submitted so", ""),
        ("job 1234 has ended: it is FINISHED", ""),
    ],
)
def test_a_field_is_also_named_without_dashes(message: str, field: str) -> None:
    assert of_call("FAILED_PRECONDITION", message).field == field
    assert of_call("UNAVAILABLE", message).field == ""
