"""Rows of tables, read strictly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.traces.text_rows import Row, TraceError, first_line, with_header, without_header


def table(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def row(value: str) -> Row:
    return Row(Path("t.csv"), 7, {"x": value})


def test_a_header_names_the_columns_in_any_order(tmp_path: Path) -> None:
    path = table(tmp_path, "b,a\n1,2\n\n3,4\n")
    assert [(r.line, dict(r.values)) for r in with_header(path, ["a"])] == [
        (2, {"b": "1", "a": "2"}),
        (4, {"b": "3", "a": "4"}),
    ]


def test_the_mark_that_spreadsheets_put_first_is_none_of_a_name(tmp_path: Path) -> None:
    path = table(tmp_path, b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    assert first_line(path) == "a,b"
    assert [dict(r.values) for r in with_header(path, ["a"])] == [{"a": "1", "b": "2"}]


def test_what_is_empty_or_left_out_has_its_default(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b\n1,\n")
    (found,) = with_header(path, ["a"], {"b": "5", "c": "6"})
    assert dict(found.values) == {"a": "1", "b": "5", "c": "6"}


def test_a_table_of_tabs_has_no_header(tmp_path: Path) -> None:
    (found,) = without_header(table(tmp_path, "1\t2\n"), ["a", "b"])
    assert dict(found.values) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a\n1\n", "table.csv:1: missing column b, c"),
        ("", "table.csv:1: missing column a, b, c"),
        ("a,b,c\n1,2,3\n1,2\n", "table.csv:3: 2 columns, expected 3"),
        (b"a,b,c\n\xff,2,3\n", "table.csv: the file is not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_with_its_line(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint):
        list(with_header(table(tmp_path, text), ["a", "b", "c"]))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv: No such file"):
        first_line(Path("nowhere.csv"))


@pytest.mark.parametrize(
    ("read", "value", "complaint"),
    [
        (lambda r: r.text("x"), " ", "x: is empty"),
        (lambda r: r.number("x"), "much", "x: 'much' is not a number"),
        (lambda r: r.number("x"), "nan", "x: 'nan' is not a finite number"),
        (lambda r: r.number("x"), "-1", "x: -1 is not at least 0"),
        (lambda r: r.number("x", 0, 1), "2", "x: 2 is not 0 to 1"),
        (lambda r: r.positive("x"), "0", "x: must be more than 0"),
        (lambda r: r.whole("x"), "1.5", "x: 1.5 is not a whole number"),
        (lambda r: r.flag("x"), "2", "x: 2 is not 0 to 1"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_column(
    read: Callable[[Row], object], value: str, complaint: str
) -> None:
    with pytest.raises(TraceError) as refusal:
        read(row(value))
    assert str(refusal.value) == f"t.csv:7: {complaint}"


def test_values_are_read() -> None:
    assert row(" a ").text("x") == "a"
    assert row("1e3").number("x") == 1000.0
    assert row("3.0").whole("x") == 3
    assert [row(value).flag("x") for value in "01"] == [False, True]
