"""People whom Kubernetes knows: what they are called here."""

from __future__ import annotations

import pytest

from scheduler.access.kubernetes_users import KubernetesUsers
from scheduler.access.reviewed_tokens import ReviewedTokens, TokenOwner
from scheduler.access.user_table import User
from scheduler.core.errors import Unauthenticated

OURS = "epoch-scheduler"
ADA, EVE, ODD = "a.d.a", "e.v.e", "o.d.d"
USERS = {"ada": User(kubernetes="oidc:ada"), "bob": User(uid=7)}


class World:
    """What Kubernetes knows."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {ADA: "oidc:ada"}
        self.reviewed = KubernetesUsers(ReviewedTokens(self.ask, OURS, lambda: 0.0), USERS)

    def ask(self, audience: str, token: str) -> TokenOwner | None:
        return TokenOwner(self.names[token]) if token in self.names else None


@pytest.fixture
def world() -> World:
    return World()


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


def test_a_token_of_another_kind_has_no_user_here_and_one_that_is_not_valid_is_denied(
    world: World,
) -> None:
    assert world.reviewed.user("ada.0123") is None
    with pytest.raises(Unauthenticated, match="was not issued for the audience epoch-scheduler"):
        world.reviewed.user(EVE)
