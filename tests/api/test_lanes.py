"""Threads that answer calls: one peer never takes all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from scheduler.api.lanes import Lane
from scheduler.core.errors import Busy


class _Hall:
    """Functions that stay in their thread until they are told to leave."""

    def __init__(self) -> None:
        self.leave = threading.Event()
        self.inside: list[str] = []

    def visit(self, name: str) -> str:
        self.inside.append(name)
        assert self.leave.wait(60)
        return name


async def _until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def test_one_peer_leaves_threads_for_others() -> None:
    hall, lane = _Hall(), Lane("test", threads=4, calls_max=100)

    async def run() -> None:
        greedy = [asyncio.create_task(lane.run("greedy", hall.visit, "greedy")) for _ in range(20)]
        await _until(lambda: len(hall.inside) == 3)
        honest = asyncio.create_task(lane.run("honest", hall.visit, "honest"))
        await _until(lambda: "honest" in hall.inside)
        assert hall.inside.count("greedy") == 3
        hall.leave.set()
        assert await honest == "honest"
        assert await asyncio.gather(*greedy) == ["greedy"] * 20

    asyncio.run(run())
    lane.close()


def test_one_peer_leaves_places_for_others_to_wait() -> None:
    hall, lane = _Hall(), Lane("test", threads=2, calls_max=8)

    async def run() -> None:
        waiting = [asyncio.create_task(lane.run("greedy", hall.visit, "x")) for _ in range(6)]
        await _until(lambda: hall.inside)
        with pytest.raises(Busy, match="6 calls of test are already waiting: try again"):
            await lane.run("greedy", hall.visit, "x")
        waiting += [asyncio.create_task(lane.run(f"p{n}", hall.visit, "x")) for n in range(2)]
        await _until(lambda: len(hall.inside) == 2)
        with pytest.raises(Busy, match="8 calls of test"):
            await lane.run("another", hall.visit, "x")
        hall.leave.set()
        await asyncio.gather(*waiting)
        assert await lane.run("greedy", hall.visit, "later") == "later"

    asyncio.run(run())
    lane.close()


def test_a_caller_who_leaves_gives_the_place_back() -> None:
    hall, lane = _Hall(), Lane("test", threads=1, calls_max=2)

    async def run() -> None:
        first = asyncio.create_task(lane.run("a", hall.visit, "first"))
        await _until(lambda: hall.inside)
        second = asyncio.create_task(lane.run("b", hall.visit, "second"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.create_task(lane.run("c", hall.visit, "third"))
        hall.leave.set()
        assert [await first, await third] == ["first", "third"]

    asyncio.run(run())
    assert hall.inside == ["first", "third"], "nothing is done for a caller who has gone"
    lane.close()
