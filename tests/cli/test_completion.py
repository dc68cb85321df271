from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support import BIN

ALL = ("run-scheduler", "scheduler-state", "scheduler-cancel-job", "scheduler-get-logs")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_accepts_its_script(
    name: str, shell: str, command: Command, tmp_path: Path
) -> None:
    done = command(name, "--completion", shell)
    assert done.exit_code == 0
    assert "max_epochs" in done.out if name == "run-scheduler" else "server" in done.out
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.out)
        subprocess.run([shell, "-n", script], check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run-scheduler --max", {"--max_epochs", "--max_gpus"}),
        ("scheduler-state --output ", {"table", "json"}),
        ("scheduler-state --out", {"--output"}),
        ("scheduler-get-logs --f", {"--follow"}),
    ],
)
def test_bash_offers_the_possible_words(typed: str, offered: set[str]) -> None:
    name, *_, word = typed.split(" ")
    before = typed.split(" ")[-2]
    script = (
        f'eval "$({BIN / name} --completion bash)"\n'
        f"COMP_WORDS=({before!r} {word!r}); COMP_CWORD=1\n"
        f"_{name.replace('-', '_')}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered
