"""For whom the calls of a connection count: a user of this machine, or the address of another.

It is for limits, and no proof of identity.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote

from scheduler.access.peers import ask_uid

_REMEMBERED_MAX = 4096  # connections
_NETWORK_BITS = 64  # of an IPv6 address: a machine may have all addresses of its network


class PeerNames:
    """For one thread."""

    def __init__(self) -> None:
        self.ports: tuple[int, ...] = ()  # ours
        self._names: dict[str, str] = {}

    def name(self, peer: str) -> str:
        """`peer`: as grpc writes it, e.g. `ipv4:127.0.0.1:35000`."""
        name = self._names.get(peer)
        if name is None:
            if len(self._names) >= _REMEMBERED_MAX:
                self._names.clear()
            name = self._names[peer] = _name(peer, self.ports)
        return name

    def forget(self) -> None:
        """Called from time to time, because another user may get the port of a connection."""
        self._names.clear()


def _name(peer: str, ports: tuple[int, ...]) -> str:
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    # A caller on this machine has called 127.0.0.1, or its own address from that same address.
    loopback = "127.0.0.1" if address.version == 4 else "::1"
    for own in ports:
        for here in dict.fromkeys((loopback, str(address))):
            uid = ask_uid((str(address), int(port)), (here, own))
            if uid is not None:
                return f"user {uid}"
    if address.is_loopback:
        return "this machine"
    if address.version == 6:
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return str(address)
