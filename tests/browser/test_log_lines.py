"""Lines of a log: their colours, and that none is lost or doubled in a file of any size."""

from __future__ import annotations

import base64
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

PIECES = """async (lines) => {
    const { pieces } = await import("/static/ansi.js");
    return lines.map(pieces);
}"""

# Walks through a file with a LogWindow and returns which bytes the lines say they are.
WALK = """async ([encoded, steps, growth]) => {
    const { LogWindow } = await import("/static/logwindow.js");
    const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    let file = bytes(encoded);
    const read = async (offset, length) =>
        ({ data: file.slice(offset, offset + length), size: file.length });
    const log = new LogWindow(read);
    const found = new Map();
    const look = () => log.lines.forEach((line) => found.set(line.at, line));
    const gaps = () => log.lines.slice(1).filter((line, i) => line.at !== log.lines[i].end).length;
    let broken = 0;
    for (const [name, ...given] of steps) {
        if (name === "grow") file = new Uint8Array([...file, ...bytes(given[0])]);
        else if (name === "all up") while (await log.up()) { look(); broken += gaps(); }
        else if (name === "all down") while (await log.down()) { look(); broken += gaps(); }
        else await log[name](...given);
        look();
        broken += gaps();
    }
    const lines = [...found.values()].sort((one, other) => one.at - other.at);
    return { lines: lines.map(({ at, end, text }) => [at, end, text]), broken };
}"""


def walk(blank: Page, file: bytes, *steps: list[Any]) -> Any:
    return blank.evaluate(WALK, [base64.b64encode(file).decode(), steps, ""])


def grow(data: bytes) -> list[str]:
    return ["grow", base64.b64encode(data).decode()]


def log_of(lines: int, seed: int) -> bytes:
    random = Random(seed)
    words = ("loss 0.4", "épöch", "好", "", "\x1b[32mgreen\x1b[0m", "x" * 700)
    return "".join(f"{n} {random.choice(words)}\n" for n in range(lines)).encode()


@pytest.mark.parametrize("start", ["openEnd", "openAt 0", "openAt 77777", "openAt 399999"])
def test_each_line_of_a_file_is_there_once_from_wherever_it_was_opened(
    blank: Page, start: str
) -> None:
    file = log_of(5_000, seed=3)
    name, *offset = start.split()
    found = walk(blank, file, [name, *map(int, offset)], ["all up"], ["all down"])
    assert found["broken"] == 0
    expected, at = [], 0
    for line in file.split(b"\n")[:-1]:
        expected.append([at, at + len(line) + 1, line.decode()])
        at += len(line) + 1
    assert found["lines"] == expected


def test_a_line_that_grows_is_one_line(blank: Page) -> None:
    steps = [["openEnd"], grow(b"lf\nnext"), ["down"], grow(b"\nlast\n"), ["down"], ["down"]]
    found = walk(blank, b"first\nha", *steps)
    assert found["lines"] == [[0, 6, "first"], [6, 11, "half"], [11, 16, "next"], [16, 21, "last"]]


def test_a_line_of_megabytes_is_shown_in_pieces_without_a_gap(blank: Page) -> None:
    file = b"before\n" + "好".encode() * 400_000 + b"\nafter\n"
    for start in (["openEnd"], ["openAt", 0], ["openAt", 600_000]):
        found = walk(blank, file, start, ["all up"], ["all down"])
        assert found["broken"] == 0
        shown = found["lines"]
        assert shown[0] == [0, 7, "before"]
        assert shown[-1] == [len(file) - 6, len(file), "after"]
        assert [end for _, end, _ in shown[:-1]] == [at for at, _, _ in shown[1:]]
        assert "".join(text for *_, text in shown[1:-1]) == "好" * 400_000


def test_a_place_in_the_file_is_the_line_that_begins_there(blank: Page) -> None:
    file = b"zero\none\ntwo\n"
    assert walk(blank, file, ["openAt", 5])["lines"][0] == [5, 9, "one"]
    assert walk(blank, file, ["openAt", 6])["lines"][0] == [9, 13, "two"]


def test_colours_are_kept_and_all_other_escapes_are_shown(blank: Page) -> None:
    coloured, title, reset, palette = blank.evaluate(
        PIECES,
        [
            "\x1b[1;31mred\x1b[0m plain",
            "\x1b]0;evil\x07\x1b[2Jtext\u202e\x00",
            "\x1b[32mgreen \x1b[39mplain \x1b[4munder",
            "\x1b[38;5;196mred\x1b[38;2;0;0;250mblue",
        ],
    )
    assert [(each["text"], each["name"]) for each in coloured["pieces"]] == [
        ("red", "a-1 a-31"),
        (" plain", ""),
    ]
    assert title["pieces"][0]["text"] == "^[]0;evil^G^[[2Jtext\\u202e^@"
    assert [each["name"] for each in reset["pieces"]] == ["a-32", "", "a-4"]
    assert [each["name"] for each in palette["pieces"]] == ["a-31", "a-34"]


def test_a_progress_bar_is_its_last_version(blank: Page) -> None:
    (bar,) = blank.evaluate(PIECES, ["\r 10%\r 50%\r100%\r"])
    assert bar["pieces"][0]["text"] == "100%"
    assert bar["overwritten"] == 2
