from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cli import man


@pytest.mark.parametrize("name", man.commands())
def test_a_page_shows_all_of_the_help_and_is_always_the_same(name: str, tmp_path: Path) -> None:
    text = man.help_text(name)
    page = man.page(name, text)
    assert page == man.page(name, man.help_text(name))
    assert "--version" in text.split()
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    file = tmp_path / f"{name}.1"
    file.write_text(page)
    shown = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", file],
        env={"MANWIDTH": "200", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    words = {word.rstrip(":").lower() for word in text.split()}
    assert {word for word in words if word not in shown.stdout.lower()} <= {"usage"}


def test_lines_that_roff_would_obey_are_text() -> None:
    page = man.page("x", "usage: x\n\nDo it. More.\n\nexamples:\n  .x \\\n.SH no\n'y -a\n")
    assert "x \\- Do it\n" in page
    assert "\n\\&.SH no\n\\&'y \\-a\n" in page
    assert "  .x \\e\n" in page
