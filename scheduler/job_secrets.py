"""The secrets of jobs: the values of `run-scheduler --secret`, in a file for each job.

They are in no row, so neither the journal nor a backup nor a reply contains them. The API writes
them before a job is accepted; a cluster reads them at each start of the job; they are removed after
it has ended.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from scheduler.core.admission import quote
from scheduler.core.errors import Impossible, Rejected, Unavailable
from scheduler.core.fast_replace import replace
from scheduler.core.model import JobId, JobSpec, Launch

FOLDER = "secrets"
BYTES_MAX = 64 * 1024  # of one job
UNFINISHED = ".unfinished"


def check(spec: JobSpec, values: Mapping[str, str]) -> int:
    """Returns the bytes of the secrets. Raises Rejected unless there is a value for each secret of
    the job, and for nothing else."""
    for name in spec.secrets:
        if name not in values:
            raise Rejected(f"--secret {name}: its value is missing: submit the job with its value")
        if "\0" in values[name]:
            raise Rejected(f"--secret {name}: its value must not contain a NUL character")
    if extra := sorted(values.keys() - {*spec.secrets}):
        raise Rejected(f"--secret {quote(extra[0])}: is not a secret of this job")
    size = sum(len(value.encode()) for value in values.values())
    if size > BYTES_MAX:
        raise Rejected(f"--secret: {size} bytes together, {BYTES_MAX} at most")
    return size


def with_values(launch: Launch, values: Mapping[str, str]) -> Launch:
    """Returns the launch with its secrets among its variables."""
    return replace(launch, spec=replace(launch.spec, env=(*launch.spec.env, *values.items())))


class JobSecrets:
    """For any thread; `remove_unused` for one at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir.absolute() / FOLDER
        self._unused: set[str] = set()  # as the last look found it

    def path(self, job_id: JobId) -> Path:
        return self._folder / job_id

    def keep(self, job_id: JobId, values: Mapping[str, str]) -> None:
        """Writes them so that they are on disk when this returns."""
        final = self.path(job_id)
        unfinished = final.with_name(f"{final.name}{UNFINISHED}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            unfinished.unlink(missing_ok=True)
            unfinished.touch(mode=0o600, exist_ok=False)
            with unfinished.open("wb") as file:
                file.write(msgspec.json.encode(values))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(final)
        except OSError as error:
            raise Unavailable(f"the secrets cannot be stored: {error.strerror}") from error

    def read(self, job_id: JobId) -> dict[str, str]:
        """Raises Impossible if they are gone."""
        try:
            return msgspec.json.decode(self.path(job_id).read_bytes(), type=dict[str, str])
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            raise Impossible(
                "its secrets are not in the daemon's state folder any more: submit it again"
            ) from None

    def remove_unused(self, live: Collection[JobId]) -> None:
        """Removes the secrets of jobs that have not been live at two looks in a row: those of a job
        are written before it is accepted."""
        found = {path.name for path in self._folder.iterdir()} if self._folder.is_dir() else set()
        unused = found - set(live)
        for name in unused & self._unused:
            (self._folder / name).unlink(missing_ok=True)
        self._unused = unused
