"""For whom the calls of a connection count."""

from __future__ import annotations

import os
import socket

import pytest

from scheduler.api.peer_names import PeerNames


def names(*ports: int) -> PeerNames:
    made = PeerNames()
    made.ports = ports
    return made


@pytest.mark.parametrize("source", ["127.0.0.1", "127.9.8.7"])
def test_a_caller_on_this_machine_counts_as_its_user(source: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), source_address=(source, 0)) as wire,
    ):
        peer = f"ipv4:{source}:{wire.getsockname()[1]}"
        assert names(1, listener.getsockname()[1]).name(peer) == f"user {os.geteuid()}"


def test_so_does_one_who_calls_by_ipv6() -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        socket.create_connection(listener.getsockname()[:2]) as wire,
    ):
        peer = f"ipv6:%5B::1%5D:{wire.getsockname()[1]}"
        assert names(listener.getsockname()[1]).name(peer) == f"user {os.geteuid()}"


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:192.0.2.7:1234", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3::4%5D:1234", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:192.0.2.7%5D:1234", "192.0.2.7"),
        ("ipv4:127.0.0.1:1", "this machine"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_a_caller_elsewhere_counts_as_its_machine(peer: str, name: str) -> None:
    assert names(9).name(peer) == name


def test_what_is_remembered_is_limited() -> None:
    made = names()
    for number in range(20_000):
        made.name(f"ipv4:192.0.2.1:{number}")
    assert len(made._names) <= 4096
