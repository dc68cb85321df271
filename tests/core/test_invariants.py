from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.errors import InvariantError
from scheduler.core.invariants import check
from scheduler.core.model import Job, JobId, Outcome, PodState, Run, RunPhase
from tests.builders import CAPACITY, NOW, ScriptedCluster, job, node, pod, share, view, with_run

A = JobId("a")
RUNNING = with_run(job("a", 4000), share(4000))
ENDED = job("a", outcome=Outcome.SUCCEEDED, ended_at=NOW)


def run_of(of: Job) -> Run:
    assert of.run
    return of.run


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (job("a"), job("a", epochs_done=-1), "epochs out of range"),
        (job("a"), job("a", epochs_done=11), "epochs out of range"),
        (
            RUNNING,
            replace(RUNNING, outcome=Outcome.FAILED, ended_at=NOW),
            "an ended job has a run",
        ),
        (job("a"), job("a", outcome=Outcome.FAILED), "outcome and end time disagree"),
        (job("a"), job("a", ended_at=NOW), "outcome and end time disagree"),
        (RUNNING, replace(RUNNING, attempts=2), "the run is not the newest attempt"),
        (job("a"), with_run(job("a"), share(0)), "an empty share"),
        (job("a"), with_run(job("a", gpus=2), share(1), share(2)), "the same GPU twice"),
        (job("a"), job("a", retries=3), "the spec changed"),
        (job("a"), job("a", submitted_at=5.0), "submitted twice"),
        (job("a", epochs_done=3), job("a", epochs_done=2), "epochs decreased"),
        (ENDED, replace(ENDED, outcome=Outcome.FAILED), "the outcome changed"),
        (ENDED, replace(ENDED, outcome=None, ended_at=None), "the outcome changed"),
        (job("a"), job("a", attempts=2), "attempts jumped"),
        (job("a", attempts=2), job("a", attempts=1), "attempts jumped"),
        (job("a", attempts=1), with_run(job("a"), share(9)), "an attempt number used twice"),
    ],
)
def test_a_job_that_cannot_be_is_not_committed(before: Job, after: Job, words: str) -> None:
    with pytest.raises(InvariantError, match=words):
        check(view(before), view(after), [A])


def test_only_what_was_touched_is_examined() -> None:
    check(view(job("a")), view(job("a", epochs_done=11)), [])


def test_a_new_job_is_checked_too() -> None:
    with pytest.raises(InvariantError, match="epochs out of range"):
        check(view(), view(job("a", epochs_done=11)), [A])


def test_a_run_is_not_replaced_while_its_pods_live() -> None:
    before = view(RUNNING, pods=[pod(RUNNING)])
    next_run = with_run(replace(RUNNING, run=None), share(4000))
    with pytest.raises(InvariantError, match="a run was replaced while it was alive"):
        check(before, view(next_run, pods=[pod(RUNNING)]), [A])
    check(before, view(next_run, pods=[pod(RUNNING, PodState.FAILED)]), [A])
    check(before, view(next_run), [A])


def test_a_gpu_is_not_given_away_beyond_what_it_has() -> None:
    crowd = [with_run(job(name, 9000), share(9000)) for name in ("a", "b")]
    with pytest.raises(InvariantError, match="more than a GPU holds"):
        check(view(crowd[0], job("b", 9000)), view(*crowd), [])


def test_a_run_does_not_grow_beyond_what_the_gpu_has() -> None:
    neighbour = with_run(job("b", 11872), share(CAPACITY - 4000))
    grown = replace(RUNNING, run=replace(run_of(RUNNING), shares=(share(4001),)))
    check(view(RUNNING), view(RUNNING, neighbour), [])
    with pytest.raises(InvariantError, match="more than a GPU holds"):
        check(view(RUNNING, neighbour), view(grown, neighbour), [])


def test_a_gpu_may_shrink_under_what_it_holds() -> None:
    check(view(RUNNING), view(RUNNING, nodes=[node(memory_mib=2048)]), [])


def test_pods_that_appear_on_a_full_gpu_are_no_violation() -> None:
    full = with_run(job("a"), share(CAPACITY))
    ghost = pod(with_run(job("ghost"), share(5000)))
    check(view(full), view(full, pods=[ghost]), [])


def test_a_gangs_other_pods_may_hold_more_than_its_run_did_at_last() -> None:
    """The run was resized after its pods were made; then one of them failed."""
    town = ScriptedCluster(node(2))
    town.look()
    town.submit("a", gpus=2)
    town.end_epoch("a", 3000)
    town.submit("b", 12000)
    assert town.running() == {"a", "b"}
    (was,) = town.pods[A, 1]
    dead = replace(was, state=PodState.FAILED, exit_code=1)
    town.pods[A, 1] = [dead, replace(was, rank=1)]
    town.look()
    assert town.view.jobs[A].outcome is Outcome.FAILED


def test_a_stop_and_an_end_are_no_violation() -> None:
    stopping = with_run(job("a", 4000), share(4000), phase=RunPhase.STOPPING)
    check(view(RUNNING), view(stopping), [A])
    check(view(stopping), view(replace(stopping, run=None)), [A])
    check(view(stopping), view(replace(ENDED, spec=stopping.spec, attempts=1)), [A])
