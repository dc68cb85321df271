"""Changes the user's file of contexts: all other lines stay as they are, and no change is lost.

A YAML library that writes documents would format all of it anew and move comments. Here a change
replaces, inserts or removes lines, at the marks that the parser gives. Each change reads the file
while no other command can write it, must have had the wanted effect, and replaces the file in one
step.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # without types

from cli.command import UsageError
from cli.contexts import context_file
from cli.contexts.context_file import ContextFile, Value, parsed, read_own

HEADER = "# The contexts of scheduler-context: see docs/contexts.md.\n"
INDENT = 2
Content = Value | dict[str, Value]  # a key's value, or a whole context
Place = Sequence[str]  # keys, from the outermost


def change(act: Callable[[str, ContextFile], str], is_repair: bool = False) -> ContextFile:
    """`act` gets the text and what it means, and returns another text. Raises UsageError, and has
    then changed nothing. `is_repair`: the active context need not exist before."""
    path = Path(context_file.path())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path.resolve()  # a link, such as into a repository of dotfiles, stays one
    with _locked(path.parent):
        old = read_own(str(path))
        text = HEADER if old is None else old
        new = act(text, parsed(text, str(path), is_repair))
        after = parsed(new, str(path))
        if new != old:
            _replace(path, new)
    return after


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # others hold it for milliseconds
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- a text, changed in one place ---------------------------------------------------------------


def put(text: str, place: Place, content: Content) -> str:
    """Sets the value at this place, which need not exist."""
    root = _compose(text)
    if root is None:
        return _joined(text, [*_rendered(_nested(place, content), 0)])
    lines, parent, depth, at = text.splitlines(keepends=True), root, 0, None
    for name in place:
        at = _pair(parent, name)
        if at is None or parent.flow_style:
            break
        depth, parent = depth + 1, at[1]
    if depth == len(place) and at:  # it is there
        first, end = at[0].start_mark.line, _end(*at)
        column = at[0].start_mark.column
        new = _rendered({place[-1]: content}, column)
        if end == first + 1 and len(new) == 1 and (rest := _comment(lines[first])):
            new = [f"{new[0].rstrip()}  {rest}"]
        return "".join([*lines[:first], *new, *lines[end:]])
    if isinstance(parent, yaml.MappingNode) and parent.value and not parent.flow_style:
        column, end = parent.value[0][0].start_mark.column, _end(*parent.value[-1])
        new = _rendered(_nested(place[depth:], content), column)
        return _joined("".join(lines[:end]), [*new, *lines[end:]])
    if depth == 0:
        raise UsageError("the file is one flow mapping, {..}: edit it in an editor")
    # Nothing below it, or all of it in a line of its own style: it is written anew.
    below = _merged(_plain(parent), place[depth:], content)
    return put(text, place[:depth], below)


def remove(text: str, place: Place) -> str:
    """Removes what is at this place; it must exist."""
    parent = _compose(text)
    for name in place[:-1]:
        pair = _pair(parent, name)
        assert pair
        parent = pair[1]
    if parent.flow_style:
        below = _plain(parent)
        del below[place[-1]]
        return put(text, place[:-1], below)
    lines, pair = text.splitlines(keepends=True), _pair(parent, place[-1])
    assert pair
    return "".join([*lines[: pair[0].start_mark.line], *lines[_end(*pair) :]])


def rename(text: str, place: Place, name: str) -> str:
    """Gives the key at this place, which must exist, another name."""
    parent = _compose(text)
    pair = None
    for each in place:
        pair = _pair(parent, each)
        assert pair
        parent = pair[1]
    assert pair
    start, end = pair[0].start_mark, pair[0].end_mark
    lines = text.splitlines(keepends=True)
    line = lines[start.line]
    lines[start.line] = f"{line[: start.column]}{_scalar(name)}{line[end.column :]}"
    return "".join(lines)


def extract(text: str, place: Place) -> str:
    """The lines of the key at this place, with all comments, as a document of their own."""
    parent, pair = _compose(text), None
    for each in place:
        pair = _pair(parent, each)
        assert pair
        parent = pair[1]
    assert pair
    key, lines = pair[0], text.splitlines(keepends=True)
    if parent.flow_style or not lines[key.start_mark.line][: key.start_mark.column].isspace():
        return "".join(_rendered({place[-1]: _plain(parent)}, 0))
    return "".join(
        line[key.start_mark.column :] if line.strip() else line
        for line in lines[key.start_mark.line : _end(*pair)]
    )


def insert(text: str, place: Place, block: str) -> str:
    """Replaces the key at this place, which must exist, by the lines of a document."""
    parent, pair = _compose(text), None
    for each in place:
        pair = _pair(parent, each)
        assert pair
        parent = pair[1]
    assert pair
    lines, column = text.splitlines(keepends=True), pair[0].start_mark.column
    new = [
        " " * column + line if line.strip() else line for line in block.splitlines(keepends=True)
    ]
    if new and not new[-1].endswith("\n"):
        new[-1] += "\n"
    return "".join([*lines[: pair[0].start_mark.line], *new, *lines[_end(*pair) :]])


def only_key(block: str) -> str:
    """Of a document that consists of one. Raises UsageError."""
    try:
        root = _compose(block)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(root, yaml.MappingNode) or len(root.value) != 1 or root.flow_style:
        raise UsageError("the text must be one context, NAME: and its keys below")
    return str(root.value[0][0].value)


# --- nodes and lines ----------------------------------------------------------------------------


def _compose(text: str) -> Any:
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _pair(node: Any, name: str) -> tuple[Any, Any] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in node.value if pair[0].value == name), None)


def _end(key: Any, node: Any) -> int:
    """The line after the last one of this key and its value."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(*last) if isinstance(last, tuple) else _end(last, last)
    mark = node.end_mark
    inside = mark.column > 0 or mark.line == key.start_mark.line
    return int(mark.line) + (1 if inside else 0)


