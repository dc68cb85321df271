"""Finds the run on this machine that a process belongs to."""

from __future__ import annotations

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


def belongs_to(pid: int, key: RunKey) -> bool:
    """Whether the process has the environment of this run; its parents may be gone."""
    try:
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    job_id, attempt = key
    return {f"JOB_UUID={job_id}".encode(), f"KUBEPROFILER_ATTEMPT={attempt}".encode()} <= {*given}
