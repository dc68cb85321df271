"""Reads the user's contexts, and a project's file: strictly, and without changing them.

The text is parsed into nodes only, so that each error names a line, and `no`, `1:30` and `007` are
what the user wrote: each key's own flag decides what a text means.
"""

from __future__ import annotations

import os
import stat
from typing import Any, NamedTuple

from cli.command import UsageError
from cli.contexts.keys import IGNORED, LIST, MAPPING, NAME, TYPE_NAMES, ContextKey, check

FOLDER, FILE = "epoch-scheduler", "config.yaml"
BYTES_MAX = 1024 * 1024
DEPTH_MAX = 20
CURRENT, CONTEXTS = "current_context", "contexts"

Value = str | list[str] | dict[str, str]


class ContextValue(NamedTuple):
    value: Value
    line: int


Layer = dict[str, ContextValue]  # by key


class Context(NamedTuple):
    name: str
    file: str
    keys: Layer

    @property
    def type(self) -> str:
        name = self.text("type") or "server"
        return TYPE_NAMES.get(name, name)

    def text(self, key: str) -> str:
        """ "": it has no such key."""
        found = self.keys.get(key)
        return found.value if found and isinstance(found.value, str) else ""

    def where(self, key: str) -> str:
        return f"{shown(self.file)}, line {self.keys[key].line}: {key}"


class ContextFile(NamedTuple):
    path: str
    current: str  # "": none is active
    contexts: dict[str, Context]
    remarks: list[str]  # what it contains to no effect

    def named(self, name: str) -> Context:
        """Raises UsageError."""
        if name in self.contexts:
            return self.contexts[name]
        where = f"{shown(self.path)} has {', '.join(self.contexts) or 'none'}"
        raise UsageError(f"no context {name!r}{guess(name, list(self.contexts))}; {where}")


def path() -> str:
    """Of the user's file; it need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # as the XDG's specification wants it
        base = os.path.expanduser("~/.config")
    return os.path.join(base, FOLDER, FILE)


def shown(file: str) -> str:
    home = os.path.expanduser("~")
    return f"~{file[len(home) :]}" if home != "/" and file.startswith(f"{home}/") else file


def guess(word: str, known: list[str]) -> str:
    """` (did you mean X?)`, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def load(file: str | None = None) -> ContextFile:
    """The user's contexts; none, if there is no file. Raises UsageError."""
    file = file or path()
    text = read_own(file)
    return parsed(text, file) if text is not None else ContextFile(file, "", {}, [])


def read_own(file: str) -> str | None:
    """A file that says where a user's tokens and jobs go must be written by nobody else. None: it
    does not exist. Raises UsageError."""
    try:
        with open(file, "rb") as opened:
            status = os.fstat(opened.fileno())
            content = opened.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{shown(file)}: {error.strerror}") from None
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{shown(file)} belongs to another user: it is not used")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{shown(file)} can be written by others: run `chmod go-w {file}`")
    if len(content) > BYTES_MAX:
        raise UsageError(f"{shown(file)}: larger than {BYTES_MAX >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown(file)}: it is not UTF-8") from None


# --- the document -------------------------------------------------------------------------------


def parsed(text: str, file: str, is_repair: bool = False) -> ContextFile:
    """Raises UsageError, which names the file, the line and the culprit. `is_repair`: also if the
    active context does not exist, which is to be mended."""
    from cli.contexts import keys

    reader = _Reader(file)
    current, contexts = "", {}
    for name, node, line in reader.pairs(reader.root(text), "the file"):
        if name == CURRENT:
            current = reader.text(node, name)
        elif name == CONTEXTS:
            for each, below, at in reader.pairs(node, name):
                if not NAME.fullmatch(each):
                    reader.fail(
                        at, f"{each!r} cannot be a context's name: letters, digits, and . _ -"
                    )
                layer = reader.layer(below, keys.of_contexts(), f"context {each!r}")
                contexts[each] = Context(each, file, layer)
        else:
            reader.unknown(line, name, "", [CURRENT, CONTEXTS])
    if current and current not in contexts and not is_repair:
        raise UsageError(
            f"{shown(file)}: current_context {current!r} is not among its contexts"
            f"{guess(current, list(contexts))}; `scheduler-context set-active NAME` changes it"
        )
    return ContextFile(file, current, contexts, reader.remarks)


