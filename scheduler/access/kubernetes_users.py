"""People, by what Kubernetes calls them: asked there once in a while, and remembered in
between."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping

from scheduler.access.user_table import User, fits
from scheduler.core.errors import Busy, Unauthenticated
from scheduler.core.model import Time

KNOWN_SECONDS = 60.0  # so long a token may be good after it was taken back
UNKNOWN_SECONDS = 5.0  # so long it may take until a fresh one is good
REMEMBERED_MAX = 1000
ASKING_MAX = 8  # at a time: each holds a thread, and those are for jobs as well
JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)  # other tokens are not for an audience


class KubernetesUsers:
    """Knows whose token it is. For any thread."""

    def __init__(
        self,
        ask: Callable[[str, str], str | None],
        audience: str,
        users: Mapping[str, User],
        clock: Callable[[], Time],
    ) -> None:
        """`ask`: what Kubernetes calls who has a token for this audience, or None. Raises
        Unavailable."""
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
                "Kubernetes does not take this token, or it was not made for the audience "
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
        """What we call them. Who has another name there is not who has this one here."""
        user = self._ours.get(name, name)
        if self._users.get(user, User()).kubernetes not in ("", name) or not fits(user):
            raise Unauthenticated(
                f"Kubernetes knows you as {name[:100]!a}, which is nobody here: "
                "an admin can give you a name, with [users.NAME] kubernetes"
            )
        return user
