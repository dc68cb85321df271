from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.requests import Request

from scheduler.gateway.problems import Problem
from scheduler.gateway.static_files import FOLDER, StaticFiles


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "headers": raw})


def test_a_file_is_served_compressed_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("let x = 1;" * 100)
    files = StaticFiles(tmp_path)
    plain = files.serve("a.js", request())
    small = files.serve("a.js", request(accept_encoding="gzip, br"))
    assert plain.media_type == "text/javascript"
    assert len(small.body) < len(plain.body) / 10
    again = files.serve("a.js", request(if_none_match=plain.headers["etag"]))
    assert (again.status_code, again.body) == (304, b"")


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.css"
    path.write_text("a{}")
    files = StaticFiles(tmp_path)
    path.write_text("b{}")
    import os

    os.utime(path, ns=(1, 1))
    assert files.serve("a.css", request()).body == b"b{}"


@pytest.mark.parametrize("name", ["../conftest.py", "/etc/passwd", "no.js", "", "."])
def test_nothing_but_these_files_is_served(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no file"):
        StaticFiles(tmp_path).serve(name, request())


def test_no_page_has_a_script_or_style_in_it_or_from_elsewhere() -> None:
    for page in FOLDER.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|https?://", text), page
        for script in re.findall(r"<script[^>]*>(.*?)</script>", text, re.S):
            assert script.strip() == "", page
