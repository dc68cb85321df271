from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.model import (
    Cancelled,
    EpochEnded,
    Failure,
    Job,
    JobId,
    Node,
    Plan,
    Pod,
    PodState,
    Profile,
    Rules,
    RunPhase,
    Submitted,
    Updated,
)
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from scheduler.planning.policies.fifo_sharing import fifo_sharing, rank
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

STOPPING = RunPhase.STOPPING
HOUR = 3600.0


def planned(
    *jobs: Job, nodes: Sequence[Node] = (), pods: Sequence[Pod] = (), now: float = NOW
) -> Plan:
    return fifo_sharing(RULES)(view(*jobs, nodes=nodes, pods=pods), now)


def started(plan: Plan, *jobs: Job) -> set[str]:
    return {str(one.id) for one in jobs if one.waiting and one.id in plan.placements}


def why(plan: Plan, name: str) -> str:
    return line(plan.why[JobId(name)])


def town(gpus: int = 1, *jobs: tuple[str, dict[str, Any]], rules: Rules = RULES) -> ScriptedCluster:
    """A cluster with these jobs, submitted one after the other; values of `spec`."""
    made = ScriptedCluster(node(gpus), rules=rules)
    made.look()
    for name, wish in jobs:
        made.submit(name, **wish)
    return made


# --- where --------------------------------------------------------------------------------------


def test_two_share_and_the_third_waits_with_the_numbers() -> None:
    jobs = [job("a", 6000), job("b", 7000), job("c", 4000)]
    plan = planned(*jobs)
    assert plan.placements == {"a": (share(6000),), "b": (share(7000),)}
    assert why(plan, "c") == "memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"


def test_a_job_goes_where_the_least_is_left() -> None:
    runs = with_run(job("a", 9000), share(9000)), with_run(job("b", 4000), share(4000, 1))
    plan = planned(*runs, job("c", 6000), nodes=[node(3)])
    assert plan.placements[JobId("c")] == (share(6000),)


def test_a_job_that_does_not_share_waits_for_an_empty_gpu() -> None:
    alone = job("d", 1000, shareable=False)
    plan = planned(with_run(job("a", 6000), share(6000)), alone)
    assert (
        why(plan, "d")
        == "gpus (needs a whole GPU because it shares with no other job; no GPU large"
        " enough is empty)"
    )
    assert planned(alone).placements == {"d": (share(CAPACITY),)}


def test_nothing_joins_a_job_that_does_not_share() -> None:
    alone = with_run(job("d", 1000, shareable=False), share())
    assert (
        why(planned(alone, job("a", 10)), "a")
        == "memory (needs 10 MiB; gpu0 has the most free: 0 MiB)"
    )


def test_a_job_of_unknown_need_gets_a_whole_gpu() -> None:
    assert planned(job("a")).placements == {"a": (share(CAPACITY),)}


def test_the_gpus_of_a_job_are_on_one_node_if_possible() -> None:
    pair = job("pair", gpus=2)
    both = planned(pair, nodes=[node(), node(2, name="n2")]).placements[JobId("pair")]
    assert {one.node for one in both} == {"n2"}
    both = planned(pair, nodes=[node(), node(name="n2")]).placements[JobId("pair")]
    assert [one.node for one in both] == ["n1", "n2"]


def test_a_gang_over_nodes_waits_for_all_of_its_gpus() -> None:
    nodes = [node(2), node(2, "n2"), node(2, "n3")]
    there = (
        with_run(job("a"), share(gpu=1)),
        with_run(job("b"), share(node="n2"), share(gpu=1, node="n2")),
    )
    gang, late = job("gang", gpus=4, submitted_at=1.0), job("late", gpus=2, submitted_at=2.0)
    plan = planned(*there, gang, late, job("one", submitted_at=3.0), nodes=nodes)
    assert set(plan.placements) == {"a", "b"}
    assert (
        why(plan, "gang")
        == "gpus (needs 4 whole GPUs on 2 or more nodes because its memory use is not known"
        " yet (--estimated_memory); empty now: 3)"
    )
    assert why(plan, "late") == "turn (what is free is reserved for gang)"
    assert why(plan, "one") == "turn (what is free is reserved for gang)"
    plan = planned(there[1], gang, late, nodes=nodes)
    assert [one.node for one in plan.placements[JobId("gang")]] == ["n1", "n1", "n3", "n3"]


