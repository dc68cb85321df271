"""Tokens that an admin issues: how long they hold, and what is kept of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.access import issued_tokens
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.core.errors import ConfigError, Unauthenticated
from scheduler.store import database

DAY = 86_400.0
NOW = 1_800_000_000.0


class World:
    """A daemon's database, and its clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, NOW
        database.open_or_create(path).close()
        self.issued = IssuedTokens(path, lambda: self.now)

    def issue(self, user: str = "ada", days: float = 1.0) -> str:
        return issued_tokens.issue(self.path, user, "laptop", self.now, days * DAY)[1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "scheduler.db")
    yield made
    made.issued.close()


def test_a_token_is_its_users_until_its_end(world: World) -> None:
    mine, theirs = world.issue("ada", days=1), world.issue("bob", days=30)
    assert (world.issued.user(mine), world.issued.user(theirs)) == ("ada", "bob")
    world.now += DAY
    with pytest.raises(Unauthenticated, match=r"expired on 2027-01-1\d: ask an admin"):
        world.issued.user(mine)
    assert world.issued.user(theirs) == "bob"


def test_a_token_that_is_revoked_is_good_for_nothing_at_once(world: World) -> None:
    secret = world.issue()
    assert world.issued.user(secret) == "ada"
    assert issued_tokens.revoke(world.path, 1, NOW).user == "ada"
    with pytest.raises(Unauthenticated, match="has been revoked"):
        world.issued.user(secret)
    (found,) = issued_tokens.issued(world.path)
    assert (found.state(NOW), found.revoked_at) == ("revoked", NOW)


def test_a_token_is_revoked_once(world: World) -> None:
    world.issue()
    issued_tokens.revoke(world.path, 1, NOW)
    assert issued_tokens.revoke(world.path, 1, NOW + 1).revoked_at == NOW


def test_a_token_that_was_not_issued_has_no_user(world: World) -> None:
    for secret in ("", "est_", "est_" + "x" * 43, "ada.0123", "est_\N{SNOWMAN}", "est_\0"):
        assert world.issued.user(secret) is None


def test_no_token_can_be_read_from_what_is_kept(world: World) -> None:
    secret = world.issue()
    world.issued.user(secret)
    world.issued.keep_uses()
    kept = b"".join(path.read_bytes() for path in world.path.parent.iterdir())
    assert b"laptop" in kept
    assert secret.encode() not in kept
    assert secret.removeprefix(issued_tokens.PREFIX).encode() not in kept


def test_the_last_use_is_kept(world: World) -> None:
    used, unused = world.issue(), world.issue()
    for world.now in (NOW + 1, NOW + 7):
        world.issued.user(used)
    world.issued.keep_uses()
    assert [one.used_at for one in issued_tokens.issued(world.path)] == [NOW + 7, None]
    world.issued.user(unused)
    world.issued.keep_uses()
    assert [one.used_at for one in issued_tokens.issued(world.path)] == [NOW + 7, NOW + 7]


def test_a_number_is_never_given_twice(world: World) -> None:
    for number in (1, 2, 3):
        world.issue()
        issued_tokens.revoke(world.path, number, NOW)
    assert [one.id for one in issued_tokens.issued(world.path)] == [1, 2, 3]


def test_what_cannot_be_done_is_told(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no token 7"):
        issued_tokens.revoke(world.path, 7, NOW)
    with pytest.raises(ConfigError, match="does not exist: has a daemon been started with this"):
        issued_tokens.issued(tmp_path / "absent.db")
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match="file is not a database"):
        issued_tokens.issued(garbage)


def test_the_database_of_an_older_daemon_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as db:
        db.execute("create table jobs (id text)")
    db.close()
    with pytest.raises(
        ConfigError, match="written by an older version: start the daemon of this version"
    ):
        issued_tokens.issue(path, "ada", "", NOW, DAY)
