"""Sessions of browsers: how a person who has a token logs in without showing it to the browser.

A login code is exchanged once for the token of a session, which is a token of that person with an
end. Codes are in memory only, so a restart of the daemon spends them all. Sessions are rows: they
outlive a restart. Of both only hashes are kept. Those of sessions are keyed with the secret of the
state folder, so that sessions end with it, as all other tokens made from it do.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from scheduler.core.errors import Forbidden, Impossible, Unauthenticated
from scheduler.core.model import Time
from scheduler.store import database

PREFIX = "ess_"  # of the tokens of sessions
CODE_SECONDS = 60.0
CODES_OF_USER_MAX = 10  # the oldest is spent when there is one more
SESSION_SECONDS = 12 * 3600.0
LOGIN_SECONDS = 7 * 86_400.0  # from a log-in to the end of the last renewal
OVERLAP_SECONDS = (
    60.0  # a token that was renewed is valid so much longer: requests may be under way
)
SESSIONS_OF_USER_MAX = 50  # the oldest ends when there is one more
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Code:
    user: str
    issued_by: int | None  # the number of the issued token with which it was made
    expires_at: Time


class LoginCodes:
    """For any thread."""

    def __init__(self, clock: Callable[[], Time] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, _Code] = {}  # by hash, the oldest first

    def create(self, user: str, issued_by: int | None) -> tuple[str, Time]:
        """Returns the code and when it expires."""
        code, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
        made = _Code(user, issued_by, now + CODE_SECONDS)
        with self._lock:
            self._codes = {key: old for key, old in self._codes.items() if now < old.expires_at}
            of_user = [key for key, old in self._codes.items() if old.user == user]
            for key in of_user[: max(0, len(of_user) + 1 - CODES_OF_USER_MAX)]:
                del self._codes[key]
            self._codes[_hash(code)] = made
        return code, made.expires_at

    def spend(self, code: str, user: str = "") -> tuple[str, int | None]:
        """Returns whose the code is, and with which issued token it was made. It is spent, also if
        it is refused. `user`: the only one whose code is accepted; empty: any."""
        with self._lock:
            found = self._codes.pop(_hash(code), None)
        if found is None or self._clock() >= found.expires_at:
            raise Unauthenticated(
                "this login code is unknown, was used already, or is older than "
                f"{CODE_SECONDS:.0f} s: run scheduler-open again"
            )
        if user not in ("", found.user):
            raise Forbidden(
                f"this login code is of another user, and {user} is logged in: log out first"
            )
        return found.user, found.issued_by


@dataclass(frozen=True, slots=True)
class OpenSession:
    """What is stored of a session, without its token."""

    user: str
    issued_by: int | None
    login_at: Time
    expires_at: Time
    renewed: bool


_COLUMNS = ", ".join(field.name for field in fields(OpenSession))
# A session that was begun with an issued token is valid only as long as that one.
_FIND = f"""
    select {_COLUMNS} from sessions where digest = ? and expires_at > ? and (
        issued_by is null
        or issued_by in (select id from tokens where revoked_at is null and expires_at > ?)
    )
"""
_ISSUED_UNTIL = "select expires_at from tokens where id = ?"
_BEGIN = f"insert into sessions (digest, {_COLUMNS}) values (?, ?, ?, ?, ?, 0)"
_RENEWED = "update sessions set renewed = 1, expires_at = min(expires_at, ?) where digest = ?"
_END = "delete from sessions where digest = ?"
_END_OF_USER = "delete from sessions where user = ?"
_FORGET = "delete from sessions where expires_at <= ?"
_END_OLDEST = """
    delete from sessions where digest in (
        select digest from sessions where user = ? order by expires_at desc limit -1 offset ?
    )
"""


class Sessions:
    """For any thread."""

    def __init__(self, path: Path, key: bytes, clock: Callable[[], Time] = time.time) -> None:
        """`key`: the secret of the state folder; `clock`: the wall clock."""
        self._path, self._key, self._clock = path, key, clock
        self._lock = threading.Lock()
        self._db = database.connect_readonly(path)

    def begin(self, user: str, issued_by: int | None) -> tuple[str, Time]:
        """Returns the token of a new session and when it expires."""
        with self._written(durable=False) as db:
            return self._begin(db, user, issued_by, self._clock())

    def user(self, token: str) -> str | None:
        """None: it is a token of another kind."""
        if not token.startswith(PREFIX):
            return None
        if (found := self.find(token)) is None:
            raise Unauthenticated("this session has ended: log in again")
        return found.user

    def find(self, token: str) -> OpenSession | None:
        if not token.startswith(PREFIX):
            return None
        now = self._clock()
        with self._lock, database.translate_errors(self._path):
            row = self._db.execute(_FIND, (self._digest(token), now, now)).fetchone()
        return OpenSession(*row) if row else None

    def renew(self, token: str) -> tuple[str, str, Time]:
        """Returns the user, the new token of the session, and when that expires."""
        now, digest = self._clock(), self._digest(token)
        with self._written(durable=False) as db:
            row = db.execute(_FIND, (digest, now, now)).fetchone()
            if row is None:
                raise Unauthenticated("this session has ended: log in again")
            old = OpenSession(*row)
            if old.renewed:
                raise Impossible("this session has a newer token already: use that one")
            db.execute(_RENEWED, (now + OVERLAP_SECONDS, digest))
            return old.user, *self._begin(db, old.user, old.issued_by, old.login_at)

    def end(self, token: str) -> int:
        """Returns how many sessions ended: one, or none."""
        with self._written() as db:
            return db.execute(_END, (self._digest(token),)).rowcount

    def end_all(self, user: str) -> int:
        with self._written() as db:
            return db.execute(_END_OF_USER, (user,)).rowcount

    def close(self) -> None:
        self._db.close()

    def _begin(
        self, db: sqlite3.Connection, user: str, issued_by: int | None, login_at: Time
    ) -> tuple[str, Time]:
        now, token = self._clock(), PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        expires_at = min(now + SESSION_SECONDS, login_at + LOGIN_SECONDS)
        if issued := db.execute(_ISSUED_UNTIL, (issued_by,)).fetchone():
            expires_at = min(expires_at, issued[0])
        db.execute(_FORGET, (now,))
        db.execute(_BEGIN, (self._digest(token), user, issued_by, login_at, expires_at))
        db.execute(_END_OLDEST, (user, SESSIONS_OF_USER_MAX))
        return token, expires_at

    @contextmanager
    def _written(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A short transaction beside those of the loop, as the token commands make them. `durable`:
        a power cut does not undo it; else it is shorter, because the disk is not waited for."""
        with database.translate_errors(self._path), closing(database.connect(self._path)) as db:
            if not durable:
                db.execute("pragma synchronous = normal")
            db.execute("begin immediate")
            yield db
            db.execute("commit")

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, f"session {token}".encode(errors="replace"), "sha256")


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
