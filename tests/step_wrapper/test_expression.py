from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.step_wrapper.expression import ExpressionError, evaluate, holds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3.5),
        ("8 / 2", 4),
        ("7 % 4 - -1", 4),
        ("0 < 1", True),
        ("'a' + 1", "a1"),
        ("heads == heads", True),
        ("'heads' != tails", True),
        ("10 > 9 && '10' > '9'", True),
        ("1 == 2 || !(1 == 2)", True),
        ("asInt('3') + 1", 4),
        ("string(3) + '4'", "34"),
        ("'resnet50' =~ '^res'", True),
        ("resnet50 matches '^vgg'", False),
        ("true && false", False),
        ("'1' == 1", True),
    ],
)
def test_an_expression_has_its_value(text: str, value: object) -> None:
    assert evaluate(text) == value
    assert type(evaluate(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 +", "something is missing at its end"),
        ("(1", "')' is missing"),
        ("1 2", "'2' is not expected there"),
        ("a < 1", "'a' is not a number"),
        ("1 / 0", "division by zero"),
        ("1 && true", "1 is neither true nor false"),
        ("__import__('os')", "there is no function __import__"),
        ("'a' =~ '('", "is no pattern"),
        ("$x", "cannot be read at '$x'"),
        ("(" * 60 + "1" + ")" * 60, "is nested too deeply"),
        ("1 + " * 2000 + "1", "cannot be read"),
    ],
)
def test_what_cannot_be_evaluated_is_said(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=r"\A[^\n]*\Z") as error:
        evaluate(text)
    assert words in str(error.value)


def test_a_condition_is_true_or_false() -> None:
    assert holds("true")
    with pytest.raises(ExpressionError, match="must be true or false"):
        holds("1")


@given(st.text(alphabet="0123456789.()+-*/%<>=!&|'\" aAsInt,", max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    with suppress(ExpressionError):
        evaluate(text)


@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda x: st.tuples(x, st.sampled_from(["+", "-", "*", "<", "=="]), x).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        max_leaves=12,
    )
)
def test_it_computes_as_python_does(text: str) -> None:
    try:
        found = evaluate(text)
    except ExpressionError:
        return  # a comparison is no number
    assert found == eval(text)
