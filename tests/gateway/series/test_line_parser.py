from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.series.line_parser import points_of
from scheduler.relay.entries import BadEntry, LinesEntry, LoggedPoint, Tags, Value

NOW = 1_790_000_000_000_000_000


def parsed(text: str, precision: str = "ns") -> list[Any]:
    return [
        str(each) if isinstance(each, BadEntry) else each
        for each in points_of(LinesEntry(text, precision, NOW))
    ]


def point(field: str, value: Value, at: int = NOW, tags: Tags = ()) -> LoggedPoint:
    return LoggedPoint("m", tags, field, at, None, value)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("m f=1", [point("f", 1.0)]),
        ("m f=1 12", [point("f", 1.0, 12)]),
        ("m,b=2,a=1 f=1i,g=t,h=-1.5e3 -5", [
            point("f", 1, -5, (("a", "1"), ("b", "2"))),
            point("g", True, -5, (("a", "1"), ("b", "2"))),
            point("h", -1500.0, -5, (("a", "1"), ("b", "2"))),
        ]),
        (r"m,a\ b=c\,d\=e f\=g=.5", [point("f=g", 0.5, tags=(("a b", "c,d=e"),))]),
        (r'm f="a \"b\", c=d \\ e" 7', [point("f", r'a "b", c=d \ e', 7)]),
        ('m f="two\nlines",g=1 7', [point("f", "two\nlines", 7), point("g", 1.0, 7)]),
        ('m f=""', [point("f", "")]),
        ("m f=-inf,g=Infinity", [point("f", -math.inf), point("g", math.inf)]),
        ("\r\n# comment\n\n m f=1 \r\n", [point("f", 1.0)]),
        ("m f=18u", [point("f", 18)]),
        # What pytelegraf sends: quotes within a text, and numbers of numpy.
        ('m f="say "hi""', [point("f", 'say "hi"')]),
        ('m f="say "hi"",g="x" 5', [point("f", 'say "hi"', 5), point("g", "x", 5)]),
        ("m,a=ü f=1", [point("f", 1.0, tags=(("a", "ü"),))]),
    ],
)  # fmt: skip
def test_what_clients_write(line: str, wanted: list[LoggedPoint]) -> None:
    assert parsed(line) == wanted


def test_lines_without_a_time_are_points_of_their_own() -> None:
    """A client that writes none may write a thousand of one series at once."""
    found = parsed("m f=1\nm f=2 5\nm f=3\n# comment\nm f=4", "s")
    times = [each.at_ns for each in found]
    assert times == [NOW, 5_000_000_000, NOW + 2, NOW + 3]


def test_nan_is_a_value() -> None:
    (first, second) = parsed("m f=nan,g=1")
    assert math.isnan(first.value)
    assert second == point("g", 1.0)


@pytest.mark.parametrize(
    ("precision", "at"), [("ns", 7), ("us", 7_000), ("ms", 7_000_000), ("s", 7_000_000_000)]
)
def test_times_are_nanoseconds_afterwards(precision: str, at: int) -> None:
    assert parsed("m f=1 7", precision) == [point("f", 1.0, at)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("m", "no tag and no field at ''"),
        ("m f", "no field at 'f'"),
        ("m f=", "no field at 'f='"),
        (",a=1 f=1", "no measurement"),
        ("m,a= f=1", "no tag and no field at ',a= f=1'"),
        ("m,a f=1", "no tag and no field at ',a f=1'"),
        ("m f=one", "field 'f': its value is no number"),
        ("m f=1_000", "field 'f': its value is no number"),
        ("m f=99999999999999999999i", "more than 64 bits"),
        ('m f="open', "no field at"),
        ("m f=1 1.5", "no time at '1.5'"),
        ("m f=1 99999999999999999999", "no time at"),
        ("m f=1,", "no field at ''"),
        ("m\x00 f=1", "control character"),
        ("m,a=\x1b f=1", "control character"),
        ("m," + ",".join(f"t{i}=1" for i in range(33)) + " f=1", "33 tags"),
        ('m f="' + "x" * 8193 + '"', "8192 at most"),
    ],
)
def test_a_wrong_line_is_refused_alone(line: str, reason: str) -> None:
    first, refusal, last = parsed(f"m f=1\n{line}\nm f=2")
    assert (first, last) == (point("f", 1.0), point("f", 2.0, NOW + 2))
    assert reason in refusal
    assert refusal.isprintable()


def test_a_quote_that_nothing_closes_takes_no_other_line_with_it() -> None:
    good = "\n".join(["m f=1"] * 200)
    found = parsed(f'm f="open\n{good}\nm f="also')
    assert found[1:-1] == [point("f", 1.0, NOW + at) for at in range(1, 201)]
    assert "no field" in found[0]


def escaped(text: str, special: str) -> str:
    return "".join("\\" + each if each in special else each for each in text)


NAMES = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="\\#") | st.just(" "),
    min_size=1,
    max_size=9,
).map(lambda name: name.strip() or "x")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)


@given(NAMES, st.dictionaries(NAMES, NAMES, max_size=3), NAMES, TEXTS, st.integers(0, 2**62))
def test_what_is_written_by_the_book_is_read_back(
    measurement: str, tags: dict[str, str], field: str, text: str, at: int
) -> None:
    head = escaped(measurement, ", ") + "".join(
        f",{escaped(key, ',= ')}={escaped(value, ',= ')}" for key, value in tags.items()
    )
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    line = f'{head} {escaped(field, ",= ")}="{quoted}",n=1 {at}'
    (found, _) = parsed(line)
    assert found == LoggedPoint(measurement, tuple(sorted(tags.items())), field, at, None, text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_noise_gives_points_or_reasons(text: str) -> None:
    for each in parsed(text):
        assert isinstance(each, LoggedPoint) or each.isprintable()
