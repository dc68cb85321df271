"""The table of users on a cluster: which entries are valid, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.access.user_table import User, fits, users
from scheduler.core.errors import ConfigError


def test_what_is_not_said_of_a_user_is_as_for_everybody() -> None:
    assert users({"ada": {}}) == {"ada": User()}


def test_what_is_said_of_a_user_is_theirs() -> None:
    ada = {"kubernetes": "oidc:ada@lab", "namespace": "vision", "uid": 1001, "groups": [500, 501]}
    assert users({"ada": ada}) == {"ada": User("oidc:ada@lab", "vision", 1001, (500, 501))}


def test_only_an_admin_can_make_a_user_root() -> None:
    assert users({"ada": {"uid": 0, "root": True}})["ada"].uid == 0
    for values in ({"uid": 0}, {"groups": [0]}, {"groups": [7, 0]}):
        with pytest.raises(ConfigError, match=r"0 is root; this also needs root = true"):
            users({"ada": values})


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("", {}, "'' is not a valid user name"),
        ("a b", {}, "'a b' is not a valid user name"),
        ("ada", 7, "users.ada: expected object, got int"),
        ("ada", {"uid": "ada"}, "users.ada.uid: expected int | null, got str"),
        ("ada", {"uid": -1}, "users.ada.uid: expected int >= 0"),
        ("ada", {"uid": 2**31}, "users.ada.uid: expected int <= 2147483647"),
        ("ada", {"groups": 7}, "users.ada.groups: expected array, got int"),
        ("ada", {"groups": ["staff"]}, "users.ada.groups[0]: expected int, got str"),
        ("ada", {"gid": 7}, "users.ada: object contains unknown field gid"),
        (
            "ada",
            {"namespace": "My_Lab"},
            "users.ada.namespace: 'My_Lab' is not a valid namespace name",
        ),
        ("ada", {"root": 1}, "users.ada.root: expected bool, got int"),
    ],
)
def test_what_cannot_be_is_refused(name: str, values: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        users({name: values})
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_no_kubernetes_name_has_two_users() -> None:
    with pytest.raises(ConfigError, match="ada and eve have the same name in Kubernetes"):
        users({"ada": {}, "eve": {"kubernetes": "ada"}})


@given(st.text())
def test_a_name_that_fits_can_be_a_header(name: str) -> None:
    assert not fits(name) or name.encode("ascii").decode().strip() == name != ""
