"""What becomes of the tasks of a flat dag, read from Argo's documentation and written without our
compiler: each task is looked at when all those that it names have ended.

A task ends Succeeded or Failed if it runs, Skipped if its `when` is false, and Omitted if what it
depends on does not hold. (As with `failFast: false`: tasks that do not depend on a failure go on.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def ends(tasks: list[dict[str, Any]], fails: Mapping[str, bool]) -> dict[str, str]:
    ended: dict[str, str] = {}
    left = list(tasks)
    while left:
        task = next(each for each in left if set(_named(each)) <= ended.keys())
        left.remove(task)
        ended[task["name"]] = _end(task, ended, fails, {each["name"]: each for each in tasks})
    return ended


def _named(task: dict[str, Any]) -> list[str]:
    words = re.findall(r"[\w.-]+", task.get("depends", ""))
    return [*task.get("dependencies", ()), *(word.split(".")[0] for word in words)]


def _end(
    task: dict[str, Any],
    ended: Mapping[str, str],
    fails: Mapping[str, bool],
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
    if task.get("when", "1 == 1") != "1 == 1":
        return "Skipped"
    return "Failed" if fails[task["name"]] else "Succeeded"
