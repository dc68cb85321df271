"""Like packing.py, but gangs of one node are paired as well, as Lucid's artifact does."""

from __future__ import annotations

from scheduler.core.model import GPUS_MAX, Rules
from scheduler.core.ports import Policy
from scheduler.planning.policies.packing import packing


def packing_gangs(rules: Rules) -> Policy:
    return packing(rules, gpus_max=GPUS_MAX)
