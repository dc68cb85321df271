"""The tasks of a graph, and the steps of lists: their names, and what each depends on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from scheduler.workflows.document import Located
from scheduler.workflows.loops import LOOPS

TASK = ("name", "template", "arguments", "dependencies", "depends", "when", *LOOPS)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?", re.ASCII)


def name_of(task: Located) -> str:
    has = task.fields(*TASK, "continueOn")
    if "name" not in has or not has["name"].text():
        raise task.error("name is missing")
    name = has["name"].text()
    if not _NAME.fullmatch(name):
        raise has["name"].error(f"{name!r}: must have only letters, digits, '-' and '_'")
    return name


def in_order(tasks: Sequence[Located]) -> dict[str, str]:
    """The expression of each task, behind those of the tasks that it names."""
    found: dict[str, str] = {}
    graph: dict[str, list[str]] = {}
    by_name = {}
    for task in tasks:
        has, name = task.mapping(), name_of(task)
        if name in found:
            raise task.error(f"there are two tasks {name!r}")
        if "depends" in has and "dependencies" in has:
            raise task.error("has both depends and dependencies")
        found[name] = has["depends"].text() if "depends" in has else ""
        if "dependencies" in has:
            found[name] = " && ".join(each.text() for each in has["dependencies"].items())
        by_name[name] = task
    for name, expression in found.items():
        graph[name] = tasks_named_in(expression)
        for other in graph[name]:
            if other not in found:
                at = by_name[name].mapping()
                raise at.get("depends", at.get("dependencies", by_name[name])).error(
                    f"there is no task {other!r}"
                )
    try:
        return {name: found[name] for name in TopologicalSorter(graph).static_order()}
    except CycleError as error:
        names = list(reversed(error.args[1]))
        words = " -> ".join(names)
        raise by_name[names[0]].error(f"tasks wait for each other: {words}") from None


def tasks_named_in(expression: str) -> list[str]:
    """The tasks in what a task depends on."""
    words = re.sub(r"&&|\|\||[()!]", " ", expression).split()
    return [word.partition(".")[0] for word in words]


def in_groups(groups: Sequence[Sequence[Located]]) -> dict[str, str]:
    """Steps follow all of the group before; an empty group changes nothing."""
    found: dict[str, str] = {}
    before = ""
    for group in groups:
        for step in group:
            name = name_of(step)
            if name in found:
                raise step.error(f"there are two steps {name!r}")
            for field_name in ("depends", "dependencies"):
                if field_name in step.mapping():
                    raise step.mapping()[field_name].error("belongs to tasks of a dag")
            found[name] = before
        before = " && ".join(map(name_of, group)) or before
    return found


def may_fail(has: Mapping[str, Located]) -> bool:
    if "continueOn" not in has:
        return False
    known = has["continueOn"].fields("failed", "error")
    return any(each.flag() for each in known.values())
