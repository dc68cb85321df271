"""The policies by name: `plan(view, now) -> Plan`, made from the rules. One file each."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.model import Rules
from scheduler.policies.fifo import fifo
from scheduler.ports import Policy

POLICIES: dict[str, Callable[[Rules], Policy]] = {"fifo": fifo}
