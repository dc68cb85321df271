from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from scheduler.core.draft import Draft, held_by_gpu
from scheduler.core.model import (
    Cancelled,
    Event,
    JobId,
    Outcome,
    Pod,
    PodState,
    Submitted,
    View,
)
from tests.builders import (
    CAPACITY,
    NOW,
    RULES,
    ScriptedCluster,
    job,
    node,
    pod,
    share,
    spec,
    view,
    with_run,
)


def test_an_equal_job_touches_nothing() -> None:
    before = view(with_run(job("a"), share()))
    draft = Draft(before, NOW, RULES)
    draft.put(replace(before.jobs[JobId("a")]))
    change = draft.build()
    assert change.touched == ()
    assert (change.view.jobs, change.view.held) == (before.jobs, before.held)
    assert change.view.jobs is before.jobs


def test_the_view_before_is_left_as_it_was() -> None:
    before = view(with_run(job("a"), share()))
    draft = Draft(before, NOW, RULES)
    draft.put(job("a"))
    draft.put(job("b"))
    draft.build()
    assert list(before.jobs) == ["a"]
    assert before.held == {("n1", "gpu0"): {("a", 1): CAPACITY}}


def test_jobs_are_touched_in_the_order_of_their_first_change() -> None:
    draft = Draft(view(job("a")), NOW, RULES)
    for name in ("c", "b", "a"):
        draft.put(job(name, priority=5))
    draft.put(job("c", priority=6))
    assert draft.build().touched == ("c", "b", "a")


def test_pods_of_a_run_that_is_not_current_hold_their_shares_until_seen_gone() -> None:
    ghost = pod(with_run(job("ghost"), share(5000)))
    shown = view(pods=[ghost])
    assert shown.held == {("n1", "gpu0"): {("ghost", 1): 5000}}
    terminating = view(pods=[replace(ghost, state=PodState.TERMINATING)])
    assert terminating.held == shown.held
    assert view(pods=[replace(ghost, state=PodState.FAILED)]).held == {}


def test_a_run_we_believe_in_holds_what_we_granted_whatever_its_pods_say() -> None:
    believed = with_run(job("a"), share(5000))
    shown = pod(believed, shares=(share(1000),))
    assert view(believed, pods=[shown]).held == {("n1", "gpu0"): {("a", 1): 5000}}
    assert view(believed).held == {("n1", "gpu0"): {("a", 1): 5000}}


def test_a_run_that_is_over_leaves_what_its_pods_hold() -> None:
    running = with_run(job("a"), share(5000))
    draft = Draft(view(running, pods=[pod(running, PodState.TERMINATING)]), NOW, RULES)
    draft.put(replace(running, run=None))
    assert draft.held == {("n1", "gpu0"): {("a", 1): 5000}}


def test_the_jobs_that_stop_are_known() -> None:
    town = ScriptedCluster()
    town.look()
    town.submit("a")
    town.step(Cancelled(JobId("a"), graceful=True))
    assert town.view.stopping == {"a"}
    town.exit("a")
    assert town.view.stopping == frozenset()


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ({"priority": 5}, True),
        ({"held": True}, True),
        ({"memory_mib": 9}, True),
        ({"max_epochs": 99}, True),
        ({"outcome": Outcome.CANCELLED}, True),
        ({"reason": "because"}, False),
        ({"epochs_done": 1}, False),
    ],
)
def test_a_plan_is_stale_when_something_changed_that_it_depends_on(
    changed: dict[str, object], stale: bool
) -> None:
    draft = Draft(view(job("a")), NOW, RULES)
    draft.put(replace(job("a"), **changed))  # type: ignore[arg-type]  # fields of Job, each
    assert draft.stale is stale


def test_a_plan_is_stale_when_a_run_begins_to_speak() -> None:
    silent = with_run(job("a"), share(), heard_at=None)
    draft = Draft(view(silent), NOW, RULES)
    draft.put(with_run(job("a"), share()))
    assert draft.stale


def test_a_plan_is_stale_when_a_node_comes_or_goes() -> None:
    draft = Draft(view(), NOW, RULES)
    draft.observe((node(),), {})
    assert not draft.stale
    draft.observe((node(2),), {})
    assert draft.stale


@pytest.mark.parametrize("seed", range(20))
def test_the_updated_held_memory_equals_the_recomputed_one(seed: int) -> None:
    """Anything happens in this cluster: pods die, linger, and appear without a launch."""
    rng = random.Random(seed)
    town = ScriptedCluster(node(2), node(2, name="n2"))
    for number in range(60):
        town.step(*_something(town, number, rng))
        assert held_by_gpu(town.view) == town.view.held


@pytest.mark.parametrize("seed", range(20))
def test_it_is_known_when_the_next_run_is_to_be_killed(seed: int) -> None:
    rng, asked = random.Random(seed), 0
    town = ScriptedCluster(node(2), node(2, name="n2"))
    for number in range(120):
        town.now += rng.choice([0.0, 300.0, 1500.0])
        town.step(*_something(town, number, rng))
        kills = [town.view.jobs[id].run for id in town.view.stopping]
        moments = [run.kill_at for run in kills if run and run.kill_at is not None]
        asked += len(moments)
        later = [moment for moment in moments if moment > town.now]
        assert town.view.due_at == min(later, default=math.inf)
    assert asked


def _something(town: ScriptedCluster, number: int, rng: random.Random) -> list[Event]:
    names = list(town.view.jobs) or [JobId("nobody")]
    match rng.randrange(6):
        case 0 | 1:
            wish = spec(f"j{number}", gpus=rng.choice([1, 1, 2]), memory_mib=rng.choice([0, 5000]))
            return [Submitted(JobId(wish.name), wish)]
        case 2 if town.pods:
            key = rng.choice(list(town.pods))
            at = rng.randrange(len(town.pods[key]))
            town.pods[key][at] = replace(town.pods[key][at], state=rng.choice(list(PodState)))
        case 3 if town.pods:
            del town.pods[rng.choice(list(town.pods))]
        case 4:
            key = (rng.choice(names), rng.randint(1, 3))
            town.pods.setdefault(key, [Pod(*key, PodState.RUNNING, (share(100),))])
        case 5:
            return [Cancelled(rng.choice(names), graceful=rng.random() < 0.5)]
    town.look()
    return []


def test_books_of_an_empty_view_are_empty() -> None:
    assert held_by_gpu(View()) == {}
