"""The programs of docs/python.md, as they are printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Daemon

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.S | re.M)
PRINTED = ["hello, world\n\n", "['FINISHED', 'FINISHED']\n", "[2.0, 3.0]\n[6, 24]\n"]


@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_each_program_does_what_the_document_says(
    program: str,
    printed: str,
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
