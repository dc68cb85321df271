"""Scripts on a machine that the system's ssh reaches."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shlex import quote
from typing import IO

from cli import ssh

SSH_FAILED = 255  # its exit code


class _ScriptBySsh:
    def __init__(self, host: str, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.stdin, self.stdout = process.stdin, process.stdout
        self._host, self._process, self._said = host, process, said

    def wait(self) -> tuple[str, int]:
        code = self._process.wait()
        self._said.seek(0)
        text = self._said.read()
        if code == SSH_FAILED:
            raise ssh.unreachable(self._host, ssh.reason(self._host, text, code))
        lines = text.decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
        return lines[-1], code


class SshScripts:
    def __init__(self, host: str) -> None:
        self.name = host

    @contextmanager
    def start(self, script: str) -> Iterator[_ScriptBySsh]:
        """It has begun: what login shells print before is read."""
        command = f"exec sh -c {quote(f'{ssh.PRINT_BEGIN}{script}')}"
        # A file, because ssh's master process keeps stderr open, and a pipe would not end.
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                ssh.words(self.name, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )
            running = _ScriptBySsh(self.name, process, said)
            try:
                while (line := running.stdout.readline()) and not line.endswith(ssh.BEGIN):
                    pass
                if not line:
                    running.wait()
                    raise ssh.unreachable(self.name, "it ran no sh")
                yield running
            finally:
                with suppress(BrokenPipeError):
                    running.stdin.close()
                running.stdout.close()
                if process.poll() is None:
                    process.terminate()
                process.wait()
