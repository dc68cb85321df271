"""Numbers and moments read alike on a page and at a terminal."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from scheduler.presentation import render

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOW = 1_700_000_000.0
CALL = """async ([name, rows]) => {
    const words = await import("/static/words.js");
    return rows.map((row) => words[name](...row));
}"""


def test_spans_of_time_are_those_of_the_commands(blank: Page) -> None:
    random = Random(7)
    seconds = [*range(200), 0.25, 9.949, 9.95, 89.5, 90, 150, 5399, 5400, 35999, 36000, 129599]
    seconds += [10 ** random.uniform(-2, 7) for _ in range(2000)]
    assert blank.evaluate(CALL, ["span", [[each] for each in seconds]]) == [
        render.span(each) for each in seconds
    ]


def test_moments_are_those_of_the_commands(blank: Page) -> None:
    zone = blank.evaluate("() => new Date(1.7e12).getTimezoneOffset()")
    assert zone * -60 == time.localtime(NOW).tm_gmtoff, "the browser has the zone of this machine"
    moments = [NOW - 7919.5 * step for step in range(200)]
    for name, told in (("ago", render.ago), ("clock", render.clock)):
        rows = [[each, NOW] for each in moments]
        assert blank.evaluate(CALL, [name, rows]) == [told(each, NOW) for each in moments]


def test_what_cannot_be_seen_in_a_name_is_marked_as_in_the_commands(blank: Page) -> None:
    names = [
        "plain",
        "好的名字",
        "a\u202eb",
        "\x1b[31mred",
        "tab\tnewline\n",
        "no\u00a0break",
        "é\u0301",
        "\u200d",
    ]
    names += [chr(code) for code in (*range(0x250), *range(0x2000, 0x2060))]  # old enough for both
    assert blank.evaluate(CALL, ["printable", [[name] for name in names]]) == [
        render.printable(name) for name in names
    ]


def test_a_number_that_is_not_known_is_a_dash(blank: Page) -> None:
    for name in ("number", "percent", "span"):
        assert blank.evaluate(CALL, [name, [[None], [0]]])[0] == "\N{EN DASH}"
        assert blank.evaluate(CALL, [name, [[0]]])[0] != "\N{EN DASH}"
