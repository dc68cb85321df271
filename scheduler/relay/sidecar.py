"""The program in a pod: `python3 -I -m scheduler.relay.sidecar`, beside a training's container.

Its settings are JSON in a variable, and the token is in another one. The containers of a pod share
their loopback, so it binds the port that the training was told. SIGTERM is the end of the training:
what has come until then is delivered as long as the pod may take.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

SETTINGS, TOKEN = "EPOCH_SCHEDULER_RELAY", "KUBEPROFILER_TOKEN"
DATAGRAM_BUFFER_BYTES = 4 * 2**20  # as far as the kernel allows


def main(environ: Mapping[str, str]) -> int:
    end = ended_by_signal()  # before all that takes time: the first process would not hear it

    import json

    from scheduler.relay import program

    os.umask(0o077)
    given: dict[str, Any] = {**json.loads(environ[SETTINGS]), "token": environ[TOKEN]}
    known = program.Settings._fields  # the daemon may be of another version
    settings = program.Settings(**{name: given[name] for name in known if name in given})
    for folder in (settings.folder, *given["made"]):
        make_folder(folder)
    try:
        listener, datagrams = bind(given["port"])
    except OSError as error:
        say(f"port {given['port']} of this pod: {os.strerror(error.errno or 0)}")
        return 1
    return program.live(settings, listener.detach(), datagrams.detach(), end)


def ended_by_signal() -> int:
    """A pipe that ends with SIGTERM."""
    end, held = os.pipe()

    def let_go(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(held)

    signal.signal(signal.SIGTERM, let_go)
    return end


def make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    except OSError as error:  # what is logged is lost, and counted
        say(f"{folder}: {error.strerror}")


def bind(port: int) -> tuple[socket.socket, socket.socket]:
    """Raises OSError."""
    import socket

    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BUFFER_BYTES)
    datagrams.bind(("127.0.0.1", listener.getsockname()[1]))
    return listener, datagrams


def say(text: str) -> None:
    sys.stderr.write(f"relay: {text}\n")


if __name__ == "__main__":
    sys.exit(main(os.environ))
