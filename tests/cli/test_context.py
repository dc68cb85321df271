from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Done


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "epoch-scheduler" / "config.yaml"


@pytest.fixture
def context(file: Path, command: Command) -> Command:
    def call(*words: str, **_: str) -> Done:
        return command("scheduler-context", *words)

    return call


@pytest.fixture
def two(context: Command) -> Command:
    assert context("add", "lab", "--server", "gpu1:7443", "--env", "A=1").exit_code == 0
    assert context("add", "cloud", "--server", "x:1", "--max_epochs", "30").exit_code == 0
    return context


def names(context: Command) -> list[str]:
    return [line.split("  ")[0] for line in context().out.splitlines()[1:]]


def test_without_contexts_it_says_how_to_make_one(context: Command, file: Path) -> None:
    done = context()
    assert (done.exit_code, done.out) == (0, "")
    assert "scheduler-context add NAME" in done.err
    assert not file.exists()


def test_the_first_context_becomes_active(two: Command) -> None:
    assert names(two) == ["lab (active)", "cloud"]
    shown = json.loads(two("--output", "json").out)["contexts"]
    assert shown[1] == {
        "name": "cloud",
        "active": False,
        "type": "server",
        "keys": {"server": "x:1", "max_epochs": "30"},
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "lab"), "context 'lab' exists already, in "),
        (("add", "a/b"), "'a/b' cannot be a context's name"),
        (("add", "x", "--max_epochs", "many"), "max_epochs: 'many' is not a whole number"),
        (("add", "x", "--sevrer", "y:1"), "unknown option --sevrer (did you mean --server?)"),
        (("add", "x", "--env", "A"), "env: 'A' must be KEY=VALUE"),
        (("add", "x", "--image", "a", "--image", "b"), "image is one value, not 2"),
        (("add",), "usage: scheduler-context add NAME"),
        (("show", "lap"), "no context 'lap' (did you mean 'lab'?)"),
        (("set-active", "lap"), "no context 'lap' (did you mean 'lab'?)"),
        (("set", "current_context", "lap"), "no context 'lap' (did you mean 'lab'?)"),
        (("copy", "lap", "x"), "no context 'lap'"),
        (("copy", "lab", "cloud"), "context 'cloud' exists already"),
        (("rename", "lab", "cloud"), "context 'cloud' exists already"),
        (("delete", "lap", "--yes"), "no context 'lap'"),
        (("set", "lab", "imag", "x"), "unknown key 'imag' (did you mean 'image'?)"),
        (("set", "image", "a", "b"), "image is one value, not 2"),
        (("unset", "lab", "image"), "context 'lab' does not set image"),
        (("unset", "lab", "env.B"), "context 'lab' does not set env.B"),
        (("unset", "lab", "imag"), "unknown key 'imag' (did you mean 'image'?)"),
        (("list", "--server", "x:1"), "--server is for `add`; use `set`"),
        (("delet", "lab"), "unknown action 'delet' (did you mean 'delete'?)"),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(
    two: Command, file: Path, words: tuple[str, ...], told: str
) -> None:
    before = file.read_bytes()
    done = two(*words)
    assert done.exit_code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert file.read_bytes() == before


def test_keys_are_set_and_removed(two: Command) -> None:
    assert two("set", "image", "a").exit_code == 0
    assert two("set", "lab", "env.B", "2").exit_code == 0
    assert two("set", "cloud", "tags", "a", "b").exit_code == 0
    assert two("unset", "lab", "env.A").exit_code == 0
    assert two("show").out == "lab:\n  server: gpu1:7443\n  env:\n    B: 2\n  image: a\n"
    assert two("show", "cloud").out.endswith("  tags:\n    - a\n    - b\n")
    assert two("unset", "cloud", "tags").exit_code == 0
    assert two("show", "cloud").out.endswith("  max_epochs: 30\n")


def test_a_copy_is_a_context_of_its_own(two: Command) -> None:
    assert two("copy", "lab", "lab2").exit_code == 0
    assert two("set", "lab2", "env.A", "2").exit_code == 0
    assert "A: 1" in two("show", "lab").out
    assert "A: 2" in two("show", "lab2").out


