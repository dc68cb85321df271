"""Who a person is, by the token that a call carries. What kinds there are is told by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.core.errors import Unauthenticated

# Whose token this is; None: it is none of this kind. May raise Unauthenticated, of one that is but
# does not hold (any more), and Unavailable, if nobody can tell now.
TokenCheck = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Authenticator:
    """For any thread."""

    ways: Sequence[TokenCheck]
    encrypted_port: int | None = None  # the one to be called from elsewhere; None: any will do

    def user(self, token: str | None, insecure: bool = False) -> str:
        """`insecure`: others could read the token along."""
        if insecure and self.encrypted_port:
            raise Unauthenticated(
                "people from elsewhere are served encrypted only: "
                f"give --server HOST:{self.encrypted_port} and --ca FILE"
            )
        if token is None:
            raise Unauthenticated(
                "no token: set SCHEDULER_TOKEN to one that an admin has given you "
                "(`scheduler-daemon token issue USER` on the daemon's machine)"
            )
        for way in self.ways:
            if user := way(token):
                return user
        raise Unauthenticated(
            "this token is not of this scheduler: is SCHEDULER_TOKEN that of another one?"
        )
