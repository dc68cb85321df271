"""What the documents say is so: settings, targets, commands, files, and the generated stubs."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from scheduler.daemon.config import settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
BIN = Path(sys.executable).parent


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def blocks(path: Path, *kinds: str) -> Iterator[str]:
    """The fenced blocks of these kinds, lines continued by a backslash put together."""
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", path.read_text(), re.S | re.M):
        if kind in kinds:
            yield text.replace("\\\n", " ")


def shown() -> Iterator[tuple[str, list[str]]]:
    """Every call of one of our commands in a document: `FILE: LINE` and its words."""
    for path in DOCUMENTS:
        lines = [
            *(line for text in blocks(path, "sh") for line in text.splitlines()),
            *(
                line.removeprefix("$ ")
                for text in blocks(path, "console")
                for line in text.splitlines()
                if line.startswith("$ ")
            ),
            *re.findall(r"`((?:scheduler-|run-scheduler)[^`]* [^`]*)`", path.read_text()),
        ]
        for line in lines:
            words = shlex.split(line, comments=True)
            if words and words[0] in COMMANDS:
                yield f"{path.name}: {line}", words


@pytest.mark.parametrize("key", [key for key, _, _ in settings()])
def test_every_setting_is_documented_with_its_default(key: str) -> None:
    table = (ROOT / "docs" / "operations.md").read_text()
    defaults = {name: default for name, _, default in settings()}
    row = re.search(rf"^\| `{re.escape(key)}` \| (.*?) \|", table, re.M)
    assert row, f"docs/operations.md has no row for {key}"
    default = defaults[key]
    if isinstance(default, bool):
        assert row[1] == str(default).lower()
    elif isinstance(default, float):
        assert row[1] == f"{default:g}"
    elif isinstance(default, int | str) and default != "":
        assert row[1].strip("`") == str(default)


def test_no_setting_is_documented_that_there_is_not() -> None:
    table = (ROOT / "docs" / "operations.md").read_text().partition("| key | default |")[2]
    documented = re.findall(r"^\| `([\w.]+)` \|", table.partition("\n\n")[0], re.M)
    assert documented == [key for key, _, _ in settings()]


def test_every_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    for path in [*DOCUMENTS, ROOT / ".ci" / "run"]:
        named = re.findall(r"(?:`|^|step )make ([a-z-]+)\b", path.read_text(), re.M)
        assert set(named) <= targets, path


def test_make_alone_lists_every_target_with_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.M)
    listed = run("make", "--no-print-directory", "-C", ROOT).stdout
    assert re.findall(r"^  ([a-z-]+) +\S", listed, re.M) == targets


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = run(BIN / command, "--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout.lower()
    assert "examples:" in done.stdout
    assert "exit codes:" in done.stdout
    assert run(BIN / command, "-h").stdout == done.stdout
    assert run(BIN / command, "--version").stdout.startswith(f"{command} ")
    assert "--version" in run(BIN / command, "--versoin").stderr


@pytest.mark.parametrize("command", ["scheduler-admin", "scheduler-agent", "scheduler-daemon"])
def test_flags_of_every_command_may_be_written_with_hyphens(command: str) -> None:
    flag = "--every-seconds" if command == "scheduler-agent" else "--state-dir"
    assert run(BIN / command, flag, "1", "--help").returncode == 0


def understood(command: click.Command, words: Sequence[str], parent: Any = None) -> None:
    """Also what a command of a command is told."""
    context = command.make_context(words[0], list(words[1:]), parent)
    rest = [*context._protected_args, *context.args]
    if isinstance(command, click.Group) and rest:
        _, found, _ = command.resolve_command(context, rest)
        assert found
        understood(found, rest, context)


@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in shown()])
def test_every_command_that_a_document_shows_is_understood(words: list[str]) -> None:
    module, _, _ = COMMANDS[words[0]].partition(":")
    program = importlib.import_module(module)
    command = getattr(program, "command", None)
    if isinstance(command, click.Command):
        understood(command, words)
    else:
        parser = program.parser()
        parser.connects = False  # the contexts of a document are not there
        parser.read(words[1:])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path}: {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_that_a_document_names_is_there(path: Path) -> None:
    named = re.findall(r"`((?:scheduler|cli|simulator|tests|deploy)/[\w./-]+)`", path.read_text())
    for target in named:
        assert (ROOT / target).exists(), f"{path}: {target}"


def test_the_generated_stubs_are_current(tmp_path: Path) -> None:
    proto = ROOT / "proto"
    out = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    done = run(
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={proto}", *out),
        *proto.glob("**/*.proto"),
    )
    assert done.returncode == 0, done.stderr
    fresh = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.glob("**/*.py*")}
    assert fresh
    assert fresh == {path: (ROOT / path).read_bytes() for path in fresh}, "run `make proto`"


def test_no_lock_file_names_a_registry() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in lock.read_text(), lock


def test_make_bench_runs_every_benchmark() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^(?:KUBE_)?BENCHMARKS := ((?:.*\\\n)*.*)$", makefile, re.M)
    programs = [
        path.stem for path in ROOT.glob("benchmarks/*.py") if "__main__" in path.read_text()
    ]
    assert len(named) == 2
    assert sorted(" ".join(named).replace("\\\n", " ").split()) == sorted(programs)
