from __future__ import annotations

import pytest

from scheduler.presentation.render import Screen, ago, bar, clock, cut, printable, span, width, wrap


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-3, "0.0 s"),
        (0.25, "0.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (89, "89 s"),
        (91, "2 min"),
        (5399, "90 min"),
        (5400, "1 h 30 min"),
        (7200, "2 h"),
        (35_990, "10 h"),
        (36_001, "10 h"),
        (129_000, "36 h"),
        (130_000, "2 d"),
        (1e9, "11574 d"),
    ],
)
def test_a_span_has_about_two_digits(seconds: float, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("age", "told"),
    [(-5, "just now"), (0.9, "just now"), (1, "1 s ago"), (59.9, "59 s ago"), (180, "3 min ago")],
)
def test_a_moment_is_shown_as_its_age(age: float, told: str) -> None:
    assert ago(1000 - age, 1000) == told


def test_a_moment_of_another_day_has_its_date() -> None:
    assert clock(1_700_000_000, 1_700_000_000 + 2 * 86400).startswith("2023-11-1")
    assert len(clock(1_700_000_000, 1_700_000_000)) == len("22:13:20")


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("好的", 4), ("e\N{COMBINING ACUTE ACCENT}", 1), ("🚀", 2)]
)
def test_width_is_counted_in_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    "text", ["resnet50-imagenet-lr0.1-seed7", "好的名字好的名字好的名字", "a好" * 9]
)
@pytest.mark.parametrize("keep_end", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 6, 7, 8, 13, 40])
def test_what_is_cut_fits(text: str, keep_end: bool, columns: int) -> None:
    assert width(cut(text, columns, keep_end)) <= columns


def test_the_end_of_a_name_is_kept() -> None:
    assert cut("resnet50-imagenet-lr0.1-seed7", 13, keep_end=True) == "resnet5…seed7"


def test_words_are_not_broken() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("one two three", None) == ["one two three"]


def test_control_characters_become_visible() -> None:
    assert printable("a\x1b[2J\nb") == "a�[2J�b"


@pytest.mark.parametrize(
    ("parts", "whole", "drawn"),
    [
        ([], 100, "[..........]"),
        ([50, 50], 100, "[#####=====]"),
        ([1, 98], 100, "[#=========]"),
        ([33, 33, 33, 1], 100, "[###====%%%]"),
        ([1, 1], 100, "[#=........]"),
        ([0], 0, "[##########]"),
        ([200], 100, "[##########]"),
    ],
)
def test_a_bar_shows_each_part(parts: list[int], whole: int, drawn: str) -> None:
    assert bar(parts, whole, 10, Screen(blocks=False)).text == drawn
