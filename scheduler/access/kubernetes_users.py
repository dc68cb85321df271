"""Users with a token of Kubernetes. The API server is asked who they are, and the answer is
cached."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping

from scheduler.access.user_table import User, fits
from scheduler.core.errors import Busy, Unauthenticated
from scheduler.core.model import Time

KNOWN_SECONDS = 60.0  # a revoked token may be accepted for this long
UNKNOWN_SECONDS = 5.0  # a new token may be rejected for this long
REMEMBERED_MAX = 1000
ASKING_MAX = 8  # at a time: each blocks a thread, and jobs need threads as well
JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)  # other tokens are not for an audience


class KubernetesUsers:
    """Finds the user of a Kubernetes token. For any thread."""

    def __init__(
        self,
        ask: Callable[[str, str], str | None],
        audience: str,
        users: Mapping[str, User],
        clock: Callable[[], Time],
    ) -> None:
        """`ask`: returns Kubernetes' name of the owner of a token for this audience, or None. It
        raises Unavailable."""
        self._ask, self._audience, self._users, self._clock = ask, audience, users, clock
        self._ours = {user.kubernetes: name for name, user in users.items() if user.kubernetes}
        self._lock = threading.Lock()
        self._asking = threading.BoundedSemaphore(ASKING_MAX)
        self._told: dict[bytes, tuple[Time, str | None]] = {}  # until when, and who

    def user(self, token: str) -> str | None:
        if not JWT.fullmatch(token):
            return None
        name = self._name(token)
        if name is None:
            raise Unauthenticated(
                "Kubernetes does not accept this token, or it was not issued for the audience "
                f"{self._audience}"
            )
        return self._user(name)

    def _name(self, token: str) -> str | None:
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        with self._lock:
            until, name = self._told.get(digest, (now, None))
        if now < until:
            return name
        if not self._asking.acquire(blocking=False):
            raise Busy("too many unknown tokens are being looked up: try again in a moment")
        try:
            name = self._ask(self._audience, token)
        finally:
            self._asking.release()
        with self._lock:
            if len(self._told) >= REMEMBERED_MAX:
                self._told.clear()
            self._told[digest] = now + (KNOWN_SECONDS if name else UNKNOWN_SECONDS), name
        return name

    def _user(self, name: str) -> str:
        """Returns our name of the user. A user whose entry has another name in Kubernetes is
        another user, even if this name is the same as ours."""
        user = self._ours.get(name, name)
        if self._users.get(user, User()).kubernetes not in ("", name) or not fits(user):
            raise Unauthenticated(
                f"Kubernetes knows you as {name[:100]!a}, which is not a user here: "
                "an admin can map it to a user with [users.NAME] kubernetes"
            )
        return user
