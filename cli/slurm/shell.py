"""Runs scripts of `sh` where Slurm's commands are: on this machine, or by the system's ssh.

A script is sent on stdin, so that only `sh` parses it, whatever login shell the user has there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from shlex import quote

from cli import ssh
from cli.client import CallError
from cli.command import CommandError
from cli.slurm.slurm_settings import SlurmSettings, refused
from cli.ssh import BEGIN

SECONDS = 60.0  # for a script; what it calls has shorter deadlines of its own
ANSWER_SECONDS = 30  # for a command of Slurm's that changes something

# What sbatch says if Slurm cannot be asked now, and if it does not know what became of the job.
_AWAY = (
    *("Unable to contact slurm controller", "Connection refused", "Connection timed out"),
    *("Slurm temporarily unable to accept", "Communication connection failure"),
)
_LOST = ("Socket timed out", "Zero Bytes were transmitted", "Unexpected message received")
LOST = "DEADLINE_EXCEEDED"  # the status: asking again is right, and harmless

# Slurm's commands are often only on the PATH of login shells.
_SCRIPT = """{
printf '\\036begin\\n'
if ! command -v sbatch > /dev/null && [ -r /etc/profile ]; then . /etc/profile; fi > /dev/null 2>&1
if ! command -v sbatch > /dev/null; then echo 'sbatch is not installed there' >&2; exit 127; fi
%s
} < /dev/null
"""


class Shell:
    def __init__(self, host: str = "") -> None:
        """`host`: as ssh knows it; "": this machine."""
        self.host = host

    def run(self, script: str, seconds: float = SECONDS) -> bytes:
        """What the script prints. Raises a CallError: DEADLINE_EXCEEDED if it began and did not
        run to its end, so that it is not known what it has done; else UNAVAILABLE."""
        with tempfile.TemporaryFile() as said:
            # A file, because ssh's master process keeps stderr open, and a pipe would not end.
            process = subprocess.Popen(
                ssh.words(self.host, "exec sh") if self.host else ["sh"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
            try:
                text, _ = process.communicate((_SCRIPT % script).encode(), timeout=seconds)
            except subprocess.TimeoutExpired:
                raise self._failed(f"no answer in {seconds:.0f} s", begun=True) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
            if process.returncode:
                said.seek(0)
                raise self._failed(
                    ssh.reason(self.host, said.read(), process.returncode), BEGIN in text
                )
        before, begin, answer = text.partition(BEGIN)
        if not begin:
            shown = before.decode(errors="replace").strip().splitlines()
            raise self._failed(f"it ran no sh, but said: {shown[-1] if shown else 'nothing'}")
        return answer

    def _failed(self, why: str, begun: bool = False) -> CallError:
        status = "DEADLINE_EXCEEDED" if begun else "UNAVAILABLE"
        if self.host:
            return ssh.unreachable(self.host, why, status)
        return CallError(f"cannot reach Slurm: {why}", status)


def refusal(said: str, code: int) -> CommandError:
    """What one of Slurm's commands has said on stderr, as an error of ours."""
    lines = [
        re.sub(r"^(sbatch|scancel|scontrol|squeue): (error|fatal): ", "", line).strip()
        for line in said.splitlines()
    ]
    lines = [line for line in lines if line]
    told = lines[-1] if lines else f"exit code {code}"
    if code == 124:
        return CallError(f"cannot reach Slurm: no answer in {ANSWER_SECONDS} s", LOST)
    if any(words in line for line in lines for words in _LOST):
        return CallError(f"cannot reach Slurm: {told}", LOST)
    if any(words in line for line in lines for words in _AWAY):
        return CallError(f"cannot reach Slurm: {told}", "UNAVAILABLE")
    return refused(told)


def base(settings: SlurmSettings) -> str:
    """The folder of our files, as words of a script."""
    folder = settings.folder or "~/.epoch-scheduler"
    home, rest = ('"$HOME"/', folder[2:]) if folder.startswith("~/") else ("", folder)
    return f"{home}{quote(rest)}/slurm"
