"""How many live jobs one user may have, and how much text: a limit for each user, so that no user
can fill the memory and the disk of the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.core.admission import spec_bytes
from scheduler.core.errors import Rejected
from scheduler.core.model import JobSpec, View


@dataclass(slots=True)
class _Load:
    """What a user has, or a little more: jobs that have ended are noticed when it matters."""

    jobs: int = 0
    size: int = 0


class UserLimits:
    """For any thread."""

    def __init__(
        self, view: Callable[[], View], jobs_max: int = 20_000, mib_max: int = 128
    ) -> None:
        self._view, self._jobs_max, self._mib_max = view, jobs_max, mib_max
        self._lock = threading.Lock()
        self._loads: dict[str, _Load] = {}  # by user

    def enter(self, spec: JobSpec) -> None:
        """Counts a job that is being submitted. Raises Rejected if its user has too many."""
        with self._lock:
            if refusal := self._refusal(spec):
                self._loads[spec.user] = self._measure(spec.user)
                refusal = self._refusal(spec)
            if refusal:
                raise Rejected(refusal)
            load = self._loads[spec.user]
            load.jobs += 1
            load.size += spec_bytes(spec)

    def _refusal(self, spec: JobSpec) -> str:
        if (load := self._loads.get(spec.user)) is None:
            return "not measured yet"
        if load.jobs >= self._jobs_max:
            return (
                f"{spec.user} has {load.jobs} jobs that have not ended, and may have no more "
                "(limits.jobs_per_user): cancel some, or wait until some have ended"
            )
        if load.size + spec_bytes(spec) > self._mib_max * 2**20:
            return (
                f"the jobs of {spec.user} that have not ended have {load.size} bytes of text, and "
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
