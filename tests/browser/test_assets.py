"""The files of the pages: small, complete, and nothing from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "scheduler" / "gateway" / "static"
VENDOR = STATIC / "vendor"
NOT_LOADED = ("LICENSES.txt", "vendored.json")  # by no page
EVERYWHERE = re.compile(r"""(https?:)?//[a-z0-9-]+\.[a-z]""")


def assets() -> list[Path]:
    return [
        path for path in sorted(STATIC.rglob("*")) if path.is_file() and path.name not in NOT_LOADED
    ]


def test_each_vendored_file_is_the_published_one_and_has_its_licence() -> None:
    told = json.loads((VENDOR / "vendored.json").read_text())
    assert {path.name for path in VENDOR.iterdir()} == {*told, *NOT_LOADED}
    licences = (VENDOR / "LICENSES.txt").read_text()
    for name, about in told.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == about["sha256"]
        assert f"{name}" in licences
        assert about["version"] in licences
        assert about["licence"]


def test_our_files_name_no_other_server() -> None:
    for path in assets():
        if path.parent != VENDOR:
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not EVERYWHERE.search(re.sub(r"^\s*//.*$", "", text, flags=re.M)), path


def test_nothing_is_within_the_page_that_its_policy_would_refuse() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|<script(?![^>]*src=)|\son[a-z]+=|\sstyle=", page)
    for path in assets():
        if path.suffix == ".js" and path.parent != VENDOR:
            text = path.read_text()
            assert "innerHTML" not in text, path
            assert "dangerously" not in text, path
            assert not re.search(r"\beval\(|new Function|setAttribute\(.style", text), path


IMPORTED = re.compile(r"""from "(\.{1,2}/[^"]+)";""")


def loaded_by(*names: str) -> set[Path]:
    """These, and what they import, as a browser does when the page is first shown."""
    found, asked = set[Path](), [STATIC / name for name in names]
    while asked:
        path = asked.pop().resolve()
        if path not in found:
            found.add(path)
            if path.suffix == ".js" and path.parent != VENDOR:
                asked += [path.parent / name for name in IMPORTED.findall(path.read_text())]
    return found


def sizes(paths: Iterable[Path]) -> tuple[int, int]:
    contents = [path.read_bytes() for path in paths]
    return sum(map(len, contents)), sum(len(gzip.compress(each, 9)) for each in contents)


@pytest.mark.parametrize(
    ("page", "most", "packed_most"),
    [("now", 90_000, 35_000), ("jobs", 90_000, 35_000), ("compare", 130_000, 50_000)],
)
def test_nobody_waits_for_a_page_that_is_not_looked_at(
    page: str, most: int, packed_most: int
) -> None:
    frame = ("index.html", "style.css", "favicon.svg", "app.js")
    raw, packed = sizes(loaded_by(*frame, f"pages/{page}.js"))
    print(f"{page}: {raw:,} bytes, {packed:,} compressed")
    assert raw < most
    assert packed < packed_most


def test_all_files_together_are_small() -> None:
    raw, packed = sizes(assets())
    print(f"{raw:,} bytes in {len(assets())} files, {packed:,} compressed")
    assert raw < 250_000
    assert packed < 95_000
