"""Finds the run on this machine that a process belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from scheduler.clusters.local import runner
from scheduler.core.model import RunKey

DEPTH_MAX = 64  # ancestors of a process; with more, the tree has changed while it was read


def run_of(pid: int, keepers: Mapping[int, RunKey]) -> RunKey | None:
    """Returns the run that has its runner or its first process above this one. `keepers` has both
    processes of each run.

    A runner adopts the orphans of its training, so while it lives, no process of it is elsewhere.
    """
    for _ in range(DEPTH_MAX):
        if pid in keepers:
            return keepers[pid]
        stat = runner.stat_of(pid)
        if stat is None or pid <= 1:
            return None
        if stat.session in keepers:
            return keepers[stat.session]
        pid = stat.parent
    return None


def remaining_processes(
    leader: int | None, output: str, key: RunKey, uid: int | None = None
) -> list[int]:
    """Returns the processes of a run whose runner is gone: those in the session of its first
    process, those of its user (None: any) with its environment or with its output, and all that
    these have started. What has left all of them is found only in a cgroup."""
    all_of = {pid: stat for pid, stat in runner.processes() if stat.alive and pid != os.getpid()}
    found = {
        pid
        for pid, stat in all_of.items()
        if (leader and stat.session == leader)
        or (is_of(pid, uid) and (belongs_to(pid, key) or prints_to(pid, output)))
    }
    while more := {pid for pid, stat in all_of.items() if stat.parent in found} - found:
        found |= more
    return sorted(found)


def is_of(pid: int, uid: int | None) -> bool:
    """Whether the process is of this user. Others could give theirs the environment of any job."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return uid is None or str(uid) in status.partition("\nUid:")[2].partition("\n")[0].split()


def prints_to(pid: int, output: str) -> bool:
    """Whether the process can write into this pipe. One that only reads it may be of anybody."""
    folder = Path(f"/proc/{pid}")
    try:
        files = [file.name for file in (folder / "fd").iterdir() if _link(file) == output]
        told = ((folder / "fdinfo" / file).read_text().split("flags:")[1] for file in files)
        return bool(output) and any(int(text.split()[0], 8) & os.O_ACCMODE for text in told)
    except (OSError, IndexError):
        return False


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""


def belongs_to(pid: int, key: RunKey) -> bool:
    """Whether the process has the environment of this run; its parents may be gone."""
    try:
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    job_id, attempt = key
    return {f"JOB_UUID={job_id}".encode(), f"KUBEPROFILER_ATTEMPT={attempt}".encode()} <= {*given}
