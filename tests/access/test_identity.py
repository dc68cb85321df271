"""Secrets, tokens, and the socket that knows who connects."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from scheduler.access import identity
from scheduler.access.identity import TokenSocket
from scheduler.core.errors import ConfigError, Forbidden, Unauthenticated
from tests import builders
from tests.support import eventually

SECRET = b"k" * 32
ME = pwd.getpwuid(os.geteuid()).pw_name


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    made = identity.secret(path)
    assert len(made) == 32
    assert identity.secret(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


def test_a_damaged_secret_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"secret: must hold 32 bytes, has 5; remove it"):
        identity.secret(path)


def test_a_folder_that_cannot_keep_a_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot store a secret in .*: No such file"):
        identity.secret(tmp_path / "absent" / "secret")


@given(st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=1))
def test_a_token_tells_its_user(user: str) -> None:
    assert identity.user_of(SECRET, identity.user_token(SECRET, user)) == user


@given(st.text())
def test_a_token_that_is_not_ours_has_no_user(token: str) -> None:
    assert identity.user_of(SECRET, token) is None


def test_a_token_of_another_scheduler_or_user_has_no_user() -> None:
    elsewhere = identity.user_token(b"e" * 32, "ada")
    borrowed = identity.user_token(SECRET, "ada").replace("ada.", "bob.")
    nameless = identity.user_token(SECRET, "")
    for token in (elsewhere, borrowed, nameless):
        assert identity.user_of(SECRET, token) is None


def test_a_job_proves_itself_with_its_own_token_only() -> None:
    job = builders.job("demo", token="t0ken")
    identity.prove_job(job, "t0ken")
    with pytest.raises(Forbidden, match="this token is not the token of job demo"):
        identity.prove_job(job, "töken")
    with pytest.raises(Unauthenticated, match="KUBEPROFILER_TOKEN"):
        identity.prove_job(job, None)
    with pytest.raises(Forbidden):
        identity.prove_job(builders.job("old"), "")  # a job without a token has no proof at all


def test_job_tokens_differ() -> None:
    assert identity.new_job_token() != identity.new_job_token()


def test_a_user_without_a_name_has_a_number() -> None:
    assert identity.user_name(os.geteuid()) == ME
    assert identity.user_name(3_999_999_999) == "uid-3999999999"


@pytest.fixture
def port() -> Iterator[int]:
    """The number of a port that no other process uses while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def _ask(port: int) -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(identity.socket_name(port))
        answer: dict[str, str] = json.loads(asking.makefile().readline())
        return answer


def test_each_user_gets_their_own_token(port: int) -> None:
    tokens = TokenSocket(port, SECRET, "1.2.3")
    try:
        for _ in range(3):
            assert _ask(port) == {
                "user": ME,
                "token": identity.user_token(SECRET, ME),
                "version": "1.2.3",
            }
    finally:
        tokens.stop()
    with pytest.raises(ConnectionRefusedError):
        _ask(port)


def test_a_caller_that_disconnects_at_once_does_no_harm(port: int) -> None:
    tokens = TokenSocket(port, SECRET, "1.2.3")
    try:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as hasty:
                hasty.connect(identity.socket_name(port))
        assert _ask(port)["user"] == ME
    finally:
        tokens.stop()


def test_the_name_of_the_socket_is_taken_as_soon_as_it_is_free(port: int) -> None:
    with socket.socket(socket.AF_UNIX) as squatter, capture_logs() as said:
        squatter.bind(identity.socket_name(port))
        squatter.listen()
        tokens = TokenSocket(port, SECRET, "1.2.3")
        try:
            squatter.close()
            eventually(lambda: tokens._listening)
            assert _ask(port)["user"] == ME
        finally:
            tokens.stop()
    assert [line["event"] for line in said] == ["token_socket_taken", "token_socket_free"]
    assert said[0]["by"] == f"pid {os.getpid()} of {ME}"


def test_a_socket_that_was_never_opened_can_be_stopped(port: int) -> None:
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(identity.socket_name(port))
        TokenSocket(port, SECRET, "1.2.3").stop()
