"""Which user has the other end of a TCP connection, if that end is on this machine.

The kernel tells this. So a caller without a token can be known as well as one on a Unix socket, and
any address of this machine is recognised, not only 127.0.0.1. It is asked about the one connection
(sock_diag(7), 16 us). Where it knows nothing of our own end either, it cannot be asked (without
NETLINK_SOCK_DIAG, or the module inet_diag), and /proc/net/tcp is searched (10 ms).
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

_DIAGNOSIS, _BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY: linux/sock_diag.h
_REQUEST = 1  # NLM_F_REQUEST
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ASKED = struct.Struct("=BBxxI")  # struct inet_diag_req_v2: family, protocol, states
_ANY = 0xFFFFFFFF  # state, or cookie
_OWNER = struct.Struct("=II")  # the end of struct inet_diag_msg: uid, inode
_ID_AT = _HEADER.size + 4  # in the same message: the connection
_OWNER_AT = _HEADER.size + 4 + 48 + 12
_ADDRESS_BYTES = 16
_ANSWER_BYTES = 4096

TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}

Address = tuple[str, int]


def find_uid(peer: Address, own: Address) -> int | None:
    """Returns the uid of the socket at `peer` that is connected to ours at `own`. None: no process
    of this machine has it.

    A socket that its process has closed has no inode, and the kernel shows it as root's.
    """
    uid = ask_uid(peer, own)
    if uid is None and ask_uid(own, peer) is None:
        return _search_uid(peer, own)
    return uid


def ask_uid(peer: Address, own: Address) -> int | None:
    """The same, at once. None: no process of this machine has it, or the kernel cannot be asked."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAGNOSIS) as kernel:
            kernel.setblocking(False)  # it answers within send()
            for family in TABLES:
                ends = _pack(peer, family), _pack(own, family)
                if ends[0] is None or ends[1] is None:
                    continue
                ports = struct.pack(">HH", peer[1], own[1])
                socket_id = ports + ends[0] + ends[1] + struct.pack("=III", 0, _ANY, _ANY)
                asked = _ASKED.pack(family, socket.IPPROTO_TCP, _ANY) + socket_id
                size = _HEADER.size + len(asked)
                kernel.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST, 0, 0) + asked)
                answer = kernel.recv(_ANSWER_BYTES)
                # If there is no such connection, it answers with a listener that would accept it.
                if answer[_ID_AT : _ID_AT + len(ports)] == ports:
                    uid, inode = _OWNER.unpack_from(answer, _OWNER_AT)
                    return int(uid) if inode else None
    except OSError:
        pass
    return None


def _search_uid(peer: Address, own: Address) -> int | None:
    for family, table in TABLES.items():
        ends = _encode(peer, family), _encode(own, family)
        if None in ends or not table.exists():
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if (fields[1], fields[2]) == ends and fields[9] != "0":
                return int(fields[7])
    return None


def _encode(address: Address, family: socket.AddressFamily) -> str | None:
    """As the table writes it: words of the machine's byte order, in hexadecimal."""
    raw = _numeric(address, family)
    if raw is None:
        return None
    words = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4))
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _pack(address: Address, family: socket.AddressFamily) -> bytes | None:
    raw = _numeric(address, family)
    return raw and raw.ljust(_ADDRESS_BYTES, b"\0")


def _numeric(address: Address, family: socket.AddressFamily) -> bytes | None:
    host = address[0]
    mapped = host.removeprefix("::ffff:") if "." in host else host
    if family == socket.AF_INET6 and "." in mapped:
        mapped = f"::ffff:{mapped}"
    try:
        return socket.inet_pton(family, mapped)
    except OSError:
        return None
