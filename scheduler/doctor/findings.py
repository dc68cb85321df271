"""A finding: one thing that is right or wrong, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

CONTROL = dict.fromkeys((*range(32), *range(127, 160)))  # control characters, removed from lines


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # jobs run, but not everywhere, or not as expected
    WRONG = "wrong"  # jobs, or some of them, cannot run


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str  # the subject of the check, in one word
    where: str  # a namespace, a node, a file; "" if there is only one
    words: str
    advice: str = ""
    commands: tuple[str, ...] = ()  # for the administrator to read first, then to run

    @property
    def line(self) -> str:
        text = f"{self.where}: {self.words}" if self.where else self.words
        whole = f"{text}. {self.advice}" if self.advice else text
        return f"{self.level:<8} {self.what:<12} {' '.join(whole.split()).translate(CONTROL)}"


def fine(what: str, where: str, words: str) -> Finding:
    return Finding(Level.OK, what, where, words)


def warning(what: str, where: str, words: str, advice: str = "", *commands: str) -> Finding:
    return Finding(Level.WARNING, what, where, words, advice, commands)


def wrong(what: str, where: str, words: str, advice: str = "", *commands: str) -> Finding:
    return Finding(Level.WRONG, what, where, words, advice, commands)


def summary(findings: Sequence[Finding]) -> str:
    """Returns one line with the number of findings of each level."""
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    text = ", ".join(f"{counts[level]} {level}" for level in reversed(Level) if counts[level])
    more = any(each.commands for each in findings)
    return f"{text or 'nothing was checked'}{'; --fix prints commands' if more else ''}"


def script(findings: Sequence[Finding]) -> Iterator[str]:
    """Yields a shell script: each problem as a comment, and its commands below it."""
    for each in findings:
        if each.commands or each.level is not Level.OK:
            yield f"# {each.line}"
            yield from each.commands


def some(names: Sequence[str], most: int = 5) -> str:
    """Returns at most `most` of the names, and the number of the others."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")
