"""The child process that serves pages: started, restarted, and ended with the daemon.

The daemon needs nothing of it. It ends by itself when its standard input ends, so a daemon that is
killed leaves none behind, and there is never more than one.
"""

from __future__ import annotations

import os
import pwd
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from scheduler.core.errors import ConfigError
from scheduler.daemon.exit_codes import FAILED, WRONG_SETTINGS
from scheduler.daemon.ownership import GATEWAY

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.2, 30.0  # before it is started again
QUIET_ATTEMPTS = 3  # the gateway of the daemon before may need a moment to leave its port
STOP_SECONDS = 3.0
LOOK_SECONDS = 0.5  # between two looks whether it is to end
LINE_MAX = 500  # characters
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV")

log = structlog.get_logger("scheduler.daemon.gateway_process")


class GatewayProcess:
    def __init__(
        self,
        flags: Sequence[str],
        folder: Path,
        files: Iterable[Path] = (),
        program: Sequence[str] = (sys.executable, "-P", "-m", "scheduler.gateway.command"),
    ) -> None:
        """`files`: it is started again when one of them has changed."""
        self.url = ""  # once it serves
        self._command = [*program, *flags, "--ends_with_stdin"]
        self._folder, self._files = folder, tuple(files)
        self._stopping = threading.Event()
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        """Starts it, and again whenever it ends; later each time that it did not live long."""
        pause, attempts = PAUSE_SECONDS, 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code, last_line = self._live()
            if self._stopping.is_set():
                return
            if code is None:  # its files have changed
                continue
            if time.monotonic() - began > PAUSE_SECONDS_MAX:
                pause, attempts = PAUSE_SECONDS, 0
            attempts += 1
            if code != FAILED or attempts >= QUIET_ATTEMPTS:
                self._say(code, last_line)
            if code == WRONG_SETTINGS:
                return  # it would say the same again
            self._stopping.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _say(self, code: int, last_line: str) -> None:
        """The same is said once."""
        told = last_line.removeprefix("scheduler-gateway: ") or f"it ended with exit code {code}"
        if told != self._said:
            log.warning("no_gateway", error=told, note="the daemon goes on; see gateway.listen")
        self._said = told

    def _live(self) -> tuple[int | None, str]:
        """Returns the exit code and the last line of one process; None: it was asked to end."""
        before = self._stamps()
        try:
            process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name in _ENVIRONMENT or name.startswith("PYTHON")
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # ^C is for the daemon, which tells it
            )
        except OSError as error:
            return FAILED, f"cannot start it: {error.strerror or error}"
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as leash, process.stdout as spoken:
            lines = SpokenLines(self)
            while not self._stopping.is_set() and self._stamps() == before:
                ready, _, _ = select.select([spoken], [], [], LOOK_SECONDS)
                if ready and not lines.take(os.read(spoken.fileno(), 65536)):
                    return process.wait(), lines.last
            leash.close()
            self._end(process)
        self.url = ""
        return None, ""

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _stamps(self) -> list[tuple[int, int]]:
        found = []
        for path in self._files:
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_ino))
        return found

    def heard(self, line: str) -> None:
        if line.startswith("ready "):
            self.url, self._said = line.removeprefix("ready ").strip(), ""
            log.info("gateway_ready", url=self.url)
        elif not line.startswith("scheduler-gateway: "):  # its last words are told at its end
            log.warning("gateway_said", line=line[:LINE_MAX])


class SpokenLines:
    def __init__(self, child: GatewayProcess) -> None:
        self._child, self._rest, self.last = child, b"", ""

    def take(self, data: bytes) -> bool:
        """False: this was the end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        self._rest = self._rest[-LINE_MAX:]
        for line in lines:
            self.last = line.decode(errors="replace")[:LINE_MAX]
            self._child.heard(self.last)
        return bool(data)


def make_folder(state_dir: Path, user: str) -> Path:
    """Returns the folder of the gateway, which belongs to its user if we are root."""
    folder = state_dir / GATEWAY
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
            _let_pass(state_dir, account)
    except KeyError:
        raise ConfigError(f"gateway.user: there is no user {user!r} on this machine") from None
    except OSError as error:
        raise ConfigError(f"cannot use {folder}: {error.strerror}") from error
    return folder


def _let_pass(state_dir: Path, account: pwd.struct_passwd) -> None:
    """Its files are reached by the name of their folder. Who may pass may not list this one, and
    everything else in it is readable for us only."""
    found = state_dir.stat()
    if found.st_uid == 0 and account.pw_uid != 0 and not found.st_mode & 0o077:
        os.chown(state_dir, -1, account.pw_gid)
        state_dir.chmod(0o710)
