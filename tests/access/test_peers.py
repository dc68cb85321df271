"""Which user has the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.access import peers
from tests.support import DEADLINE_SECONDS

CONNECT = """
import encodings.idna, os, socket, sys
os.setuid(65534)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as end:
    end.recv(1)
"""


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The caller's end, and ours."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as caller,
    ):
        ours, _ = server.accept()
        with ours:
            yield caller, ours


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


@pytest.mark.parametrize(
    ("constant", "value"),
    [("_DIAGNOSIS", 31), ("_BY_FAMILY", 99)],
    ids=["no such protocol", "no such question"],
)
def test_the_table_is_searched_where_the_kernel_cannot_be_asked(
    constant: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, constant, value)
    with connection() as (caller, ours):
        peer, own = caller.getsockname(), ours.getsockname()
        assert peers.ask_uid(peer, own) is None
        assert peers.find_uid(peer, own) == os.getuid()
        assert peers.find_uid(("192.0.2.7", peer[1]), own) is None


def test_the_table_is_not_searched_where_the_kernel_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections there are, a call from another machine costs no search."""
    table = tmp_path / "tcp"
    with connection() as (caller, ours):
        peer, own = caller.getsockname(), ours.getsockname()
        ends = (peers._encode(end, socket.AF_INET) for end in (peer, own))
        table.write_text(f"header\n0: {' '.join(map(str, ends))} 01 0:0 0:0 0 4242 0 77\n")
        monkeypatch.setitem(peers.TABLES, socket.AF_INET, table)
        assert peers.find_uid(peer, own) == os.getuid()
        caller.close()  # like one of another machine, it belongs to no process
        assert peers._search_uid(peer, own) == 4242
        assert peers.find_uid(peer, own) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_known_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        server.settimeout(DEADLINE_SECONDS)
        with subprocess.Popen([sys.executable, "-I", "-c", CONNECT, host, str(port)]):
            accepted, peer = server.accept()
            with accepted:
                assert peers.find_uid(peer, accepted.getsockname()) == 65534
