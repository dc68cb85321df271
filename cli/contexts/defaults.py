"""What a context and a project file set becomes defaults of a command's flags.

A flag beats the environment, which beats the context, which beats the project file. What belongs to
a server (its authority, the token for it) is taken from where the server is taken from.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Sequence

from cli.command import DEFAULT_SERVER, CommandError, Parser, UsageError, note, parse_bool
from cli.contexts.context_file import (
    Context,
    ContextValue,
    Layer,
    Value,
    load,
    path,
    project,
    read_own,
    shown,
)
from cli.contexts.keys import RIVALS, flag_value, of_contexts, resources

PROJECT_FILE = "scheduler.yaml"
NO_FILE = "none"
_ASKS_NOTHING = ("-h", "--help", "--version", "--completion")


def apply(parser: Parser, words: Sequence[str]) -> None:
    """Sets the defaults of the parser, which is about to parse the words. Raises UsageError."""
    flags = [word.partition("=")[0] for word in words]
    if any(flag in _ASKS_NOTHING for flag in flags):
        return  # help must be there if a file is broken
    given = {
        parser._option_string_actions[flag].dest
        for flag in flags
        if flag in parser._option_string_actions
    }
    context = _chosen(words)
    defaults = _connection(context, given, by_flag="context" in given)
    if parser.describes_job and "spec" not in given:
        defaults.update(_job(context, words, given))
    parser.set_defaults(**defaults)


def _chosen(words: Sequence[str]) -> Context | None:
    name = _value_of("--context", words)
    if name is None:
        name = os.environ.get("SCHEDULER_CONTEXT", "")
    if not name and not os.path.exists(path()):
        return None
    file = load()
    _note_daily([f"note: {remark}" for remark in file.remarks])
    return file.named(name) if name else file.contexts.get(file.current)


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """Of the last one, as argparse takes it; None: it is not given."""
    found = None
    for at, word in enumerate(words):
        if word.startswith(f"{flag}="):
            found = word.partition("=")[2]
        elif word == flag and at + 1 < len(words):
            found = words[at + 1]
    return found


def _note_daily(told: list[str]) -> None:
    if told:
        from cli.notes import unsaid

        for each in unsaid(told):
            note(each)


# --- the connection -----------------------------------------------------------------------------


def _connection(context: Context | None, given: set[str], by_flag: bool) -> dict[str, object]:
    """`by_flag`: the context was named on the command line, so it beats the environment."""
    if context is None:
        return {}
    environment = os.environ.get("SCHEDULER_SERVER", "")
    if "server" in given or (environment and not by_flag):
        # Neither this context's authority nor its token, nor another kind of it, is for that one.
        return {"in_context": context} if context.type == "server" else {}
    defaults: dict[str, object] = {"in_context": context}
    if context.text("server"):
        defaults["server"] = context.text("server")
    elif by_flag:
        defaults["server"] = DEFAULT_SERVER
    ca = context.text("ca")
    if (environment and by_flag) or (ca and (by_flag or not os.environ.get("SCHEDULER_CA"))):
        defaults["ca"] = os.path.expanduser(ca)
    if context.text("token_file"):
        defaults["token"] = _token(context)
    return defaults


def _token(context: Context) -> str:
    file = os.path.expanduser(context.text("token_file"))
    where = context.where("token_file")
    try:
        if os.stat(file).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"{where}: others can read {file}: run `chmod 600 {file}`")
        token = (read_own(file) or "").strip()
    except OSError as error:
        raise UsageError(f"{where}: {file}: {error.strerror}") from None
    if not token or len(token.split()) > 1 or not (token.isascii() and token.isprintable()):
        raise UsageError(f"{where}: {file} does not contain a token, and nothing else")
    return token


# --- the job ------------------------------------------------------------------------------------


def _job(context: Context | None, words: Sequence[str], given: set[str]) -> dict[str, object]:
    layer = _over(_project_layer(words), _with_resources(context) if context else {})
    layer = _over(layer, dict.fromkeys(given, NOTHING))
    known = of_contexts()
    return {
        name: _converted(action, found.value)
        for name, found in layer.items()
        if found is not NOTHING and (action := known[name].action)
    }


NOTHING = ContextValue("", 0)  # in place of a flag that was given


def _over(weak: Layer, strong: Layer) -> Layer:
    """Both, where the strong one counts; mappings are united, also with what flags add."""
    rivals = {
        name for each, other in (RIVALS, RIVALS[::-1]) if each & strong.keys() for name in other
    }
    merged = {name: found for name, found in weak.items() if name not in rivals}
    for name, found in strong.items():
        below = merged.get(name)
        if below and isinstance(below.value, dict):
            if found is NOTHING:
                continue
            if isinstance(found.value, dict):
                found = ContextValue({**below.value, **found.value}, found.line)
        merged[name] = found
    return merged


def _converted(action: argparse.Action, value: Value) -> object:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return [flag_value(action, text) for text in value]
    return parse_bool(value) if action.nargs == 0 else flag_value(action, value)


def _with_resources(context: Context) -> Layer:
    """The keys of the context; its resources and tags as those that mean the same."""
    layer = dict(context.keys)
    slurm = context.type == "slurm"  # which reads them itself: its times are those of a run
    wanted = {} if slurm else resources(context.text("resources"))
    line = layer["resources"].line if wanted else 0
    meant: Layer = {}
    if "gpu" in wanted:
        if ":" in wanted["gpu"]:
            where = context.where("resources")
            raise CommandError(f"{where}: this scheduler chooses the type of GPUs: gpu=NUMBER", 4)
        meant["num_gpus"] = ContextValue(wanted.pop("gpu"), line)
    if "time" in wanted:
        meant["time_limit"] = ContextValue(wanted.pop("time"), line)
    if "tags" in layer and isinstance(tags := layer["tags"].value, list):
        meant["label"] = ContextValue(dict.fromkeys(tags, "true"), layer["tags"].line)
    if context.type == "server" and wanted:
        _refuse_or_note(context, wanted)
    return _over(meant, layer)


def _refuse_or_note(context: Context, wanted: dict[str, str]) -> None:
    where = context.where("resources")
    for name in wanted:
        if name not in ("cpu", "mem"):
            raise CommandError(f"{where}: this scheduler has no resource {name!r}", 4)
    names = " and ".join(wanted)
    _note_daily([f"note: {where}: this scheduler gives no job {names} of its own: not used"])


# --- the project's file -------------------------------------------------------------------------


def _project_layer(words: Sequence[str]) -> Layer:
    named = _value_of("--project_file", words)
    if named == NO_FILE:
        return {}
    file = named or _found_here()
    if file is None:
        return {}
    text = read_own(file)
    if text is None:
        raise UsageError(f"--project_file {file}: No such file or directory")
    layer = project(text, file)
    if layer and not named:
        _note_daily([f"note: {shown(file)} sets {', '.join(layer)}; --project_file none: nothing"])
    return layer


def _found_here() -> str | None:
    """The project file of this folder, or the nearest above it in the same git work tree."""
    folder, found = os.getcwd(), None
    while True:
        file = os.path.join(folder, PROJECT_FILE)
        if found is None and os.path.isfile(file):
            found = file
        if os.path.exists(os.path.join(folder, ".git")):
            return found
        above = os.path.dirname(folder)
        if above == folder:  # no work tree: only this folder counts
            return found if found and os.path.dirname(found) == os.getcwd() else None
        folder = above
