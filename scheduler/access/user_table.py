"""The table `users` of the settings: the Kubernetes names of users, and the uid, groups and
namespace of their pods.

The embedded cluster does not use it: there, users are accounts of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from scheduler.core.errors import ConfigError

NAME_MAX = 256  # characters of a user's name
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # as RFC 1123 has it

NUMBERED = re.compile(r"uid-([0-9]{1,10})", re.ASCII)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not given is the same as for other users."""

    kubernetes: str = ""  # the user's name there; empty: the same
    namespace: str = ""
    uid: Number | None = None
    groups: tuple[Number, ...] = ()  # the first one owns new files
    root: bool = False  # an admin confirms that uid or group 0 is meant


def fits(name: str) -> bool:
    """Whether it can be a user's name: it must fit into a header."""
    plain = name.isascii() and name.isprintable() and " " not in name
    return plain and 0 < len(name) <= NAME_MAX


def number(user: str) -> int | None:
    """The uid of a user who is called by it; None: the user has a name. No name looks like that."""
    match = NUMBERED.fullmatch(user)
    return int(match[1]) if match else None


def users(given: Mapping[str, Any]) -> dict[str, User]:
    """Converts the table as TOML has it. Raises ConfigError, which names the key."""
    found = {name: _user(name, values) for name, values in given.items()}
    known: dict[str, str] = {}
    for name, user in found.items():
        other = known.setdefault(user.kubernetes or name, name)
        if other != name:
            raise ConfigError(f"users: {other} and {name} have the same name in Kubernetes")
    return found


def _user(name: str, values: Any) -> User:
    if not fits(name):
        raise ConfigError(f"users: {name!r} is not a valid user name")
    try:
        user = msgspec.convert(values, User)
    except msgspec.ValidationError as error:
        words, _, path = str(error).replace("`", "").partition(" - at $")
        raise ConfigError(f"users.{name}{path}: {words[:1].lower()}{words[1:]}") from error
    if user.namespace and not NAMESPACE.fullmatch(user.namespace):
        raise ConfigError(
            f"users.{name}.namespace: {user.namespace!r} is not a valid namespace name"
        )
    for key, numbers in (("uid", (user.uid,)), ("groups", user.groups)):
        if 0 in numbers and not user.root:
            raise ConfigError(f"users.{name}.{key}: 0 is root; this also needs root = true")
    return user
