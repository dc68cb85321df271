"""Draws which package of the scheduler imports which: `make map`.

The layers are read from the contracts in pyproject.toml and the imports from the code, so the
picture shows what is so. An arrow that others imply (by way of a package in between) is left out.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "packages.svg"
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 116, 34, 18, 52, 16

Edges = Mapping[str, frozenset[str]]  # of each package, those that it imports


def layers() -> list[list[str]]:
    """From the top down, as the contract has them; packages of one layer in one list."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def imports() -> dict[str, frozenset[str]]:
    """What each package of the scheduler imports of the others, lazy imports included."""
    graph = grimp.build_graph("scheduler", cache_dir=None)
    packages = [name for layer in layers() for name in layer]
    found: dict[str, set[str]] = {name: set() for name in packages}
    for module in graph.modules:
        package = module.split(".")[1] if "." in module else ""
        for other in graph.find_modules_directly_imported_by(module) if package in found else ():
            target = other.split(".")[1] if other.startswith("scheduler.") else ""
            if target in found and target != package:
                found[package].add(target)
    return {name: frozenset(targets) for name, targets in found.items()}


def reduced(edges: Edges) -> dict[str, frozenset[str]]:
    """Without the arrows that others imply."""

    def reaches(start: str) -> set[str]:
        below = set(edges[start])
        for each in edges[start]:
            below |= reaches(each)
        return below

    return {
        name: frozenset(
            target
            for target in targets
            if not any(target in reaches(other) for other in targets if other != target)
        )
        for name, targets in edges.items()
    }


def as_text(edges: Edges) -> str:
    lines = []
    for layer in layers():
        lines += [f"{name:10} -> {', '.join(_below_first(edges[name])) or '-'}" for name in layer]
        lines.append("")
    return "\n".join(lines).rstrip()


def _below_first(names: Iterable[str]) -> list[str]:
    order = [name for layer in layers() for name in layer]
    return sorted(names, key=order.index)


def as_svg(edges: Edges) -> str:
    rows = layers()
    width = max(len(row) for row in rows) * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    height = len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    at: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for column, name in enumerate(row):
            at[name] = left + column * (BOX_WIDTH + GAP_X), MARGIN + number * (BOX_HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="14">',
        "<title>Which package of the scheduler imports which</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
    ]
    for name, targets in reduced(edges).items():
        x, y = at[name]
        for target in _below_first(targets):
            to_x, to_y = at[target]
            start, end = x + BOX_WIDTH / 2, to_x + BOX_WIDTH / 2
            top, bottom = y + BOX_HEIGHT, to_y - 2
            bend = (bottom - top) / 2
            parts.append(
                f'<path d="M{start:g} {top:g}C{start:g} {top + bend:g} {end:g} {bottom - bend:g} '
                f'{end:g} {bottom:g}" fill="none" stroke="#777" marker-end="url(#tip)"/>'
            )
    for name, (x, y) in at.items():
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
            'fill="#eef3fb" stroke="#34618f"/>'
            f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + BOX_HEIGHT / 2 + 5:g}" '
            f'text-anchor="middle" fill="#12263f">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    edges = imports()
    print(as_text(edges))
    PICTURE.write_text(as_svg(edges))
    print(f"\ndrawn in {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
