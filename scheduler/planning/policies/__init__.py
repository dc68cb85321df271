"""The policies by name: `plan(view, now) -> Plan`, made from the rules. One module each, imported
when there is something to plan: scipy takes longer to import than all the rest, and an idle daemon
does without it. (numpy is there anyway: sqlite-utils imports it.)"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from scheduler.core.model import Job, Plan, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.estimates.next_try import NextTry
from scheduler.planning.turns import in_turn

# What each does, for people who choose one.
SUMMARIES = {
    "gpu_sharing": "jobs share GPUs and grow, so that users wait less (the default)",
    "fifo_sharing": "first come, first served; jobs share GPUs by memory",
    "fifo": "first come, first served, on whole GPUs",
    "srtf": "the job with the shortest remaining time first, on whole GPUs",
    "las": "the job that has had least first, on whole GPUs",
    "elastic": "jobs grow and shrink while they run, on whole GPUs (Pollux)",
    "packing": "two jobs on a GPU if they are expected not to harm each other (Lucid)",
    "packing_gangs": "the same, with jobs on several GPUs too",
    "gavel": "each job gets a fair share of each type of GPU, by its speed there",
}
NAMES = tuple(SUMMARIES)


def _build_policy(name: str, rules: Rules) -> Policy:
    policy: Policy | None = None

    def plan(view: View, now: Time) -> Plan:
        nonlocal policy
        if not view.jobs:
            return Plan()
        if policy is None:
            policy = getattr(import_module(f"scheduler.planning.policies.{name}"), name)(rules)
        return in_turn(policy, view, now)

    return plan


def explain_tries(name: str, rules: Rules) -> Callable[[Job, View, Time], NextTry | None]:
    """What a job tries next under this policy; None under policies that try nothing."""
    found: Callable[[Job, View, Time], NextTry | None] | None = None

    def of(job: Job, view: View, now: Time) -> NextTry | None:
        nonlocal found
        if found is None:
            module = import_module(f"scheduler.planning.policies.{name}")
            found = getattr(module, "next_tries", lambda rules: lambda job, view, now: None)(rules)
        return found(job, view, now)

    return of


POLICIES: dict[str, Callable[[Rules], Policy]] = {
    name: partial(_build_policy, name) for name in NAMES
}
