from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.adopt import adopt
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Gpu, Job, JobId, Node, Plan, PodState, RunPhase, View
from scheduler.core.runs import may_move, may_stop
from scheduler.planning.placement import PlacedUnits, Unit, place_units
from tests.builders import CAPACITY, NOW, RULES, job, node, pod, share, view, with_run

TYPE = "pretended"


def unit(*jobs: Job, count: int = 1) -> Unit:
    return Unit(jobs, TYPE, count)


def settled(waiting: Job, *keys: tuple[str, int], mib: int = CAPACITY, done: int = 3) -> Job:
    """A job that runs there and has finished an epoch: it may be moved."""
    shares = tuple(share(mib, gpu, name) for name, gpu in keys)
    return replace(with_run(waiting, *shares), epochs_done=done)


def nodes(count: int = 2, gpus: int = 4) -> list[Node]:
    return [node(gpus, f"n{number}") for number in range(1, count + 1)]


def asked(
    units: Sequence[Unit], *others: Job, nodes: Sequence[Node], moves_max: int = 0
) -> PlacedUnits:
    jobs = {job.id: job for unit in units for job in unit.jobs}
    return place_units(units, view(*jobs.values(), *others, nodes=nodes), RULES, moves_max)


def where(made: PlacedUnits, name: str) -> list[str]:
    """As `n1/gpu0`."""
    return [f"{share.node}/{share.gpu}" for share in made.placements[JobId(name)]]


def on_nodes(made: PlacedUnits, name: str) -> dict[str, int]:
    """The number of GPUs on each node."""
    names = [share.node for share in made.placements[JobId(name)]]
    return {name: names.count(name) for name in names}


# --- units that stay ----------------------------------------------------------------------------


def test_a_unit_that_has_what_it_wants_stays() -> None:
    a = settled(job("a"), ("n1", 1))
    b = settled(job("b", gpus=2), ("n2", 0), ("n2", 2))
    made = asked([unit(b, count=2), unit(a)], nodes=nodes())
    assert made.placements == {"a": a.run and a.run.shares, "b": b.run and b.run.shares}
    assert not made.claims


def test_a_run_that_may_not_be_stopped_stays_although_it_is_not_planned() -> None:
    first_epoch = with_run(job("a"), share(), phase=RunPhase.STARTING)
    made = asked([unit(job("b"))], first_epoch, nodes=[node(1)])
    assert set(made.placements) == {"a"}
    assert made.left_out == (unit(job("b")),)


def test_a_run_that_may_be_stopped_and_is_not_planned_vacates_its_gpus() -> None:
    leaver = settled(job("a"), ("n1", 0))
    made = asked([unit(job("b"))], leaver, nodes=[node(1)])
    assert made.placements == {}
    assert made.claims == {"b": (("n1", "gpu0"),)}


def test_a_run_in_its_first_epoch_is_not_given_another_count() -> None:
    young = with_run(job("a", gpus=(1, 2)), share())
    made = asked([unit(young, count=2)], nodes=[node(2)])
    assert where(made, "a") == ["n1/gpu0"]


def test_a_run_on_a_node_that_is_lost_stays_if_it_may_not_leave() -> None:
    lost = with_run(job("a"), share(), phase=RunPhase.STARTING)
    made = asked([unit(lost)], nodes=[node(1, ready=False), node(1, "n2")])
    assert where(made, "a") == ["n1/gpu0"]


def test_of_runs_that_may_not_move_and_need_too_much_memory_one_stops() -> None:
    unheard = with_run(job("a", 12000), share(9000), phase=RunPhase.STARTING)
    young = with_run(job("b", 4000), share(4000))
    for units in ([unit(unheard), unit(young)], [unit(unheard, young)]):
        made = asked(units, nodes=[node(2)])
        assert {name: where(made, name) for name in made.placements} == {"a": ["n1/gpu0"]}


# --- where ---------------------------------------------------------------------------------------


def test_a_gang_is_on_one_node_where_the_least_is_left() -> None:
    others = [settled(job("a"), ("n1", 0)), settled(job("b", gpus=2), ("n2", 0), ("n2", 1))]
    units = [unit(others[0]), unit(others[1], count=2), unit(job("c", gpus=2), count=2)]
    made = asked(units, nodes=nodes(3))
    assert on_nodes(made, "c") == {"n2": 2}


def test_a_gang_larger_than_a_node_takes_whole_nodes_first() -> None:
    other = settled(job("a"), ("n2", 0))
    units = [unit(other), unit(job("b", gpus=10), count=10)]
    made = asked(units, nodes=nodes(4))
    assert on_nodes(made, "b") == {"n1": 4, "n3": 4, "n2": 2}


