"""As packing.py, and gangs of one node are paired as well, as Lucid's artifact does."""

from __future__ import annotations

from scheduler.measurements import COUNT_MAX
from scheduler.model import Rules
from scheduler.policies.packing import packing
from scheduler.ports import Policy


def packing_gangs(rules: Rules) -> Policy:
    return packing(rules, gpus_max=COUNT_MAX)
