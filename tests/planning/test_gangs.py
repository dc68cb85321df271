"""Gangs over nodes, whatever the nodes: all of their GPUs or none, of one type, on the fewest nodes
possible; by placement, and by every policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import admission
from scheduler.core.adopt import adopt
from scheduler.core.errors import Impossible
from scheduler.core.invariants import check
from scheduler.core.memory import best_fit, free_mib, need_mib, usable_gpus
from scheduler.core.model import Gpu, GpuKey, Job, JobId, Node, View
from scheduler.planning.placement import PlacedUnits, Unit, place_units
from scheduler.planning.policies import NAMES, POLICIES
from tests.builders import NOW, RULES, job, share, view, with_run

TYPES = "a100", "t4"
NEEDS = st.sampled_from([0, 4000, 12_000])
SIZES = st.sampled_from([8192, 16384])


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Up to five nodes of any sizes, each with one type of GPU or with both, of any memory."""
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        kinds = draw(st.lists(st.tuples(st.sampled_from(TYPES), SIZES), min_size=1, max_size=2))
        gpus = [kind for kind in kinds for _ in range(draw(st.integers(1, 4)))]
        made = [Gpu(f"gpu{i}", i, type, mib, mib // 32) for i, (type, mib) in enumerate(gpus)]
        nodes.append(Node(f"n{number}", tuple(made)))
    return nodes


def large_enough(nodes: Sequence[Node], type: str, wants: Job) -> dict[str, int]:
    """By node, the number of its GPUs of the type that could hold the job."""
    return {
        node.name: sum(
            gpu.type == type and need_mib(wants, gpu, RULES) <= gpu.capacity_mib
            for gpu in node.gpus
        )
        for node in nodes
    }


def fewest(sizes: Collection[int], count: int) -> int:
    """By trying all."""
    for nodes in range(1, len(sizes) + 1):
        if any(sum(chosen) >= count for chosen in combinations(sizes, nodes)):
            return nodes
    return 0


def on_nodes(keys: Collection[GpuKey]) -> int:
    return len({node for node, _ in keys})


def wished(made: PlacedUnits) -> dict[JobId, tuple[GpuKey, ...]]:
    """All GPUs that each job is to have in the end."""
    now = {id: tuple(s.key for s in shares) for id, shares in made.placements.items()}
    return now | made.claims


@given(clusters(), st.integers(1, 20), NEEDS, st.sampled_from(TYPES))
def test_on_an_empty_cluster_a_gang_is_on_the_fewest_nodes_there_could_be(
    nodes: list[Node], count: int, mib: int, type: str
) -> None:
    gang = job("gang", mib, gpus=count)
    made = place_units([Unit((gang,), type, count)], view(gang, nodes=nodes), RULES, moves_max=4)
    least = fewest(large_enough(nodes, type, gang).values(), count)
    if not least:
        assert made.placements == {}
        assert len(made.left_out) == 1
        return
    shares = made.placements[gang.id]
    assert len({share.key for share in shares}) == count
    assert len({share.node for share in shares}) == least
    known = usable_gpus(nodes)
    for one in shares:
        assert known[one.key].type == type
        assert one.memory_mib == need_mib(gang, known[one.key], RULES)
        assert one.memory_mib <= known[one.key].capacity_mib


@given(clusters(), st.integers(1, 12), st.integers(0, 12), NEEDS)
def test_best_fit_is_on_the_fewest_nodes_there_could_be(
    nodes: list[Node], least: int, more: int, mib: int
) -> None:
    gang = job("gang", mib, gpus=(least, least + more))
    known = usable_gpus(nodes)
    keys = best_fit(gang, least + more, known, free_mib(view(nodes=nodes)), RULES)
    possible = [fewest(large_enough(nodes, type, gang).values(), least) for type in TYPES]
    if keys is None:
        assert not any(possible)
        return
    assert on_nodes(keys) == min(filter(None, possible))
    assert least <= len(set(keys)) == len(keys) <= least + more
    assert len({known[key].type for key in keys}) == 1


@st.composite
def situations(draw: st.DrawFn) -> View:
    """Jobs that run on some of the GPUs, gangs over nodes among them, and jobs that wait."""
    nodes = draw(clusters())
    known = usable_gpus(nodes)
    free, jobs = list(known), []
    for number in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, 6))
        one = job(f"j{number}", draw(NEEDS), gpus=(draw(st.integers(1, count)), count))
        type = draw(st.sampled_from(TYPES))
        alike = [
            key
            for key in free
            if known[key].type == type
            and need_mib(one, known[key], RULES) <= known[key].capacity_mib
        ]
        if draw(st.booleans()) and len(alike) >= count:
            keys = draw(st.permutations(alike))[:count]
            free = [key for key in free if key not in keys]
            taken = [(key, need_mib(one, known[key], RULES)) for key in sorted(keys)]
            shares = [share(mib, int(gpu[3:]), node) for (node, gpu), mib in taken]
            one = replace(with_run(one, *shares, epoch_started=3), epochs_done=3)
        jobs.append(one)
    return view(*jobs, nodes=nodes)