def test_for_an_urgent_gang_over_nodes_the_fewest_runs_leave() -> None:
    made = ScriptedCluster(node(2), node(2, "n2"))
    made.look()
    for name, wish in (("a", {"gpus": 2}), ("b", {}), ("c", {}), ("gang", {"gpus": 3})):
        made.submit(name, priority=10 if name == "gang" else 1, **wish)
    assert {name for name in "abc" if made.run(name).phase is STOPPING} == {"a", "b"}
    made.end_epoch("b")
    assert made.running() == {"a", "c"}
    made.end_epoch("a")
    assert made.running() == {"c", "gang"}


@pytest.mark.parametrize(("gpus", "gets"), [((1, 2), 2), ((1, 4), 3), ((3, 9), 3), ((4, 4), 0)])
def test_a_job_gets_as_many_gpus_as_it_can_use_and_has(gpus: tuple[int, int], gets: int) -> None:
    placed = planned(job("a", gpus=gpus), nodes=[node(3)]).placements
    assert len(placed.get(JobId("a"), ())) == gets


def test_any_number_of_gpus_may_be_asked_for() -> None:
    assert len(planned(job("a", gpus=(1, 2**31 - 1))).placements[JobId("a")]) == 1


def test_a_job_without_gpus_starts_at_once_however_full_it_is() -> None:
    full = with_run(job("a"), share())
    plan = planned(full, job("b"), job("cpu", gpus=0))
    assert plan.placements[JobId("cpu")] == ()


def test_pods_not_yet_seen_gone_hold_their_gpu() -> None:
    ghost = pod(with_run(job("ghost"), share(10000)), PodState.TERMINATING)
    assert why(planned(job("a", 6000), pods=[ghost]), "a") == (
        "stopping (waits for ghost to be gone)"
    )


# --- in which order -----------------------------------------------------------------------------


def test_first_come_first_served() -> None:
    jobs = [job("late", submitted_at=2.0), job("early", submitted_at=1.0)]
    assert started(planned(*jobs), *jobs) == {"early"}


def test_equal_ranks_are_decided_by_id() -> None:
    jobs = [job("b"), job("a")]
    assert started(planned(*jobs), *jobs) == {"a"}


def test_priority_comes_first() -> None:
    jobs = [job("early"), job("late", submitted_at=NOW, priority=2)]
    assert started(planned(*jobs), *jobs) == {"late"}


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_priority_overtakes_by_its_hours_and_no_more(steps: int) -> None:
    """No job starves: a job submitted later than that comes later, whatever its priority."""
    old = job("old")
    bound = steps * RULES.ageing_seconds
    soon = job("urgent", submitted_at=bound - 1, priority=1 + steps)
    late = job("urgent", submitted_at=bound + 1, priority=1 + steps)
    now = bound + 2
    assert started(planned(old, soon, now=now), old, soon) == {"urgent"}
    assert started(planned(old, late, now=now), old, late) == {"old"}


def test_two_waiting_jobs_never_change_places() -> None:
    jobs = job("a", submitted_at=5.0), job("b", priority=2), job("c", ran_seconds=99.0)
    now_and_later = [
        sorted(jobs, key=lambda one: rank(one, now, RULES)) for now in (NOW, NOW + 9e9)
    ]
    assert now_and_later[0] == now_and_later[1]


def test_a_job_that_has_run_comes_after_those_that_only_waited() -> None:
    jobs = [job("ran", ran_seconds=10.0), job("new", submitted_at=5.0)]
    assert started(planned(*jobs), *jobs) == {"new"}


