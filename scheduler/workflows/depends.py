"""What a task's `dependencies` or `depends` means for its job: how other tasks must have ended.

A job starts when all of its conditions hold, each on one other job. An expression is split at its
outer `&&`; each part is tried with all the ways in which the tasks in it may end. The ways in which
it is true must be the same as conditions on each task by itself; else this is an error, because no
condition on jobs says the same. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

SUCCEEDED, FAILED, SKIPPED, OMITTED = "Succeeded", "Failed", "Skipped", "Omitted"
TASKS_MAX = 7  # in one part

Ways = Mapping[str, frozenset[str]]  # how each task must have ended

_TOKEN = re.compile(r"\s*(&&|\|\||!|\(|\)|[A-Za-z0-9_-]+(?:\.[A-Za-z]+)?)")
_ENDS = {
    "Succeeded": {SUCCEEDED},
    "Failed": {FAILED},
    "Errored": {FAILED},  # here, what Argo calls an error is a failure too
    "Skipped": {SKIPPED},
    "Daemoned": set[str](),
}


class DependsError(ValueError):
    """One line."""


@dataclass(frozen=True, slots=True)
class TaskEnds:
    """What is known of a task when another depends on it."""

    ends: tuple[str, ...]  # the ways in which it may end
    continues: bool = False  # its failure does not hold up those behind it


def ways(expression: str, tasks: Mapping[str, TaskEnds]) -> Ways:
    parts = _parts(_parsed(expression, tasks))
    found: dict[str, frozenset[str]] = {}
    for part in parts:
        for task, ends in _independent(part, tasks, expression).items():
            found[task] = found.get(task, ends) & ends
    return found


# --- reading ------------------------------------------------------------------------------------

Tree = tuple["str | Tree", ...]  # ("and", a, b), ("or", a, b), ("not", a), ("end", task, word)


def _parsed(text: str, tasks: Mapping[str, TaskEnds]) -> Tree:
    tokens, at = list[str](), 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise DependsError(f"cannot be read at {text[at : at + 20].strip()!r}")
        tokens.append(match[1])
        at = match.end()
    tree, rest = _any_of(tokens, tasks, 0)
    if rest:
        raise DependsError(f"{rest[0]!r} is not expected there")
    return tree


def _any_of(tokens: list[str], tasks: Mapping[str, TaskEnds], depth: int) -> tuple[Tree, list[str]]:
    left, rest = _all_of(tokens, tasks, depth)
    while rest[:1] == ["||"]:
        right, rest = _all_of(rest[1:], tasks, depth)
        left = ("or", left, right)
    return left, rest


def _all_of(tokens: list[str], tasks: Mapping[str, TaskEnds], depth: int) -> tuple[Tree, list[str]]:
    left, rest = _one(tokens, tasks, depth)
    while rest[:1] == ["&&"]:
        right, rest = _one(rest[1:], tasks, depth)
        left = ("and", left, right)
    return left, rest


def _one(tokens: list[str], tasks: Mapping[str, TaskEnds], depth: int) -> tuple[Tree, list[str]]:
    if not tokens or depth > 50:
        raise DependsError("something is missing at its end" if not tokens else "nested too deeply")
    first, *rest = tokens
    if first == "!":
        inner, rest = _one(rest, tasks, depth + 1)
        return ("not", inner), rest
    if first == "(":
        inner, rest = _any_of(rest, tasks, depth + 1)
        if rest[:1] != [")"]:
            raise DependsError("')' is missing")
        return inner, rest[1:]
    task, _, word = first.partition(".")
    if task not in tasks:
        raise DependsError(f"there is no task {task!r}")
    if word and word not in _ENDS:
        raise DependsError(f"{first!r} is not supported; after the point: {', '.join(_ENDS)}")
    return ("end", task, word), rest


# --- meaning ------------------------------------------------------------------------------------


def _parts(tree: Tree) -> list[Tree]:
    match tree:
        case ("and", tuple(left), tuple(right)):
            return [*_parts(left), *_parts(right)]
    return [tree]


def _named(tree: Tree) -> dict[str, None]:
    match tree:
        case ("end", str(task), _):
            return {task: None}
    return {name: None for part in tree[1:] if isinstance(part, tuple) for name in _named(part)}


def _is_true(tree: Tree, ended: Mapping[str, str], tasks: Mapping[str, TaskEnds]) -> bool:
    match tree:
        case ("and", tuple(left), tuple(right)):
            return _is_true(left, ended, tasks) and _is_true(right, ended, tasks)
        case ("or", tuple(left), tuple(right)):
            return _is_true(left, ended, tasks) or _is_true(right, ended, tasks)
        case ("not", tuple(inner)):
            return not _is_true(inner, ended, tasks)
        case ("end", str(task), str(word)):
            good = {SUCCEEDED, SKIPPED, *([FAILED] if tasks[task].continues else [])}
            return ended[task] in (_ENDS[word] if word else good)
    raise AssertionError(tree)


def _independent(part: Tree, tasks: Mapping[str, TaskEnds], whole: str) -> Ways:
    """How each task must have ended, whatever the others did."""
    named = list(_named(part))
    if len(named) > TASKS_MAX:
        raise DependsError(f"names more than {TASKS_MAX} tasks without && between them")
    choices = [tasks[task].ends for task in named]
    true = [
        ends
        for ends in product(*choices)
        if _is_true(part, dict(zip(named, ends, strict=True)), tasks)
    ]
    each = {task: frozenset(ends[at] for ends in true) for at, task in enumerate(named)}
    if len(true) != prod(len(ends) for ends in each.values()):
        raise DependsError(f"{whole!r}: an `or` over several tasks is not supported")
    return each
