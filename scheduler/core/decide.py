"""One step of the scheduler as one pure function: events and a view in, a view and actions out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.core.adopt import adopt, resize_shares
from scheduler.core.dependencies import settle
from scheduler.core.draft import Change
from scheduler.core.evolve import evolve
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    Action,
    Event,
    JobId,
    Observed,
    Profile,
    Rules,
    Time,
    View,
)
from scheduler.core.ports import Policy
from scheduler.core.reconcile import reconcile
from scheduler.core.watchdog import keep_time_limits, watch_runs


@dataclass(frozen=True, slots=True)
class Decision:
    view: View
    touched: tuple[JobId, ...]
    profiles: tuple[Profile, ...]  # measured epochs to be stored
    actions: tuple[Action, ...]
    wake_at: Time | None


def decide(
    view: View, events: Sequence[Event], now: Time, policy: Policy, rules: Rules
) -> Decision:
    change = evolve(view, events, now, rules)
    after, touched, profiles = change.view, change.touched, change.profiles
    looked = any(isinstance(event, Observed) for event in events)
    if looked:
        change = watch_runs(after, now, rules)
        after, touched = change.view, (*touched, *change.touched)
    if stopped := keep_time_limits(after, after.jobs if looked else touched, now, rules):
        after, touched = stopped.view, (*touched, *stopped.touched)
    if settled := settle(after, touched, looked, now, rules):
        after, touched = settled.view, (*touched, *settled.touched)
    if _plan_is_due(after, now, rules):
        for change in _replan(after, policy, now, rules):
            after, touched = change.view, (*touched, *change.touched)
    touched = tuple(dict.fromkeys(touched))
    actions = tuple(reconcile(after, touched, looked, view.at, now))
    after = replace(after, number=view.number + 1, due_at=_due_at(view, after, touched, now))
    return Decision(
        view=after,
        touched=touched,
        profiles=profiles,
        actions=actions,
        wake_at=min(_alarms(after, now, rules), default=None),
    )


def _replan(view: View, policy: Policy, now: Time, rules: Rules) -> tuple[Change, Change]:
    fitted = resize_shares(view, now, rules)
    return fitted, adopt(fitted.view, policy(fitted.view, now), now, rules)


def _plan_is_due(view: View, now: Time, rules: Rules) -> bool:
    """Whether to plan now: the view is stale, or the last plan asked for the next one by now.

    A view is stale after the first observation, and after a change of nodes, held memory or
    anything else that a plan must obey (draft.py: `_matters`), such as a new job or another
    priority. A learned speed does not make it stale, because every epoch report teaches one and few
    of them change what a plan would choose. The one exception is the first measurement of a job
    beside others, which may show that they should be separated (evolve.py: `_learn_speed`). All
    other speeds wait for the next plan: a policy that chooses by speed says in `replan_at` when to
    plan again, as gpu_sharing does with AGAIN_SECONDS.

    There is no plan before the first observation, nor within `plan_every_seconds` of the last one.
    """
    if view.observed_at is None:
        return False
    asked = view.stale or (view.replan_at is not None and view.replan_at <= now)
    return asked and now >= _plan_from(view, rules)


def _plan_from(view: View, rules: Rules) -> Time:
    """The earliest moment of the next plan, however much changes before it."""
    return 0.0 if view.planned_at is None else view.planned_at + rules.plan_every_seconds


def _alarms(view: View, now: Time, rules: Rules) -> Iterator[Time]:
    if view.observed_at is not None:
        if view.stale:
            yield max(now, _plan_from(view, rules))
        if view.replan_at is not None:
            yield max(view.replan_at, _plan_from(view, rules))
    if view.due_at < math.inf:
        yield view.due_at


def _due_at(before: View, after: View, touched: Sequence[JobId], now: Time) -> Time:
    """When the next run is to be killed. Thousands of runs may have been asked to stop, so all of
    them are examined only if this step has changed which one is next."""
    moments = [(_kill_at(before, job_id), _kill_at(after, job_id)) for job_id in touched]
    changed = [(was, will_be) for was, will_be in moments if was != will_be]
    if before.due_at <= now or any(was == before.due_at for was, _ in changed):
        found = [_kill_at(after, job_id) for job_id in after.stopping]
    else:
        found = [before.due_at, *(will_be for _, will_be in changed)]
    return min((moment for moment in found if moment > now), default=math.inf)


def _kill_at(view: View, job_id: JobId) -> Time:
    run = view.jobs[job_id].run if job_id in view.stopping else None
    return math.inf if run is None or run.kill_at is None else run.kill_at
