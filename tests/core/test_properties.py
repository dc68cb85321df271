"""What holds of the core for any plan and any events whatsoever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.adopt import adopt
from scheduler.core.decide import decide
from scheduler.core.draft import Change, held_by_gpu
from scheduler.core.evolve import evolve
from scheduler.core.invariants import check
from scheduler.core.memory import usable_gpus
from scheduler.core.model import (
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Finished,
    Job,
    JobId,
    Node,
    Observed,
    Plan,
    Pod,
    PodState,
    Profile,
    Reported,
    RunPhase,
    Share,
    Submitted,
    Updated,
    View,
)
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests import builders
from tests.views import IDS, KEYS, NODES, RULES, views

ids = st.sampled_from([*IDS, JobId("nobody")])
MEMORY = st.sampled_from([-1, 0, 1, 3000, 5000, 7936, builders.CAPACITY, 10**9])
attempts = st.integers(1, 3)
epochs = st.integers(0, 12)


shares = st.builds(
    lambda key, mib: Share(key[0], key[1], mib),
    st.sampled_from([*KEYS, ("nowhere", "gpu0"), ("a", "no-such-gpu")]),
    MEMORY,
)
plans = st.builds(
    Plan,
    placements=st.dictionaries(ids, st.lists(shares, max_size=4).map(tuple)),
    replan_at=st.none() | st.floats(0.0, 10_000.0),
)
nodes: st.SearchStrategy[tuple[Node, ...]] = st.lists(
    st.sampled_from([*NODES, replace(NODES[2], ready=True), replace(NODES[0], ready=False)]),
    unique_by=lambda node: node.name,
).map(tuple)
pods = st.builds(
    Pod,
    ids,
    attempts,
    st.sampled_from(PodState),
    st.lists(
        st.builds(lambda key: Share(key[0], key[1], 2200), st.sampled_from(KEYS)),
        max_size=2,
        unique_by=lambda share: share.key,
    ).map(tuple),
    exit_code=st.sampled_from([None, 0, 1, 85, 137]),
    reason=st.sampled_from(["", "lost", "out_of_memory", "evicted"]),
)
specs = st.sampled_from(
    [builders.spec("s", gpus=n, memory_mib=m) for n in (0, 1, 2) for m in (0, 5000)]
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Submitted, ids, specs),
    st.builds(Cancelled, ids, graceful=st.booleans()),
    st.builds(
        Updated,
        ids,
        priority=st.none() | st.integers(-1000, 1000),
        held=st.none() | st.booleans(),
        max_epochs=st.none() | st.integers(1, 12),
    ),
    st.builds(EpochStarted, ids, attempts, epochs),
    st.builds(Reported, ids, attempts, MEMORY),
    st.builds(
        EpochEnded, st.builds(Profile, ids, attempts, epochs, memory_mib=st.sampled_from([0, 9000]))
    ),
    st.builds(Finished, ids, attempts, preempted=st.booleans()),
    st.builds(
        Observed,
        st.floats(builders.NOW - 50.0, builders.NOW + 500.0),
        nodes,
        st.lists(pods, max_size=4, unique_by=lambda p: (p.job_id, p.attempt, p.rank)).map(tuple),
    ),
)
batches = st.lists(st.lists(events, max_size=4), max_size=8)


def held_mib(view: View, key: Any) -> int:
    return sum(view.held.get(key, {}).values())


@given(views(), plans)
def test_no_plan_whatsoever_breaks_what_must_hold(view: View, plan: Plan) -> None:
    change = adopt(view, plan, builders.NOW, RULES)
    after = change.view
    check(view, after, change.touched)
    for key, gpu in usable_gpus(after.nodes).items():
        assert held_mib(after, key) <= gpu.capacity_mib
    for job_id, old in view.jobs.items():
        job = after.jobs[job_id]
        assert (job.outcome, job.epochs_done) == (old.outcome, old.epochs_done)
        if job.run and not old.run:
            assert old.waiting
            assert not old.held
        if old.run:  # asked to stop perhaps, but never ended by a plan
            assert job.run is not None
            assert job.run.attempt == old.run.attempt


@given(views(), plans)
def test_to_adopt_names_all_that_it_touches_and_keeps_the_books(view: View, plan: Plan) -> None:
    change = adopt(view, plan, builders.NOW, RULES)
    assert {id for id, job in change.view.jobs.items() if job != view.jobs[id]} == set(
        change.touched
    )
    assert held_by_gpu(change.view) == change.view.held


@given(views(), plans)
def test_a_plan_adopted_twice_is_adopted_once(view: View, plan: Plan) -> None:
    once = adopt(view, plan, builders.NOW, RULES).view
    assert adopt(once, plan, builders.NOW, RULES).view.jobs == once.jobs


@given(views(), batches)
def test_no_news_whatsoever_breaks_what_must_hold(view: View, batches: list[list[Event]]) -> None:
    for seconds, batch in enumerate(batches):
        change: Change = evolve(view, batch, builders.NOW + 20.0 * seconds, RULES)
        after = change.view
        check(view, after, change.touched)
        assert held_by_gpu(after) == after.held
        assert after.stopping == {id for id, job in after.jobs.items() if _stopping(job)}
        changed = {id for id, job in after.jobs.items() if job != view.jobs.get(id)}
        assert changed <= set(change.touched)
        view = after


@given(views(), batches)
def test_to_decide_is_safe_and_always_the_same(view: View, batches: list[list[Event]]) -> None:
    policy = fifo_sharing(RULES)
    for seconds, batch in enumerate(batches):
        now = builders.NOW + 20.0 * seconds
        made = decide(view, batch, now, policy, RULES)
        check(view, made.view, made.touched)
        assert made == decide(view, batch, now, policy, RULES)
        view = made.view


@given(views())
def test_where_nothing_changes_nothing_is_decided(view: View) -> None:
    policy = fifo_sharing(RULES)
    for _ in range(3):  # what runs give back may be given away again
        view = decide(view, (), builders.NOW, policy, RULES).view
    again = decide(view, (), builders.NOW, policy, RULES)
    assert again.view.jobs == view.jobs
    assert again.touched == ()


def _stopping(job: Job) -> bool:
    return job.run is not None and job.run.phase is RunPhase.STOPPING
