"""scheduler-context: named sets of defaults for the other commands, in the user's own file."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cli import command
from cli.command import CommandError, Parser, UsageError, note, say
from cli.contexts import editing, keys
from cli.contexts.context_file import (
    CONTEXTS,
    CURRENT,
    Context,
    ContextFile,
    Value,
    guess,
    load,
    read_own,
    shown,
)
from cli.contexts.keys import BOOL, LIST, MAPPING, NAME, ContextKey, check
from cli.terminal import screen
from scheduler.presentation.render import Cell, Column, table

ABOUT = """\
A context is a named set of defaults for the other commands: which scheduler
they talk to, and flags of run-scheduler. Contexts are in your own file,
~/.config/epoch-scheduler/config.yaml. Without ACTION, they are listed.

actions:
  list                       the contexts; the active one is the default
  add NAME [--KEY VALUE..]   a new context; the first one becomes active
  show [NAME]                what a context sets
  set [NAME] KEY VALUE       set a key of NAME, else of the active context
  unset [NAME] KEY           remove a key
  set-active NAME            use it by default
  copy NAME NEW              a new context with the same keys
  rename NAME NEW
  edit [NAME]                open it in $VISUAL or $EDITOR
  delete NAME
  import FILE [NAME]         contexts of mrunner's config.yaml, a kubeconfig,
                             SkyPilot's ~/.slurm/config, or ACT's aml.yaml"""

EXAMPLES = """\
  scheduler-context add lab --server gpu1:7443 --ca ~/lab.pem
  scheduler-context set lab estimated_memory 6G
  scheduler-context set-active lab
  run-scheduler --context lab demo -- python train.py"""


def parser() -> Parser:
    this = Parser("scheduler-context", "[ACTION] [NAME] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what to do")
    group.add_argument("action", metavar="ACTION", nargs="?", default="list", help="see above")
    group.add_argument("words", metavar="WORD", nargs="*", help="what the action is about")
    group.add_argument("--name", metavar="NAME", help="the same as the word after `add`")
    group.add_argument("--yes", action="store_true", help="delete without asking")
    group = this.add_argument_group("keys of a new context; all flags of run-scheduler, and")
    for key in keys.of_contexts().values():
        flags = key.action.option_strings if key.action else ()
        group.add_argument(
            *dict.fromkeys((f"--{key.name}", *flags)),
            metavar=_metavar(key),
            dest=f"{KEY}{key.name}",
            action="append",
            nargs="?" if key.kind == BOOL else None,
            const="true" if key.kind == BOOL else None,
            help=key.help if key.action is None else argparse.SUPPRESS,
        )
    this.add_common(connects=False)
    return this


KEY = "key_"


def _metavar(key: ContextKey) -> str:
    return "KEY=VALUE" if key.kind == MAPPING else "VALUE"


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), act, argv)


def act(options: argparse.Namespace) -> int:
    name = options.action.replace("_", "-")
    if name not in ACTIONS:
        raise UsageError(f"unknown action {options.action!r}{guess(name, list(ACTIONS))}")
    action, least, most, usage = ACTIONS[name]
    if name != "add" and (given := _given(options)):
        raise UsageError(f"--{next(iter(given)).name} is for `add`; use `set` to change a context")
    words = ([options.name] if options.name else []) + options.words
    if not least <= len(words) <= most:
        raise UsageError(f"usage: scheduler-context {name}{usage}")
    return action(words, options)


# --- looking ------------------------------------------------------------------------------------


def _list(words: Sequence[str], options: argparse.Namespace) -> int:
    file = load()
    if options.output != "table":
        records = [_record(each, file) for each in file.contexts.values()]
        say(command.document({"contexts": records}, options.output))
        return 0
    if not file.contexts:
        note("no contexts; `scheduler-context add NAME --server HOST:PORT` makes one")
        return 0
    rows = [
        [
            Cell(f"{name} (active)" if name == file.current else name),
            Cell(each.type),
            Cell(each.text("server") or "-"),
        ]
        for name, each in file.contexts.items()
    ]
    for line in table([Column("NAME"), Column("TYPE"), Column("SERVER")], rows, screen(sys.stdout)):
        say(line)
    return 0


def _show(words: Sequence[str], options: argparse.Namespace) -> int:
    file = load()
    context = file.named(words[0] if words else _active(file))
    if options.output != "table":
        say(command.document(_record(context, file), options.output))
        return 0
    text = read_own(file.path) or ""
    for line in editing.extract(text, (CONTEXTS, context.name)).splitlines():
        say(line)
    return 0


def _record(context: Context, file: ContextFile) -> dict[str, Any]:
    set_ = {name: found.value for name, found in context.keys.items()}
    active = context.name == file.current
    return {"name": context.name, "active": active, "type": context.type, "keys": set_}


def _active(file: ContextFile) -> str:
    if not file.current:
        raise UsageError("no context is active: name one")
    return file.current


# --- changing -----------------------------------------------------------------------------------


def _add(words: Sequence[str], options: argparse.Namespace) -> int:
    (name,) = words
    content = {key.name: _content(key, values) for key, values in _given(options).items()}

    def add(text: str, file: ContextFile) -> str:
        _check_new(name, file)
        if not file.contexts:
            text = editing.put(text, (CURRENT,), name)
        return editing.put(text, (CONTEXTS, name), content)

    _note_done(editing.change(add), f"added {name}")
    return 0


def _given(options: argparse.Namespace) -> dict[ContextKey, list[str]]:
    return {
        key: values
        for key in keys.of_contexts().values()
        if (values := getattr(options, f"{KEY}{key.name}")) is not None
    }


def _content(key: ContextKey, values: Sequence[str]) -> Value:
    """What the file gets, checked. Raises UsageError."""
    content: Value = list(values)
    if key.kind == MAPPING:
        content = {}
        for text in values:
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise UsageError(f"{key.name}: {text!r} must be KEY=VALUE")
            content[name] = value
    elif key.kind != LIST:
        if len(values) > 1:
            raise UsageError(f"{key.name} is one value, not {len(values)}")
        content = values[0]
    try:
        check(key, content)
    except ValueError as error:
        raise UsageError(f"{key.name}: {error}") from None
    return content


def _set(words: Sequence[str], options: argparse.Namespace) -> int:
    if words[0] == CURRENT:
        return _set_active(words[1:], options)

    def put(text: str, file: ContextFile) -> str:
        name, (where, *values) = _context_first(words, file, least=2)
        key, _, below = where.partition(".")
        known = _known(key)
        if below and known.kind == MAPPING:
            _content(known, [f"{below}={values[0]}"])
            return editing.put(text, (CONTEXTS, name, key, below), values[0])
        return editing.put(text, (CONTEXTS, name, key), _content(known, values))

    editing.change(put)
    return 0


def _unset(words: Sequence[str], options: argparse.Namespace) -> int:
    def remove(text: str, file: ContextFile) -> str:
        if words[0] == CURRENT:
            return editing.remove(text, (CURRENT,)) if file.current else text
        name, (where,) = _context_first(words, file, least=1)
        key, _, below = where.partition(".")
        found = file.contexts[name].keys.get(key)
        if found is None or (below and below not in found.value):
            _known(key)
            raise UsageError(f"context {name!r} does not set {where}")
        return editing.remove(
            text, (CONTEXTS, name, key, below) if below else (CONTEXTS, name, key)
        )

    editing.change(remove)
    return 0


def _context_first(
    words: Sequence[str], file: ContextFile, least: int
) -> tuple[str, Sequence[str]]:
    """The context that the words begin with, else the active one; and the other words."""
    if len(words) > least and (words[0] in file.contexts or not _is_key(words[0])):
        return file.named(words[0]).name, words[1:]
    return _active(file), words


def _is_key(word: str) -> bool:
    return word.partition(".")[0] in keys.of_contexts()


def _known(key: str) -> ContextKey:
    known = keys.of_contexts()
    if key not in known:
        raise UsageError(f"unknown key {key!r}{guess(key, list(known))}")
    return known[key]


def _set_active(words: Sequence[str], options: argparse.Namespace) -> int:
    def activate(text: str, file: ContextFile) -> str:
        return editing.put(text, (CURRENT,), file.named(words[0]).name)

    # What names a context that is no longer there must be repaired by this.
    editing.change(activate, is_repair=True)
    return 0


def _copy(words: Sequence[str], options: argparse.Namespace) -> int:
    old, new = words

    def copy(text: str, file: ContextFile) -> str:
        file.named(old)
        _check_new(new, file)
        block = editing.rename(editing.extract(text, (CONTEXTS, old)), (old,), new)
        text = editing.put(text, (CONTEXTS, new), "")
        return editing.insert(text, (CONTEXTS, new), block)

    editing.change(copy)
    return 0


def _rename(words: Sequence[str], options: argparse.Namespace) -> int:
    old, new = words

    def rename(text: str, file: ContextFile) -> str:
        file.named(old)
        _check_new(new, file)
        return _followed(editing.rename(text, (CONTEXTS, old), new), file, old, new)

    editing.change(rename)
    return 0


def _delete(words: Sequence[str], options: argparse.Namespace) -> int:
    (name,) = words
    before = load()
    before.named(name)
    if not options.yes and sys.stdin.isatty():
        sys.stderr.write(f"delete context {name}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was deleted", 1)

    def delete(text: str, file: ContextFile) -> str:
        file.named(name)
        text = editing.remove(text, (CONTEXTS, name))
        return editing.remove(text, (CURRENT,)) if file.current == name else text

    editing.change(delete)
    if before.current == name:
        note("note: no context is active now; `scheduler-context set-active NAME` chooses one")
    return 0


def _edit(words: Sequence[str], options: argparse.Namespace) -> int:
    file = load()
    name = file.named(words[0] if words else _active(file)).name
    before = editing.extract(read_own(file.path) or "", (CONTEXTS, name))
    descriptor, draft = tempfile.mkstemp(prefix=f"{name}-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(before)
    _run_editor(draft)
    after = Path(draft).read_text(encoding="utf-8")
    if after != before:
        try:
            editing.change(lambda text, now: _edited(text, now, name, before, after))
        except UsageError as error:
            raise UsageError(f"{error}; your text is kept in {draft}") from None
    else:
        note("nothing was changed")
    Path(draft).unlink()
    return 0


def _run_editor(file: str) -> None:
    import shlex
    import subprocess

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), file])
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot run {editor!r}: {told}; set EDITOR") from None
    if ended.returncode:
        raise CommandError(f"{editor} exited with code {ended.returncode}: nothing was changed", 1)


def _edited(text: str, file: ContextFile, name: str, before: str, after: str) -> str:
    if name not in file.contexts or editing.extract(text, (CONTEXTS, name)) != before:
        raise UsageError(f"context {name!r} was changed meanwhile, by another command")
    new = editing.only_key(after)
    if new != name:
        _check_new(new, file)
    return _followed(editing.insert(text, (CONTEXTS, name), after), file, name, new)


def _followed(text: str, file: ContextFile, old: str, new: str) -> str:
    return editing.put(text, (CURRENT,), new) if file.current == old != new else text


def _check_new(name: str, file: ContextFile) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a context's name: letters, digits, and . _ -")
    if name in file.contexts:
        raise UsageError(f"context {name!r} exists already, in {shown(file.path)}")


def _import(words: Sequence[str], options: argparse.Namespace) -> int:
    from cli.contexts import importing

    found = importing.read(words[0], set(keys.of_contexts()))
    wanted = dict(found.contexts)
    if len(words) > 1:
        if len(wanted) != 1:
            raise UsageError(f"{words[0]} has {len(wanted)} contexts: they keep their names")
        wanted = {words[1]: next(iter(wanted.values()))}

    def add(text: str, file: ContextFile) -> str:
        for name in wanted:
            _check_new(name, file)
        if not file.contexts and found.current in wanted:
            text = editing.put(text, (CURRENT,), found.current)
        for name, content in wanted.items():
            text = editing.put(text, (CONTEXTS, name), content)
        return text

    file = editing.change(add)
    for remark in found.remarks:
        note(f"note: {remark}")
    _note_done(file, f"added {', '.join(wanted) or 'nothing'}")
    return 0


def _note_done(file: ContextFile, done: str) -> None:
    note(f"{done} to {shown(file.path)}; {file.current or 'no context'} is active")


ACTIONS: dict[str, tuple[Callable[[Sequence[str], argparse.Namespace], int], int, int, str]] = {
    "list": (_list, 0, 0, ""),
    "add": (_add, 1, 1, " NAME [--KEY VALUE..]"),
    "show": (_show, 0, 1, " [NAME]"),
    "set": (_set, 2, 1000, " [NAME] KEY VALUE.."),
    "unset": (_unset, 1, 2, " [NAME] KEY"),
    "set-active": (_set_active, 1, 1, " NAME"),
    "copy": (_copy, 2, 2, " NAME NEW"),
    "rename": (_rename, 2, 2, " NAME NEW"),
    "edit": (_edit, 0, 1, " [NAME]"),
    "delete": (_delete, 1, 1, " NAME"),
    "import": (_import, 1, 2, " FILE [NAME]"),
}
