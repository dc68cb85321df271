"""Free GPUs of one type, node by node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scheduler.core.model import Gpu, GpuKey
from scheduler.planning.free_gpus import FreeNode, Part, Pool


def anything(gpu: Gpu) -> bool:
    return True


def large(gpu: Gpu) -> bool:
    return gpu.memory_mib >= 16384


def site(number: int, idle: int, leaving: int = 0, taken: int = 0, mib: int = 16384) -> FreeNode:
    name, count = f"n{number}", idle + leaving + taken
    gpus = {(name, f"gpu{i}"): Gpu(f"gpu{i}", i, "t4", mib) for i in range(count)}
    keys = list(gpus)
    return FreeNode(number, name, gpus, idle=keys[:idle], leaving=keys[idle : idle + leaving])


def pool(*sites: FreeNode, held: Collection[GpuKey] = ()) -> Pool:
    return Pool(sites, held)


def numbers(parts: list[Part] | None) -> Mapping[str, int] | None:
    return parts if parts is None else {site.node: count for site, count in parts}


def test_what_fits_a_node_is_on_the_node_where_the_least_is_left_over() -> None:
    there = pool(site(0, 4), site(1, 2), site(2, 3))
    assert numbers(there.spread(2, False, anything)) == {"n1": 2}
    assert numbers(there.spread(3, False, anything)) == {"n2": 3}


def test_of_equals_the_first_is_taken() -> None:
    assert numbers(pool(site(0, 2), site(1, 2)).spread(1, False, anything)) == {"n0": 1}


def test_what_fits_no_node_is_on_as_few_as_can_be_and_the_rest_where_it_fits_best() -> None:
    there = pool(site(0, 4), site(1, 2), site(2, 4), site(3, 1))
    assert numbers(there.spread(9, False, anything)) == {"n0": 4, "n2": 4, "n3": 1}
    assert there.spread(12, False, anything) is None


def test_gpus_that_a_run_leaves_are_free_soon_but_not_now() -> None:
    there = pool(site(0, 1, leaving=2))
    assert there.spread(3, False, anything) is None
    assert numbers(there.spread(3, True, anything)) == {"n0": 3}


def test_what_needs_more_memory_finds_only_large_gpus() -> None:
    there = pool(site(0, 4, mib=8192), site(1, 2))
    assert there.fit(3, False, large) is None
    assert numbers(there.spread(2, False, large)) == {"n1": 2}
    assert there.fewest_nodes(2, large) == 1
    assert there.fewest_nodes(3, large) == 0, "not even all of them"


def test_the_fewest_nodes_are_counted_as_if_all_were_free() -> None:
    there = pool(site(0, 0, taken=4), site(1, 1, taken=1))
    assert there.fewest_nodes(4, anything) == 1
    assert there.fewest_nodes(6, anything) == 2


def test_a_unit_that_starts_at_once_takes_idle_gpus_and_others_leave_them() -> None:
    for at_once, first in ((True, "gpu0"), (False, "gpu1")):
        node = site(0, 1, leaving=1)
        assert pool(node).take((node, 1), at_once, anything) == [("n0", first)]


def test_its_own_gpus_come_before_others() -> None:
    node = site(0, 3)
    own = ("n0", "gpu2")
    assert pool(node).take((node, 2), True, anything, [own])[0] == own


def test_what_is_taken_is_found_no_more_until_it_is_given_back() -> None:
    node = site(0, 2)
    there = pool(node, held=[("n0", "gpu1")])
    taken = there.take((node, 2), True, anything)
    assert there.fit(1, True, anything) is None
    there.add(node, taken)
    assert node.idle == [("n0", "gpu0")]
    assert node.leaving == [("n0", "gpu1")], "a run still holds it"
    assert there.fit(2, True, anything) is node
    assert there.fit(2, False, anything) is None
    assert there.fit(1, True, anything, used=[node]) is None