def test_a_gang_is_spread_only_where_no_node_has_room() -> None:
    others = [
        settled(job(f"o{n}", gpus=k), *((f"n{n}", gpu) for gpu in range(k)))
        for n, k in ((1, 1), (2, 2), (3, 3))
    ]
    stay = [unit(other, count=k) for k, other in enumerate(others, 1)]
    spread = asked([*stay, unit(job("a", gpus=4), count=4)], nodes=nodes(3))
    assert on_nodes(spread, "a") == {"n1": 3, "n3": 1}


def test_a_gang_is_all_or_nothing() -> None:
    made = asked([unit(job("a", gpus=3), count=3)], nodes=[node(2)])
    assert made.placements == {}
    assert len(made.left_out) == 1


def test_among_equals_the_first_come_first() -> None:
    made = asked([unit(job(name)) for name in "cab"], nodes=[node(2)])
    assert set(made.placements) == {"c", "a"}
    assert [unit.jobs[0].id for unit in made.left_out] == ["b"]


def test_a_gpu_too_small_is_not_taken() -> None:
    small, large = node(2, "n1", memory_mib=8192), node(4, "n2")
    made = asked([unit(job("a", 12_000))], nodes=[small, large])
    assert on_nodes(made, "a") == {"n2": 1}


def test_only_gpus_of_the_chosen_type_are_taken() -> None:
    other = Node("n2", tuple(Gpu(f"gpu{i}", i, "fast", 16384, 512) for i in range(2)))
    made = asked([Unit((job("a"),), "fast", 1)], nodes=[node(1), other])
    assert on_nodes(made, "a") == {"n2": 1}
    made = asked([Unit((job("a"),), "faster", 1)], nodes=[node(1), other])
    assert len(made.left_out) == 1


def test_a_job_without_gpus_needs_no_room() -> None:
    made = asked([Unit((job("a", gpus=0),), "", 0)], nodes=[node(1, ready=False)])
    assert made.placements == {"a": ()}


# --- units that share ---------------------------------------------------------------------------


def test_the_other_joins_where_one_of_a_pair_runs() -> None:
    a = settled(job("a", 6000), ("n1", 1), mib=6000)
    made = asked([unit(job("b", 5000), a)], nodes=[node(2)])
    assert where(made, "b") == ["n1/gpu1"]
    assert made.placements[JobId("b")] == (share(5000, 1),)


def test_of_two_running_that_are_to_share_one_moves() -> None:
    a = settled(job("a", 6000), ("n1", 0), mib=6000)
    b = settled(job("b", 5000), ("n1", 1), mib=5000)
    made = asked([unit(a, b), unit(job("c"))], nodes=[node(2)])
    assert where(made, "a") == where(made, "b") == ["n1/gpu0"]
    assert made.claims == {"b": (("n1", "gpu0"),), "c": (("n1", "gpu1"),)}


def test_the_one_that_may_not_move_is_where_the_pair_comes_to_be() -> None:
    a = settled(job("a", 6000), ("n1", 0), mib=6000)
    b = with_run(job("b", 5000), share(5000, 1))
    made = asked([unit(a, b)], nodes=[node(2)])
    assert where(made, "a") == where(made, "b") == ["n1/gpu1"]


def test_two_that_may_not_move_do_not_come_together() -> None:
    a, b = with_run(job("a", 6000), share(6000)), with_run(job("b", 5000), share(5000, 1))
    made = asked([unit(a, b)], nodes=[node(2)])
    assert (where(made, "a"), where(made, "b")) == (["n1/gpu0"], ["n1/gpu1"])


def test_of_two_that_are_to_share_no_longer_one_moves() -> None:
    a = settled(job("a", 6000), ("n1", 0), mib=6000)
    b = settled(job("b", 5000), ("n1", 0), mib=5000)
    made = asked([unit(a), unit(b)], nodes=[node(2)])
    assert (where(made, "a"), where(made, "b")) == (["n1/gpu0"], ["n1/gpu1"])


def test_a_waiting_job_does_not_wait_beside_other_units_while_a_gpu_is_idle() -> None:
    a, b = with_run(job("a", 1000), share(1000)), with_run(job("b", 6000), share(6000))
    made = asked([unit(a, job("c", 9000)), unit(b)], nodes=[node(2)])
    assert where(made, "a") == where(made, "b") == ["n1/gpu0"]
    assert where(made, "c") == ["n1/gpu1"]


