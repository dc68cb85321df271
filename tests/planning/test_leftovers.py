"""GPUs that a plan leaves idle go to jobs that had none."""

from __future__ import annotations

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, View
from scheduler.planning.leftovers import assign_leftovers
from scheduler.planning.placement import PlacedUnits
from tests.builders import RULES, job, node, share, view, with_run

NOTHING = PlacedUnits({}, {}, ())


def units(*jobs: Job, done: PlacedUnits = NOTHING, there: View | None = None) -> dict[str, int]:
    """The number of GPUs that each of the jobs gets."""
    now = there or view(*jobs, nodes=[node(2)])
    known = usable_gpus(now.nodes)
    made = assign_leftovers(jobs, done, known, now, RULES, lambda job: job.spec.gpus_min)
    return {unit.jobs[0].id: unit.count for unit in made}


def test_the_first_job_that_can_have_what_is_idle_has_it() -> None:
    assert units(job("a", 1000), job("b", 1000), job("c", 1000)) == {"a": 1, "b": 1}


def test_a_job_that_needs_more_than_there_is_is_passed_over() -> None:
    assert units(job("a", 1000, gpus=3), job("b", 1000)) == {"b": 1}
    assert units(job("a", 99_000), job("b", 1000)) == {"b": 1}


def test_what_a_plan_gave_or_keeps_for_a_job_is_not_left_over() -> None:
    a, b, c = job("a", 1000), job("b", 1000), job("c", 1000)
    done = PlacedUnits({a.id: (share(gpu=0),)}, {b.id: (("n1", "gpu1"),)}, ())
    assert units(a, b, c, done=done) == {}


def test_a_run_keeps_its_own_gpus_where_they_are_not_assigned() -> None:
    a, b = with_run(job("a", 1000), share(gpu=0)), job("b", 1000)
    assert units(a, b) == {"a": 1, "b": 1}


def test_a_gpu_that_a_run_holds_is_not_for_a_waiting_job() -> None:
    a, b = with_run(job("a", 1000), share(gpu=0)), job("b", 1000, gpus=2)
    there = view(a, b, nodes=[node(2)])
    assert units(b, there=there) == {}
