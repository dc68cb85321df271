"""Selectors of labels and fields, as Kubernetes writes them: `a=b,c!=d,e in (f, g),h,!i`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.gateway.problems import Problem

_KEY = r"[A-Za-z0-9][A-Za-z0-9./_-]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!\s*{_KEY})|(?P<key>{_KEY})\s*"
    r"(?:(?P<sign>==|=|!=)\s*(?P<value>@?[A-Za-z0-9._-]*)"
    r"|(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)",
    re.ASCII,
)
FIELDS = ("metadata.name", "metadata.namespace", "status.phase")


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    values: frozenset[str] | None  # None: any
    wanted: bool  # whether the label is to have one of the values

    def holds(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has == self.wanted


def parse(text: str, name: str = "labelSelector") -> list[Requirement]:
    """Raises Problem."""
    found, at = list[Requirement](), 0
    while at < len(text.rstrip()):
        match = _REQUIREMENT.match(text, at)
        if match is None:
            raise Problem(400, f"{name}: cannot be read at {text[at : at + 30]!a}", name)
        at = match.end()
        if match["absent"]:
            found.append(Requirement(match["absent"].lstrip("! \t"), None, False))
        elif match["sign"]:
            found.append(
                Requirement(match["key"], frozenset([match["value"]]), match["sign"] != "!=")
            )
        elif match["word"]:
            values = frozenset(value.strip() for value in match["values"].split(","))
            found.append(Requirement(match["key"], values, match["word"] == "in"))
        else:
            found.append(Requirement(match["key"], None, True))
    return found


def parse_fields(text: str) -> list[Requirement]:
    found = parse(text, "fieldSelector")
    for each in found:
        if each.key not in FIELDS:
            known = ", ".join(FIELDS)
            raise Problem(400, f"fieldSelector: {each.key} is not supported; {known} are")
    return found
