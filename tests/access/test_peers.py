"""Which user has the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from scheduler.access import peers
from tests.support import DEADLINE_SECONDS

CONNECT = """
import encodings.idna, os, socket, sys
os.setuid(65534)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as end:
    end.recv(1)
"""

Finder = Callable[[peers.Address, peers.Address], int | None]
FINDERS = [peers.find_uid, peers.ask_uid, peers._search_uid]


@pytest.mark.parametrize("find_uid", FINDERS)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1"])
def test_a_process_of_this_machine_is_known_by_its_uid(host: str, find_uid: Finder) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]),
    ):
        accepted, peer = server.accept()
        with accepted:
            own = accepted.getsockname()[:2]
            assert find_uid(peer[:2], own) == os.getuid()
            assert find_uid(own, own) is None
            assert find_uid(("192.0.2.7", peer[1]), own) is None


@pytest.mark.parametrize("find_uid", FINDERS)
def test_a_listener_for_both_families_knows_them_too(find_uid: Finder) -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])),
    ):
        accepted, peer = server.accept()
        with accepted:
            assert peer[0] == "::ffff:127.0.0.1"
            assert find_uid(peer[:2], accepted.getsockname()[:2]) == os.getuid()


@pytest.mark.parametrize("find_uid", FINDERS)
@pytest.mark.parametrize("linger", [True, False])
def test_a_socket_that_was_closed_is_not_taken_for_roots(linger: bool, find_uid: Finder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = socket.create_connection(server.getsockname())
        accepted, peer = server.accept()
        own = accepted.getsockname()
        caller.close()
        if linger:
            accepted.recv(1)  # its end has arrived
        else:
            accepted.close()
        assert find_uid(peer, own) is None
        accepted.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_known_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        server.settimeout(DEADLINE_SECONDS)
        with subprocess.Popen([sys.executable, "-I", "-c", CONNECT, host, str(port)]):
            accepted, peer = server.accept()
            with accepted:
                assert peers.find_uid(peer, accepted.getsockname()) == 65534
