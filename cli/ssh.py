"""How a machine is reached by the system's ssh, with the user's own settings and keys."""

from __future__ import annotations

import os
from pathlib import Path

from cli.client import CallError

BEGIN = b"\x1ebegin\n"  # what login shells print before is not ours
PRINT_BEGIN = "printf '\\036begin\\n'\n"  # the script that prints it
CONNECT_SECONDS = 10
CONTROL_FOLDER_MAX = 49  # bytes; ssh adds 58, and a socket's path has at most 108


def words(host: str, command: str) -> list[str]:
    """What runs the command there, for the login shell of the user; one connection for all."""
    found = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    folder = _control_folder()
    if folder is not None:
        found += ["-o", "ControlMaster=auto", "-o", f"ControlPath={folder}/%C"]
        found += ["-o", "ControlPersist=120"]
    return [*found, "--", host, command]


def reason(host: str, said: bytes, code: int) -> str:
    """Why ssh, or what it ran, has failed: the last line, and what to do about it."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line] or [f"exit code {code}"]
    by_hand = f"`ssh {host}` has to work without a question"
    if host and any("Permission denied" in line for line in lines):
        return f"{lines[-1].rstrip('.')}: {by_hand} (ssh-add your key)"
    if host and any("Host key verification failed" in line for line in lines):
        return f"Host key verification failed: {by_hand}; run it once"
    return lines[-1]


def unreachable(host: str, why: str, status: str = "UNAVAILABLE") -> CallError:
    return CallError(f"cannot reach {host} by ssh: {why}", status)


def _control_folder() -> str | None:
    """Where ssh keeps its connection for the next command; None: each makes its own."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(base, "epoch-scheduler", "ssh")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        private = folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o077
    except OSError:
        return None
    return str(folder) if private and len(os.fsencode(folder)) <= CONTROL_FOLDER_MAX else None
