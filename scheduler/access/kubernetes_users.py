"""Users with a token of Kubernetes: their names here."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.access.reviewed_tokens import ReviewedTokens
from scheduler.access.user_table import User, fits
from scheduler.core.errors import Unauthenticated


class KubernetesUsers:
    """Finds the user of a Kubernetes token. For any thread."""

    def __init__(self, reviewed: ReviewedTokens, users: Mapping[str, User]) -> None:
        self._reviewed, self._users = reviewed, users
        self._ours = {user.kubernetes: name for name, user in users.items() if user.kubernetes}

    def user(self, token: str) -> str | None:
        owner = self._reviewed.owner(token)
        return self._user(owner.name) if owner else None

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
