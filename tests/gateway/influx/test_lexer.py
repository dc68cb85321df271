from __future__ import annotations

import pytest

from scheduler.gateway.influx.lexer import Lexer
from scheduler.gateway.influx.syntax import QueryError


def kinds(source: str) -> list[tuple[str, str]]:
    lexer, at, found = Lexer(source), 0, []
    while (token := lexer.token(lexer.after_space(at))).kind != "end":
        found.append((token.kind, token.text))
        at = token.end
    return found


def test_tokens_have_kinds_and_texts() -> None:
    assert kinds(
        "SELECT \"a b\" , 'it\\'s' 1.5 10 3h5m >= <> =~ :: x_1 -- rest\n/* more */ .5"
    ) == [
        ("SELECT", ""),
        ("name", "a b"),
        (",", ""),
        ("text", "it's"),
        ("number", "1.5"),
        ("integer", "10"),
        ("duration", "3h5m"),
        (">=", ""),
        ("!=", ""),
        ("=~", ""),
        ("::", ""),
        ("name", "x_1"),
        ("number", ".5"),
    ]


def test_a_pattern_ends_at_a_slash_that_is_not_escaped() -> None:
    assert Lexer(r"/a\/b\d\\/ x").pattern(0) == (r"a/b\d\\", 10)


@pytest.mark.parametrize("source", ["'a", '"a\nb"', r"'\q'"])
def test_what_has_no_end_is_refused(source: str) -> None:
    with pytest.raises(QueryError, match="line 1, char"):
        Lexer(source).token(0)


def test_an_error_names_its_line() -> None:
    assert str(Lexer("a\nbc").error("wrong", 3)) == "wrong at line 2, char 2"
