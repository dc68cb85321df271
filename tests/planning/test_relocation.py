"""Which units are relocated so that another is on few nodes, and that this can be undone."""

from __future__ import annotations

from scheduler.core.model import Gpu
from scheduler.planning.free_gpus import FreeNode, Pool
from scheduler.planning.relocation import MovableRun, relocate, undo
from tests.builders import node


def anything(gpu: Gpu) -> bool:
    return True


def site(number: int, count: int, free: int) -> FreeNode:
    """A node with this many GPUs, of which the last are free."""
    there = node(count, f"n{number}")
    gpus = {(there.name, gpu.uuid): gpu for gpu in there.gpus}
    return FreeNode(number, there.name, gpus, idle=list(gpus)[count - free :])


def mover(number: int, on: FreeNode, first: int, count: int = 1) -> MovableRun:
    return MovableRun(number, tuple(on.gpus)[first : first + count], 20.0 * count, anything)


def test_a_gang_over_nodes_has_them_emptied_into_others() -> None:
    sites = [site(0, 4, 3), site(1, 4, 3), site(2, 4, 2)]
    movers = {at.node: [mover(at.number, at, 0)] for at in sites[:2]}
    pool = Pool(sites, held=set())
    moves = relocate(pool, 8, anything, movers, moves_max=2)
    assert [(move.mover.number, move.there.node) for move in moves] == [(0, "n2"), (1, "n2")]
    assert [at.free(soon=True) for at in sites] == [4, 4, 0]


def test_no_more_move_than_may() -> None:
    sites = [site(0, 4, 2), site(1, 4, 3)]
    movers = {"n0": [mover(0, sites[0], 0), mover(1, sites[0], 1)]}
    assert relocate(Pool(sites, set()), 4, anything, movers, moves_max=1) == []
    assert len(relocate(Pool(sites, set()), 4, anything, movers, moves_max=2)) == 2


def test_where_nodes_differ_in_size_the_large_ones_are_emptied() -> None:
    sites = [site(0, 2, 2), site(1, 4, 3), site(2, 2, 1)]
    movers = {"n1": [mover(0, sites[1], 0)]}
    moves = relocate(Pool(sites, set()), 6, anything, movers, moves_max=1)
    assert [(move.here.node, move.there.node) for move in moves] == [("n1", "n2")]


def test_what_was_moved_can_be_taken_back() -> None:
    sites = [site(0, 4, 3), site(1, 4, 2)]
    pool = Pool(sites, held=set())
    before = [(set(at.idle), set(at.leaving)) for at in sites]
    moves = relocate(pool, 4, anything, {"n0": [mover(0, sites[0], 0)]}, moves_max=1)
    assert len(moves) == 1
    undo(pool, moves)
    assert [(set(at.idle), set(at.leaving)) for at in sites] == before
    assert pool.spread(5, True, anything) == [(sites[0], 3), (sites[1], 2)]
