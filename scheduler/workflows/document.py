"""A YAML document (or JSON) with the place of each value, so that an error can name it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml  # type: ignore[import-untyped]

FAST = getattr(yaml, "CSafeLoader", None)  # in a tenth of the time
DEPTH_MAX = 100
ENTRIES_MAX = 100_000  # aliases may make a short document very large


class WorkflowError(ValueError):
    """What is wrong in a document; line and column count from 1."""

    def __init__(self, words: str, line: int, column: int) -> None:
        super().__init__(words)
        self.line, self.column = line, column


@dataclass(frozen=True, slots=True)
class Located:
    """A value of the document. A number or a Boolean is its text, and null the empty text."""

    value: str | Mapping[str, Located] | tuple[Located, ...]
    path: str  # `spec.templates[0].name`
    line: int
    column: int

    def error(self, words: str) -> WorkflowError:
        return WorkflowError(f"{self.path or 'the document'}: {words}", self.line, self.column)

    def fields(self, *known: str) -> Mapping[str, Located]:
        """Raises WorkflowError for a field that is not among these."""
        fields = self.mapping()
        for name, entry in fields.items():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise entry.error(f"this field is not supported{meant}")
        return fields

    def mapping(self) -> Mapping[str, Located]:
        if self.value == "":
            return {}
        if not isinstance(self.value, Mapping):
            raise self.error("must be an object with fields")
        return self.value

    def items(self) -> tuple[Located, ...]:
        if self.value == "":
            return ()
        if not isinstance(self.value, tuple):
            raise self.error("must be a list")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.error("must be a text or a number")
        return self.value

    def whole(self, least: int = 0) -> int:
        text = self.text()
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
            raise self.error(f"{text!r}: must be a whole number, at least {least}")
        return int(text)

    def flag(self) -> bool:
        text = self.text().lower()
        if text not in ("true", "false"):
            raise self.error(f"{text!r}: must be true or false")
        return text == "true"

    def plain(self) -> Any:
        """As JSON has it."""
        if isinstance(self.value, Mapping):
            return {name: entry.plain() for name, entry in self.value.items()}
        return [e.plain() for e in self.value] if isinstance(self.value, tuple) else self.value


def read(text: str) -> Located:
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(filter(None, (error.problem, error.context)))
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise WorkflowError(f"not valid YAML: {said}", line, column) from None
    except yaml.reader.ReaderError as error:
        raise WorkflowError(f"not valid YAML: {error.reason}", 1, 1) from None
    except RecursionError:
        raise WorkflowError("is nested too deeply", 1, 1) from None
    if root is None:
        raise WorkflowError("is empty", 1, 1)
    return _Composed().entry(root, "")


def _composed(text: str) -> yaml.Node:
    """The fast loader knows less of where an error is, and must not be given what is nested too
    deeply: it would end this process."""
    if FAST is None:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=FAST):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                raise RecursionError
        return yaml.compose(text, Loader=FAST)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


class _Composed:
    def __init__(self) -> None:
        self.left = ENTRIES_MAX
        self.above: list[yaml.Node] = []

    def entry(self, node: yaml.Node, path: str) -> Located:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.left -= 1
        if self.left < 0 or any(node is each for each in self.above):
            raise WorkflowError(f"{path}: aliases make this too large", line, column)
        if isinstance(node, yaml.ScalarNode):
            text = "" if node.tag == "tag:yaml.org,2002:null" else node.value
            return Located(text, path, line, column)
        self.above.append(node)
        if isinstance(node, yaml.SequenceNode):
            items = (self.entry(each, f"{path}[{at}]") for at, each in enumerate(node.value))
            found = Located(tuple(items), path, line, column)
        else:
            found = Located(dict(self._fields(node, path)), path, line, column)
        self.above.pop()
        return found

    def _fields(self, node: yaml.Node, path: str) -> Iterator[tuple[str, Located]]:
        seen = set[str]()
        for key, value in node.value:
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
            if not isinstance(key, yaml.ScalarNode):
                words = "a value that begins with {{ must be in quotes"
                line, column = node.start_mark.line + 1, node.start_mark.column + 1
                raise WorkflowError(f"{path}: {words}", line, column)
            name = key.value
            if name in seen or name == "<<":
                what = "is given twice" if name in seen else "merging is not supported"
                raise WorkflowError(f"{path}: {name!r} {what}", line, column)
            seen.add(name)
            below = self.entry(value, f"{path}.{name}" if path else name)
            # A field is named at its key: its value may begin lines later.
            yield name, Located(below.value, below.path, line, column)
