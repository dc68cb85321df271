from __future__ import annotations

import msgspec
import pytest
from starlette.datastructures import QueryParams

from scheduler.gateway.api.endpoint import Parameter, given, parsed
from scheduler.gateway.problems import Problem


class Sample(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


def test_parameters_are_converted() -> None:
    known = (
        Parameter("n", "", "integer"),
        Parameter("b", "", "boolean"),
        Parameter("s", "", several=True),
    )
    query = QueryParams("n=3&b=yes&s=1&s=2")
    assert given(known, query) == {"n": 3, "b": True, "s": ["1", "2"]}
    assert given(known, QueryParams("b")) == {"b": True}
    assert given(known, QueryParams("b=false")) == {"b": False}


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        (b'{"name": 1}', "name", "Expected `str`"),
        (b"{}", "", "missing required field `name`"),
        (b'{"name": "x", "nam": 1}', "nam", "unknown field"),
        (b"[]", "", "Expected `object`"),
        (b"{", "", "not JSON"),
        (b"\xff", "", "not JSON"),
        (b"[" * 100_000, "", ""),
    ],
)
def test_a_body_that_is_wrong_names_its_field(content: bytes, field: str, words: str) -> None:
    with pytest.raises(Problem) as raised:
        parsed(Sample, content)
    assert (raised.value.status, raised.value.field) == (400, field)
    assert words in raised.value.message


def test_no_body_is_an_empty_object() -> None:
    with pytest.raises(Problem, match="name"):
        parsed(Sample, b"")