def _comment(line: str) -> str:
    """The comment at the end of a line, if it is surely one."""
    found = re.search(r"\s(#[^'\"]*)$", line, re.S)
    return found[1] if found else ""


def _plain(node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each) for each in node.value]
    return {} if node.tag == "tag:yaml.org,2002:null" else node.value


def _nested(place: Place, content: Any) -> dict[str, Any]:
    for name in reversed(place):
        content = {name: content}
    return dict(content)


def _merged(below: Any, place: Place, content: Any) -> dict[str, Any]:
    merged = dict(below) if isinstance(below, dict) else {}
    rest = content if len(place) == 1 else _merged(merged.get(place[0]), place[1:], content)
    return {**merged, place[0]: rest}


def _joined(text: str, new: Sequence[str]) -> str:
    return "".join([text, "" if not text or text.endswith("\n") else "\n", *new])


def _rendered(content: dict[str, Any], column: int) -> list[str]:
    lines, blanks = [], " " * column
    for name, value in content.items():
        key = f"{blanks}{_scalar(name)}:"
        if isinstance(value, dict) and value:
            lines += [f"{key}\n", *_rendered(value, column + INDENT)]
        elif isinstance(value, list) and value:
            lines += [f"{key}\n", *(f"{blanks}  - {_scalar(each)}\n" for each in value)]
        elif isinstance(value, str):
            lines.append(f"{key} {_scalar(value)}\n")
        else:
            lines.append(f"{key} {'[]' if isinstance(value, list) else '{}'}\n")
    return lines


def _scalar(text: str) -> str:
    """Without quotes, if it then is the same text: as a key, as its value, and in a list."""
    try:
        key, value = _compose(f"{text}: {text}").value[0]
        (entry,) = _compose(f"- {text}").value
    except (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError):
        return json.dumps(text, ensure_ascii=False)
    as_they_are = all(
        (node.value, getattr(node, "style", "")) == (text, None)
        and node.tag not in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
        for node in (key, value, entry)
    )
    return text if as_they_are else json.dumps(text, ensure_ascii=False)
