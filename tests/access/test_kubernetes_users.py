"""People whom Kubernetes knows: what they are called here, and how often it is asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.access import kubernetes_users
from scheduler.access.kubernetes_users import KubernetesUsers
from scheduler.access.user_table import User
from scheduler.core.errors import Busy, Unauthenticated, Unavailable

OURS = "epoch-scheduler"
ADA, EVE, ODD = "a.d.a", "e.v.e", "o.d.d"
USERS = {"ada": User(kubernetes="oidc:ada"), "bob": User(uid=7)}


class World:
    """What Kubernetes knows, how often it was asked, and what time it is."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {ADA: "oidc:ada"}
        self.asked: list[str] = []
        self.away = False
        self.now = 0.0
        self.reviewed = KubernetesUsers(self.ask, OURS, USERS, lambda: self.now)

    def ask(self, audience: str, token: str) -> str | None:
        assert audience == OURS
        self.asked.append(token)
        if self.away:
            raise Unavailable("nobody answers")
        return self.names.get(token)


@pytest.fixture
def world() -> World:
    return World()


def denied(world: World, token: str) -> None:
    with pytest.raises(Unauthenticated, match="was not issued for the audience epoch-scheduler"):
        world.reviewed.user(token)


def test_a_user_has_the_name_that_the_settings_give(world: World) -> None:
    world.names[EVE] = "system:serviceaccount:lab:eve"
    assert world.reviewed.user(ADA) == "ada"
    assert world.reviewed.user(EVE) == "system:serviceaccount:lab:eve"


def test_a_kubernetes_name_is_not_the_name_of_another_user_here(world: World) -> None:
    world.names |= {EVE: "ada", ODD: "bob"}
    assert world.reviewed.user(ODD) == "bob", "who has no other name is called the same"
    with pytest.raises(Unauthenticated, match="Kubernetes knows you as 'ada', which is not a user"):
        world.reviewed.user(EVE)


def test_a_name_that_cannot_be_ours_is_told(world: World) -> None:
    world.names[ODD] = "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS}\n"
    with pytest.raises(
        Unauthenticated, match=r"knows you as 'Zo\\xeb\\n', which is not a user here"
    ):
        world.reviewed.user(ODD)


def test_what_was_told_is_remembered_for_a_while(world: World) -> None:
    for _ in range(3):
        assert world.reviewed.user(ADA) == "ada"
        denied(world, EVE)
    assert world.asked == [ADA, EVE]
    world.now += kubernetes_users.UNKNOWN_SECONDS
    world.names = {EVE: "bob"}
    assert world.reviewed.user(EVE) == "bob", "a fresh token is good soon"
    assert world.reviewed.user(ADA) == "ada"
    world.now += kubernetes_users.KNOWN_SECONDS
    denied(world, ADA)  # one that was taken back is not good for long


def test_while_kubernetes_does_not_answer_no_token_is_rejected(world: World) -> None:
    assert world.reviewed.user(ADA) == "ada"
    world.away = True
    assert world.reviewed.user(ADA) == "ada"
    with pytest.raises(Unavailable):
        world.reviewed.user(EVE)
    world.away = False
    world.names[EVE] = "bob"
    assert world.reviewed.user(EVE) == "bob", "and no denial is remembered"


def test_what_is_no_token_of_kubernetes_is_not_shown_to_it(world: World) -> None:
    for token in ("", "ada.0123", "est_abc", "a.b.c.d", "a..c", "\N{SNOWMAN}.b.c", "a.b.c\n"):
        assert world.reviewed.user(token) is None
    assert world.asked == []


def test_unknown_tokens_cannot_fill_the_memory(world: World) -> None:
    for number in range(3 * kubernetes_users.REMEMBERED_MAX):
        denied(world, f"x.y.{number}")
    assert len(world.reviewed._told) <= kubernetes_users.REMEMBERED_MAX


def test_only_so_many_are_looked_up_at_a_time() -> None:
    """A server that is silent must not hold every thread there is."""
    going_on, answered = threading.Semaphore(0), threading.Event()

    def ask(_: str, token: str) -> str | None:
        going_on.release()
        assert answered.wait(60)
        return "bob"

    reviewed = KubernetesUsers(ask, OURS, USERS, lambda: 0.0)
    with ThreadPoolExecutor(kubernetes_users.ASKING_MAX) as pool:
        told = [pool.submit(reviewed.user, f"x.y.{n}") for n in range(kubernetes_users.ASKING_MAX)]
        for _ in told:
            assert going_on.acquire(timeout=60)
        with pytest.raises(Busy, match="too many unknown tokens"):
            reviewed.user(EVE)
        answered.set()
        assert {one.result() for one in told} == {"bob"}
    assert reviewed.user(EVE) == "bob"
