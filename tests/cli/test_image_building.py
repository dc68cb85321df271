"""What is refused before anything is built; tests/clients/test_requirements.py builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import UsageError
from cli.image_building import dockerfile, required_image

URL = "https://registry.lab/team/"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "requirements.txt"
    made.write_text("torch==2.15\n")
    return made


def test_the_tag_is_that_of_the_content(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = required_image(str(file), "python:3", URL)
    assert image.base == "registry.lab/team/python:3"
    repository, _, tag = image.name.rpartition(":")
    assert repository == "registry.lab/team/epoch-scheduler-requirements"
    assert len(tag) == 32
    copied = file.with_name("other.txt")
    copied.write_text("torch==2.15\n")
    assert required_image(str(copied), "python:3", URL).name == image.name
    assert required_image(str(file), "python:3.12", URL).name != image.name
    monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", "linux/riscv64")
    assert required_image(str(file), "python:3", URL).name != image.name
    monkeypatch.undo()
    file.write_text("torch==2.16\n")
    assert required_image(str(file), "python:3", URL).name != image.name


def test_what_is_lent_to_a_build_is_not_part_of_the_image() -> None:
    assert "secret" in dockerfile("python:3", lent=True)
    assert "secret" not in dockerfile("python:3", lent=False)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--index-url https://ada:swordfish@index.lab/simple", "a password would be in the image"),
        ("x @ git+https://token@git.lab/x", "a password would be in the image"),
        ("-r base.txt", "it needs another file"),
        ("--constraint=c.txt", "it needs another file"),
        ("-e .", "it needs another file"),
        ("./x-1.0-py3-none-any.whl", "it needs another file"),
        ("x @ file:///x.whl", "it needs another file"),
    ],
)
def test_a_bad_line_is_named_and_its_password_is_not(file: Path, line: str, told: str) -> None:
    file.write_text(f"torch\n{line}\n")
    with pytest.raises(UsageError) as error:
        required_image(str(file), "python:3", URL)
    assert f"{file}, line 2: {told}" in str(error.value)
    assert "swordfish" not in str(error.value)
    assert "token@" not in str(error.value)


@pytest.mark.parametrize(
    "line", ["torch>=2 ; python_version > '3'", "--extra-index-url https://x/y", "-i https://x"]
)
def test_other_lines_are_pips_business(file: Path, line: str) -> None:
    file.write_text(f"{line}\n")
    assert required_image(str(file), "python:3", URL).requirements == f"{line}\n".encode()


@pytest.mark.parametrize(
    ("name", "base", "url", "told"),
    [
        ("not.txt", "python:3", URL, "not.txt: No such file or directory"),
        ("requirements.txt", "", URL, "give --base_image, to which they are added"),
        ("requirements.txt", "python:3", "", "scheduler-context set registry_url"),
        ("requirements.txt", "x\nRUN evil", URL, "is not the name of an image"),
        ("requirements.txt", "--tls", URL, "is not the name of an image"),
    ],
)
def test_what_is_missing_is_named(file: Path, name: str, base: str, url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        required_image(str(file.with_name(name)), base, url)