def project(text: str, file: str) -> Layer:
    """Raises UsageError."""
    from cli.contexts import keys

    reader = _Reader(file)
    return reader.layer(reader.root(text), keys.of_projects(), "a project file")


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = shown(file)
        self.remarks: list[str] = []

    def fail(self, line: int, told: str) -> None:
        raise UsageError(f"{self.file}, line {line}: {told}")

    def unknown(self, line: int, key: str, of: str, known: list[str]) -> None:
        self.fail(line, f"unknown key {key!r}{of}{guess(key, known)}")

    def root(self, text: str) -> Any:
        import yaml  # type: ignore[import-untyped]  # slow, and used only if there is a file

        loader, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
        try:
            for event in yaml.parse(text, Loader=loader):  # not recursive, as composing nodes is
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > DEPTH_MAX:
                    self.fail(event.start_mark.line + 1, "too many brackets in each other")
            return yaml.compose(text, Loader=loader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            told = getattr(error, "problem", None) or " ".join(str(error).split())
            raise UsageError(f"{self.file}, line {line}: not YAML: {told}") from None

    def pairs(self, node: Any, what: str) -> list[tuple[str, Any, int]]:
        if node is None or _is_null(node):
            return []
        if node.id != "mapping":
            self.fail(_line(node), f"{what} must be a mapping, KEY: VALUE")
        found: dict[str, tuple[str, Any, int]] = {}
        for key, value in node.value:
            name = key.value if key.id == "scalar" else ""
            if name in found:
                self.fail(_line(key), f"{name!r} is there twice; first in line {found[name][2]}")
            if not name:
                self.fail(_line(key), f"a key of {what} must be a word")
            found[name] = (name, value, _line(key))
        return list(found.values())

    def text(self, node: Any, what: str) -> str:
        if node.id != "scalar":
            self.fail(_line(node), f"{what} must be a text, not a {node.id}")
        return "" if _is_null(node) else str(node.value)

    def layer(self, node: Any, known: dict[str, ContextKey], of: str) -> Layer:
        layer = {}
        for name, value, line in self.pairs(node, of):
            if name in IGNORED:
                self.remarks.append(
                    f"{self.file}, line {line}: {name} is not used: {IGNORED[name]}"
                )
            elif name not in known:
                self._refuse(line, name, of, known)
            elif not _is_null(value):
                found = self._value(value, known[name])
                try:
                    check(known[name], found)
                except ValueError as error:
                    self.fail(line, f"{name}: {error}")
                layer[name] = ContextValue(found, line)
        return layer

    def _refuse(self, line: int, name: str, of: str, known: dict[str, ContextKey]) -> None:
        from cli.contexts import keys

        if name in keys.of_contexts():
            self.fail(line, f"a project file cannot set {name}: it belongs into your own context")
        self.unknown(line, name, f" of {of}", list(known))

    def _value(self, node: Any, key: ContextKey) -> Value:
        if key.kind == MAPPING:
            return {name: self.text(value, name) for name, value, _ in self.pairs(node, key.name)}
        if node.id != "sequence":
            text = self.text(node, key.name)
            return [text] if key.kind == LIST else text
        texts = [self.text(each, f"an entry of {key.name}") for each in node.value]
        return texts if key.kind == LIST else ",".join(texts)


def _is_null(node: Any) -> bool:
    return bool(node.id == "scalar" and node.tag == "tag:yaml.org,2002:null")


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
