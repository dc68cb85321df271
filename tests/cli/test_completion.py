"""The completion of each shell, typed on a real terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import MAINS, Command
from tests.cli.terminals import Terminal
from tests.serving import Serving
from tests.support import BIN, eventually

SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}
SAY = """function NAME { printf '%s\\n' "${#}" "${@}" >> said; }"""
FUNCTIONS = {
    "bash": f'eval "$(NAME --completion bash)"; {SAY}',
    "zsh": f'eval "$(NAME --completion zsh)"; {SAY}',
    "fish": "NAME --completion fish | source; "
    "function NAME; printf '%s\\n' (count $argv) $argv >> said; end",
}
# What is typed before TAB, and the name of the job that is then meant.
NAMES = {
    r"\$\(t": "$(touch ran)",
    r"\`t": "`touch ran`",
    r"\;t": ";touch ran",
    r"two\ w": "two words",
    "'three w": "three words more",
    '"four w': 'four words; "quoted" $HOME',
    "lr=0": "lr=0.1",
    "a:b": "a:b:c",
    "it": "it's",
    r"\*": "*",
    r"\~r": "~root",
    r"\#": "#7",
    "über": "übergröße",
    r"back\\": "back\\slash",
    "plain": "plain",
}


@pytest.mark.parametrize("name", MAINS)
@pytest.mark.parametrize("shell", SHELLS)
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


class CompletingShell:
    def __init__(self, shell: str, command: str, folder: Path) -> None:
        if not shutil.which(shell):
            pytest.skip(f"{shell} is not installed")
        self.command, self.said, self.heard = command, folder / "said", 0
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "vt100",
            "LC_ALL": "C.UTF-8",
        }
        self.terminal = Terminal(SHELLS[shell], environment, folder)
        self.terminal.type(f"{FUNCTIONS[shell].replace('NAME', command)}\n")

    def words(self, typed: str) -> list[str]:
        """The arguments of the command, when this and TAB and Enter are typed."""
        self.terminal.type(f"{self.command} {typed}\t\n")
        eventually(lambda: len(self._lines()) > self.heard, 10)
        count, *words = self._lines()[self.heard :]
        eventually(lambda: len(self._lines()) == self.heard + 1 + int(count))
        words = self._lines()[self.heard + 1 :]
        self.heard += 1 + int(count)
        return words

    def _lines(self) -> list[str]:
        return self.said.read_text().split("\n")[:-1] if self.said.exists() else []

    def close(self) -> None:
        self.terminal.process.kill()
        self.terminal.wait()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_name_is_completed_as_it_is_and_never_run(
    shell: str, server: Serving, command: Command, tmp_path: Path
) -> None:
    for name in NAMES.values():
        server.submit(name, held=True)
    command("scheduler-state")  # sets the token
    there = CompletingShell(shell, "scheduler-cancel-job", tmp_path)
    try:
        completed = {typed: there.words(typed) for typed in NAMES}
    finally:
        there.close()
    assert completed == {typed: [name] for typed, name in NAMES.items()}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_options_their_values_and_folders_are_completed(
    shell: str, server: Serving, command: Command, tmp_path: Path
) -> None:
    command("scheduler-state")  # sets the token
    (tmp_path / "my $(touch ran) folder").mkdir()
    (tmp_path / "my-file").touch()
    there = CompletingShell(shell, "run-scheduler", tmp_path)
    try:
        assert there.words("--max_ep") == ["--max_epochs"]
        assert there.words("--processes_per_node g") == ["--processes_per_node", "gpu"]
        (flag, folder) = there.words("--custom_dir m")
    finally:
        there.close()
    assert (flag, folder.rstrip("/")) == ("--custom_dir", "my $(touch ran) folder")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run-scheduler --max", {"--max_epochs", "--max_gpus"}),
        ("scheduler-state --output ", {"table", "json", "yaml"}),
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
        f"_{name.replace('-', '_')} {name} {shlex.quote(word)} {before}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered
