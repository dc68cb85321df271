"""A finding: one thing that is as it should be, or is not, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

CONTROL = dict.fromkeys((*range(32), *range(127, 160)))  # of no use in a line


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # jobs run, but not everywhere, or not as one would think
    WRONG = "wrong"  # jobs, or some of them, cannot run


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str  # was looked at, in a word
    where: str  # a namespace, a node, a file; "" if there is only one
    words: str
    advice: str = ""
    commands: tuple[str, ...] = ()  # for a person to read, and then to run

    @property
    def line(self) -> str:
        told = f"{self.where}: {self.words}" if self.where else self.words
        whole = f"{told}. {self.advice}" if self.advice else told
        return f"{self.level:<8} {self.what:<12} {' '.join(whole.split()).translate(CONTROL)}"


def fine(what: str, where: str, words: str) -> Finding:
    return Finding(Level.OK, what, where, words)


def warning(what: str, where: str, words: str, advice: str = "", *commands: str) -> Finding:
    return Finding(Level.WARNING, what, where, words, advice, commands)


def wrong(what: str, where: str, words: str, advice: str = "", *commands: str) -> Finding:
    return Finding(Level.WRONG, what, where, words, advice, commands)


def summary(findings: Sequence[Finding]) -> str:
    """In one line, what the reader should do next."""
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    told = ", ".join(f"{counts[level]} {level}" for level in reversed(Level) if counts[level])
    more = any(each.commands for each in findings)
    return f"{told or 'nothing was looked at'}{'; --fix prints commands' if more else ''}"


def script(findings: Sequence[Finding]) -> Iterator[str]:
    """All that is not as it should be, and the commands below what they are for, as a shell reads
    them."""
    for each in findings:
        if each.commands or each.level is not Level.OK:
            yield f"# {each.line}"
            yield from each.commands


def some(names: Sequence[str], most: int = 5) -> str:
    """The first of many names."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")
