from __future__ import annotations

import pytest

from scheduler.core.learning import kind_of
from scheduler.core.model import Job, JobFamily, JobId, Measured, Node, Plan, View
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from tests.builders import CAPACITY, NOW, RULES, job, node, share, view, with_run

PACKING = POLICIES["packing"](RULES)
PACKING_GANGS = POLICIES["packing_gangs"](RULES)


def known(name: str, util: float, *, seconds: float = 60.0, mib: int = 4000, gpus: int = 1) -> Job:
    measured = (Measured(f"pretendedx{gpus}", (), seconds, 2),)
    return job(name, mib, gpus=gpus, gpu_util=util, measured=measured)


def runs(waiting: Job, *gpus: int) -> Job:
    shares = [share(waiting.memory_mib, gpu) for gpu in gpus or (0,)]
    return with_run(waiting, *shares, placement=f"pretendedx{len(shares)}")


def planned(*jobs: Job, nodes: tuple[Node, ...] = ()) -> Plan:
    return PACKING(view(*jobs, nodes=nodes), NOW)


def test_as_long_as_gpus_are_free_no_job_is_packed() -> None:
    plan = planned(runs(known("a", 0.1)), known("b", 0.1), nodes=(node(2),))
    assert plan.placements[JobId("b")] == (share(4000, 1),)


def test_then_a_job_joins_one_that_it_will_hardly_slow_down() -> None:
    plan = planned(runs(known("a", 0.3)), known("b", 0.5))
    assert plan.placements == {"a": (share(4000),), "b": (share(4000),)}


@pytest.mark.parametrize(
    ("a", "b", "packed"), [(0.1, 0.9, True), (0.3, 0.5, True), (0.3, 0.9, False), (0, 0.1, False)]
)
def test_sharing_scores_add_up_to_two_at_most_and_must_be_known(
    a: float, b: float, packed: bool
) -> None:
    plan = planned(runs(known("a", a)), known("b", b))
    assert ("b" in plan.placements) == packed
    if not packed:
        assert (
            line(plan.why[JobId("b")]) == "gpus (needs an empty GPU with 4,000 MiB; empty now: 0)"
        )


def test_what_is_known_of_its_kind_is_known_of_a_job() -> None:
    new = job("b", 4000)
    before = view(runs(known("a", 0.3)), new)
    kinds = {kind_of(new.spec): JobFamily(jobs=3, gpu_util=0.4)}
    after = View(**{**{f: getattr(before, f) for f in before.__slots__}, "kinds": kinds})
    assert "b" in PACKING(after, NOW).placements


def test_two_are_enough() -> None:
    a, b = runs(known("a", 0.1)), runs(known("b", 0.1))
    assert set(planned(a, b, known("c", 0.1)).placements) == {"a", "b"}


def test_memory_must_fit_together() -> None:
    big = CAPACITY - 3999
    plan = planned(runs(known("a", 0.1)), known("b", 0.1, mib=big))
    assert set(plan.placements) == {"a"}


def test_a_job_that_needs_much_longer_does_not_join() -> None:
    plan = planned(runs(known("a", 0.1)), known("b", 0.1, seconds=121.0))
    assert set(plan.placements) == {"a"}


def test_a_job_that_does_not_share_is_neither_host_nor_guest() -> None:
    alone = job("b", 4000, shareable=False, gpu_util=0.1)
    assert set(planned(runs(known("a", 0.1)), alone).placements) == {"a"}
    assert set(planned(with_run(alone, share()), known("c", 0.1)).placements) == {"b"}


def test_gangs_join_gangs_of_the_same_size_only_where_gangs_are_paired() -> None:
    gang = runs(known("a", 0.1, gpus=2), 0, 1)
    town = view(gang, known("b", 0.1, gpus=2), known("c", 0.1), nodes=(node(2),))
    plan = PACKING_GANGS(town, NOW)
    assert plan.placements[JobId("b")] == (share(4000), share(4000, 1))
    assert "c" not in plan.placements
    assert set(PACKING(town, NOW).placements) == {"a"}


def test_no_job_joins_a_gang_over_nodes() -> None:
    """Neither a running gang nor one that the same plan starts."""
    here = [share(4000, gpu, name) for name in ("n1", "n2") for gpu in (0, 1)]
    there = with_run(known("a", 0.1, gpus=4), *here, placement="pretendedx4/2")
    for host in (there, known("a", 0.1, seconds=1.0, gpus=4)):
        town = view(host, known("b", 0.1, gpus=4), nodes=(node(2), node(2, "n2")))
        assert set(PACKING_GANGS(town, NOW).placements) == {"a"}


def test_the_least_work_comes_first_and_gangs_are_more() -> None:
    jobs = known("a", 0.9), known("b", 0.9, seconds=50.0), known("c", 0.9, seconds=30.0, gpus=2)
    assert set(planned(*jobs, nodes=(node(1),)).placements) == {"b"}


def test_two_that_wait_may_start_together() -> None:
    plan = planned(known("a", 0.1), known("b", 0.1))
    assert plan.placements == {"a": (share(4000),), "b": (share(4000),)}


def test_no_job_is_stopped() -> None:
    plan = planned(runs(known("a", 0.9, seconds=9000.0)), known("b", 0.9, seconds=1.0))
    assert set(plan.placements) == {"a"}
