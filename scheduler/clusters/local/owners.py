"""Whose a process on this machine is, among the runs that their runners keep here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scheduler.clusters.local import runner
from scheduler.core.model import RunKey

DEPTH_MAX = 64  # processes above another; more, and the tree has changed under our eyes


def run_of(pid: int, keepers: Mapping[int, RunKey]) -> RunKey | None:
    """The run whose runner, or whose first process, is above this one. `keepers`: both, of each.

    A runner is where its training's orphans go, so as long as it lives nothing of it is elsewhere.
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
    """Whether it was started with the environment of this run, whatever became of its parents."""
    try:
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    job_id, attempt = key
    return {f"JOB_UUID={job_id}".encode(), f"KUBEPROFILER_ATTEMPT={attempt}".encode()} <= {*given}
