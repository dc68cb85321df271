"""Bare Debians: as small as debootstrap makes them, with the packages that README names.

What is downloaded is kept outside the checkout: one folder for each suite, and the wheels of the
locked dependencies for its Python, which pip takes from the index that is configured on this
machine. Both are only read: a room writes into a layer of its own, and sees no network.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cache import PATH, Cache
from tests.first_hour import room
from tests.first_hour.document import packages
from tests.first_hour.room import ROOT, Room

CACHE = Cache("first-hour")
SUITES = ("bookworm", "trixie")  # Python 3.11 and 3.13
USER = "ada"
LOCK = ROOT / "requirements" / "dev.lock"
WHEELS, BUNDLE = "/var/cache/wheels", "/var/cache/epoch-scheduler.bundle"  # inside
OFFLINE = {"PATH": PATH, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}

# pip's settings on this machine apply while it downloads; none of them is kept.
LENT = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/opt/wheels")


def missing() -> str | None:
    """Returns why there can be no bare Debian here; empty if there can be one."""
    return room.missing("chroot", "debootstrap", "mount")


@contextlib.contextmanager
def opened(suite: str, user: str, folder: Path) -> Iterator[Room]:
    """A room on a Debian on which nothing was done yet."""
    base = _base(suite)
    wheels = _wheels(suite, base)
    root = folder / "root"
    mounts = _layer(base, root, folder) + _bind(wheels, root, WHEELS)
    mounts += _bind(room.bundle(folder), root, BUNDLE)
    home = Path("/root" if user == "root" else f"/home/{user}")
    into = ("chroot", str(root), "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
    with room.opened(folder, home, {**OFFLINE, "USER": user}, mounts, into) as found:
        yield found


def _layer(base: Path, root: Path, folder: Path) -> str:
    """Shell commands that put an empty layer over the base, with the usual mounts."""
    for name in ("root", "upper", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={base},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    return (
        f"mount -t overlay overlay -o {layers} {root}; chmod 755 {root};"
        f" mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev;"
    )


def _bind(source: Path | str, root: Path, target: str) -> str:
    inside = f"{root}{target}"
    prepared = f"mkdir -p {inside}" if Path(source).is_dir() else f"install -D /dev/null {inside}"
    return f"{prepared}; mount --bind {source} {inside};"


# --- what is kept -------------------------------------------------------------------------------


def _base(suite: str) -> Path:
    named = packages()
    path = CACHE.folder / f"{suite}-{_digest(' '.join(named))}"
    with CACHE.alone():
        if not path.exists():
            part = path.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            CACHE.make_debian(suite, part, *named)
            CACHE.run("chroot", part, "useradd", "--create-home", "--shell", "/bin/bash", USER)
            part.rename(path)
    return path


def _wheels(suite: str, base: Path) -> Path:
    path = CACHE.folder / f"{suite}-wheels-{_digest(LOCK.read_text())}"
    with CACHE.alone():
        if not path.exists():
            CACHE.say(f"downloading the locked dependencies for {suite}")
            part = path.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _download(base, part)
            part.rename(path)
    return path


def _download(base: Path, wheels: Path) -> None:
    folder = wheels.with_suffix(".tmp")
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    mounts = _layer(base, root, folder) + _bind(wheels, root, WHEELS)
    mounts += "".join(_bind(lent, root, lent) for lent in LENT if Path(lent).exists())
    download = (
        "python3 -m venv /tmp/venv && /tmp/venv/bin/pip download --quiet --require-hashes"
        f" --requirement /tmp/lock --dest {WHEELS}"
    )
    steps = f"{mounts} cp {LOCK} {root}/tmp/lock; exec chroot {root} sh -c '{download}'"
    CACHE.run("sh", "-ec", steps)
    shutil.rmtree(folder)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
