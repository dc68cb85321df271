"""What a job sees at a path of its choice: `--volume SRC:DST[:ro]`, from text to values. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Places of the system, and of the job itself: for its code there is --folder.
TAKEN = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"),
    *("code", "custom", "snapshots"),
)
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
NO_CLAIM = "{0} would be a claim of a Kubernetes cluster: write ./{0} for a folder"


@dataclass(frozen=True, slots=True)
class Volume:
    source: str  # a folder (/srv/data), or a claim of a cluster (data), or a folder in it (data/x)
    path: str  # where the job sees it
    read_only: bool = False

    @property
    def is_folder(self) -> bool:
        return self.source.startswith("/")

    @property
    def claim(self) -> str:
        return "" if self.is_folder else self.source.partition("/")[0]

    def __str__(self) -> str:
        return f"--volume {self.source}:{self.path}{':ro' if self.read_only else ''}"


def parse(text: str) -> Volume:
    """Raises ValueError, in words that follow the text."""
    source, *rest = text.split(":")
    if len(rest) not in (1, 2) or rest[1:] not in ([], ["ro"]):
        raise ValueError("is not SRC:DST or SRC:DST:ro")
    return Volume(_source(source), _path(rest[0]), len(rest) == 2)


def parse_all(texts: Sequence[str]) -> tuple[Volume, ...]:
    """Those of a job that was accepted; the outer ones come before those inside them."""
    return tuple(sorted(map(parse, texts), key=lambda volume: volume.path))


def is_below(path: str, folder: str) -> bool:
    """Whether it is this folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _source(text: str) -> str:
    parts = _parts(text)
    if not text.startswith("/"):
        if not (parts and _CLAIM.fullmatch(parts[0])) or parts[0] in (".", "~"):
            raise ValueError("SRC must be a folder, such as ./data, or the name of a claim")
        return "/".join(parts)
    return "/" + "/".join(parts)


def _path(text: str) -> str:
    parts = _parts(text)
    if not text.startswith("/") or not parts:
        raise ValueError("DST must be an absolute path, and not / itself")
    if parts[0] in TAKEN or parts[:2] == ["var", "run"]:
        raise ValueError(f"DST must not be in /{'/'.join(parts[: 2 if parts[0] == 'var' else 1])}")
    return "/" + "/".join(parts)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("must not contain `..`")
    return parts
