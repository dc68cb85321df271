"""Kubernetes' tokens: the API server is asked for the owner of each, and the answer is cached."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.core.errors import Busy, Unauthenticated, Unavailable
from scheduler.core.model import Time

KNOWN_SECONDS = 60.0  # a revoked token may be accepted for this long
UNKNOWN_SECONDS = 5.0  # a new token may be rejected for this long
REMEMBERED_MAX = 1000
ASKING_MAX = 8  # at a time: each blocks a thread, and jobs need threads as well
JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)  # other tokens are not for an audience


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """As Kubernetes knows it."""

    name: str
    node: str = ""  # of the pod to which the token is bound; empty: it is bound to none


class ReviewedTokens:
    """For any thread."""

    def __init__(
        self,
        ask: Callable[[str, str], TokenOwner | None],
        audience: str,
        clock: Callable[[], Time],
        unanswered_seconds: float = 0.0,
    ) -> None:
        """`ask`: returns the owner of a token for this audience, or None. It raises Unavailable.
        If it does, an earlier answer is used for `unanswered_seconds` more."""
        self._ask, self._audience, self._clock = ask, audience, clock
        self._unanswered_seconds = unanswered_seconds
        self._lock = threading.Lock()
        self._asking = threading.BoundedSemaphore(ASKING_MAX)
        self._told: dict[bytes, tuple[Time, TokenOwner | None]] = {}  # until when, and who

    def owner(self, token: str) -> TokenOwner | None:
        """None: it is not one of Kubernetes' tokens. Raises Unauthenticated if it is not valid."""
        if not JWT.fullmatch(token):
            return None
        owner = self._owner(token)
        if owner is None:
            raise Unauthenticated(
                "Kubernetes does not accept this token, or it was not issued for the audience "
                f"{self._audience}"
            )
        return owner

    def _owner(self, token: str) -> TokenOwner | None:
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        with self._lock:
            until, owner = self._told.get(digest, (now, None))
        if now < until:
            return owner
        try:
            owner = self._review(token)
        except (Busy, Unavailable):
            if owner and now < until + self._unanswered_seconds:
                return owner
            raise
        with self._lock:
            if len(self._told) >= REMEMBERED_MAX:
                self._told.clear()
            self._told[digest] = now + (KNOWN_SECONDS if owner else UNKNOWN_SECONDS), owner
        return owner

    def _review(self, token: str) -> TokenOwner | None:
        if not self._asking.acquire(blocking=False):
            raise Busy("too many unknown tokens are being looked up: try again in a moment")
        try:
            return self._ask(self._audience, token)
        finally:
            self._asking.release()