def test_two_new_ones_start_together_if_both_fit() -> None:
    made = asked([unit(job("a", 6000), job("b", 5000))], nodes=[node(2)])
    assert where(made, "a") == where(made, "b") == ["n1/gpu0"]
    made = asked([unit(job("a", 9000), job("b", 9000))], nodes=[node(2)])
    assert len(made.left_out) == 1


def test_no_job_starts_beside_one_that_stops() -> None:
    leaver = with_run(job("a", 4000), share(4000), phase=RunPhase.STOPPING)
    made = asked([unit(job("b", 4000))], leaver, nodes=[node(1)])
    assert made.placements == {}
    assert made.claims == {"b": (("n1", "gpu0"),)}


# --- what is on its way --------------------------------------------------------------------------


def test_what_is_free_now_is_taken_before_what_will_be() -> None:
    leaver = with_run(job("a"), share(), phase=RunPhase.STOPPING)
    made = asked([unit(job("b"))], leaver, nodes=[node(2)])
    assert where(made, "b") == ["n1/gpu1"]


def test_a_gang_waits_for_its_node_to_be_vacated_rather_than_be_spread() -> None:
    leaver = with_run(job("a"), share(), phase=RunPhase.STOPPING)
    others = [settled(job(f"o{n}", gpus=2), (f"n{n}", 2), (f"n{n}", 3)) for n in (1, 2)]
    units = [*(unit(other, count=2) for other in others), unit(job("b", gpus=2), count=2)]
    made = asked(units, settled(job("c"), ("n2", 0)), leaver, nodes=nodes(2))
    assert made.claims == {"b": (("n1", "gpu1"), ("n1", "gpu0"))}


def test_a_run_that_grows_waits_for_its_own_gpus_and_leaves_idle_ones_to_others() -> None:
    a = settled(job("a", gpus=(1, 2)), ("n1", 0))
    made = asked([unit(a, count=2), unit(job("b", gpus=2), count=2)], nodes=nodes(2, gpus=2))
    assert on_nodes(made, "b") == {"n2": 2}
    assert where(made, "a") == ["n1/gpu0", "n1/gpu1"]


def test_pods_without_a_current_run_hold_their_gpus_until_they_are_gone() -> None:
    over = replace(job("a"), attempts=1)
    ghost = pod(over, PodState.TERMINATING, shares=(share(),))
    made = place_units([unit(job("b"))], view(job("b"), pods=[ghost]), RULES)
    assert made.placements == {}
    assert made.claims == {"b": (("n1", "gpu0"),)}


def test_a_target_is_reached_in_steps_and_does_not_change_on_the_way() -> None:
    """A run on one GPU is to have two, and another job the GPU that it leaves."""
    a, b = settled(job("a", gpus=(1, 2)), ("n1", 0)), job("b")
    before = view(a, b, nodes=[node(1), node(2, "n2")])
    wishes = {"a": 2, "b": 1}

    def wished(now: View) -> PlacedUnits:
        units = [unit(now.jobs[JobId(name)], count=count) for name, count in wishes.items()]
        return place_units(units, now, RULES)

    first = wished(before)
    assert first.claims == {"a": (("n2", "gpu0"), ("n2", "gpu1")), "b": (("n1", "gpu0"),)}
    second = wished(
        view(
            replace(a, run=a.run and replace(a.run, phase=RunPhase.STOPPING)), b, nodes=before.nodes
        )
    )
    assert second.claims == first.claims
    third = wished(view(replace(a, run=None), b, nodes=before.nodes))
    assert on_nodes(third, "a") == {"n2": 2}
    assert where(third, "b") == ["n1/gpu0"]


# --- units that move for others -----------------------------------------------------------------


def fragmented() -> list[Unit]:
    """Three GPUs are free, one on each node of four."""
    smalls = [settled(job(f"s{n}"), (f"n{n}", 0)) for n in (1, 2, 3)]
    pairs = [settled(job(f"p{n}", gpus=2), (f"n{n}", 1), (f"n{n}", 2)) for n in (1, 2, 3)]
    return [*map(unit, smalls), *(unit(pair, count=2) for pair in pairs)]


def test_small_ones_move_so_that_a_gang_is_on_one_node() -> None:
    units = [*fragmented(), unit(job("a", gpus=2), count=2)]
    made = asked(units, nodes=nodes(3), moves_max=1)
    moved = [name for name in ("s1", "s2", "s3") if JobId(name) in made.claims]
    assert moved == ["s1"]
    assert made.claims[JobId("a")] == (("n1", "gpu3"), ("n1", "gpu0"))
    assert on_nodes(asked(units, nodes=nodes(3)), "a") == {"n1": 1, "n2": 1}


