"""Finds the user of a call by its token. Each kind of token has its own module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.core.errors import Unauthenticated

# Returns the user of the token; None: it is a token of another kind. May raise Unauthenticated, if
# the token is of this kind but not valid (any more), and Unavailable, if this cannot be found out
# now.
TokenCheck = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Authenticator:
    """For any thread."""

    ways: Sequence[TokenCheck]
    encrypted_port: int | None = None  # the port for remote users; None: they may call any port

    def check_way(self, insecure: bool) -> None:
        """Raises if users must not call in this way."""
        if insecure and self.encrypted_port:
            raise Unauthenticated(
                "remote users need the encrypted port: "
                f"use --server HOST:{self.encrypted_port} and --ca FILE"
            )

    def user(self, token: str | None, insecure: bool = False) -> str:
        """`insecure`: the token travelled unencrypted from another machine."""
        self.check_way(insecure)
        if token is None:
            raise Unauthenticated(
                "no token: set SCHEDULER_TOKEN to a token that an admin has issued to you "
                "(`scheduler-daemon token issue USER` on the daemon's machine)"
            )
        for way in self.ways:
            if user := way(token):
                return user
        raise Unauthenticated(
            "this token was not issued by this scheduler; does SCHEDULER_TOKEN belong to another "
            "one?"
        )
