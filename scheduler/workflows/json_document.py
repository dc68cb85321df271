"""A JSON document with the place of each value: what `document.read` is for YAML. Pure.

JSON is almost YAML, but not quite (surrogates, tabs), and this reads it many times faster.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]

from scheduler.workflows.document import ENTRIES_MAX, Located, WorkflowError

DEPTH_MAX = 100
_BLANK = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


def read_json(text: str) -> Located:
    """Raises WorkflowError."""
    return _JsonReading(text).document()


class _JsonReading:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.left = text, 0, ENTRIES_MAX
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> Located:
        found = self._entry("", 0)
        self._skip()
        if self.at < len(self.text):
            raise self._wrong("something follows its end")
        return found

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def _wrong(self, words: str, at: int | None = None) -> WorkflowError:
        return WorkflowError(
            f"not valid JSON: {words}", *self._place(self.at if at is None else at)
        )

    def _skip(self) -> str:
        """Returns the character that follows the blanks."""
        match = _BLANK.match(self.text, self.at)
        assert match
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _entry(self, path: str, depth: int) -> Located:
        first, at = self._skip(), self.at
        self.left -= 1
        if self.left < 0 or depth > DEPTH_MAX:
            words = "has too many values" if self.left < 0 else "is nested too deeply"
            raise WorkflowError(words, *self._place(at))
        if first == "{":
            return Located(self._fields(path, depth), path, *self._place(at))
        if first == "[":
            return Located(self._items(path, depth), path, *self._place(at))
        if first == '"':
            return Located(self._text(), path, *self._place(at))
        match = _PLAIN.match(self.text, at)
        if match is None:
            raise self._wrong("a value is missing" if first in ",}]" else f"{first!r} begins none")
        self.at = match.end()
        return Located("" if match[0] == "null" else match[0], path, *self._place(at))

    def _text(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
            value.encode()
        except JSONDecodeError as error:
            raise self._wrong(error.msg.lower(), error.pos) from None
        except UnicodeEncodeError:
            raise self._wrong("half of a surrogate pair") from None
        return str(value)

    def _fields(self, path: str, depth: int) -> dict[str, Located]:
        found: dict[str, Located] = {}
        self.at += 1
        if self._skip() == "}":
            self.at += 1
            return found
        while True:
            if self._skip() != '"':
                raise self._wrong("the name of a field is missing")
            at = self.at
            name = self._text()
            if name in found:
                raise WorkflowError(f"{path}: {name!r} is given twice", *self._place(at))
            if self._skip() != ":":
                raise self._wrong("':' is missing")
            self.at += 1
            below = self._entry(f"{path}.{name}" if path else name, depth + 1)
            # As in YAML, a field is named at its key.
            found[name] = Located(below.value, below.path, *self._place(at))
            if not self._goes_on("}"):
                return found

    def _items(self, path: str, depth: int) -> tuple[Located, ...]:
        found: list[Located] = []
        self.at += 1
        if self._skip() == "]":
            self.at += 1
            return ()
        while True:
            found.append(self._entry(f"{path}[{len(found)}]", depth + 1))
            if not self._goes_on("]"):
                return tuple(found)

    def _goes_on(self, end: str) -> bool:
        sign = self._skip()
        if sign not in (",", end) or not sign:
            raise self._wrong(f"',' or {end!r} is missing")
        self.at += 1
        return sign == ","
