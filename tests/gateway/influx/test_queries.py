from __future__ import annotations

import pytest

from scheduler.gateway.influx.parser import parse
from scheduler.gateway.influx.queries import answer
from scheduler.gateway.influx.syntax import QueryError
from scheduler.gateway.influx.tagged_series import SeriesView
from tests.clients import influxql
from tests.clients.influxql import NOW, data


def test_what_follows_a_statement_that_failed_is_not_executed() -> None:
    statements = parse("SELECT mean(note) FROM cpu; SELECT value FROM cpu")
    results = answer(statements, SeriesView(data()), "experiments", NOW)
    assert results[0].error.startswith("unsupported mean iterator type")
    assert results[1].error == "not executed"


def test_a_select_needs_a_database() -> None:
    (result,) = answer(parse("SELECT value FROM cpu"), SeriesView(data()), "", NOW)
    assert result.error == "database name required"


def test_a_pattern_that_takes_too_long_ends_the_query() -> None:
    memory = data()
    memory.add("slow", {"word": "a" * 8000}, 0, {"x": 1.0})
    query = "SELECT x FROM slow WHERE word =~ /" + "(a?){900}" * 2 + "b/"
    with pytest.raises(QueryError, match="too long"):
        answer(parse(query), SeriesView(memory), "experiments", NOW)


def test_only_jobs_that_are_given_are_seen() -> None:
    seen = SeriesView(data(), ["second"])
    (result,) = answer(parse("SHOW TAG VALUES WITH KEY = host"), seen, "experiments", NOW)
    assert [row[1] for series in result.series for row in series.rows] == ["c", "d"]


def test_the_document_has_the_table_of_what_is_compared() -> None:
    text = influxql.DOCUMENT.read_text()
    assert influxql.BEGIN in text
    assert influxql.document(text) == text, "run `python -m tests.clients.influxql`"
