"""Whether only the daemon's user, or root, can change a file that the daemon trusts.

Another user's state folder could hold a key of tokens that its owner knows, and that user could
then sign a token for any name. Links are followed as the kernel follows them, and each folder on
the way is checked too, because its owner could put another folder in this one's place.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from scheduler.access.identity import SECRET, user_name
from scheduler.core.errors import ConfigError

# The kubelet mounts it into the daemon's pod; on a machine, only root could make it. A pod has no
# other users, and some of its volumes may be written to by all.
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GATEWAY = "gateway"  # the folder of the gateway's user, whom the daemon does not trust
LINKS_MAX = 40  # as in the kernel


def check_state(folder: Path) -> None:
    """Raises ConfigError unless the folder, and each file in it, can be trusted."""
    if POD.exists():
        return
    try:
        check_files((folder, *sorted(path for path in folder.iterdir() if path.name != GATEWAY)))
        _check_secret(folder / SECRET)
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error


def check_files(paths: Iterable[Path]) -> None:
    """Raises ConfigError unless these files can be trusted. One that is missing can."""
    if POD.exists():
        return
    known: set[Path] = set()
    for path in paths:
        final = path.absolute()
        for place in _way(final):
            if place not in known:
                _check(place, passed=place != final and place.is_dir())
                known.add(place)


def _way(path: Path, links: int = LINKS_MAX) -> Iterator[Path]:
    """Yields each folder and link that leads to a file, and the file, if they exist."""
    for place in (*reversed(path.parents), path):
        if place.is_symlink() and links > 0:
            yield place
            target = place.parent / place.readlink() / path.relative_to(place)
            yield from _way(Path(os.path.normpath(target)), links - 1)
            return
        if place.exists():
            yield place


def _check(place: Path, *, passed: bool) -> None:
    """`passed`: it is a folder on the way, where others may have files beside ours."""
    found = place.lstat()
    if found.st_uid not in (0, os.geteuid()):
        me = user_name(os.geteuid())
        raise ConfigError(
            f"{_described(place, found)}, who could change what the daemon trusts: choose another "
            f"place, or if you trust everything in it, run `chown -R {me} {place}`"
        )
    if stat.S_ISLNK(found.st_mode) or (passed and found.st_mode & stat.S_ISVTX):
        return
    if _is_open(found, stat.S_IWGRP, stat.S_IWOTH):
        shared = found.st_mode & stat.S_ISVTX  # /tmp must stay as it is
        mend = "choose another place" if shared else f"run `chmod go-w {place}`"
        raise ConfigError(f"{_described(place, found)}, and other users may write to it: {mend}")


def _check_secret(path: Path) -> None:
    if path.exists() and _is_open(found := path.stat(), stat.S_IRGRP, stat.S_IROTH):
        raise ConfigError(
            f"{_described(path, found)}, and other users may read it: run `chmod 0600 {path}`; if "
            "one may have done so, remove it instead (tokens made with it become invalid)"
        )


def _described(place: Path, found: os.stat_result) -> str:
    return f"{place} belongs to {user_name(found.st_uid)} (mode {stat.S_IMODE(found.st_mode):04o})"


def _is_open(found: os.stat_result, to_group: int, to_others: int) -> bool:
    return bool(found.st_mode & to_others) or (
        bool(found.st_mode & to_group) and not _is_own_group(found.st_gid)
    )


def _is_own_group(gid: int) -> bool:
    """Whether the group has no members but the daemon's user and root, as on machines where each
    user has a group, and for the volume of a pod."""
    trusted = {"root", user_name(os.geteuid())}
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        members = set()
    return members <= trusted and all(
        entry.pw_uid in (0, os.geteuid()) for entry in pwd.getpwall() if entry.pw_gid == gid
    )