def test_those_move_whose_restart_costs_least() -> None:
    units = fragmented()
    costly = replace(units[0].jobs[0], restart_seconds=300.0)
    units[0] = unit(costly)
    made = asked([*units, unit(job("a", gpus=2), count=2)], nodes=nodes(3), moves_max=5)
    assert [name for name in ("s1", "s2", "s3") if JobId(name) in made.claims] == ["s2"]


def test_no_unit_moves_where_nothing_is_gained() -> None:
    units = [*fragmented(), unit(job("a", gpus=3), count=3)]
    made = asked(units, nodes=nodes(3), moves_max=9)
    assert made.claims == {}
    assert on_nodes(made, "a") == {"n1": 1, "n2": 1, "n3": 1}


def test_no_more_move_than_must() -> None:
    """Of a single job and a pair on a node, only the pair moves: that is enough."""
    there = [settled(job("s"), ("n1", 0)), settled(job("p", gpus=2), ("n1", 1), ("n1", 2))]
    costly = [job(f"r{n}", gpus=2, restart_seconds=300.0) for n in (2, 3)]
    rest = [settled(one, (f"n{n}", 0), (f"n{n}", 1)) for n, one in enumerate(costly, 2)]
    units = [unit(there[0]), *(unit(one, count=2) for one in [there[1], *rest])]
    made = asked([*units, unit(job("a", gpus=3), count=3)], nodes=nodes(3), moves_max=9)
    assert set(made.claims) == {"a", "p"}


def test_a_gang_of_whole_nodes_has_them_emptied() -> None:
    smalls = [settled(job(f"s{n}"), (f"n{n}", 0)) for n in (1, 2)]
    units = [*map(unit, smalls), unit(job("a", gpus=8), count=8)]
    made = asked(units, nodes=nodes(3), moves_max=9)
    assert made.claims.keys() == {"a", "s1"}
    assert made.claims[JobId("s1")] == (("n2", "gpu1"),)
    assert {node for node, _ in made.claims[JobId("a")]} == {"n1", "n3"}


# --- any numbers and any cluster ----------------------------------------------------------------

NODES = (node(2, "a"), node(4, "b"), node(4, "c"), node(1, "d", ready=False))
KEYS = [(there.name, gpu.uuid) for there in NODES for gpu in there.gpus]


@st.composite
def situations(draw: st.DrawFn) -> tuple[View, list[Unit]]:
    free, jobs = list(KEYS), []
    for number in range(draw(st.integers(0, 7))):
        count = draw(st.sampled_from([1, 1, 2, 3, 5]))
        one = job(f"j{number}", draw(st.sampled_from([0, 4000])), gpus=(1, 10))
        kind = draw(st.sampled_from(["waiting", *RunPhase]))
        if kind != "waiting" and count <= len(free):
            taken = [free.pop(draw(st.integers(0, len(free) - 1))) for _ in range(count)]
            shares = tuple(share(CAPACITY, int(gpu[3:]), name) for name, gpu in sorted(taken))
            one = with_run(one, *shares, phase=RunPhase(kind))
            one = replace(one, epochs_done=draw(st.integers(0, 9)))
        jobs.append(one)
    wished = draw(st.permutations(jobs))[: draw(st.integers(0, len(jobs)))]
    units = [Unit((one,), TYPE, draw(st.integers(1, 10))) for one in wished]
    return view(*jobs, nodes=NODES), units


@given(situations(), st.integers(0, 3))
def test_whatever_is_planned_no_gpu_is_given_twice_and_adopt_agrees(
    situation: tuple[View, list[Unit]], moves_max: int
) -> None:
    before, units = situation
    made = place_units(units, before, RULES, moves_max)
    known = usable_gpus(before.nodes)
    kept = {id: {s.key for s in shares} for id, shares in made.placements.items()}
    kept |= {id: set(keys) for id, keys in made.claims.items()}
    everything = [key for keys in kept.values() for key in keys]
    assert len(everything) == len(set(everything))
    left_out = {unit.jobs[0].id for unit in made.left_out}
    assert not left_out & set(kept)
    for unit in units:
        one = unit.jobs[0]
        keys = kept.get(one.id, set())
        stays = one.run is not None and keys == {share.key for share in one.run.shares}
        assert one.id in left_out or stays or len(keys) == unit.count
        assert stays or keys <= set(known)
    after = adopt(before, Plan(made.placements), NOW, RULES).view
    for one in before.jobs.values():
        run = after.jobs[one.id].run
        if one.waiting:
            assert (run is not None) == (one.id in made.placements)
        elif may_stop(one.run) and one.id not in made.placements:
            assert run is not None
            assert run.phase is RunPhase.STOPPING
        elif one.run and not may_move(one):
            assert run == one.run
