"""Ignore files as git reads them: nested ones, the last rule that matches, and nothing below a
folder that is left out.

pathspec translates a pattern. It is not asked whether a path is ignored, because it also matches
what lies below a path: of `*` and `!a` it would take `a/x`, which git ignores.
"""

# ruff: noqa: PTH120  # texts, as git and manifests have them

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from re import Pattern

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

IGNORE_BYTES_MAX = 2**20

_ANY = re.compile(r"\*|/?\*\*|/?(\*\*/)+\*\*?")  # matches any path


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    source: str  # the file and the line
    text: str
    takes: bool  # begins with `!`
    folders_only: bool
    regex: Pattern[str] | None  # of a path from the file's folder on; None: any path
    all_below: bool = False  # ends with `/**`: the regex is of the folder and its slash

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.regex is None:
            return True
        found = self.regex.search if self.all_below else self.regex.fullmatch
        return found(_as_bytes(path)) is not None

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


class IgnoreRules:
    """The rules of all ignore files with these names, below one folder."""

    def __init__(self, root: str, names: Sequence[str]) -> None:
        """A later name counts more than an earlier one in the same folder."""
        self._root, self._names = root, names
        self._of: dict[str, tuple[IgnoreRule, ...]] = {}  # by folder
        self._verdicts: dict[str, IgnoreRule | None] = {}  # of folders

    def verdict(self, path: str, is_folder: bool = False) -> IgnoreRule | None:
        """Returns the rule that leaves this path out, or a folder above it; None: it is taken."""
        folder = os.path.dirname(path)
        if folder:
            if folder not in self._verdicts:
                self._verdicts[folder] = self.verdict(folder, is_folder=True)
            if (above := self._verdicts[folder]) is not None:
                return above
        while True:
            below = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self._rules(folder)):
                if rule.matches(below, is_folder):
                    return None if rule.takes else rule
            if not folder:
                return None
            folder = os.path.dirname(folder)

    def _rules(self, folder: str) -> tuple[IgnoreRule, ...]:
        if folder not in self._of:
            self._of[folder] = tuple(
                rule for name in self._names for rule in self._read(folder, name)
            )
        return self._of[folder]

    def _read(self, folder: str, name: str) -> list[IgnoreRule]:
        """A link is no ignore file, as for git."""
        path = Path(self._root, folder, name)
        try:
            if path.is_symlink():
                return []
            with path.open("rb") as file:
                text = file.read(IGNORE_BYTES_MAX).decode(errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return []
        shown = f"{folder}/{name}" if folder else name
        rules = []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            if rule := parse(f"{shown}:{number}", line):
                rules.append(rule)
        return rules


def parse(source: str, line: str) -> IgnoreRule | None:
    """None: the line has no rule."""
    text = _trimmed(line.removesuffix("\r"))
    pattern = text.removeprefix("!")
    if not pattern or text.startswith("#"):
        return None
    folders_only = pattern.endswith("/")
    body = pattern[:-1] if folders_only else pattern
    if not body or body.endswith("/"):
        return None
    regex = _compile(body)
    if regex is None and not _ANY.fullmatch(body):
        return None
    return IgnoreRule(source, text, text.startswith("!"), folders_only, regex, body.endswith("/**"))


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Pattern[str] | None:
    """None: it matches any path, or is no pattern at all."""
    if _ANY.fullmatch(pattern):
        return None
    if pattern[0] in "#!":
        pattern = f"\\{pattern}"
    text = _as_bytes(pattern)
    if text[-1].isspace():  # pathspec would strip it, and the last byte of an `à` is one, too
        kept = text[:-1]
        escapes = len(kept) - len(kept.rstrip("\\"))
        text = f"{kept[:-1] if escapes % 2 else kept}[{text[-1]}]"
    try:
        found: Pattern[str] | None = GitIgnoreSpecPattern(text).regex
    except GitIgnorePatternError:
        return None
    return found


def _as_bytes(text: str) -> str:
    """A character for each byte: to git, `?` is one byte."""
    return os.fsencode(text).decode("latin-1")


def _trimmed(line: str) -> str:
    """Without the blanks at its end; one after a backslash is part of the name."""
    kept = line.rstrip(" ")
    escapes = len(kept) - len(kept.rstrip("\\"))
    return line[: len(kept) + 1] if escapes % 2 and len(kept) < len(line) else kept
