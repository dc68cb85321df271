"""Connections that are not encrypted yet, as the wire has them."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import httpx

from scheduler.gateway.http_connection import CONNECTIONS_MAX
from tests.gateway.serving_http import Served, gateway, trusting
from tests.kube.certificates import Authority
from tests.support import eventually

HERE = "127.0.0.1"


def await_closed(wires: list[socket.socket], count: int) -> None:
    def is_closed(wire: socket.socket) -> bool:
        try:
            return not wire.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    eventually(lambda: sum(map(is_closed, wires)) >= count)


def test_handshakes_that_do_not_end_are_connections_and_keep_no_other_out(
    served: Served, authority: Authority
) -> None:
    certificate, key = authority.issue("slow", HERE)
    flags = ("--certificate", str(certificate), "--key", str(key))
    more = 30
    with gateway(f"{HERE}:{served.daemon.server.port}", *flags) as made, ExitStack() as stack:
        address = (HERE, int(made.url.rpartition(":")[2]))
        for half in (b"", b"\x16\x03\x01"):
            begun = [
                stack.enter_context(socket.create_connection(address))
                for _ in range(CONNECTIONS_MAX + more)
            ]
            for each in begun:
                each.sendall(half)
            await_closed(begun, more)
            with httpx.Client(verify=trusting(authority), trust_env=False) as browser:
                assert browser.get(f"{made.url}/healthz").text == "ok\n"
