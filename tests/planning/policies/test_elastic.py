from __future__ import annotations

from dataclasses import replace

from scheduler.core.model import Gpu, Job, JobId, Measured, Node, Plan
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from tests.builders import NOW, RULES, job, node, share, view, with_run

ELASTIC = POLICIES["elastic"](RULES)
HOUR = 3600.0


def scaling(name: str, *seconds: float, most: int = 4, type: str = "pretended") -> Job:
    """The duration of an epoch on 1, 2, 4 GPUs."""
    measured = tuple(
        Measured(f"{type}x{2**k}", (), each, 5) for k, each in enumerate(seconds or (40, 20, 10))
    )
    return job(name, gpus=(1, most), measured=measured, max_epochs=1000, submitted_at=NOW - HOUR)


def runs(waiting: Job, *gpus: int, epochs_done: int = 3) -> Job:
    started = with_run(
        waiting, *(share(gpu=gpu) for gpu in gpus), placement=f"pretendedx{len(gpus)}"
    )
    return replace(started, epochs_done=epochs_done)


def planned(*jobs: Job, nodes: tuple[Node, ...]) -> Plan:
    return ELASTIC(view(*jobs, nodes=nodes), NOW)


def counts(plan: Plan) -> dict[str, int]:
    return {str(id): len(shares) for id, shares in plan.placements.items()}


def test_a_job_alone_has_all_that_makes_it_faster() -> None:
    assert counts(planned(scaling("a"), nodes=(node(4),))) == {"a": 4}


def test_where_gpus_are_scarce_some_have_two_and_others_none() -> None:
    """This is the objective: 1.1 for nothing is hardly worse than 1 for one GPU."""
    plan = planned(*(scaling(name) for name in "abcd"), nodes=(node(4),))
    assert sorted(counts(plan).values()) == [2, 2]


def test_the_job_that_gains_more_has_more() -> None:
    flat = scaling("b", 40, 39, 38)
    nodes = node(2), node(1, "n2")
    assert counts(planned(scaling("a"), flat, nodes=nodes)) == {"a": 2, "b": 1}


def test_a_run_shrinks_for_one_that_waits() -> None:
    plan = planned(runs(scaling("a", 40, 38), 0, 1), scaling("b", 40, 38), nodes=(node(2),))
    assert counts(plan) == {"a": 1}
    assert line(plan.why[JobId("a")]) == "moved (from 2 GPUs to 1, for b)"
    assert line(plan.why[JobId("b")]).startswith("stopping (waits for a to stop")


def test_jobs_alike_do_not_take_turns() -> None:
    plan = planned(scaling("a"), runs(scaling("b"), 0, 1), nodes=(node(2),))
    assert counts(plan) == {"b": 2}


def test_a_run_grows_when_the_gain_is_worth_the_restart() -> None:
    plan = planned(runs(scaling("a"), 0), nodes=(node(4),))
    assert counts(plan) == {"a": 4}
    restless = replace(scaling("a"), attempts=10, restart_seconds=350.0)  # an hour old
    assert counts(planned(runs(restless, 0), nodes=(node(4),))) == {"a": 1}


def test_a_run_without_a_finished_epoch_is_left_as_it_is() -> None:
    young = runs(scaling("a"), 0, epochs_done=0)
    assert counts(planned(young, nodes=(node(4),))) == {"a": 1}


def test_counts_are_powers_of_two_and_whole_nodes() -> None:
    plan = planned(scaling("a", most=64), nodes=(node(4), node(3, "n2")))
    assert counts(plan) == {"a": 4}
    plan = planned(scaling("a", most=3), nodes=(node(4),))
    assert counts(plan) == {"a": 2}


def test_rigid_jobs_have_what_they_ask_for() -> None:
    rigid = replace(scaling("a"), spec=replace(scaling("a").spec, gpus_min=3, gpus_max=3))
    flat = scaling("b", 40, 39, 38)
    assert counts(planned(rigid, flat, nodes=(node(4),))) == {"a": 3, "b": 1}


def test_each_has_the_type_that_it_gains_most_from() -> None:
    fast = Node("n2", (Gpu("f0", 0, "fast", 16384, 512),))
    gains, hardly = scaling("a", 40.0, most=1), scaling("b", 40.0, most=1)
    gains = replace(gains, measured=(*gains.measured, Measured("fastx1", (), 10.0, 5)))
    hardly = replace(hardly, measured=(*hardly.measured, Measured("fastx1", (), 35.0, 5)))
    plan = planned(gains, hardly, nodes=(node(1), fast))
    assert {str(id): shares[0].node for id, shares in plan.placements.items()} == {
        "a": "n2",
        "b": "n1",
    }


def test_one_that_needs_more_than_there_is_is_told_so() -> None:
    plan = planned(job("a", gpus=(8, 16)), nodes=(node(4),))
    assert line(plan.why[JobId("a")]) == "gpus (needs 8 GPUs; there are 4)"
