"""SQL over metrics: two tables, only SELECT, bounded."""

from __future__ import annotations

from typing import Any

import pytest

from cli.command import CommandError, UsageError
from cli.metrics_tables import query

SERIES = {
    **{"name": "loss", "measurement": "metrics", "field": "loss", "tags": {"host": "a"}},
    **{"kind": "float", "last": "NaN", "last_step": 3, "min": 0.5, "min_step": 2},
    **{"max": "Infinity", "max_step": 1, "points": 3, "last_at": 13.0, "attempts": [1]},
}
JOBS: list[Any] = [{"job": "1", "job_name": "demo", "user": "ada", "series": [SERIES]}]
CURVES: list[Any] = [
    {
        **{"job": "1", "name": "loss", "times": [11.0, 12.0, 13.0], "steps": [1, 2, 3]},
        "values": ["Infinity", 0.5, "NaN"],
    }
]
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT "


def test_both_tables_can_be_asked() -> None:
    asked = query(
        "SELECT p.job_name, step, value, s.tags FROM points p JOIN series s USING (job, metric)"
        " WHERE value < 1 OR value IS NULL ORDER BY step",
        JOBS,
        CURVES,
    )
    assert asked.columns == ["job_name", "step", "value", "tags"]
    assert asked.rows == [("demo", 2, 0.5, "host=a"), ("demo", 3, None, "host=a")]
    assert query("SELECT max, last, min FROM series", JOBS, CURVES).rows == [
        (float("inf"), None, 0.5)
    ]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM points", "only SELECT is possible"),
        ("ATTACH '/tmp/x.db' AS x", "only SELECT is possible"),
        ("PRAGMA table_info(points)", "only SELECT is possible"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT nope FROM points", "no such column: nope"),
        ("SELEC 1", "syntax error"),
        ("", "this is no SELECT"),
        ("SELECT load_extension('/tmp/x.so')", "only SELECT"),
    ],
)
def test_whatever_else_is_refused_in_one_line(statement: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        query(statement, JOBS, CURVES)
    assert str(raised.value).startswith("--sql: ")


def test_an_answer_ends_after_many_rows() -> None:
    answer = query(f"{ENDLESS} x FROM n", JOBS, CURVES, rows_max=100)
    assert (len(answer.rows), answer.cut) == (100, True)
    assert not query("SELECT 1", JOBS, CURVES).cut


def test_a_query_ends_after_a_while() -> None:
    with pytest.raises(CommandError, match="took longer than"):
        query(f"{ENDLESS} count(*) FROM n", JOBS, CURVES, seconds_max=0.05)
