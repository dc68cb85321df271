from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.influx.go_json import (
    Form,
    SeriesAnswer,
    StatementResult,
    error_text,
    moment,
    number,
    text,
    written,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.5, "1.5"),
        (100.0, "100"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (1e-6, "0.000001"),
        (1.5e-5, "0.000015"),
        (1e-7, "1e-7"),
        (-2.5e-8, "-2.5e-8"),
        (123456789012345680.0, "123456789012345680"),
        (math.nan, "null"),
        (math.inf, "null"),
    ],
)
def test_numbers_are_written_as_go_does(value: float, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_again_as_it_was(value: float) -> None:
    assert float(number(value)) == value


def test_texts_escape_what_html_could_misread() -> None:
    assert text('<a&b>"\u2028é') == '"\\u003ca\\u0026b\\u003e\\"\\u2028é"'


@pytest.mark.parametrize(("epoch", "shown"), [("ns", "1500000001"), ("ms", "1500"), ("s", "1")])
def test_moments_can_be_numbers(epoch: str, shown: str) -> None:
    assert moment(1_500_000_001, None, epoch) == shown


def results(rows: int) -> list[StatementResult]:
    series = SeriesAnswer("m", {"b": "2", "a": "1"}, ["time", "x"], [[n, n] for n in range(rows)])
    return [StatementResult(0, [series]), StatementResult(1)]


def test_an_answer_is_one_document() -> None:
    assert "".join(written(results(1), Form("ns"))) == (
        '{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"a":"1","b":"2"},'
        '"columns":["time","x"],"values":[[0,0]]}]},{"statement_id":1}]}\n'
    )


def test_chunks_are_documents_and_say_what_follows() -> None:
    chunks = [json.loads(each) for each in written(results(3), Form("ns", chunk_rows=2))]
    first, second, third = (each["results"][0] for each in chunks)
    assert first["partial"]
    assert first["series"][0]["partial"]
    assert len(first["series"][0]["values"]) == 2
    assert "partial" not in second
    assert second["series"][0]["values"] == [[2, 2]]
    assert third == {"statement_id": 1}


def test_pretty_is_the_same_with_spaces() -> None:
    plain = "".join(written(results(2), Form("ns")))
    pretty = "".join(written(results(2), Form("ns", pretty=True)))
    assert pretty.strip() == json.dumps(json.loads(plain), indent=4)


def test_an_error_is_a_document() -> None:
    assert error_text("no") == '{"error":"no"}\n'