# --- why not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (job("w", held=True), "held (until it is released)"),
        (
            job("w", eligible_at=NOW + 7, reason="exit code 1"),
            "backoff (tries again in 7 s, after: exit code 1)",
        ),
        (job("w", 99999), "memory (needs 99,999 MiB; gpu0 has the most free: 15,872 MiB)"),
        (
            job("w", gpus=2),
            "gpus (needs 2 whole GPUs on one node because its memory use is not known yet"
            " (--estimated_memory); empty now: 1)",
        ),
    ],
)
def test_a_job_waits_with_a_true_reason(waiting: Job, words: str) -> None:
    plan = planned(waiting)
    assert (plan.placements, why(plan, "w")) == ({}, words)


def test_without_a_node_that_is_ready_all_wait_for_one() -> None:
    plan = planned(job("a"), job("cpu", gpus=0), nodes=[node(ready=False)])
    assert {line(reason) for reason in plan.why.values()} == {"nodes (no node is ready)"}


def test_without_a_gpu_those_that_need_one_wait() -> None:
    plan = planned(job("a"), job("cpu", gpus=0), nodes=[node(0)])
    assert why(plan, "a") == "gpus (there is no GPU)"
    assert plan.placements == {"cpu": ()}


def test_the_end_of_the_first_pause_is_when_to_plan_again() -> None:
    paused = [job(name, eligible_at=NOW + pause) for name, pause in (("a", 9), ("b", 5), ("c", 0))]
    assert planned(*paused).replan_at == NOW + 5
    assert planned(job("a", eligible_at=NOW)).replan_at is None


def test_what_is_free_but_kept_for_another_is_said_so() -> None:
    crowded = with_run(job("r"), share())
    pair, small = job("pair", gpus=2, submitted_at=1.0), job("small", submitted_at=2.0)
    plan = planned(crowded, pair, small, nodes=[node(2)])
    assert (
        why(plan, "pair")
        == "gpus (needs 2 whole GPUs on one node because its memory use is not known yet"
        " (--estimated_memory); empty now: 1)"
    )
    assert why(plan, "small") == "turn (what is free is reserved for pair)"


# --- backfilling --------------------------------------------------------------------------------


def test_small_jobs_never_delay_the_first_that_waits() -> None:
    made = town(2, ("r1", {}), ("r2", {}), ("pair", {"gpus": 2}))
    for number in range(5):
        made.submit(f"small{number}", 100)
    assert made.running() == {"r1", "r2"}
    made.exit("r1")
    made.submit("another", 100)
    assert made.running() == {"r2"}
    made.exit("r2")
    assert made.running() == {"pair"}


def test_small_jobs_use_what_no_other_job_will() -> None:
    made = town(3, ("r1", {}), ("r2", {}), ("pair", {"gpus": 2}), ("small", {}))
    assert made.running() == {"r1", "r2", "pair", "small"} - {"pair", "small"}
    spare = ScriptedCluster(node(2), node(1, name="n2"))
    spare.look()
    for name, wish in (("r1", 2), ("pair", 2), ("small", 1)):
        spare.submit(name, gpus=wish)
    assert spare.running() == {"r1", "small"}, "the pair can only ever be on n1"


def test_a_claim_counts_what_was_given_in_the_same_plan() -> None:
    jobs = [
        job("first", submitted_at=1.0),
        job("pair", gpus=2, submitted_at=2.0),
        job("small", submitted_at=3.0),
    ]
    assert started(planned(*jobs, nodes=[node(2)]), *jobs) == {"first"}


def test_a_job_that_can_never_fit_keeps_nothing_from_others() -> None:
    made = town(2, ("never", {"memory_mib": 99999}), ("r1", {}), ("r2", {}), ("pair", {"gpus": 2}))
    made.submit("small")
    made.exit("r1")
    assert made.running() == {"r2"}, "the pair is the first that can ever start"
    made.exit("r2")
    assert made.running() == {"pair"}


