"""The policies by name: `plan(view, now) -> Plan`, made from the rules. One file each."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.model import Rules
from scheduler.policies.fifo_sharing import fifo_sharing
from scheduler.ports import Policy

POLICIES: dict[str, Callable[[Rules], Policy]] = {"fifo_sharing": fifo_sharing}
