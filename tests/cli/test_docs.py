"""docs/commands.md and docs/sweeps.md, example after example, on a real daemon."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import MAINS
from tests.support import BIN, Daemon

LOOKS = (
    "scheduler-state",
    "scheduler-get-logs",
    "scheduler-connect",
    "scheduler-open",
    "scheduler-compare",
    "scheduler-metrics",
)
PATIENCE_SECONDS = 20.0
END = "-- the end of one example --"
DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = DOCS / "commands.md"
NAMES = ("commands", "contexts", "files", "sweeps", "connecting", "workflows")
DOCUMENTS = [DOCS / f"{name}.md" for name in NAMES]


def examples(document: Path) -> Iterator[tuple[str, str]]:
    """Each command and its documented output, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", document.read_text(), re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def pattern(printed: str) -> re.Pattern[str]:
    """`...` matches anything; columns may have other widths."""
    words = [r"[\s\S]*?" if word == "..." else re.escape(word) for word in _words(printed)]
    return re.compile(r"\s*" + r"\s*".join(words) + r"\s*")


def _words(printed: str) -> list[str]:
    return re.findall(r"\.\.\.|[^\s.]+|\.", printed)


class Shell:
    """One bash for all examples, so that variables and `$?` of earlier commands stay."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash"],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        once = f"{{ {command}\n}} < /dev/null"  # it must not read the next examples
        self.process.stdin.write(f"(exit ${{last:-0}})\n{once}\nlast=$?\nprintf '\\n{END}\\n'\n")
        self.process.stdin.flush()
        seen = ""
        while not seen.endswith(f"\n{END}\n"):
            line = self.process.stdout.readline()
            assert line, f"bash has ended: {seen}"
            seen += line
        return seen.removesuffix(f"\n{END}\n")

    def close(self) -> None:
        self.process.communicate()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_every_example_prints_the_documented_output(document: Path, tmp_path: Path) -> None:
    for program in re.findall(r"^```python\n(.*?)^```", document.read_text(), re.S | re.M):
        (tmp_path / "experiments.py").write_text(program)
    for text in re.findall(r"^```yaml\n(.*?)^```", document.read_text(), re.S | re.M):
        named = re.match(r"# (\w+\.yaml)\n", text)
        (tmp_path / (named[1] if named else "train.yaml")).write_text(text)
    daemon = Daemon(tmp_path / "state", "2x16384")
    # The folder of this test is out of reach for everybody else.
    own = {"SCHEDULER_GATEWAY__USER": getpass.getuser()}
    daemon.environment = {"SCHEDULER_GATEWAY__LISTEN": "127.0.0.1:0", **own}
    daemon.start()
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "SCHEDULER_SERVER": daemon.address,
        "COLUMNS": "80",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "",
    }
    environment.pop("SCHEDULER_TOKEN", None)
    shell = Shell(tmp_path, environment)
    try:
        for command, printed in examples(document):
            seen = first_as_said(shell.run, command, printed)
            assert pattern(printed).fullmatch(seen), f"$ {command}\n{seen}\ninstead of\n{printed}"
    finally:
        shell.close()
        daemon.end()


def first_as_said(run: Callable[[str], str], command: str, printed: str) -> str:
    """Repeats a command that only looks, because the state may change late; runs others once."""
    seen = run(command)
    until = time.monotonic() + PATIENCE_SECONDS
    while command.startswith(LOOKS) and not pattern(printed).fullmatch(seen):
        if time.monotonic() > until:
            break
        seen = run(command)
    return seen


def test_there_are_examples_of_every_command() -> None:
    shown = " ".join(command for command, _ in examples(COMMANDS))
    for name in MAINS:
        assert name in shown
