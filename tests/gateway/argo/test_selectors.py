from __future__ import annotations

import pytest

from scheduler.gateway.argo.selectors import parse, parse_fields
from scheduler.gateway.problems import Problem

LABELS = {"team": "vision", "a.b/c": "1", "empty": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("team=vision", True),
        ("team==vision , a.b/c=1", True),
        ("team=vision,a.b/c=2", False),
        ("team!=nlp", True),
        ("other!=x", True),
        ("team in (nlp, vision)", True),
        ("team notin (nlp,vision)", False),
        ("other notin (x)", True),
        ("team", True),
        ("!team", False),
        ("! other", True),
        ("empty=", True),
        ("team=", False),
    ],
)
def test_a_selector_holds_as_in_kubernetes(text: str, holds: bool) -> None:
    assert all(each.holds(LABELS) for each in parse(text)) == holds


@pytest.mark.parametrize("text", ["=x", "a=b c", "a in b", "a in (b", "a,,b", "ä=1", "a=(b)"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="labelSelector: cannot be read at"):
        parse(text)


def test_only_some_fields_are_known() -> None:
    assert parse_fields("metadata.name=x")[0].holds({"metadata.name": "x"})
    with pytest.raises(Problem, match=r"fieldSelector: spec.x is not supported; metadata.name"):
        parse_fields("spec.x=1")
