"""The threads that answer calls: a lane for each kind of caller, shared fairly by peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from scheduler.core.errors import Busy

PEERS_SHARE = 3 / 4  # of a lane's threads, and of its places to wait, that one peer may have

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Peer:
    """A caller with calls under way; forgotten when it has none."""

    turns: asyncio.Semaphore  # one for each thread that it may have
    calls: int = field(default=0)


class Lane:
    """Calls that one kind of caller makes wait only for calls of the same kind.

    Only the thread of the event loop uses it. A peer is a local user, or an address.
    """

    def __init__(self, name: str, threads: int, calls_max: int) -> None:
        """`calls_max`: being answered or waiting."""
        self._name, self._calls_max = name, calls_max
        self._turns_of_peer = max(1, int(threads * PEERS_SHARE))
        self._calls_of_peer = max(1, int(calls_max * PEERS_SHARE))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._peers: dict[str, _Peer] = {}
        self._calls = 0

    async def run(self, peer: str, function: Callable[..., Answer], *given: object) -> Answer:
        """Calls the function in one of the threads. Raises Busy if too many calls wait."""
        caller = self._peers.get(peer)
        if caller is None:
            caller = self._peers[peer] = _Peer(asyncio.Semaphore(self._turns_of_peer))
        if self._calls >= self._calls_max or caller.calls >= self._calls_of_peer:
            self._forget(peer, caller)
            raise Busy(f"{self._calls} calls of {self._name} are already waiting: try again")
        self._calls += 1
        caller.calls += 1
        try:
            async with caller.turns:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._pool, function, *given)
        finally:
            self._calls -= 1
            caller.calls -= 1
            self._forget(peer, caller)

    def _forget(self, peer: str, caller: _Peer) -> None:
        if not caller.calls:
            self._peers.pop(peer, None)

    def close(self) -> None:
        """Returns when all calls have been answered."""
        self._pool.shutdown()
