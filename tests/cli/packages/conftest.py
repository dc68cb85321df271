"""Folders and repositories of real git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

# Neither the settings of whoever runs the tests, nor what they ignore everywhere.
PLAIN = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in PLAIN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    for name in [name for name in os.environ if name.startswith("GIT_") and name not in PLAIN]:
        monkeypatch.delenv(name)


def git(folder: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """With all of these files committed."""
    write(folder, files)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder
