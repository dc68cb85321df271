from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.command import UsageError
from cli.contexts import context_file
from cli.contexts.context_file import CONTEXTS, load, parsed, project

TEXT = """\
# mine
current_context: lab
contexts:
  lab:
    server: gpu1:7443  # the big one
    max_epochs: 007
    env: {A: no, B: 1:30}
    tags:
      - sandbox
    is_single_gpu: true
    image: null
  other:
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "epoch-scheduler"


def test_a_value_is_the_text_that_was_written() -> None:
    file = parsed(TEXT, "f")
    lab = file.contexts["lab"]
    assert file.current == "lab"
    assert {key: found.value for key, found in lab.keys.items()} == {
        "server": "gpu1:7443",
        "max_epochs": "007",
        "env": {"A": "no", "B": "1:30"},
        "tags": ["sandbox"],
        "is_single_gpu": "true",
    }
    assert (lab.type, lab.text("server"), lab.text("image")) == ("server", "gpu1:7443", "")
    assert lab.where("max_epochs") == "f, line 6: max_epochs"
    assert file.contexts["other"].keys == {}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("server:", "sevrer:", "f, line 5: unknown key 'sevrer' of context 'lab' (did you mean "),
        ("current_context:", "curent_context:", "line 2: unknown key 'curent_context' (did you"),
        ("max_epochs: 007", "max_epochs: 7x", "line 6: max_epochs: '7x' is not a whole number"),
        ("{A: no, B: 1:30}", "[A]", "line 7: env must be a mapping"),
        ("{A: no, B: 1:30}", "{A: [1]}", "line 7: A must be a text, not a sequence"),
        ("is_single_gpu: true", "server: x:1", "line 10: 'server' is there twice; first in line 5"),
        ("  other:", "  o ther:", "line 12: 'o ther' cannot be a context's name"),
        ("  other:", "  other: 7", "line 12: context 'other' must be a mapping"),
        ("current_context: lab", "current_context: lba", "f: current_context 'lba' is not among"),
        ("server: gpu1:7443", "server: gpu1", "line 5: server: 'gpu1' is not HOST:PORT"),
        ("env: {", "env: ", "not YAML"),
        ("    image: null", "    <<: {server: b}", "line 11: unknown key '<<'"),
    ],
)
def test_an_error_names_the_line_and_the_culprit(old: str, new: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(TEXT.replace(old, new, 1), "f")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- " * 30])
def test_a_file_that_would_exhaust_the_parser_is_refused(bracket: str) -> None:
    """libyaml's composer would end the process: such a file may come with a repository."""
    for read in (parsed, project):
        with pytest.raises(UsageError, match="f, line 1: too many brackets in each other"):
            read(f"{CONTEXTS}: {bracket * 50_000}" if bracket[0] != "-" else bracket, "f")


@given(st.text(max_size=200) | st.text("abc:-[]{}&*!|>'\"# \n", max_size=60))
def test_whatever_the_file_contains_the_answer_is_one_line(text: str) -> None:
    for read in (parsed, project):
        said = "f"
        try:
            read(text, "f")
        except UsageError as error:
            said = str(error)
        assert "\n" not in said
        assert said.startswith("f")


def test_neptune_is_accepted_and_said_to_have_no_effect() -> None:
    file = parsed(TEXT.replace("image: null", "neptune: true"), "f")
    assert file.remarks == [
        "f, line 11: neptune is not used: the scheduler itself keeps what jobs log"
    ]


def test_the_file_is_where_the_desktop_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert context_file.path() == "/x/epoch-scheduler/config.yaml"
    monkeypatch.setenv("HOME", "/home/ada")
    for useless in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", useless)
        assert context_file.path() == "/home/ada/.config/epoch-scheduler/config.yaml"
    assert context_file.shown(context_file.path()) == "~/.config/epoch-scheduler/config.yaml"


def test_no_file_is_no_contexts(folder: Path) -> None:
    assert load().contexts == {}
    with pytest.raises(UsageError, match=r"no context 'lab'; .* has none"):
        load().named("lab")


def test_a_context_that_is_not_there_is_named_with_the_nearest(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.yaml").write_text(TEXT)
    with pytest.raises(UsageError, match=r"no context 'lap' \(did you mean 'lab'\?\).* lab, other"):
        load().named("lap")


def test_a_file_that_others_can_write_says_nothing_about_where_tokens_go(folder: Path) -> None:
    folder.mkdir()
    file = folder / "config.yaml"
    file.write_text(TEXT)
    file.chmod(0o666)
    with pytest.raises(UsageError, match="can be written by others: run `chmod go-w "):
        load()
    file.chmod(0o600)
    assert load().current == "lab"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_not_used(folder: Path) -> None:
    folder.mkdir()
    file = folder / "config.yaml"
    file.write_text(TEXT)
    os.chown(file, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        load()


@pytest.mark.parametrize(
    ("content", "told"), [(b"\xff\xfe", "not UTF-8"), (b"#" * (2 << 20), "larger than 1 MiB")]
)
def test_what_cannot_be_read_is_named(folder: Path, content: bytes, told: str) -> None:
    folder.mkdir()
    (folder / "config.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=told):
        load()


def test_a_project_file_cannot_set_what_belongs_to_the_user() -> None:
    assert project("image: pytorch\nmax_epochs: 3\n", "f")["max_epochs"].value == "3"
    for line in ("server: evil:1", "secret: [AWS_KEY]", "env: {LD_PRELOAD: x}", "custom_dir: /"):
        key = line.partition(":")[0]
        with pytest.raises(UsageError, match=f"f, line 2: a project file cannot set {key}: "):
            project(f"image: x\n{line}\n", "f")
    with pytest.raises(UsageError, match=r"unknown key 'imag' of a project file \(did you mean"):
        project("imag: x\n", "f")
