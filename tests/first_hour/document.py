"""README as data: the lines that it tells a reader to type, and what it shows for each.

A test that copied these lines would go on passing when README changes. So they are read from it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"

# What differs from one reader to the next in what README shows, and what may be there instead.
_VARIES = {
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b": r"[0-9a-f]{8}",
    r"\d+ (?:s|min|h) (?=ago|left)": r"[\d.]+ (?:s|min|h) ",
    r"\b\d+(?=/\d+ +\d)": r"\d+",  # epochs
    r"\[█+\.*\]": r"\[█+\.*\]",
    r"epoch \d+: loss [\d.]+": r"epoch \d+: loss [\d.]+",
    r"\.\.\.": r"[\s\S]*?",
    r"\s+": r"\s+",  # columns may be wider
}
_TYPED = re.compile(r"(?:.*\\\n)*.*\n")  # with the lines by which it is continued
_PARTS = re.compile("|".join(f"({varies})" for varies in _VARIES))


@dataclass(frozen=True, slots=True)
class Line:
    """What a reader types, continued lines included, and what README shows below it."""

    typed: str
    shown: str
    kind: str  # of its block: `console` shows what is printed, `sh` does not
    block: int  # lines of the same block have the same number

    @property
    def program(self) -> str:
        words = shlex.split(self.typed, comments=True)
        return words[0] if words else ""

    def is_shown_in(self, printed: str) -> bool:
        """Whether this was printed and nothing else, but for notes."""
        told = "".join(
            line for line in printed.splitlines(keepends=True) if not line.startswith("note: ")
        )
        return re.fullmatch(rf"\s*{pattern(self.shown.strip())}\s*", told) is not None


def lines(document: Path = README) -> Iterator[Line]:
    """In the order of the document."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", document.read_text(), re.S | re.M)
    for number, (kind, text) in enumerate(blocks):
        if kind == "sh":
            for typed in _TYPED.findall(text):
                if typed.strip():
                    yield Line(typed.rstrip("\n"), "", kind, number)
        elif kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                first = _TYPED.match(part)
                assert first is not None
                yield Line(first[0].rstrip("\n"), part[first.end() :], kind, number)


def packages(document: Path = README) -> list[str]:
    """The Debian packages that the document says to install."""
    (named,) = re.findall(r"`(?:sudo )?apt install ([^`]*)`", document.read_text())
    return str(named).split()


def pattern(shown: str) -> str:
    """A regular expression for what is shown, with other ids, times and widths of columns."""
    found, end = [], 0
    for part in _PARTS.finditer(shown):
        found += [re.escape(shown[end : part.start()]), [*_VARIES.values()][part.lastindex - 1]]  # type: ignore[operator]
        end = part.end()
    return "".join([*found, re.escape(shown[end:])])
