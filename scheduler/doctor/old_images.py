"""What old images need of this machine, and cannot be told: two addresses, a port and a folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.clusters.local.runner import MOUNT_POINT_MODE, OLD_SNAPSHOTS
from scheduler.daemon.config import Config, listen_address
from scheduler.doctor.findings import Finding, fine, warning

# They are written into the code of the old library: of the job manager, and of the database.
ADDRESSES = ("10.106.102.22", "10.106.72.44")
PORT = 80
EVERY_ADDRESS = ("0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True)
class OldImages:
    """What was found. `own`: which of the addresses this machine has."""

    listen: str
    own: frozenset[str]
    is_root: bool  # the daemon's user, which can mount
    folder_mode: int | None  # of /snapshots; None: there is none


def look(config: Config) -> OldImages | None:
    """Returns None if there is no listener for old images."""
    if not config.legacy.listen or config.cluster != "local":
        return None
    folder = Path(OLD_SNAPSHOTS)
    mode = folder.stat().st_mode & 0o7777 if folder.is_dir() else None
    own = frozenset(address for address in ADDRESSES if _is_own(address))
    return OldImages(config.legacy.listen, own, os.geteuid() == 0, mode)


def examine(found: OldImages | None) -> Iterator[Finding]:
    if found is None:
        return
    host, port = listen_address(found.listen, "legacy.listen")
    missing = [address for address in ADDRESSES if address not in found.own]
    advice = "Images that name no host need these: give them to the loopback interface"
    if missing:
        them = " and ".join(missing)
        words = f"{them} {'are no addresses' if len(missing) > 1 else 'is no address'} of it"
        commands = [f"ip address add {address}/32 dev lo" for address in missing]
        yield warning("old images", "this machine", words, advice, *commands)
    elif port != PORT or host not in EVERY_ADDRESS:
        words = f"legacy.listen is {found.listen}, but images that name no host call port {PORT}"
        yield warning("old images", "", words, f'Set legacy.listen = "0.0.0.0:{PORT}"')
    else:
        yield fine("old images", found.listen, "images that name no host reach it")
    yield _folder(found)


def _folder(found: OldImages) -> Finding:
    mode = found.folder_mode
    if found.is_root and mode in (None, MOUNT_POINT_MODE):
        return fine("old images", OLD_SNAPSHOTS, "each job sees its own folder for snapshots there")
    if mode is not None and mode & 0o002:
        return fine("old images", OLD_SNAPSHOTS, "all jobs can save there")
    words = "it does not exist" if mode is None else f"its mode is {mode:o}: jobs cannot save there"
    advice = "The old library saves there and nowhere else: its first run fails"
    command = f"install --directory --mode 1777 {OLD_SNAPSHOTS}"
    return warning("old images", OLD_SNAPSHOTS, words, advice, command)


def _is_own(address: str) -> bool:
    """Only an address of this machine can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
