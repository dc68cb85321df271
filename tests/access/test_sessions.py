from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from scheduler.access import sessions
from scheduler.access.sessions import LoginCodes, Sessions
from scheduler.core.errors import Unauthenticated
from scheduler.store.maintenance import back_up
from scheduler.store.writer import SqliteStore

KEY = b"k" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.db"
    SqliteStore(path).close()
    return path


@pytest.fixture
def kept(path: Path) -> Iterator[Sessions]:
    with closing(Sessions(path, KEY)) as kept:
        yield kept


def test_codes_do_not_outlive_the_daemon() -> None:
    code, _ = LoginCodes().create("ada", None)
    with pytest.raises(Unauthenticated, match="this login code is unknown"):
        LoginCodes().spend(code)


def test_a_user_has_so_many_codes_and_others_keep_theirs() -> None:
    codes = LoginCodes()
    other, _ = codes.create("bob", None)
    made = [codes.create("ada", None)[0] for _ in range(sessions.CODES_OF_USER_MAX + 1)]
    with pytest.raises(Unauthenticated):
        codes.spend(made[0])
    assert [codes.spend(code)[0] for code in (*made[1:], other)] == ["ada"] * 10 + ["bob"]


def test_codes_that_were_not_used_are_forgotten() -> None:
    now = [0.0]
    codes = LoginCodes(lambda: now[0])
    for user in range(100):
        codes.create(f"user-{user}", None)
    now[0] = sessions.CODE_SECONDS
    codes.create("ada", None)
    assert len(codes._codes) == 1


def test_a_session_outlives_the_daemon(path: Path, kept: Sessions) -> None:
    token, _ = kept.begin("ada", None)
    with closing(Sessions(path, KEY)) as next_one:
        assert next_one.user(token) == "ada"


def test_sessions_end_with_the_secret_and_cannot_be_read(path: Path, kept: Sessions) -> None:
    token, _ = kept.begin("ada", None)
    with closing(Sessions(path, b"n" * 32)) as other, pytest.raises(Unauthenticated):
        other.user(token)
    copy = back_up(path, 1, time.time(), Event())
    for file in (path, path.with_name("scheduler.db-wal"), copy):
        assert token.encode() not in file.read_bytes()
        assert token.removeprefix(sessions.PREFIX).encode() not in file.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_user_has_so_many_sessions_and_others_keep_theirs(kept: Sessions) -> None:
    other, _ = kept.begin("bob", None)
    tokens = [kept.begin("ada", None)[0] for _ in range(sessions.SESSIONS_OF_USER_MAX + 1)]
    assert kept.find(tokens[0]) is None
    assert all(kept.find(token) for token in (*tokens[1:], other))


def test_other_tokens_are_left_to_others(kept: Sessions) -> None:
    for token in ("", "ada.00", "est_x"):
        assert kept.user(token) is None
    with pytest.raises(Unauthenticated, match="this session has ended"):
        kept.user("ess_\ud800")
