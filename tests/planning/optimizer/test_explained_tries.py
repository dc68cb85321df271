"""What a job is said to try next, and that a plan does so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.model import Job, Measured, Share, View
from scheduler.estimates.next_try import NextTry, Trying
from scheduler.planning.policies.gpu_sharing import gpu_sharing, next_tries
from tests import builders
from tests.builders import NOW, RULES

TWO_NODES = [builders.node(4, "n1"), builders.node(4, "n2")]
ONE, TWO, FOUR, EIGHT = "pretendedx1", "pretendedx2", "pretendedx4", "pretendedx8/2"
SCALES = ((ONE, 400.0), (TWO, 205.0))


def job(name: str, *shown: tuple[str, float], kind: str = "", epochs: int = 100) -> Job:
    made = builders.job(name, gpus=(1, 8), max_epochs=epochs)
    measured = tuple(Measured(where, (), seconds, 3) for where, seconds in shown)
    return replace(made, measured=measured, spec=replace(made.spec, project=kind or name))


def runs(made: Job, gpus: int, node: str = "n1", first: int = 0) -> Job:
    shares = [builders.share(gpu=first + gpu, node=node) for gpu in range(gpus)]
    where = f"pretendedx{gpus}"
    began = replace(made, epochs_done=1)
    return builders.with_run(began, *shares, epoch_started=1, epochs_before=0, placement=where)


def view(*jobs: Job) -> View:
    return builders.view(*jobs, nodes=TWO_NODES)


def told(here: View, name: str = "a") -> NextTry:
    (found,) = [next_tries(RULES)(job, here, NOW) for job in here.jobs.values() if job.id == name]
    assert found
    return found


def planned(here: View, name: str = "a") -> tuple[Share, ...]:
    plan = gpu_sharing(RULES)(here, NOW)
    return next(shares for job_id, shares in plan.placements.items() if job_id == name)


def test_what_is_idle_is_tried_and_a_plan_does_so() -> None:
    here = view(runs(job("a", *SCALES), 2))
    found = told(here)
    assert (found.trying, found.gpus, found.than) == (Trying.NEXT, FOUR, TWO)
    assert found.waits_for == 0
    assert 1.0 < found.speed < 2.0
    assert found.doubt > 0.05
    assert len(planned(here)) == 4


def test_what_others_use_is_waited_for() -> None:
    others = [
        runs(job("b", (FOUR, 100.0)), 4, "n2"),
        *(runs(job(f"c{n}", (ONE, 100.0)), 1, first=n) for n in (2, 3)),
    ]
    here = view(runs(job("a", *SCALES), 2), *others)
    assert (told(here).trying, told(here).gpus, told(here).waits_for) == (Trying.NEXT, FOUR, 2)


def test_one_of_a_kind_tries_and_the_others_are_told_which() -> None:
    longer = runs(job("a", *SCALES, kind="k"), 2)
    here = view(longer, runs(job("b", *SCALES, kind="k", epochs=50), 2, "n2"))
    assert told(here, "a").trying is Trying.NEXT
    assert (told(here, "b").trying, told(here, "b").job) == (Trying.ANOTHER, "a")


def test_while_one_is_where_its_kind_was_not_measured_the_others_wait_for_it() -> None:
    tries = runs(job("a", *SCALES, kind="k"), 4)
    here = view(tries, runs(job("b", *SCALES, kind="k", epochs=500), 2, "n2"))
    assert (told(here, "a").trying, told(here, "a").gpus) == (Trying.NOW, FOUR)
    assert (told(here, "b").trying, told(here, "b").job) == (Trying.ANOTHER, "a")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (runs(job("a"), 1), Trying.UNMEASURED),
        (runs(job("a", *SCALES, epochs=5), 2), Trying.LAST_EPOCHS),
    ],
)
def test_why_nothing_is_tried(made: Job, why: Trying) -> None:
    assert told(view(made)) == NextTry(why)


def test_what_was_slower_is_said() -> None:
    slow = job("a", (ONE, 400.0), (TWO, 205.0), ("pretendedx3", 300.0), (FOUR, 240.0))
    found = told(view(runs(slow, 2)))
    assert found.trying in (Trying.UNPROMISING, Trying.KNOWN)
    assert found.speed < 1.0
    everywhere = [*slow.measured, *(Measured(f"pretendedx{n}", (), 300.0, 3) for n in (5, 6, 7))]
    known = replace(slow, measured=(*everywhere, Measured(EIGHT, (), 300.0, 3)))
    found = told(view(runs(known, 2)))
    assert (found.trying, found.gpus, found.doubt) == (Trying.KNOWN, FOUR, 0.0)
    assert found.speed == pytest.approx(205.0 / 240.0)


def test_a_job_that_is_not_planned_for_tries_nothing() -> None:
    assert next_tries(RULES)(job("gone", *SCALES), view(), NOW) is None
    held = replace(job("a", *SCALES), held=True)
    assert next_tries(RULES)(held, view(held), NOW) is None


def test_one_of_a_kind_tries_also_where_its_jobs_are_in_several_classes() -> None:
    first = replace(runs(job("a", *SCALES, kind="k"), 2), priority=2)
    here = view(first, runs(job("b", *SCALES, kind="k", epochs=500), 2, "n2"))
    assert told(here, "a").trying is Trying.NEXT
    assert (told(here, "b").trying, told(here, "b").job) == (Trying.ANOTHER, "a")


def test_a_run_that_is_spread_over_nodes_is_where_it_was_measured() -> None:
    spread = runs(job("a", *SCALES, ("pretendedx4/2", 120.0), kind="k"), 2)
    far = builders.share(gpu=0, node="n2"), builders.share(gpu=1, node="n2")
    assert spread.run
    run = replace(spread.run, shares=(*spread.run.shares, *far), placement="pretendedx4/2")
    assert told(view(replace(spread, run=run))).trying is not Trying.NOW
