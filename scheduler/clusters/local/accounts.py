"""The account that a job runs as on this machine, with its home, folders and programs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from scheduler.clusters.environment import Paths
from scheduler.core.errors import Forbidden, Impossible
from scheduler.core.model import JobSpec

LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NUMBERED = re.compile(r"uid-([0-9]{1,10})", re.ASCII)  # see identity.user_name


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @property
    def is_own(self) -> bool:
        """Whether this process runs as it."""
        return self.uid == os.geteuid()


def account_of(user: str) -> Account:
    """Returns the user's account. Raises Rejected if this daemon cannot start a process as it."""
    account = _find_account(user)
    if account is None:
        raise Impossible(f"user {user[:64]!r} does not exist on this machine")
    if os.geteuid() != 0 and not account.is_own:
        me = _account_of_uid(os.geteuid())
        name = me.name if me else f"uid-{os.geteuid()}"
        raise Forbidden(
            f"this daemon runs as {name} and accepts jobs of {name} only, not of {user}"
        )
    return account


def login_environment(account: Account) -> dict[str, str]:
    """Returns the variables that every login has, and nothing else of the daemon's environment. A
    bare `python` is the daemon's, which has the client library, unless the job sets PATH."""
    usual = os.environ.get("PATH", LOGIN_PATH) if account.is_own else LOGIN_PATH
    return {
        "PATH": f"{Path(sys.executable).parent}:{usual}",
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def directory(spec: JobSpec, account: Account) -> str:
    """Returns the folder in which the command is executed."""
    return spec.custom_dir or (account.home if Path(account.home).is_dir() else "/")


def paths(spec: JobSpec, account: Account, search: str) -> Paths:
    """Returns the folders that a container would mount. /data is ~/datasets if that exists."""
    home = Path(account.home)
    data = home / "datasets"
    return Paths(
        custom=os.path.normpath(spec.custom_dir) if spec.custom_dir else "",
        snapshots=os.path.normpath(spec.snapshots_dir or home / ".epoch-scheduler/snapshots"),
        data="/data" if Path("/data").is_dir() and not data.is_dir() else str(data),
        python="python" if shutil.which("python", path=search) else sys.executable,
    )


def _find_account(user: str) -> Account | None:
    if match := NUMBERED.fullmatch(user):
        return _account_of_uid(int(match[1]))
    try:
        return _account(pwd.getpwnam(user))
    except (KeyError, ValueError):  # ValueError: this cannot be a user name
        return None


def _account_of_uid(uid: int) -> Account | None:
    """The account of a uid. Containers often run as one that has no name."""
    try:
        return _account(pwd.getpwuid(uid))
    except (KeyError, OverflowError):
        if uid != os.geteuid():
            return None
        return Account(f"uid-{uid}", uid, os.getegid(), os.environ.get("HOME", "/"), "/bin/sh")


def _account(entry: pwd.struct_passwd) -> Account:
    shell = entry.pw_shell or "/bin/sh"
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, shell)
