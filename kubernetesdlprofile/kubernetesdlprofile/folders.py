"""The folder of a job's checkpoints."""

import os
from pathlib import Path

from kubernetesdlprofile.log import warn


def folder(snapshots: str, job_id: str) -> str:
    """The job's own folder below `snapshots`; a temporary one if it cannot be made."""
    wanted = Path(snapshots, job_id)
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(str(wanted), os.W_OK | os.X_OK):
            return str(wanted)
        why = "no permission to write there"
    except (OSError, ValueError) as error:
        why = str(error)
    private = temporary()
    lost = f"snapshots go to {private}, and a preemption will lose the work"
    warn(f"{wanted} cannot be used ({why}): {lost}")
    return private


def temporary() -> str:
    """A private folder; the current one if none can be made, as on a machine without a disk."""
    import tempfile  # slow to import and rarely needed

    try:
        return tempfile.mkdtemp(prefix="kubeprofiler-")
    except OSError:
        return "."
