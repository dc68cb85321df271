"""Finds the job of a token. Jobs say which one they are when they report; here only the token is
known."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from scheduler.core.model import JobId, View


class JobTokens:
    """For any thread."""

    def __init__(
        self,
        view: Callable[[], View],
        left: Callable[[str], JobId | None] = lambda token: None,
    ) -> None:
        """`left`: finds the job of a token if what that has logged is not all delivered."""
        self._view, self._left = view, left
        self._lock = threading.Lock()
        self._known = View()
        self._jobs: dict[bytes, JobId] = {}  # by hash: how long a search takes tells nothing

    def job(self, token: str) -> JobId | None:
        """None: it is not the token of a job that is live, or has just ended, or has left
        something."""
        view = self._view()
        with self._lock:
            if view.jobs.keys() != self._known.jobs.keys():
                self._learn(view)
            found = self._jobs.get(_hash(token)) if token else None
        return found or (self._left(token) if token else None)

    def _learn(self, view: View) -> None:
        before, self._known = self._known, view
        for job_id in before.jobs.keys() - view.jobs.keys():
            self._jobs.pop(_hash(before.jobs[job_id].token), None)
        for job_id in view.jobs.keys() - before.jobs.keys():
            if token := view.jobs[job_id].token:
                self._jobs[_hash(token)] = job_id


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