def test_what_is_active_follows_a_rename_and_ends_with_its_context(two: Command) -> None:
    assert two("rename", "lab", "home").exit_code == 0
    assert names(two) == ["home (active)", "cloud"]
    done = two("delete", "home", "--yes")
    assert (done.exit_code, names(two)) == (0, ["cloud"])
    assert "no context is active now" in done.err
    assert "no context is active: name one" in two("show").err
    assert two("set-active", "cloud").exit_code == 0
    assert names(two) == ["cloud (active)"]
    assert two("unset", "current_context").exit_code == 0
    assert names(two) == ["cloud"]


def test_a_file_that_names_a_lost_context_is_repaired_by_set_active(
    two: Command, file: Path
) -> None:
    file.write_text(file.read_text().replace("current_context: lab", "current_context: lost"))
    assert "`scheduler-context set-active NAME` changes it" in two().err
    assert two("set-active", "cloud").exit_code == 0
    assert names(two) == ["lab", "cloud (active)"]


def editor(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\nfile=$2\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("VISUAL", f"'{program}' --wait")


def test_an_editor_changes_a_context_and_its_name(
    two: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, 'sed -i -e "s/^lab:/home:/" -e "s/A: 1/A: 2  # why/" "$file"', monkeypatch)
    assert two("edit").exit_code == 0
    assert names(two) == ["home (active)", "cloud"]
    assert two("show").out == "home:\n  server: gpu1:7443\n  env:\n    A: 2  # why\n"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("sed -i s/server/sevrer/ $file", "unknown key 'sevrer' of context 'lab'"),
        ("sed -i s/^lab:/cloud:/ $file", "context 'cloud' exists already"),
        ("echo 'b: {}' >> $file", "the text must be one context"),
        ("echo '{' > $file", "not YAML"),
        ("sed -i s/A:/B:/ $file; sed -i s/gpu1/gpu9/ {file}", "was changed meanwhile"),
    ],
)
def test_a_text_that_cannot_be_taken_is_kept(
    two: Command,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    told: str,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    editor(tmp_path, script.replace("{file}", str(file)), monkeypatch)
    done = two("edit", "lab")
    assert done.exit_code == 2
    assert told in done.err
    (draft,) = tmp_path.glob("lab-*.yaml")
    assert f"your text is kept in {draft}" in done.err
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    assert names(two) == ["lab (active)", "cloud"]


def test_an_editor_that_fails_or_changes_nothing_leaves_everything(
    two: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()
    editor(tmp_path, "exit 3", monkeypatch)
    done = two("edit")
    assert done.exit_code == 1
    assert "exited with code 3: nothing was changed" in done.err
    monkeypatch.setenv("VISUAL", "true")
    assert "nothing was changed" in two("edit").err
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    assert "cannot run '/no/such/editor': No such file or directory; set EDITOR" in two("edit").err
    assert file.read_bytes() == before


def test_a_file_of_ones_own_stays_as_private_as_it_was(two: Command, file: Path) -> None:
    file.chmod(0o644)
    two("set", "image", "x")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_contexts_of_others_are_imported_all_or_none(
    context: Command, file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "mrunner.yaml"
    source.write_text(
        "contexts:\n  gke: {type: kubernetes, neptune: true, resources: gpu=2}\n"
        "  lab: {type: kubernetes}\ncurrent_context: lab\n"
    )
    done = context("import", str(source))
    assert done.exit_code == 0
    assert done.err.count("neptune is not used") == 1
    assert names(context) == ["gke", "lab (active)"]
    before = file.read_bytes()
    again = context("import", str(source))
    assert (again.exit_code, file.read_bytes()) == (2, before)
    assert "context 'gke' exists already" in again.err
    source.write_text("compute_target: x\ngpu_per_node: 4\n")
    assert context("import", str(source), "azure").exit_code == 0
    assert context("show", "azure").out == "azure:\n  type: server\n  num_gpus: 4\n"
    source.write_text("compute_target: x\ngpu_per_node: many\n")
    broken = context("import", str(source), "other")
    assert broken.exit_code == 2
    assert "num_gpus: 'many' is not a whole number" in broken.err
