"""Tokens that an admin issues and revokes. Each has a number, a user and an expiry; only hashes are
stored.

The token commands write to the database beside the daemon, and the daemon reads it at each call: a
token that is issued or revoked takes effect at once, without communication between the two.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from scheduler.core.errors import ConfigError, Unauthenticated
from scheduler.core.model import Time
from scheduler.store import database

PREFIX = "est_"  # of our tokens, so that a leaked one is recognised
SECRET_BYTES = 32  # random: guessing is hopeless, so the hash needs neither salt nor slowness


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token, without the secret itself."""

    id: int
    user: str
    name: str  # chosen by the admin, e.g. the machine that has it
    issued_at: Time
    expires_at: Time
    used_at: Time | None = None  # precise to a minute
    revoked_at: Time | None = None
    node: str = ""  # of the agent that has it; then it has no user

    def state(self, now: Time) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if now < self.expires_at else "expired"


_COLUMNS = ", ".join(field.name for field in fields(Token))
_BY_DIGEST = f"select {_COLUMNS} from tokens where digest = ?"
_ALL = f"select {_COLUMNS} from tokens order by id"
_ISSUE = """
    insert into tokens (digest, user, node, name, issued_at, expires_at) values (?, ?, ?, ?, ?, ?)
"""
_REVOKE = (
    f"update tokens set revoked_at = coalesce(revoked_at, ?) where id = ? returning {_COLUMNS}"
)
_USED = "update tokens set used_at = ? where id = ?"


# --- for the commands ---------------------------------------------------------------------------


def issue(path: Path, user: str, name: str, now: Time, seconds: float) -> tuple[Token, str]:
    """The second value is the token itself, which cannot be read again."""
    return _issue(path, user, "", name, now, seconds)


def issue_for_node(
    path: Path, node: str, name: str, now: Time, seconds: float
) -> tuple[Token, str]:
    """The same for the agent of a node."""
    return _issue(path, "", node, name, now, seconds)


def _issue(
    path: Path, user: str, node: str, name: str, now: Time, seconds: float
) -> tuple[Token, str]:
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    with _opened(path) as db:
        values = (_digest(secret), user, node, name, now, now + seconds)
        number = db.execute(_ISSUE, values).lastrowid
        assert number is not None, "a row that was inserted has a number"
    return Token(number, user, name, now, now + seconds, node=node), secret


def issued(path: Path) -> list[Token]:
    """All tokens ever issued, the oldest first."""
    with _opened(path) as db:
        return [Token(*row) for row in db.execute(_ALL)]


def revoke(path: Path, number: int, now: Time) -> Token:
    """A token that was revoked before keeps the first date."""
    with _opened(path) as db:
        row = db.execute(_REVOKE, (now, number)).fetchone()
    if row is None:
        raise ConfigError(f"there is no token {number}")
    return Token(*row)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Only a daemon creates a database or changes its schema: only it knows that no other process
    does so."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist: has a daemon been started with this state_dir?")
    with database.translate_errors(path), closing(database.connect(path)) as db:
        known = {name for _, name, *_ in db.execute("pragma table_info(tokens)")}
        if not known.issuperset(_COLUMNS.split(", ")):
            raise ConfigError(
                f"{path} was written by an older version: start the daemon of this version first"
            )
        yield db


# --- for the daemon -----------------------------------------------------------------------------


class IssuedTokens:
    """Finds the user, or the node, of an issued token. For any thread."""

    def __init__(self, path: Path, clock: Callable[[], Time] = time.time) -> None:
        """`clock`: the wall clock, by which tokens are issued. The loop's clock never goes back, so
        it would call tokens expired long after the wall clock was set forward and corrected."""
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._used: dict[int, Time] = {}
        self._db = database.connect_readonly(path)

    def user(self, secret: str) -> str | None:
        token = self.find(secret)
        if token and token.node:
            raise Unauthenticated(
                f"this token is of the agent on {token.node}, and of no user: use one of your own"
            )
        return token.user if token else None

    def node(self, secret: str) -> str | None:
        token = self.find(secret)
        return (token.node or None) if token else None

    def find(self, secret: str) -> Token | None:
        """None: it was not issued here. Raises Unauthenticated."""
        if not secret.startswith(PREFIX):
            return None
        now = self._clock()
        with self._lock, database.translate_errors(self._path):
            row = self._db.execute(_BY_DIGEST, (_digest(secret),)).fetchone()
            if row is None:
                return None
            token = Token(*row)
            if token.state(now) == "valid":
                self._used[token.id] = now
                return token
        if token.revoked_at is None:
            day = time.strftime("%Y-%m-%d", time.localtime(token.expires_at))
            raise Unauthenticated(f"this token expired on {day}: ask an admin for a new one")
        raise Unauthenticated("this token has been revoked: ask an admin for a new one")

    def keep_uses(self) -> None:
        """Writes when each token was used last. Not at each use: each call would cost a write."""
        with self._lock:
            used, self._used = self._used, {}
        if used:
            with _opened(self._path) as db:
                db.execute("begin immediate")
                db.executemany(_USED, [(at, number) for number, at in used.items()])
                db.execute("commit")

    def close(self) -> None:
        self._db.close()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
