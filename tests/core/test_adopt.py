from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler.core.adopt import adopt, resize_shares
from scheduler.core.invariants import check
from scheduler.core.learning import kind_of
from scheduler.core.model import (
    Job,
    JobFamily,
    JobId,
    Node,
    Outcome,
    Plan,
    PodState,
    Reason,
    Rules,
    Run,
    RunPhase,
    Share,
    View,
    Waiting,
)
from scheduler.core.runs import has_epoch_to_stop_at
from tests.builders import CAPACITY, NOW, RULES, job, node, pod, share, view, with_run

A, B = JobId("a"), JobId("b")


def adopted(
    before: View,
    placements: Mapping[str, tuple[Share, ...]],
    why: Mapping[str, Reason] | None = None,
    rules: Rules = RULES,
) -> View:
    reasons = {JobId(name): reason for name, reason in (why or {}).items()}
    plan = Plan({JobId(name): shares for name, shares in placements.items()}, reasons)
    change = adopt(before, plan, NOW, rules)
    check(before, change.view, change.touched)
    return change.view


def fitted(before: View) -> View:
    change = resize_shares(before, NOW, RULES)
    check(before, change.view, change.touched)
    return change.view


def run_of(after: View, name: JobId = A) -> Run:
    run = after.jobs[name].run
    assert run
    return run


# --- starting -----------------------------------------------------------------------------------


def test_a_job_starts_where_it_was_planned() -> None:
    waiting = job("a", 4000, attempts=2, epochs_done=3, started_at=5.0)
    after = adopted(view(waiting), {"a": (share(4000),)})
    assert after.jobs[A].attempts == 3
    assert after.jobs[A].started_at == 5.0, "of its first run"
    run = run_of(after)
    assert (run.attempt, run.shares, run.phase) == (3, (share(4000),), RunPhase.STARTING)
    assert (run.started_at, run.phase_at, run.heard_at) == (NOW, NOW, None)
    assert (run.epochs_before, run.epoch_started) == (3, 2), "not let into any epoch yet"
    assert after.held == {("n1", "gpu0"): {(A, 3): 4000}}


