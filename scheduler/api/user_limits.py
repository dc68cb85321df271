"""How many live jobs one user may have, and how much text: a limit for each user, so that no user
can fill the memory and the disk of the daemon.

Rows of ended jobs stay. So what a user submits within a day is limited too, whatever becomes of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.core.admission import spec_bytes
from scheduler.core.errors import Rejected
from scheduler.core.model import JobSpec, Time, View

DAY_SECONDS = 86_400.0
JOB_BYTES = 1024  # of the rows of a job, beside its text


@dataclass(slots=True)
class _Load:
    """What a user has, or a little more: jobs that have ended are noticed when it matters."""

    jobs: int = 0
    size: int = 0


@dataclass(slots=True)
class _Submitted:
    """The bytes that a user has submitted, less what is allowed for the time since."""

    size: float = 0.0
    at: Time = 0.0


class UserLimits:
    """For any thread."""

    def __init__(
        self,
        view: Callable[[], View],
        now: Callable[[], Time],
        jobs_max: int = 20_000,
        mib_max: int = 128,
    ) -> None:
        """`mib_max`: of live jobs, and of what is submitted within a day."""
        self._view, self._now, self._jobs_max, self._mib_max = view, now, jobs_max, mib_max
        self._lock = threading.Lock()
        self._loads: dict[str, _Load] = {}  # by user
        self._submitted: dict[str, _Submitted] = {}  # by user

    def enter(self, *specs: JobSpec, secret_bytes: int = 0) -> None:
        """Counts jobs of one user that are being submitted together. Raises Rejected if their user
        has too many; then none is counted. `secret_bytes`: of all of them."""
        user, size, count = specs[0].user, sum(map(spec_bytes, specs)), len(specs)
        with self._lock:
            if refusal := self._refusal(user, size, count):
                self._loads[user] = self._measure(user)
                refusal = self._refusal(user, size, count)
            if refusal:
                raise Rejected(refusal)
            self._submit(user, size + secret_bytes + JOB_BYTES * count)
            load = self._loads[user]
            load.jobs += count
            load.size += size

    def _submit(self, user: str, size: int) -> None:
        most, now = self._mib_max * 2**20, self._now()
        told = self._submitted.setdefault(user, _Submitted(at=now))
        told.size = max(0.0, told.size - max(0.0, now - told.at) / DAY_SECONDS * most)
        told.at = now
        if told.size + size > most:
            raise Rejected(
                f"{user} has submitted jobs with {told.size:.0f} bytes of text within a day, and "
                f"may submit {self._mib_max} MiB (limits.spec_mib_per_user): put long values of "
                "--env into files, or wait"
            )
        told.size += size

    def _refusal(self, user: str, size: int, count: int) -> str:
        if (load := self._loads.get(user)) is None:
            return "not measured yet"
        if load.jobs + count > self._jobs_max:
            more = f"{self._jobs_max - load.jobs} more" if load.jobs < self._jobs_max else "no more"
            return (
                f"{user} has {load.jobs} jobs that have not ended, and may have {more} "
                "(limits.jobs_per_user): cancel some, or wait until some have ended"
            )
        if load.size + size > self._mib_max * 2**20:
            return (
                f"the jobs of {user} that have not ended have {load.size} bytes of text, and "
                f"may have {self._mib_max} MiB (limits.spec_mib_per_user): put long values of "
                "--env into files, or wait until some jobs have ended"
            )
        return ""

    def _measure(self, user: str) -> _Load:
        specs = [
            job.spec
            for job in self._view().jobs.values()
            if job.spec.user == user and not job.outcome
        ]
        return _Load(len(specs), sum(map(spec_bytes, specs)))
