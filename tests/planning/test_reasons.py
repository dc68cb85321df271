"""What a plan of gpu_sharing says about jobs that do not have what they want."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler.core.model import GpuKey, Job, JobId, RunPhase, Share, View
from scheduler.core.reason_text import line
from scheduler.planning.placement import PlacedUnits
from scheduler.planning.reasons import explained
from tests import builders

TWO = (builders.node(2),)
A = builders.with_run(builders.job("a", 6000), builders.share(6000))
Placements = Mapping[JobId, tuple[Share, ...]]
Claims = Mapping[JobId, tuple[GpuKey, ...]]


def why(
    view: View, placements: Placements | None = None, claims: Claims | None = None
) -> dict[str, str]:
    done = PlacedUnits(dict(placements or {}), dict(claims or {}), ())
    told = explained(list(view.jobs.values()), done, view, builders.RULES)
    return {str(job_id): line(reason) for job_id, reason in told.items()}


def stays(*jobs: Job) -> Placements:
    return {job.id: job.run.shares for job in jobs if job.run}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            builders.job("b", 12_000, gpus=2),
            "gpus (needs 2 empty GPUs with 12,000 MiB; empty now: 1)",
        ),
        (
            builders.job("b", gpus=2),
            "gpus (needs 2 whole GPUs because its memory use is not known yet"
            " (--estimated_memory); empty now: 1)",
        ),
        (
            builders.job("b", 500, gpus=2, shareable=False),
            "gpus (needs 2 whole GPUs because it shares with no other job; empty now: 1)",
        ),
        (
            builders.job("b", gpus=3),
            "gpus (needs 3 whole GPUs because its memory use is not known yet"
            " (--estimated_memory); there are 2)",
        ),
        (builders.job("b", 99_999), "gpus (needs a GPU with 99,999 MiB; there is none)"),
        (builders.job("b", 500), "turn (other jobs come first)"),
    ],
)
def test_a_waiting_job_is_told_what_it_needs_and_what_there_is(job: Job, words: str) -> None:
    assert why(builders.view(A, job, nodes=TWO), stays(A))["b"] == words


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (
            builders.job("b", 12_000, gpus=3),
            "gpus (needs 3 empty GPUs with 12,000 MiB on 2 or more nodes; empty now: 2)",
        ),
        (
            builders.job("b", gpus=3),
            "gpus (needs 3 whole GPUs on 2 or more nodes because its memory use is not"
            " known yet (--estimated_memory); empty now: 2)",
        ),
        (builders.job("b", 500, gpus=5), "gpus (needs 5 GPUs with 500 MiB; there are 3)"),
    ],
)
def test_a_gang_over_nodes_is_told_how_many_it_takes(gang: Job, words: str) -> None:
    view = builders.view(A, gang, nodes=[builders.node(2), builders.node(1, "n2")])
    assert why(view, stays(A))["b"] == words


def test_one_that_could_share_is_told_why_it_does_not() -> None:
    words = (
        "gpus (9,872 MiB are free beside a on gpu0;"
        " sharing with it is expected to cost more than waiting)"
    )
    assert why(builders.view(A, builders.job("b", 500)), stays(A))["b"] == words


def test_one_that_could_share_with_a_gang_is_told_so() -> None:
    gang = builders.with_run(
        builders.job("g", 6000, gpus=2), builders.share(6000), builders.share(6000, gpu=1)
    )
    words = (
        "gpus (9,872 MiB are free beside g on gpu0;"
        " sharing with it is expected to cost more than waiting)"
    )
    view = builders.view(gang, builders.job("b", 500), nodes=TWO)
    assert why(view, stays(gang))["b"] == words
    both = builders.view(gang, A, builders.job("b", 500), nodes=TWO)
    assert "beside g on gpu1; sharing" in why(both, stays(gang, A))["b"]


def test_gpus_that_are_given_away_by_the_same_plan_are_not_free() -> None:
    starts = {**stays(A), JobId("c"): (builders.share(gpu=1),)}
    view = builders.view(A, builders.job("b"), builders.job("c"), nodes=TWO)
    assert why(view, starts) == {
        "b": (
            "gpus (needs a whole GPU because its memory use is not known yet"
            " (--estimated_memory); no GPU is empty)"
        )
    }


def test_gpus_that_are_kept_for_a_job_are_named_with_it() -> None:
    view = builders.view(A, builders.job("b"), builders.job("c", gpus=2), nodes=TWO)
    claims = {JobId("c"): (("n1", "gpu0"), ("n1", "gpu1"))}
    told = why(view, {}, claims)
    assert told["b"] == "turn (what is free is reserved for c)"
    assert told["c"] == "stopping (waits for a to stop at the end of an epoch)"
    assert told["a"] == "preempted (for c)"


def test_pods_that_are_left_are_waited_for_until_they_are_gone() -> None:
    over = builders.with_run(builders.job("old"), builders.share())
    view = builders.view(builders.job("b"), pods=[builders.pod(over)])
    assert why(view, {}, {JobId("b"): (("n1", "gpu0"),)}) == {
        "b": "stopping (waits for old to be gone)"
    }


def test_a_job_that_is_to_share_a_full_gpu_lacks_memory() -> None:
    view = builders.view(A, builders.job("b", 12_000))
    told = why(view, stays(A), {JobId("b"): (("n1", "gpu0"),)})
    assert told == {"b": "memory (will run beside a, which leaves too little memory so far)"}


def test_a_run_that_moves_is_told_from_where_to_where() -> None:
    both = (builders.share(gpu=0), builders.share(gpu=1))
    told = why(builders.view(A, nodes=TWO), {A.id: both}, {A.id: (("n1", "gpu0"), ("n1", "gpu1"))})
    assert told == {"a": "moved (from 1 GPU to 2)"}
    other = builders.node(1, "n2")
    other = replace(other, gpus=(replace(other.gpus[0], type="a100"),))
    there = (replace(builders.share(), node="n2"),)
    told = why(builders.view(A, nodes=(*TWO, other)), {A.id: there}, {A.id: (("n2", "gpu0"),)})
    assert told == {"a": "moved (from 1 pretended to 1 a100)"}


def test_a_run_that_is_brought_together_is_told_so() -> None:
    nodes = builders.node(2), builders.node(2, "n2")
    apart = builders.with_run(
        builders.job("a", gpus=2), builders.share(), replace(builders.share(), node="n2")
    )
    told = why(builders.view(apart, nodes=nodes), {A.id: (builders.share(), builders.share(gpu=1))})
    assert told == {"a": "moved (from 2 nodes to 1)"}


def test_a_run_that_shrinks_is_told_for_which_job() -> None:
    wide = builders.with_run(
        builders.job("a", 6000, gpus=(1, 2)), builders.share(6000), builders.share(6000, gpu=1)
    )
    claims = {A.id: (("n1", "gpu0"),), JobId("b"): (("n1", "gpu1"),)}
    view = builders.view(wide, builders.job("b"), nodes=TWO)
    told = why(view, {A.id: (builders.share(6000),)}, claims)
    assert told["a"] == "moved (from 2 GPUs to 1, for b)"


def test_a_job_without_room_beside_one_that_grew_is_told_how_much_it_lacks() -> None:
    grown = replace(A, memory_mib=9000)
    b = builders.with_run(builders.job("b", 7000), builders.share(7000))
    told = why(builders.view(grown, b), stays(grown))
    assert told == {"b": "preempted (no room beside a on gpu0: needs 7000, free 6872)"}


def test_a_job_that_is_separated_from_one_that_it_slows_is_told_so() -> None:
    b = builders.with_run(builders.job("b", 7000), builders.share(7000))
    assert why(builders.view(A, b), stays(A)) == {"b": "preempted (for a, which it may slow)"}
    assert why(builders.view(b)) == {"b": "preempted (for others)"}


def test_a_run_that_is_preempted_is_told_for_which_job() -> None:
    claims = {A.id: (("n1", "gpu1"),), JobId("b"): (("n1", "gpu0"),)}
    view = builders.view(A, builders.job("b"), nodes=TWO)
    assert why(view, {A.id: (builders.share(6000, gpu=1),)}, claims)["a"] == "moved (for b)"


def test_a_run_that_stops_already_or_stays_needs_no_reason() -> None:
    stopping = builders.with_run(builders.job("b"), builders.share(gpu=1), phase=RunPhase.STOPPING)
    assert why(builders.view(A, stopping, nodes=TWO), stays(A)) == {}


def test_types_are_told_apart_where_there_are_several() -> None:
    other = replace(builders.make_gpu(), type="a100")
    nodes = (builders.node(1), replace(builders.node(1, "n2"), gpus=(other,)))
    words = (
        "gpus (needs 2 whole GPUs because its memory use is not known yet"
        " (--estimated_memory); there are 1 a100, 1 pretended)"
    )
    assert why(builders.view(builders.job("b", gpus=2), nodes=nodes))["b"] == words


def test_without_a_node_that_is_reason_enough() -> None:
    view = builders.view(builders.job("b"), nodes=[builders.node(ready=False)])
    assert why(view) == {"b": "nodes (no node is ready)"}


def test_reasons_come_in_the_order_in_which_jobs_are_served() -> None:
    view = builders.view(builders.job("b", gpus=2), builders.job("c", gpus=2))
    jobs = [view.jobs[JobId(name)] for name in ("c", "b")]
    assert list(explained(jobs, PlacedUnits({}, {}, ()), view, builders.RULES)) == ["c", "b"]