@pytest.mark.parametrize(
    ("old", "keep", "renewed"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_job_of_a_kind_that_spoke_as_an_old_library_is_given_the_new_one(
    old: bool, keep: bool, renewed: bool
) -> None:
    waiting = job("a", 4000)
    waiting = replace(waiting, spec=replace(waiting.spec, keep_library=keep))
    before = replace(view(waiting), kinds={kind_of(waiting.spec): JobFamily(old_library=old)})
    assert run_of(adopted(before, {"a": (share(4000),)})).renew_library is renewed


@pytest.mark.parametrize(
    ("waiting", "shares"),
    [
        pytest.param(job("a", 4000, held=True), [share(4000)], id="held"),
        pytest.param(job("a", 4000, eligible_at=NOW + 1), [share(4000)], id="not eligible yet"),
        pytest.param(
            job("a", 4000, outcome=Outcome.FAILED, ended_at=0.0), [share(4000)], id="ended"
        ),
        pytest.param(job("a", 4000), [], id="too few GPUs"),
        pytest.param(job("a", 4000), [share(4000), share(4000, 1)], id="too many GPUs"),
        pytest.param(job("a", 4000, gpus=2), [share(4000), share(4000)], id="one GPU twice"),
        pytest.param(job("a", 4000), [share(3999)], id="less than it needs"),
        pytest.param(job("a", 4000), [share(CAPACITY + 1)], id="more than the GPU has"),
        pytest.param(job("a", 4000), [share(4000, 7)], id="a GPU that is not there"),
        pytest.param(job("a", 4000), [share(4000, node="n9")], id="a node that is not there"),
        pytest.param(job("a", 4000), [share(4000, node="away")], id="a node that is not ready"),
        pytest.param(job("a", 4000, shareable=False), [share(4000)], id="does not share"),
        pytest.param(job("a"), [share(4000)], id="unknown need"),
        pytest.param(job("a", 4000), [share(0)], id="nothing"),
        pytest.param(job("a", 4000), [share(-4000)], id="less than nothing"),
        pytest.param(job("a", 20000), [share(CAPACITY)], id="never fits"),
        pytest.param(job("a", 4000), [share(4000, 2)], id="taken by a run"),
        pytest.param(job("a", 4000), [share(4000, 3)], id="taken by pods not yet seen gone"),
        pytest.param(job("a", 0, gpus=0), [share(4000)], id="a GPU for a job without"),
    ],
)
def test_a_job_does_not_start(waiting: Job, shares: list[Share]) -> None:
    neighbour = with_run(job("b", 12000), share(12000, 2))
    ghost = pod(with_run(job("ghost"), share(12000, 3)), PodState.TERMINATING)
    nodes = [node(4), node(name="away", ready=False)]
    before = view(waiting, neighbour, nodes=nodes, pods=[ghost])
    after = adopted(before, {"a": tuple(shares), "b": (share(12000, 2),)})
    assert after.jobs is before.jobs


def test_a_job_does_not_start_on_a_gpu_that_has_nothing_to_share() -> None:
    before = view(job("a"), nodes=[node(memory_mib=100)])
    assert adopted(before, {"a": (share(0),)}).jobs is before.jobs


def test_a_cancelled_job_does_not_start() -> None:
    before = view(job("a", 4000, cancelled=True))
    assert adopted(before, {"a": (share(4000),)}).jobs is before.jobs


def test_of_two_jobs_planned_onto_the_same_memory_the_first_starts() -> None:
    before = view(job("a", 9000), job("b", 9000))
    after = adopted(before, {"b": (share(9000),), "a": (share(9000),)})
    assert (after.jobs[A].waiting, after.jobs[B].waiting) == (True, False)


def test_a_job_that_needs_no_gpu_starts_without() -> None:
    after = adopted(view(job("a", gpus=0)), {"a": ()})
    assert (run_of(after).shares, after.held) == ((), {})


def test_the_margin_is_part_of_what_a_job_needs() -> None:
    rules = Rules(memory_margin_mib=200)
    before = view(job("a", 4000))
    assert adopted(before, {"a": (share(4199),)}, rules=rules).jobs[A].waiting
    assert not adopted(before, {"a": (share(4200),)}, rules=rules).jobs[A].waiting


def test_placements_of_unknown_jobs_are_ignored() -> None:
    before = view()
    assert adopted(before, {"nobody": (share(),)}).jobs is before.jobs


# --- stopping -----------------------------------------------------------------------------------


def test_a_run_that_is_not_planned_is_asked_to_stop_at_its_next_epoch() -> None:
    run = run_of(adopted(view(with_run(job("a", epochs_done=2), share(), epoch_started=3)), {}))
    assert (run.phase, run.phase_at, run.stop_at_epoch) == (RunPhase.STOPPING, NOW, 4)
    assert run.kill_at == NOW + RULES.stop_grace_seconds
    assert run.stop_reason == "stopped by the plan"


def test_the_plans_reason_is_the_runs() -> None:
    why = {"a": Reason(Waiting.PREEMPTED, jobs=("urgent",))}
    assert run_of(adopted(view(with_run(job("a"), share())), {}, why)).stop_reason == (
        "preempted for urgent"
    )


def test_a_run_is_let_to_finish_one_epoch_before_it_stops() -> None:
    starting = with_run(job("a", epochs_done=3), share(), phase=RunPhase.STARTING)
    assert run_of(adopted(view(starting), {})).stop_at_epoch == 4


def test_a_run_that_is_planned_elsewhere_is_asked_to_stop_once_it_has_progressed() -> None:
    before = with_run(job("a", epochs_done=2), share(), epochs_before=1)
    moved = run_of(adopted(view(before, nodes=[node(2)]), {"a": (share(gpu=1),)}))
    assert (moved.phase, moved.stop_reason) == (RunPhase.STOPPING, "moved by the plan")


def test_a_run_is_not_moved_twice_without_an_epoch_in_between() -> None:
    before = view(with_run(job("a", epochs_done=2), share(), epochs_before=2), nodes=[node(2)])
    assert adopted(before, {"a": (share(gpu=1),)}).jobs is before.jobs


@pytest.mark.parametrize(
    ("epoch_started", "epochs_before", "max_epochs", "may"),
    [
        (0, 0, 3, True),  # at the start of epoch 1 of 0, 1, 2
        (0, 0, 2, False),
        (1, 0, 4, True),
        (2, 0, 4, False),
        (3, 0, 4, False),
        (0, 2, 4, False),
        (0, 0, 1, False),
    ],
)
def test_the_last_epoch_is_never_interrupted(
    epoch_started: int, epochs_before: int, max_epochs: int, may: bool
) -> None:
    before = with_run(
        job("a", max_epochs=max_epochs),
        share(),
        epoch_started=epoch_started,
        epochs_before=epochs_before,
    )
    assert before.run
    assert has_epoch_to_stop_at(before.run) is may
    assert (run_of(adopted(view(before), {})).phase is RunPhase.STOPPING) is may


def test_a_run_that_stops_already_goes_on_stopping_whatever_the_plan_says() -> None:
    before = view(with_run(job("a"), share(), phase=RunPhase.STOPPING))
    for wish in ({}, {"a": (share(),)}, {"a": (share(1),)}):
        assert adopted(before, wish).jobs is before.jobs


def test_a_run_on_a_node_that_is_gone_is_kept_if_it_is_planned() -> None:
    before = view(with_run(job("a"), share(node="gone")))
    assert adopted(before, {"a": (share(node="gone"),)}).jobs is before.jobs


# --- resizing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "has", "neighbour", "gets"),
    [
        (3000, CAPACITY, 0, 3000),  # it was measured
        (6000, 4000, 5000, 6000),
        (6000, 4000, 10000, 4000),  # not now: its neighbour must stop first
        (20000, 4000, 0, CAPACITY),  # the GPU's whole capacity
    ],
)
def test_a_runs_share_follows_what_it_needs_if_there_is_room(
    needs: int, has: int, neighbour: int, gets: int
) -> None:
    runs = [with_run(job("a", needs), share(has))]
    if neighbour:
        runs.append(with_run(job("b", neighbour), share(neighbour)))
    assert run_of(fitted(view(*runs))).shares == (share(gets),)


def test_a_gang_is_resized_on_all_its_gpus_or_on_none() -> None:
    gang = with_run(job("a", 6000, gpus=2), share(4000), share(4000, 1))
    crowd = with_run(job("b", 11000), share(11000, 1))
    before = view(gang, crowd, nodes=[node(2)])
    assert fitted(before).jobs is before.jobs


def test_a_gang_holds_what_it_was_seen_to_take_on_as_many_gpus() -> None:
    waiting = job("a", 9000, gpus=(1, 2), peaks=((1, 9000), (2, 4000)))
    waiting = replace(waiting, spec=replace(waiting.spec, memory_mib=2000))
    pair = share(4000), share(4000, 1)
    held = with_run(waiting, share(9000), share(9000, 1))
    assert run_of(fitted(view(held, nodes=[node(2)]))).shares == pair
    crowded = view(waiting, with_run(job("b", 11000), share(11000)), nodes=[node(2)])
    assert run_of(adopted(crowded, {"a": pair})).shares == pair
    assert adopted(crowded, {"a": (share(4000, 1),)}).jobs[A].waiting, "alone it takes more"


def test_no_job_starts_where_a_run_takes_more_than_it_could_be_given() -> None:
    grown = with_run(job("a", 9000), share(4000))
    before = view(grown, with_run(job("b", 8000), share(8000)), job("c", 3000))
    assert fitted(before).jobs is before.jobs, "there is no room for it to grow"
    assert adopted(before, {"c": (share(3000),)}).jobs[JobId("c")].waiting


def test_a_run_grows_into_what_another_gives_back() -> None:
    before = view(with_run(job("a", 9000), share(4000)), with_run(job("b", 3000), share(11000)))
    assert fitted(before).held == {("n1", "gpu0"): {(A, 1): 9000, (B, 1): 3000}}


def test_a_run_on_a_gpu_that_shrank_follows_it() -> None:
    small = [node(memory_mib=8192)]
    shrunk = fitted(view(with_run(job("a"), share()), nodes=small))
    assert run_of(shrunk).shares[0].memory_mib == small[0].gpus[0].capacity_mib


# --- the plan's own fields ----------------------------------------------------------------------


def test_what_a_plan_expects_of_a_run_is_kept_with_it() -> None:
    wished = {A: (share(4000),)}
    for said, kept in ((60.0, 60.0), (-1.0, 0.0), (math.nan, 0.0), (math.inf, 0.0)):
        plan = Plan(wished, expected={A: said, B: 1.0})
        run = run_of(adopt(view(job("a", 4000)), plan, NOW, RULES).view)
        assert run.expected_seconds == kept


def test_only_reasons_of_jobs_that_wait_are_kept() -> None:
    before = view(job("a", 9000), job("b", 9000))
    why = {name: Reason(Waiting.TURN) for name in ("a", "b", "nobody")}
    assert adopted(before, {"a": (share(9000),)}, why).why == {"b": Reason(Waiting.TURN)}


def test_why_a_plan_stops_runs_and_the_order_of_its_queue_are_kept() -> None:
    before = view(
        job("a", 9000),
        job("b", 9000),
        with_run(job("c"), share()),
        with_run(job("d"), share(gpu=1)),
    )
    reason = Reason(Waiting.PREEMPTED, jobs=("a",))
    queue = JobId("b"), JobId("c"), JobId("nobody"), JobId("a")
    after = adopt(before, Plan(why={JobId("c"): reason}, queue=queue), NOW, RULES).view
    assert after.stops == {"c": reason, "d": Reason(Waiting.STOPPED)}
    assert after.queue == ("b", "a")
    assert adopt(after, Plan(), NOW, RULES).view.stops == {}


def test_a_plan_is_remembered_with_when_to_make_the_next() -> None:
    before = replace(view(), stale=True)
    after = adopt(before, Plan(replan_at=NOW + 7), NOW, RULES).view
    assert (after.planned_at, after.replan_at, after.stale) == (NOW, NOW + 7, False)


def test_nonsense_changes_nothing() -> None:
    nodes: list[Node] = [node(2)]
    running = with_run(job("a", 5000), share(5000))
    before = view(running, job("b", 3000), nodes=nodes)
    plan = {
        "a": (share(-1), share(10**9), share(0)),
        "b": (Share("", "", 3000), share(3000, -1)),
        "": (),
    }
    assert adopted(before, plan).jobs is before.jobs
