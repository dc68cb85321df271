from __future__ import annotations

from scheduler.core.model import Job, JobId, Measured, Plan
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from scheduler.planning.policies.srtf import remaining_seconds
from tests.builders import NOW, RULES, ScriptedCluster, job, node, share, view, with_run

SRTF = POLICIES["srtf"](RULES)


def planned(*jobs: Job, gpus: int = 1) -> Plan:
    return SRTF(view(*jobs, nodes=[node(gpus)]), NOW)


def lasting(name: str, seconds: float, epochs: int = 10, **fields: object) -> Job:
    """A job whose epochs were measured to take this long."""
    measured = (Measured("pretendedx1", (), seconds, 2),)
    return job(name, max_epochs=epochs, measured=measured, **fields)  # type: ignore[arg-type]


def test_the_job_with_least_left_to_do_comes_first() -> None:
    jobs = lasting("a", 60.0), lasting("b", 50.0, submitted_at=1.0), lasting("c", 10.0, 70)
    assert set(planned(*jobs).placements) == {"b"}


def test_what_is_done_is_not_left() -> None:
    assert remaining_seconds(lasting("a", 60.0, epochs_done=7)) == 180.0


def test_the_measure_is_that_of_where_it_runs() -> None:
    runs = with_run(lasting("a", 60.0), share(), placement="pretendedx1")
    two = Measured("pretendedx2", (), 30.0, 2)
    both = job("b", measured=(two, *runs.measured), max_epochs=10)
    assert remaining_seconds(with_run(both, share(), placement="pretendedx2")) == 300.0
    assert remaining_seconds(both) == 600.0


def test_before_its_first_epoch_the_owner_is_believed() -> None:
    wish = job("a", max_epochs=4)
    assert remaining_seconds(wish) == 0.0
    town = ScriptedCluster(policy=SRTF)
    town.look()
    guessed = town.submit("b", hours_estimate=2.0, max_epochs=4)
    assert remaining_seconds(town.view.jobs[guessed]) == 7200.0


def test_a_job_of_which_nothing_is_known_comes_first() -> None:
    assert set(planned(lasting("a", 1.0), job("b", submitted_at=1.0)).placements) == {"b"}


def test_a_run_leaves_for_a_job_with_less_to_do() -> None:
    runs = with_run(lasting("a", 60.0), share())
    plan = planned(runs, lasting("b", 10.0))
    assert plan.placements == {}
    assert line(plan.why[JobId("a")]) == "preempted (for b)"
    waits = "stopping (waits for a to stop at the end of an epoch)"
    assert line(plan.why[JobId("b")]) == waits


def test_of_two_runs_the_one_with_more_to_do_leaves() -> None:
    runs = [with_run(lasting("a", 60.0), share()), with_run(lasting("b", 90.0), share(gpu=1))]
    plan = planned(*runs, lasting("c", 10.0), gpus=2)
    assert set(plan.placements) == {"a"}


def test_a_gang_that_does_not_fit_beside_those_before_it_lets_others_pass() -> None:
    jobs = lasting("a", 1.0), lasting("b", 2.0, gpus=2), lasting("c", 3.0)
    plan = planned(*jobs, gpus=2)
    assert set(plan.placements) == {"a", "c"}


def test_priority_is_above_all() -> None:
    jobs = lasting("a", 60.0, priority=2), lasting("b", 10.0)
    assert set(planned(*jobs).placements) == {"a"}


def test_a_run_that_never_spoke_to_us_is_not_preempted() -> None:
    silent = with_run(lasting("a", 60.0), share(), heard_at=None)
    plan = planned(silent, lasting("b", 10.0))
    assert set(plan.placements) == {"a"}
    assert line(plan.why[JobId("b")]) == "gpus (needs an empty GPU; empty now: 0)"


def test_a_shorter_job_takes_over_at_the_end_of_the_epoch() -> None:
    town = ScriptedCluster(policy=SRTF)
    town.look()
    town.submit("a", hours_estimate=5.0)
    town.end_epoch("a")
    town.submit("b", hours_estimate=1.0, max_epochs=1)
    assert town.running() == {"a"}
    town.end_epoch("a")
    assert town.running() == {"b"}
    assert town.why("a") == "gpus (needs an empty GPU; empty now: 0)"
    town.end_epoch("b")
    town.exit("b")
    assert town.running() == {"a"}