def test_a_node_that_vanishes_takes_the_claims_on_it_along() -> None:
    made = ScriptedCluster(node(2), node(1, name="n2"))
    made.look()
    for name, gpus in (("r1", 2), ("pair", 2), ("r2", 1), ("small", 1)):
        made.submit(name, gpus=gpus)
    assert made.running() == {"r1", "r2"}
    made.nodes = made.nodes[1:]
    made.exit("r2")
    assert made.running() == {"r1", "small"}


# --- preemption ---------------------------------------------------------------------------------


def test_a_higher_priority_preempts_at_an_epochs_end_and_the_lower_resumes() -> None:
    made = town(1, ("low", {}))
    made.end_epoch("low")
    made.submit("urgent", priority=10)
    assert made.run("low").stop_reason == "preempted for urgent"
    assert made.why("urgent") == "stopping (waits for low to stop at the end of an epoch)"
    made.end_epoch("low")
    assert made.running() == {"urgent"}
    made.exit("urgent")
    assert made.running() == {"low"}
    assert (made.run("low").attempt, made.run("low").epochs_before) == (2, 2)


def test_the_preempted_does_not_preempt_in_its_turn() -> None:
    made = town(1, ("low", {}), ("urgent", {"priority": 10}))
    made.end_epoch("low")
    for _ in range(5):
        made.end_epoch("urgent")
        made.look()
    assert made.running() == {"urgent"}
    assert made.run("urgent").attempt == 1


@pytest.mark.parametrize("priority", [0, 1])
def test_a_lower_or_equal_priority_preempts_no_job(priority: int) -> None:
    made = town(1, ("r", {}), ("w", {"priority": priority}))
    assert made.run("r").phase is RunPhase.RUNNING
    assert made.why("w").startswith("gpus (needs a whole GPU")


def test_a_job_that_waited_long_enough_is_not_preempted_any_more() -> None:
    old = with_run(job("old"), share(), started_at=NOW)
    hours = RULES.ageing_seconds / HOUR
    urgent = job("urgent", submitted_at=(hours + 1) * HOUR, priority=2)
    assert "old" in planned(old, urgent, now=NOW).placements


def test_a_run_that_never_spoke_is_not_preempted_until_it_does() -> None:
    made = town()
    made.step(Submitted(JobId("low"), spec("low")))
    made.look()
    made.step(Submitted(JobId("urgent"), spec("urgent", priority=10)))
    made.look()
    assert made.run("low").phase is RunPhase.RUNNING
    made.settle()
    assert made.run("low").phase is STOPPING


def test_a_run_in_its_last_epoch_is_waited_for() -> None:
    made = town(1, ("low", {"max_epochs": 2}))
    made.end_epoch("low")
    made.submit("urgent", priority=10)
    assert made.run("low").phase is RunPhase.RUNNING
    assert made.why("urgent").startswith("gpus (")
    made.step(Updated(JobId("low"), max_epochs=9))
    made.step()
    assert made.run("low").phase is RunPhase.RUNNING, "it knows nothing of the other seven"
    made.step(EpochEnded(Profile(JobId("low"), 1, 2)))
    made.exit("low")
    assert made.running() == {"urgent"}
    assert made.why("low").startswith("gpus (")


def test_no_more_jobs_are_asked_to_stop_than_necessary() -> None:
    made = town(1, ("small", {"memory_mib": 2000}), ("large", {"memory_mib": 9000}))
    made.submit("urgent", 8000, priority=10)
    assert [n for n in ("small", "large") if made.run(n).phase is STOPPING] == ["large"]


def test_of_equal_jobs_the_one_that_waited_least_is_asked_to_stop() -> None:
    patient = with_run(job("patient", 7000), share(7000), started_at=100.0)
    lucky = with_run(job("lucky", 7000), share(7000), started_at=0.0)
    for runs in ([patient, lucky], [lucky, patient]):
        assert set(planned(*runs, job("urgent", 7000, priority=10)).placements) == {"patient"}


