"""Each claim of docs/security.md names a test that proves it, and the test exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "security.md"
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def claims() -> Iterator[str]:
    """The list items of all sections on what is protected, each in one line."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        if section.startswith("What is protected"):
            for item in section.split("\n- ")[1:]:
                yield " ".join(item.split("\n\n")[0].split())


def proofs() -> Iterator[tuple[str, str]]:
    return (match.groups() for match in PROOF.finditer(PAGE.read_text()))  # type: ignore[misc]  # two


def test_there_are_claims() -> None:
    assert len(list(claims())) > 20


@pytest.mark.parametrize("claim", sorted(claims()), ids=lambda claim: claim[:40])
def test_every_claim_names_its_test(claim: str) -> None:
    assert PROOF.search(claim), claim


@pytest.mark.parametrize(("file", "name"), sorted(set(proofs())))
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
