"""What git says of the files of a package: kept beside the job, for whoever reproduces it."""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit, urlunsplit

from cli.packages.selection import UNTRACKED, Selection, git
from scheduler.v1 import scheduler_pb2 as pb

DIFF_BYTES_MAX = 256 * 1024
UNTRACKED_MAX, UNTRACKED_BYTES_MAX = 1000, 64 * 1024


def origin_of(selection: Selection) -> pb.CodeOrigin:
    root = selection.root
    folder = _text(os.fsencode(f"{socket.gethostname()}:{root}"))
    if not selection.in_git:
        return pb.CodeOrigin(folder=folder)
    commit, author, branch = _head(root)
    diff = _diff(root) if commit else ""
    untracked = _untracked(selection)
    return pb.CodeOrigin(
        commit=commit,
        branch=branch,
        dirty=bool(diff or untracked),
        diff=diff,
        untracked=untracked,
        remote=without_password(_line(root, "config", "--get", "remote.origin.url")),
        author=author,
        folder=folder,
    )


def summary(origin: pb.CodeOrigin) -> str:
    """`git 3f2c1a9 dirty`; empty: it is not from git."""
    if not origin.commit:
        return ""
    return f"git {origin.commit[:7]}{' dirty' if origin.dirty else ''}"


def without_password(url: str) -> str:
    if "://" not in url:  # git@host:path has none
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _head(root: str) -> tuple[str, str, str]:
    """The commit, its author, and the branch; empty: there is none."""
    told = _line(root, "log", "-1", "--decorate=short", "--format=%H%n%an <%ae>%n%D", lines=3)
    if not told:
        return "", "", _line(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    commit, author, names = (*told.split("\n"), "", "")[:3]
    on = names.partition(", ")[0]
    return commit, author, on.removeprefix("HEAD -> ") if on.startswith("HEAD -> ") else ""


def _diff(root: str) -> str:
    """Of what git tracks in the folder, from the commit to the files as they are now."""
    # A program that the repository names would run, or answer in another form.
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--relative")
    found = git(root, "diff", "HEAD", *plain, "--", ".") or b""
    if len(found) <= DIFF_BYTES_MAX:
        return _text(found)
    kept = found[:DIFF_BYTES_MAX].rpartition(b"\n")[0]
    return f"{_text(kept)}\n... and {len(found) - len(kept)} more bytes\n"


def _untracked(selection: Selection) -> list[str]:
    found: list[str] = []
    size = 0
    for path, rule in selection.taken.items():
        if rule == UNTRACKED:
            size += len(path)
            if len(found) == UNTRACKED_MAX or size > UNTRACKED_BYTES_MAX:
                found.append("...")
                break
            found.append(path)
    return found


def _line(root: str, *words: str, lines: int = 1) -> str:
    text = _text(git(root, *words) or b"").strip()
    return "\n".join(re.sub(r"\s+", " ", line)[:500] for line in text.split("\n")[:lines])


def _text(data: bytes) -> str:
    """Protobuf takes only what is UTF-8."""
    return os.fsdecode(data).encode(errors="replace").decode()
