from __future__ import annotations

from scheduler.core.model import Job, JobId, Node, Plan, RunPhase
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from tests.builders import NOW, RULES, ScriptedCluster, job, node, share, view, with_run

FIFO = POLICIES["fifo"](RULES)


def planned(*jobs: Job, nodes: tuple[Node, ...] = ()) -> Plan:
    return FIFO(view(*jobs, nodes=nodes), NOW)


def why(plan: Plan, name: str) -> str:
    return line(plan.why[JobId(name)])


def test_whole_gpus_in_the_order_of_submission() -> None:
    jobs = [job("b", 1000, submitted_at=1.0), job("a", 1000, submitted_at=2.0)]
    plan = planned(*jobs)
    assert set(plan.placements) == {"b"}
    assert why(plan, "a") == "gpus (needs an empty GPU with 1,000 MiB; empty now: 0)"


def test_higher_priority_comes_first_but_stops_no_job() -> None:
    runs = with_run(job("a", priority=0), share())
    late = job("c", priority=5, submitted_at=9.0)
    plan = planned(runs, job("b"), late, nodes=(node(2),))
    assert set(plan.placements) == {"a", "c"}


def test_no_job_overtakes_the_first_even_where_no_job_would_be_delayed() -> None:
    runs = with_run(job("a"), share())
    plan = planned(runs, job("b", gpus=2), job("c", submitted_at=1.0), nodes=(node(2),))
    assert set(plan.placements) == {"a"}
    assert why(plan, "b") == "gpus (needs 2 empty GPUs; empty now: 1)"
    assert why(plan, "c") == "turn (what is free is reserved for b)"


def test_a_job_has_as_many_gpus_as_it_can_use() -> None:
    plan = planned(job("a", gpus=(1, 3)), nodes=(node(4),))
    assert len(plan.placements[JobId("a")]) == 3


def test_a_job_that_could_use_more_than_there_is_has_all() -> None:
    plan = planned(job("a", gpus=(1, 64)), nodes=(node(2), node(2, "n2")))
    assert len(plan.placements[JobId("a")]) == 4


def test_a_job_that_needs_more_than_the_cluster_has_keeps_no_job_waiting() -> None:
    plan = planned(job("a", gpus=8), job("b", submitted_at=1.0), nodes=(node(2),))
    assert set(plan.placements) == {"b"}
    assert why(plan, "a") == "gpus (needs 8 GPUs; there are 2)"


def test_a_gang_larger_than_a_node_is_on_several() -> None:
    plan = planned(job("a", gpus=6), nodes=(node(4), node(4, "n2")))
    assert [share.node for share in plan.placements[JobId("a")]] == ["n1"] * 4 + ["n2"] * 2


def test_a_gang_larger_than_a_node_is_told_on_how_many_it_must_be() -> None:
    nodes = node(4), node(4, "n2"), node(2, "n3")
    runs = with_run(job("a", gpus=3), *(share(gpu=n) for n in range(3)))
    waits = job("b", 1000, gpus=9), job("c", submitted_at=1.0)
    plan = planned(runs, *waits, nodes=nodes)
    words = "gpus (needs 9 empty GPUs with 1,000 MiB on 3 or more nodes; empty now: 7)"
    assert why(plan, "b") == words
    assert why(plan, "c") == "turn (what is free is reserved for b)"


def test_a_job_that_runs_beside_others_is_left_there() -> None:
    """A policy that shares GPUs has left them there."""
    a, b = (with_run(job(name, 4000), share(4000), epoch_started=3) for name in "ab")
    plan = planned(a, b, nodes=(node(2),))
    assert plan.placements == {"a": (share(4000),), "b": (share(4000),)}


def test_a_job_without_gpus_does_not_queue() -> None:
    plan = planned(job("a", gpus=2), job("b", gpus=0, submitted_at=1.0))
    assert plan.placements == {"b": ()}


def test_of_several_types_the_smallest_gpus_that_hold_it() -> None:
    small, large = node(1, "n1", memory_mib=8192), node(1, "n2", memory_mib=24576)
    fast = Node("n3", tuple(gpu for gpu in node(1, "n3", memory_mib=40960).gpus))
    plan = planned(job("a", 4000), job("b", 20000), nodes=(large, fast, small))
    assert plan.placements[JobId("b")][0].node in {"n2", "n3"}
    assert set(plan.placements) == {"a", "b"}


def test_held_and_unlucky_jobs_do_not_queue() -> None:
    held, unlucky = job("a", held=True), job("b", eligible_at=NOW + 60.0, reason="exit code 1")
    plan = planned(held, unlucky, job("c", submitted_at=1.0))
    assert set(plan.placements) == {"c"}
    assert why(plan, "a") == "held (until it is released)"
    assert why(plan, "b") == "backoff (tries again in 60 s, after: exit code 1)"
    assert plan.replan_at == NOW + 60.0


def test_a_run_that_is_held_leaves_at_the_end_of_its_epoch() -> None:
    plan = planned(with_run(job("a", held=True), share()), job("b"))
    assert plan.placements == {}
    assert why(plan, "a") == "held (until it is released)"
    assert why(plan, "b") == "stopping (waits for a to stop at the end of an epoch)"


def test_a_job_that_waits_for_a_gpu_to_be_vacated_is_told_so() -> None:
    leaver = with_run(job("a", cancelled=True), share(), phase=RunPhase.STOPPING)
    assert why(planned(leaver, job("b")), "b") == "stopping (waits for a to be gone)"


def test_a_stopped_job_keeps_its_place_in_the_queue() -> None:
    stopped = with_run(job("a"), share(), phase=RunPhase.STOPPING)
    assert why(planned(stopped, job("b", submitted_at=1.0)), "b").startswith("gpus")
    assert set(planned(job("a", attempts=1), job("b", submitted_at=1.0)).placements) == {"a"}


def test_no_node_ready() -> None:
    assert why(planned(job("a"), nodes=(node(1, ready=False),)), "a") == "nodes (no node is ready)"


def test_one_after_the_other_to_the_end() -> None:
    town = ScriptedCluster(node(2), policy=FIFO)
    town.look()
    for name in "abc":
        town.submit(name, max_epochs=1)
    assert town.running() == {"a", "b"}
    town.end_epoch("a")
    town.exit("a")
    assert town.running() == {"b", "c"}
