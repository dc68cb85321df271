"""Tokens of Kubernetes: how often it is asked about them, and what is remembered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.access import reviewed_tokens
from scheduler.access.reviewed_tokens import ReviewedTokens, TokenOwner
from scheduler.core.errors import Busy, Unauthenticated, Unavailable

OURS = "epoch-scheduler"
ADA, EVE = "a.d.a", "e.v.e"
NAMES = {ADA: TokenOwner("ada"), EVE: TokenOwner("eve", "n1")}
PATIENCE_SECONDS = 1000.0


class World:
    """What Kubernetes knows, how often it was asked, and what time it is."""

    def __init__(self, unanswered_seconds: float = 0.0) -> None:
        self.owners = {ADA: NAMES[ADA]}
        self.asked: list[str] = []
        self.away = False
        self.now = 0.0
        self.reviewed = ReviewedTokens(self.ask, OURS, lambda: self.now, unanswered_seconds)

    def ask(self, audience: str, token: str) -> TokenOwner | None:
        assert audience == OURS
        self.asked.append(token)
        if self.away:
            raise Unavailable("nobody answers")
        return self.owners.get(token)

    def denies(self, token: str) -> None:
        with pytest.raises(Unauthenticated, match="not issued for the audience epoch-scheduler"):
            self.reviewed.owner(token)


def test_what_was_told_is_remembered_for_a_while() -> None:
    world = World()
    for _ in range(3):
        assert world.reviewed.owner(ADA) == NAMES[ADA]
        world.denies(EVE)
    assert world.asked == [ADA, EVE]
    world.now += reviewed_tokens.UNKNOWN_SECONDS
    world.owners = {EVE: NAMES[EVE]}
    assert world.reviewed.owner(EVE) == NAMES[EVE], "a fresh token is good soon"
    assert world.reviewed.owner(ADA) == NAMES[ADA]
    world.now += reviewed_tokens.KNOWN_SECONDS
    world.denies(ADA)  # one that was taken back is not good for long


def test_while_kubernetes_does_not_answer_no_token_is_rejected() -> None:
    world = World()
    assert world.reviewed.owner(ADA)
    world.away = True
    assert world.reviewed.owner(ADA)
    with pytest.raises(Unavailable):
        world.reviewed.owner(EVE)
    world.now += reviewed_tokens.KNOWN_SECONDS
    with pytest.raises(Unavailable):
        world.reviewed.owner(ADA)
    world.away = False
    world.owners = dict(NAMES)
    assert world.reviewed.owner(EVE), "and no denial is remembered"


def test_an_earlier_answer_is_used_for_longer_where_that_is_wanted_but_never_a_denial() -> None:
    world = World(PATIENCE_SECONDS)
    assert world.reviewed.owner(ADA)
    world.denies(EVE)
    world.away = True
    world.now = reviewed_tokens.KNOWN_SECONDS + PATIENCE_SECONDS - 1.0
    assert world.reviewed.owner(ADA) == NAMES[ADA]
    with pytest.raises(Unavailable):
        world.reviewed.owner(EVE)
    world.now += 1.0
    with pytest.raises(Unavailable):
        world.reviewed.owner(ADA)
    world.away, world.owners = False, {}
    world.denies(ADA)
    world.away = True
    world.now += PATIENCE_SECONDS / 2
    with pytest.raises(Unavailable):
        world.reviewed.owner(ADA)


def test_what_is_no_token_of_kubernetes_is_not_shown_to_it() -> None:
    world = World()
    for token in ("", "ada.0123", "est_abc", "a.b.c.d", "a..c", "\N{SNOWMAN}.b.c", "a.b.c\n"):
        assert world.reviewed.owner(token) is None
    assert world.asked == []


def test_unknown_tokens_cannot_fill_the_memory() -> None:
    world = World()
    for number in range(3 * reviewed_tokens.REMEMBERED_MAX):
        world.denies(f"x.y.{number}")
    assert len(world.reviewed._told) <= reviewed_tokens.REMEMBERED_MAX


def test_only_so_many_are_looked_up_at_a_time() -> None:
    """A server that is silent must not hold every thread there is."""
    going_on, answered = threading.Semaphore(0), threading.Event()

    def ask(_: str, token: str) -> TokenOwner | None:
        going_on.release()
        assert answered.wait(60)
        return TokenOwner("bob")

    reviewed, most = ReviewedTokens(ask, OURS, lambda: 0.0), reviewed_tokens.ASKING_MAX
    with ThreadPoolExecutor(most) as pool:
        told = [pool.submit(reviewed.owner, f"x.y.{number}") for number in range(most)]
        for _ in told:
            assert going_on.acquire(timeout=60)
        with pytest.raises(Busy, match="too many unknown tokens"):
            reviewed.owner(EVE)
        answered.set()
        assert {one.result() for one in told} == {TokenOwner("bob")}
    assert reviewed.owner(EVE) == TokenOwner("bob")