def test_an_urgent_job_preempts_rather_than_wait_for_its_equal_to_end() -> None:
    made = town(2, ("equal", {"priority": 10}), ("low", {}), ("urgent", {"priority": 10}))
    assert made.run("low").phase is STOPPING


def test_no_job_is_asked_to_stop_as_long_as_another_gpu_is_not_available() -> None:
    made = town(2, ("equal", {"priority": 10}), ("low", {}))
    made.submit("urgent", gpus=2, priority=10)
    assert made.run("low").phase is RunPhase.RUNNING
    made.exit("equal")
    assert made.run("low").phase is STOPPING


def test_a_claim_stays_where_a_run_stops_for_it() -> None:
    """However often the plan is repeated, and although other GPUs would cost the same."""
    made = town(3, ("a", {}), ("b", {}), ("c", {}), ("urgent", {"priority": 10}))
    victims = {n for n in ("a", "b", "c") if made.run(n).phase is STOPPING}
    for number in range(4):
        made.submit(f"noise{number}", 10 * number, priority=1)
        assert {n for n in ("a", "b", "c") if made.run(n).phase is STOPPING} == victims
    assert len(victims) == 1


def test_two_urgent_jobs_ask_two_to_stop_and_each_gets_a_gpu() -> None:
    made = town(2, ("a", {}), ("b", {}), ("u1", {"priority": 10}), ("u2", {"priority": 10}))
    made.end_epoch("a")
    assert made.running() == {"b", "u1"}
    made.end_epoch("b")
    assert made.running() == {"u1", "u2"}


def test_what_preempted_runs_leave_is_kept_for_the_jobs_that_preempt_them() -> None:
    made = town(2, ("a", {}), ("b", {}), ("urgent", {"gpus": 2, "priority": 10}))
    made.end_epoch("a")
    made.submit("small", 10)
    assert made.running() == {"b"}, "neither a nor the small one takes the free GPU"
    made.end_epoch("b")
    assert made.running() == {"urgent"}


def test_for_a_gpu_with_only_old_pods_no_other_job_needs_to_stop() -> None:
    """The job of the old pods runs elsewhere by now: stopping it would free nothing here."""
    elsewhere = with_run(job("low", 10, attempts=1), share(10, 1))
    ghost = pod(elsewhere, PodState.TERMINATING, attempt=1, shares=(share(),))
    busy = with_run(job("equal", 10, priority=10), share(10, 1))
    urgent = job("urgent", priority=10)
    plan = planned(elsewhere, busy, urgent, nodes=[node(2)], pods=[ghost])
    assert set(plan.placements) == {"low", "equal"}
    assert why(plan, "urgent").startswith("stopping (")


def test_a_job_gets_on_however_often_it_is_preempted() -> None:
    made = town(1, ("low", {"max_epochs": 12}))
    for number in range(5):
        made.submit(f"urgent{number}", priority=2)
        made.end_epoch("low")
        assert made.running() == {f"urgent{number}"}
        made.exit(f"urgent{number}")
        assert made.running() == {"low"}
        assert made.view.jobs[JobId("low")].epochs_done == number + 1


def test_a_cancelled_urgent_job_leaves_the_place_to_the_job_that_it_preempted() -> None:
    made = town(1, ("low", {}), ("urgent", {"priority": 10}))
    made.step(Cancelled(JobId("urgent")))
    made.end_epoch("low")
    assert (made.running(), made.run("low").attempt) == ({"low"}, 2)


# --- held runs, growth --------------------------------------------------------------------------


def test_a_held_run_stops_at_an_epochs_end_and_waits_to_be_released() -> None:
    made = town(1, ("a", {}))
    made.step(Updated(JobId("a"), held=True))
    assert made.run("a").stop_reason == "held by request"
    made.end_epoch("a")
    assert (made.running(), made.why("a")) == (set(), "held (until it is released)")
    made.step(Updated(JobId("a"), held=False))
    assert made.running() == {"a"}