def units_of(before: View, type: str) -> list[Unit]:
    """Running jobs are to stay where they are; the others get as much as they can use."""
    known = usable_gpus(before.nodes)
    units = []
    for one in before.jobs.values():
        keys = [share.key for share in one.run.shares] if one.run else []
        here = known[keys[0]].type if keys else type
        units.append(Unit((one,), here, len(keys) or one.spec.gpus_max))
    return units


@given(situations(), st.sampled_from(TYPES), st.integers(0, 3))
def test_never_half_a_gang_nor_two_types_nor_more_than_a_gpu_holds(
    before: View, type: str, moves_max: int
) -> None:
    units = units_of(before, type)
    made = place_units(units, before, RULES, moves_max)
    known, cards_of = usable_gpus(before.nodes), wished(made)
    everything = [key for keys in cards_of.values() for key in keys]
    assert len(everything) == len(set(everything))
    for unit in units:
        one = unit.jobs[0]
        keys = cards_of.get(one.id, ())
        assert (len(keys) == unit.count) != (unit in made.left_out)
        assert {known[key].type for key in keys} <= {unit.type}
        assert all(need_mib(one, known[key], RULES) <= known[key].capacity_mib for key in keys)


@given(situations(), st.sampled_from(TYPES), st.integers(0, 3))
def test_so_many_move_and_none_in_vain(before: View, type: str, moves_max: int) -> None:
    units = units_of(before, type)
    without = wished(place_units(units, before, RULES))
    made = place_units(units, before, RULES, moves_max)
    moved = [one.id for one in before.jobs.values() if one.run and one.id in made.claims]
    assert len(moved) <= moves_max
    cards_of = wished(made)
    gained = [
        one.id
        for one in before.jobs.values()
        if one.waiting and one.id in cards_of and cards_of[one.id] != without.get(one.id)
    ]
    assert not moved or gained
    for id in moved:
        assert on_nodes(cards_of[id]) == 1


@settings(max_examples=60)
@given(situations(), st.sampled_from(NAMES))
def test_every_policy_places_gangs_all_or_nothing(before: View, name: str) -> None:
    plan = POLICIES[name](RULES)(before, NOW)
    known = usable_gpus(before.nodes)
    for id, shares in plan.placements.items():
        one = before.jobs[id]
        assert one.spec.gpus_min <= len({share.key for share in shares}) <= one.spec.gpus_max
        assert one.run or len({known[share.key].type for share in shares}) == 1
    change = adopt(before, plan, NOW, RULES)
    check(before, change.view, change.touched)
    for one in before.jobs.values():
        if one.waiting:
            assert (one.id in plan.placements) == (change.view.jobs[one.id].run is not None)


@settings(max_examples=60)
@given(clusters(), st.integers(1, 20), NEEDS, st.sampled_from(NAMES))
def test_every_policy_starts_what_is_admitted_on_the_fewest_nodes(
    nodes: list[Node], count: int, mib: int, name: str
) -> None:
    gang = job("gang", mib, gpus=count)
    plan = POLICIES[name](RULES)(view(gang, nodes=nodes), NOW)
    try:
        admission.check_possible(gang.spec, nodes, RULES)
    except Impossible:
        assert gang.id not in plan.placements
        assert gang.id in plan.why
        return
    shares = plan.placements[gang.id]
    type = usable_gpus(nodes)[shares[0].key].type
    assert len({share.node for share in shares}) == fewest(
        large_enough(nodes, type, gang).values(), count
    )
