"""Who a person is, whichever kind of token they have."""

from __future__ import annotations

import pytest

from scheduler.access.authentication import Authenticator
from scheduler.core.errors import Unauthenticated


def _named(token: str) -> str | None:
    return token.removeprefix("name-") if token.startswith("name-") else None


def _numbered(token: str) -> str | None:
    if token == "number-0":
        raise Unauthenticated("number 0 is over")
    return f"user {token[-1]}" if token.startswith("number-") else None


PEOPLE = Authenticator([_named, _numbered])


def test_each_kind_of_token_is_tried() -> None:
    assert PEOPLE.user("name-ada") == "ada"
    assert PEOPLE.user("number-7") == "user 7"


def test_a_token_of_no_kind_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="not issued by this scheduler"):
        PEOPLE.user("else")


def test_one_that_does_not_hold_any_more_says_so_itself() -> None:
    with pytest.raises(Unauthenticated, match="number 0 is over"):
        PEOPLE.user("number-0")


def test_a_call_without_a_token_is_told_what_to_do() -> None:
    with pytest.raises(
        Unauthenticated, match="no token: set SCHEDULER_TOKEN to a token that an admin"
    ):
        PEOPLE.user(None)


def test_what_others_could_read_along_is_refused_where_there_is_a_better_way() -> None:
    encrypted = Authenticator([_named], encrypted_port=7443)
    assert encrypted.user("name-ada", insecure=False) == "ada"
    with pytest.raises(Unauthenticated, match="use --server HOST:7443 and --ca FILE"):
        encrypted.user("name-ada", insecure=True)
    assert PEOPLE.user("name-ada", insecure=True) == "ada"
