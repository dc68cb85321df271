"""What becomes of the tasks of a flat dag, read from Argo's documentation and written without our
compiler: each task is looked at when all those that it names have ended.

A task ends Succeeded or Failed if it runs, Skipped if its `when` is false, and Omitted if what it
depends on does not hold. (As with `failFast: false`: tasks that do not depend on a failure go on.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def ends(
    tasks: list[dict[str, Any]], fails: Mapping[str, bool], gives: Mapping[str, str]
) -> dict[str, str]:
    """`gives`: the output parameter of each task that succeeds; that of all others is "no"."""
    ended: dict[str, str] = {}
    left = list(tasks)
    while left:
        task = next(each for each in left if set(_named(each)) <= ended.keys())
        left.remove(task)
        values = {name: gives[name] if end == "Succeeded" else "no" for name, end in ended.items()}
        by_name = {each["name"]: each for each in tasks}
        ended[task["name"]] = _end(task, ended, fails, values, by_name)
    return ended


def _named(task: dict[str, Any]) -> list[str]:
    words = re.findall(r"[\w.-]+", task.get("depends", ""))
    return [*task.get("dependencies", ()), *(word.split(".")[0] for word in words)]


def _end(
    task: dict[str, Any],
    ended: Mapping[str, str],
    fails: Mapping[str, bool],
    values: Mapping[str, str],
    tasks: Mapping[str, dict[str, Any]],
) -> str:
    expression = task.get("depends") or " && ".join(task.get("dependencies", ()))

    def value(match: re.Match[str]) -> str:
        name, _, word = match[0].partition(".")
        if word:
            return str(ended[name] == word)
        good = ended[name] in ("Succeeded", "Skipped")
        goes_on = tasks[name].get("continueOn", {}).get("failed") and ended[name] == "Failed"
        return str(bool(good or goes_on))

    text = re.sub(r"[\w.-]+", value, expression)
    text = text.replace("&&", " and ").replace("||", " or ").replace("!", " not ")
    if text and not eval(text, {"__builtins__": {}}):  # of words made above
        return "Omitted"
    when = task.get("when", "1 == 1")
    if found := re.search(r"tasks\.(\w+)\.outputs", when):
        when = "1 == 1" if values[found[1]] == "yes" else "1 == 2"
    if when != "1 == 1":
        return "Skipped"
    return "Failed" if fails[task["name"]] else "Succeeded"
