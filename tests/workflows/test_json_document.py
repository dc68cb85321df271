"""JSON with the place of each value: the same as YAML has, and faster."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.workflows.document import ENTRIES_MAX, WorkflowError, read
from scheduler.workflows.json_document import DEPTH_MAX, read_json

TEXT = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 1]))
def test_values_and_places_are_those_that_yaml_has(value: object, indent: int | None) -> None:
    text = json.dumps({"a": value}, indent=indent)
    if '"<<"' not in text:
        assert read_json(text) == read(text)


@pytest.mark.parametrize(
    ("text", "words", "line", "column"),
    [
        ("", "a value is missing", 1, 1),
        ('{"a":}', "a value is missing", 1, 6),
        ('{"a":\n  1,}', "the name of a field is missing", 2, 5),
        ('{"a" 1}', "':' is missing", 1, 6),
        ("[1,\n2", "',' or ']' is missing", 2, 2),
        ('{"a":"x', "unterminated string", 1, 6),
        ('{"a":"\\ud800"}', "half of a surrogate pair", 1, 14),
        ('{"a":1} x', "something follows its end", 1, 9),
        ("nul", "'n' begins none", 1, 1),
        ("NaN", "'N' begins none", 1, 1),
        ('{"a":1,"a":2}', "'a' is given twice", 1, 8),
        ("[" * (DEPTH_MAX + 2), "nested too deeply", 1, DEPTH_MAX + 2),
    ],
)
def test_an_error_names_its_place(text: str, words: str, line: int, column: int) -> None:
    with pytest.raises(WorkflowError, match=words) as told:
        read_json(text)
    assert (told.value.line, told.value.column) == (line, column)


def test_pairs_of_surrogates_and_tabs_are_read() -> None:
    assert read_json('\t{"a":\t"\\ud83d\\ude00"}').plain() == {"a": "\U0001f600"}


def test_a_document_has_so_many_values_at_most() -> None:
    with pytest.raises(WorkflowError, match="too many values"):
        read_json(json.dumps([0] * ENTRIES_MAX))
