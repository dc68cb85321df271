from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.influx.parser import parse
from scheduler.gateway.influx.syntax import (
    Call,
    Integer,
    Operation,
    Parentheses,
    QueryError,
    Reference,
    Select,
    Show,
)


def test_a_select_has_all_its_parts() -> None:
    (select,) = parse(
        "SELECT mean(\"v\") AS m, x FROM db.rp.cpu, /a\\/b/ WHERE t = 'x' GROUP BY time(1m), host "
        "fill(3) ORDER BY time DESC LIMIT 1 OFFSET 2 SLIMIT 3 SOFFSET 4 tz('Europe/Berlin')"
    )
    assert isinstance(select, Select)
    assert [each.alias for each in select.columns] == ["m", ""]
    assert [each.name for each in select.sources] == ["cpu", ""]
    assert (select.fill, select.fill_value, select.ascending) == ("number", 3, False)
    assert (select.limit, select.offset) == (1, 2)
    assert (select.series_limit, select.series_offset) == (3, 4)
    assert str(select.zone) == "Europe/Berlin"


def test_operators_bind_as_in_arithmetic() -> None:
    (select,) = parse("SELECT a - b * 2 - (c) FROM m")
    assert isinstance(select, Select)
    product = Operation("*", Reference("b"), Integer(2))
    assert select.columns[0].expression == Operation(
        "-", Operation("-", Reference("a"), product), Parentheses(Reference("c"))
    )


def test_distinct_needs_no_parentheses() -> None:
    (select,) = parse("SELECT DISTINCT a FROM m")
    assert isinstance(select, Select)
    assert select.columns[0].expression == Call("distinct", (Reference("a"),))


def test_any_database_can_be_created() -> None:
    assert parse('CREATE DATABASE "telegraf"') == [Show("created", "telegraf")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a FORM m", "found FORM, expected FROM at line 1, char 10"),
        ("SELECT a FROM m WHERE x =~ 'a'", "expected regex"),
        ("SELECT a FROM m WHERE x =~ /(/", "error parsing regexp"),
        ("SELECT a = 1 FROM m", "invalid operator = in SELECT clause"),
        ("SELECT a FROM m GROUP BY time(5x)", "invalid duration"),
        ("SELECT a FROM m GROUP BY time(99999999w)", "overflowed duration"),
        ("SELECT a FROM m LIMIT -1", "expected integer"),
        ("SELECT a FROM m fill(foo)", "expected number argument in fill()"),
        ("SELECT a FROM a.b.c.d", "too many segments"),
        ("DROP DATABASE x", "DROP is not supported here at line 1, char 1"),
        ("SELECT a FROM m; SHOW SHARDS", "SHOW SHARDS is not supported here"),
        ("SELECT " + "(" * 2000 + "a", "too many parentheses|more than 100 parentheses"),
        ("SELECT a FROM m;" * 200, "more than 100 statements"),
        ("x" * 200_000, "more than 100000 characters"),
        ("SELECT a FROM m tz('../../etc/passwd')", "unable to find time zone"),
        ("SELECT 99999999999999999999 FROM m", "more than 63 bits"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(query: str, words: str) -> None:
    with pytest.raises(QueryError, match=words.replace("(", r"\(").replace(")", r"\)")):
        parse(query)


_WORDS = st.sampled_from(
    [
        *(
            "SELECT",
            "FROM",
            "WHERE",
            "GROUP",
            "BY",
            "LIMIT",
            "SHOW",
            "TAG",
            "VALUES",
            "WITH",
            "KEY",
        ),
        *("time", "mean", "fill", "null", "'x'", '"y"', "5", "1h", "é", "0x", "IN", "--", "\\"),
        *("(", ")", ",", "*", "/", "=", "=~", "!", ";", ".", "::", "-", "+", "distinct", "/x/"),
    ]
)


@given(st.lists(_WORDS, max_size=20).map(" ".join) | st.text(max_size=40))
def test_noise_is_refused_and_nothing_else_happens(query: str) -> None:
    with contextlib.suppress(QueryError):
        parse(query)
