"""The account that a job runs as on this machine, with its home and folders."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from scheduler.access.identity import user_name
from scheduler.access.user_table import number
from scheduler.clusters.environment import Paths, replace_folder
from scheduler.clusters.local import code_folder
from scheduler.core.errors import Forbidden, Impossible
from scheduler.core.job_volumes import NO_CLAIM, is_below, parse_all
from scheduler.core.model import JobSpec

LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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
    """Returns the user's account. Raises Rejected if this daemon cannot start a process as it, and
    OSError if it cannot find out now."""
    account = _find_account(user)
    if account is None:
        raise Impossible(f"user {user[:64]!r} is not known on this machine")
    if os.geteuid() != 0 and not account.is_own:
        me = _account_of_uid(os.geteuid())
        name = me.name if me else f"uid-{os.geteuid()}"
        raise Forbidden(
            f"this daemon runs as {name} and accepts jobs of {name} only, not of {user}"
        )
    return account


def login_environment(account: Account) -> dict[str, str]:
    """Returns the variables that every login has, and nothing of the daemon's environment: its
    programs, above all its Python, are not the job's."""
    return {
        "PATH": LOGIN_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def directory(spec: JobSpec, account: Account, paths: Paths) -> str:
    """Returns the folder in which the command is executed; / takes the place of a home that cannot
    be entered."""
    return paths.code or spec.custom_dir or spec.directory or account.home


def paths(spec: JobSpec, account: Account, trees: str) -> Paths:
    """Returns the folders that a container would mount. /data is ~/datasets if that exists.
    `trees`: where packages are unpacked."""
    found = _folders(spec, account)
    if not spec.code:
        return found
    return replace(found, code=code_folder.place(trees, spec.code, links(spec, found)))


def links(spec: JobSpec, paths: Paths) -> dict[str, str]:
    """Where the links in its package lead on this machine."""
    return {name: replace_folder(source, paths) for name, source in spec.folders}


def _folders(spec: JobSpec, account: Account) -> Paths:
    home = Path(account.home)
    data = home / "datasets"
    if not data.is_dir() and Path("/data").is_dir():
        data = Path("/data")
    mounted = code_folder.is_mounted()
    volumes = {
        volume.path: volume.path if mounted else volume.source for volume in parse_all(spec.volumes)
    }
    snapshots = os.path.normpath(spec.snapshots_dir or home / ".epoch-scheduler/snapshots")
    return Paths(
        custom=os.path.normpath(spec.custom_dir) if spec.custom_dir else "",
        snapshots=snapshots,
        workflows=f"{snapshots}/workflows",
        data=volumes.get("/data", str(data)),
        code="",
        volumes=tuple(volumes.items()),
    )


def check_volumes(spec: JobSpec, hidden: Mapping[str, str]) -> None:
    """Raises Impossible unless each can be shown on this machine. `hidden`: folders that none may
    cover, and what they are."""
    for volume in parse_all(spec.volumes):
        if not volume.is_folder:
            raise Impossible(f"{volume}: {NO_CLAIM.format(volume.source)}")
        for folder, what in hidden.items():
            if folder and is_below(folder, volume.path):
                raise Impossible(f"{volume}: it would hide {folder}, {what}")


def _find_account(user: str) -> Account | None:
    uid = number(user)
    if uid is not None:
        # A number stands for an account without a name only: nobody gets root's by calling it so.
        mine = uid == os.geteuid() != 0
        return _account_of_uid(uid) if mine or user_name(uid) == user else None
    try:
        return _account(pwd.getpwnam(user))
    except ValueError:  # this cannot be a user name
        return None
    except KeyError:
        _check_files_open()
        return None


def _check_files_open() -> None:
    """Raises OSError if no file can be opened: then no account is found either."""
    Path(os.devnull).open().close()


def _account_of_uid(uid: int) -> Account | None:
    """The account of a uid. Containers often run as one that has no name."""
    try:
        return _account(pwd.getpwuid(uid))
    except (KeyError, OverflowError):
        _check_files_open()
        if uid != os.geteuid():
            return None
        return Account(f"uid-{uid}", uid, os.getegid(), os.environ.get("HOME", "/"), "/bin/sh")


def _account(entry: pwd.struct_passwd) -> Account:
    shell = entry.pw_shell or "/bin/sh"
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, shell)
