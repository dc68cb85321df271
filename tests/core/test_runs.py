"""The rules about runs, one table each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.decide import decide
from scheduler.core.model import Job, JobId, PodState, RunPhase
from scheduler.core.runs import (
    awaits_old_pods,
    current_job,
    current_run,
    may_move,
    may_stop,
    must_stop,
    neighbours,
    waiting_in_order,
)
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests.builders import NOW, RULES, epoch_ended, job, pod, share, view, with_run


def test_only_the_newest_attempt_is_the_current_run() -> None:
    runs = with_run(job("a", attempts=1), share(1000))
    jobs = {runs.id: runs}
    assert current_run((runs.id, 2), jobs) is runs.run
    assert current_job((runs.id, 2), jobs) is runs
    assert current_run((runs.id, 1), jobs) is None
    assert current_run((job("b").id, 1), jobs) is None
    assert current_run((runs.id, 2), {runs.id: replace(runs, run=None)}) is None


def test_jobs_wait_in_the_order_of_the_queue_then_of_their_submission() -> None:
    late, early = job("a", submitted_at=9.0), job("b", submitted_at=1.0)
    queued, over = job("c", submitted_at=5.0), JobId("forgotten")
    waits = view(late, early, queued, with_run(job("d"), share(1000)))
    assert [each.id for each in waiting_in_order(waits)] == ["b", "c", "a"]
    queue = JobId("d"), over, queued.id
    told = waiting_in_order(replace(waits, queue=queue))
    assert [each.id for each in told] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"heard_at": None}, False),  # it would not see the request
        ({"phase": RunPhase.STARTING}, False),
        ({"phase": RunPhase.STOPPING}, False),
        ({"epoch_started": 7}, True),
        ({"epoch_started": 8}, False),  # only the last epoch is left to stop at
    ],
)
def test_a_run_that_reports_and_has_an_epoch_to_stop_at_may_stop(
    fields: dict[str, object], may: bool
) -> None:
    run = with_run(job("a"), share(1000)).run
    assert run
    assert may_stop(replace(run, **fields)) is may  # type: ignore[arg-type]  # fields of Run
    assert not may_stop(None)


def test_a_move_needs_an_epoch_finished_since_the_last_one() -> None:
    runs = with_run(job("a"), share(1000))
    assert not may_move(runs)
    assert may_move(replace(runs, epochs_done=1))


@pytest.mark.parametrize(
    ("stop_at", "epoch", "must"), [(None, 5, False), (5, 4, False), (5, 5, True), (5, 9, False)]
)
def test_a_rank_stops_from_the_agreed_epoch_on_but_never_before_the_last_one(
    stop_at: int | None, epoch: int, must: bool
) -> None:
    run = with_run(job("a"), share(1000), stop_at_epoch=stop_at).run
    assert run
    assert must_stop(run, epoch) is must


def test_a_job_that_only_holds_memory_is_no_neighbour() -> None:
    runs, starts, shares = job("a"), job("b"), job("c")
    there = view(
        with_run(runs, share(1000)),
        with_run(starts, share(1000), phase=RunPhase.STARTING),
        with_run(shares, share(1000)),
        with_run(job("d"), share(1000, gpu=1)),
    )
    run = there.jobs[runs.id].run
    assert run
    assert neighbours(runs.id, run, there.held, there.jobs) == (shares.id,)


def test_a_kept_profile_and_what_is_learned_from_it_name_the_same_neighbours() -> None:
    runs, starts, shares = job("a"), job("b"), job("c")
    before = view(
        with_run(runs, share(1000), epoch_at=100.0, placement="t4x1"),
        with_run(starts, share(1000), phase=RunPhase.STARTING),
        with_run(shares, share(1000)),
    )
    event = epoch_ended(before.jobs[runs.id], 1)
    event = replace(event, profile=replace(event.profile, epoch_seconds=50.0))
    made = decide(before, [event], NOW, fifo_sharing(RULES), RULES)
    (kept,) = made.profiles
    assert (kept.placement, kept.beside) == ("t4x1", (shares.id,))
    assert [m.beside for m in made.view.jobs[runs.id].measured] == [kept.beside]


def test_a_gang_of_which_a_pod_is_left_has_to_wait_for_it() -> None:
    over: Job = job("a", attempts=1)
    left = pod(over, PodState.RUNNING, attempt=1)
    assert awaits_old_pods(over, {(over.id, 1): (left,)})
    gone = replace(left, state=PodState.FAILED)
    assert not awaits_old_pods(over, {(over.id, 1): (gone,)})
    assert awaits_old_pods(over, {(over.id, 1): (replace(gone, used=(share(10),)),)})
