from __future__ import annotations

from typing import Any

import pytest

from scheduler.gateway.influx.parser import parse
from scheduler.gateway.influx.queries import answer
from scheduler.gateway.influx.tagged_series import SeriesView
from tests.clients.influxql import NOW, data


def rows(query: str) -> list[list[Any]]:
    (result,) = answer(parse(query), SeriesView(data()), "experiments", NOW)
    return [row for series in result.series for row in series.rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SHOW DATABASES", [["experiments"]]),
        ("CREATE DATABASE telegraf", []),
        ("SHOW MEASUREMENTS LIMIT 2", [["cpu"], ["m em,x"]]),
        ("SHOW TAG KEYS FROM mem", [["host"], ["job"]]),
        ('SHOW TAG VALUES FROM cpu WITH KEY = "job"', [["job", "first"], ["job", "second"]]),
        ("SHOW FIELD KEYS FROM mem", [["free", "integer"], ["value", "float"]]),
    ],
)
def test_what_there_is_is_listed(query: str, expected: list[list[Any]]) -> None:
    assert rows(query) == expected
