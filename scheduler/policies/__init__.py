"""The policies by name: `plan(view, now) -> Plan`, made from the rules. One file each, which is
imported when the policy is asked for: numpy and scipy take longer to import than all the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from scheduler.model import Rules
from scheduler.ports import Policy

NAMES = ("gpu_sharing", "fifo_sharing", "fifo", "srtf", "las", "elastic", "packing", "gavel")


def _made(name: str, rules: Rules) -> Policy:
    made: Policy = getattr(import_module(f"scheduler.policies.{name}"), name)(rules)
    return made


POLICIES: dict[str, Callable[[Rules], Policy]] = {name: partial(_made, name) for name in NAMES}
