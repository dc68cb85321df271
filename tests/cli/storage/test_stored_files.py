from __future__ import annotations

import pytest

from cli.storage.stored_files import joined, unsafe


@pytest.mark.parametrize("path", ["a", "a/b.pt", "...", "..a", "-rf", "a b/ü", "x" * 255])
def test_names_of_files_are_safe(path: str) -> None:
    assert unsafe(path) == ""


@pytest.mark.parametrize(
    "path", ["", "/", "/etc/passwd", "..", "../x", "a/../../x", "a//b", "a/", "./a", "a\0b"]
)
def test_names_that_lead_elsewhere_are_not(path: str) -> None:
    assert unsafe(path) == "its name leaves the folder, or is no name of a file"


def test_a_name_that_no_file_system_takes_is_not_safe() -> None:
    assert unsafe("a/" + "ü" * 128) == "its name is too long"


def test_paths_are_joined() -> None:
    assert joined("/a", "b") == joined("/a/", "b") == "/a/b"
    assert joined("/a", "") == "/a"
    assert joined("/", "b") == "/b"