def test_of_neighbours_that_no_longer_fit_the_lowest_ranked_stops() -> None:
    made = town(1, ("a", {"memory_mib": 7000}), ("b", {"memory_mib": 7000}))
    made.end_epoch("a", 9000)
    made.look()
    assert made.run("b").stop_reason == "made room on gpu0, where others were measured to need more"
    made.end_epoch("b")
    assert made.run("a").shares == (share(9000),)
    assert made.why("b") == "memory (needs 7,000 MiB; gpu0 has the most free: 6,872 MiB)"


def test_a_lower_priority_leaves_even_if_it_is_the_one_that_grew() -> None:
    made = town(1, ("a", {"memory_mib": 7000}), ("b", {"memory_mib": 7000, "priority": 2}))
    made.end_epoch("a", 9000)
    assert made.view.jobs[JobId("a")].reason == (
        "made room on gpu0, where it was measured to need more, after epoch 1"
    )
    assert made.run("b").phase is RunPhase.RUNNING


def test_growth_asks_no_job_to_stop_if_there_is_room() -> None:
    made = town(1, ("a", {"memory_mib": 3000}), ("b", {"memory_mib": 3000}))
    made.end_epoch("a", 9000)
    made.look()
    assert made.run("a").shares == (share(9000),)
    assert made.run("b").phase is RunPhase.RUNNING


def test_growth_asks_no_job_to_stop_where_old_pods_are_about_to_go() -> None:
    ghost = pod(with_run(job("ghost"), share(5000)), PodState.TERMINATING)
    runs = with_run(job("a", 8000), share(4000)), with_run(job("b", 6000), share(6000))
    assert set(planned(*runs, pods=[ghost]).placements) == {"a", "b"}


def test_of_the_neighbours_of_a_growing_run_the_one_that_waited_least_stops() -> None:
    grown = with_run(job("grown", 9000), share(5000))
    patient = with_run(job("patient", 5000), share(5000), started_at=100.0)
    lucky = with_run(job("lucky", 5000), share(5000), started_at=0.0)
    for runs in ([grown, patient, lucky], [lucky, grown, patient]):
        assert set(planned(*runs).placements) == {"grown", "patient"}


def test_what_a_run_grows_into_is_not_given_to_a_job_that_waits() -> None:
    grown, small = with_run(job("a", 12000), share(4000)), job("small", 5000)
    plan = planned(grown, small)
    assert set(plan.placements) == {"a"}
    assert why(plan, "small") == "memory (needs 5,000 MiB; gpu0 has the most free: 3,872 MiB)"


def test_what_a_run_was_measured_not_to_need_is_given_to_others() -> None:
    made = town(1, ("a", {}), ("b", {"memory_mib": 4000}))
    assert made.running() == {"a"}
    made.end_epoch("a", 3000)
    made.look()
    assert made.running() == {"a", "b"}


def test_a_job_measured_to_need_what_is_kept_back_can_run_again() -> None:
    made = town(1, ("greedy", {}))
    made.end_epoch("greedy", 16000)
    made.submit("urgent", priority=10)
    made.end_epoch("greedy", 16000)
    assert made.running() == {"urgent"}
    made.exit("urgent")
    assert made.running() == {"greedy"}


def test_a_run_alone_on_a_gpu_that_shrank_is_left_in_peace() -> None:
    small = [node(memory_mib=8192)]
    assert set(planned(with_run(job("a"), share()), nodes=small).placements) == {"a"}


def test_a_run_on_a_node_that_is_gone_is_left_in_peace() -> None:
    lost = with_run(job("a"), share(node="gone"))
    assert planned(lost).placements == {"a": (share(node="gone"),)}


def test_a_job_whose_runs_failed_waits_its_pause_and_others_go_first() -> None:
    failed = job("a", eligible_at=NOW + 5, failures=((Failure.ERROR, 1),), reason="exit code 1")
    assert set(planned(failed, job("b")).placements) == {"b"}


def test_the_policy_goes_by_its_name() -> None:
    assert "fifo_sharing" in POLICIES
