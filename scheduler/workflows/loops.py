"""How often a task runs: once for each item. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scheduler.step_wrapper.expression import TAG
from scheduler.workflows.document import Located
from scheduler.workflows.scope import Scope

ITEMS_MAX = 10_000
LOOPS = ("withItems", "withParam", "withSequence")
_FORMAT = re.compile("[^%]{0,100}%[-+ 0]?[0-9]{0,2}[doxX][^%]{0,100}", re.ASCII)


def rounds_of(has: Mapping[str, Located], scope: Scope) -> Iterator[dict[str, str]]:
    kinds = [each for each in LOOPS if each in has]
    if not kinds:
        yield {}
        return
    if len(kinds) > 1:
        raise has[kinds[1]].error(f"there is {kinds[0]}, too")
    filled = scope.filled(has[kinds[0]])
    values: Iterable[Any]
    match kinds[0]:
        case "withItems":
            values = [item.plain() for item in filled.items()]
        case "withParam":
            values = _values(filled)
        case _:
            values = _sequence(filled)
    for value in values:
        text = value if isinstance(value, str) else json.dumps(value)
        found = {"item": text}
        for key, each in value.items() if isinstance(value, dict) else ():
            found[f"item.{key}"] = each if isinstance(each, str) else json.dumps(each)
        yield found


def _values(entry: Located) -> list[Any]:
    if TAG.search(entry.text()):
        raise entry.error("is known only when a step has run: how many steps there are is not")
    try:
        found = json.loads(entry.text())
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise entry.error(f"{entry.text()[:60]!r}: must be a list as JSON")
    return found


def _sequence(entry: Located) -> list[str]:
    has = entry.fields("count", "start", "end", "format")
    numbers = {name: has[name].whole() for name in ("count", "start", "end") if name in has}
    if ("count" in has) == ("end" in has):
        raise entry.error("must have count or end")
    first = numbers.get("start", 0)
    last = numbers.get("end", first + numbers.get("count", 0) - 1)
    if abs(last - first) > ITEMS_MAX:
        raise entry.error(f"has more than {ITEMS_MAX} items")
    step = 1 if last >= first or "count" in has else -1
    form = has["format"].text() if "format" in has else "%d"
    if not _FORMAT.fullmatch(form):
        raise has["format"].error(f"{form[:60]!r}: is not a format of a number, such as %02d")
    return [form % number for number in range(first, last + step, step)]
