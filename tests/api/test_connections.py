"""Too many connections: which ones are closed, and who is still served."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from benchmarks.malformed import GREETING
from scheduler.api.connections import ConnectionLimits, Connections, allowed
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import Serving, by
from tests.support import eventually


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ({}, {}),
        ({"a": 3, "b": 2}, {"a": 3, "b": 2}),
        ({"a": 20}, {"a": 6}),
        ({"a": 20, "b": 1}, {"a": 6, "b": 1}),
        ({"a": 20, "b": 6, "c": 1}, {"a": 5, "b": 4, "c": 1}),
        ({"a": 6, "b": 6, "c": 6, "d": 1}, {"a": 3, "b": 3, "c": 3, "d": 1}),
    ],
)
def test_those_who_have_most_lose_first(counts: dict[str, int], kept: dict[str, int]) -> None:
    assert allowed(counts, ConnectionLimits(most=10, most_of_peer=6)) == kept


@given(
    counts=st.dictionaries(st.integers(0, 50).map(str), st.integers(1, 40), max_size=20),
    most=st.integers(0, 60),
    of_peer=st.integers(1, 30),
)
def test_the_limits_hold_and_nobody_loses_to_one_who_has_more(
    counts: dict[str, int], most: int, of_peer: int
) -> None:
    kept = allowed(counts, ConnectionLimits(most, of_peer))
    assert sum(kept.values()) == min(most, sum(min(count, of_peer) for count in counts.values()))
    assert all(0 <= kept[peer] <= min(count, of_peer) for peer, count in counts.items())
    losers = [peer for peer, count in counts.items() if kept[peer] < min(count, of_peer)]
    assert all(kept[loser] + 1 >= count for loser in losers for count in kept.values())


def test_the_most_silent_connections_are_closed() -> None:
    with ExitStack() as opened, capture_logs() as said:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        pairs = []
        for _ in range(6):
            caller = opened.enter_context(socket.create_connection(listener.getsockname()))
            pairs.append((caller, opened.enter_context(listener.accept()[0])))
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 0.01)  # the kernel counts milliseconds
        for caller, accepted in pairs[::2]:
            caller.sendall(b"x")
            assert accepted.recv(1) == b"x"
        connections = Connections(
            [listener.getsockname()[1]], ConnectionLimits(most=3, most_of_peer=4)
        )
        assert connections.close_excess() == 3
        for number, (caller, _) in enumerate(pairs):
            caller.setblocking(False)
            if number % 2:
                assert caller.recv(1) == b"", "it is closed"
            else:
                with pytest.raises(BlockingIOError):
                    caller.recv(1)
    (line,) = said
    assert (line["event"], line["number"]) == ("connections_closed", 3)
    assert line["mostly_of"] == f"user {os.geteuid()}"


def test_what_a_caller_has_sent_who_has_left_is_discarded() -> None:
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        leaves, stays = (socket.create_connection(listener.getsockname()) for _ in range(2))
        opened.enter_context(stays)
        left, stayed = (opened.enter_context(listener.accept()[0]) for _ in range(2))
        for caller in (leaves, stays):
            caller.sendall(b"x" * 100_000)
        leaves.close()
        connections = Connections(
            [listener.getsockname()[1]], ConnectionLimits(most=9, most_of_peer=3)
        )
        eventually(lambda: connections.close_excess() or left.recv(1, socket.MSG_PEEK) == b"")
        assert len(stayed.recv(100_000, socket.MSG_WAITALL)) == 100_000


def test_a_flood_of_connections_is_closed_and_the_others_are_served(served: Serving) -> None:
    connections = Connections(served.server.ports, ConnectionLimits(most=40, most_of_peer=30))
    with ExitStack() as opened:
        flood = [
            opened.enter_context(socket.create_connection(("127.0.0.1", served.server.port)))
            for _ in range(100)
        ]
        for raw in flood:
            raw.sendall(GREETING)
        eventually(lambda: connections.close_excess() + _is_closed(flood[0]))
        served.people.ListJobs(pb.ListJobsRequest(), metadata=by("ada"), timeout=60)
        eventually(lambda: connections.close_excess() == 0)
        assert sum(map(_is_closed, flood)) >= 100 - 30


def _is_closed(raw: socket.socket) -> bool:
    """Whether the other side has closed it."""
    raw.setblocking(False)
    try:
        while raw.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_half_of_the_descriptors_are_for_everything_else() -> None:
    limits = ConnectionLimits.by_descriptors()
    assert 0 < limits.most_of_peer < limits.most
