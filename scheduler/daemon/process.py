"""What each daemon process has once: the lock on its state folder, its port, its signals."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TextIO

import structlog

from scheduler.core.errors import ConfigError, InUseError
from scheduler.daemon import ownership
from scheduler.daemon.config import listen_address
from scheduler.inbox import QueueInbox

STOP_SECONDS_MAX = 4.0  # after that the process exits at once: no crash loses anything
# Port 0 chooses from these, not from the kernel's own range (32768 and up): a training that calls
# while no daemon runs could get our port as its end of the connection, and the port would be in
# use.
PORTS = range(30_000, 32_768)
PORT = "port"  # the file that remembers it
GATEWAY_PORT = "port_gateway"  # the same for browsers
HTTP_PORT = "port_http"  # the same for trainings without grpcio

DESCRIPTORS_MAX = 65_536  # as many as its unit allows

log = structlog.get_logger("scheduler.daemon.process")


def hold(state_dir: Path) -> TextIO:
    """Locks the folder while the file is open: the kernel releases the lock however we end."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        ownership.check_state(state_dir)
        file = (state_dir / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise ConfigError(f"cannot use {state_dir}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        pid = file.read().strip() or "?"
        file.close()
        raise InUseError(f"another scheduler-daemon (pid {pid}) uses {state_dir}") from None
    file.truncate(0)
    with suppress(OSError):  # a full disk: the lock holds, only the pid is missing
        os.write(file.fileno(), b"%d\n" % os.getpid())
    return file


def address(listen: str, state_dir: Path, file: str = PORT) -> str:
    """Returns where to listen. The port must be known before it is bound: jobs are told the
    port."""
    host, port = listen_address(listen)
    if port:
        if not _is_free(host, port):
            raise InUseError(f"cannot listen on {host}:{port}: the port is in use")
        return f"{host}:{port}"
    last = _last_port(state_dir / file)
    fresh = (PORTS[secrets.randbelow(len(PORTS))] for _ in range(100))
    for port in fresh if last is None else chain((last,), fresh):
        if _is_free(host, port):
            if last not in (None, port):
                log.warning(
                    "port_lost", port=last, note="running trainings still report to the old port"
                )
            return f"{host}:{port}"
    raise InUseError(f"cannot listen on {host}: no free port found from {PORTS[0]} to {PORTS[-1]}")


def remember_port(state_dir: Path, port: int, file: str = PORT) -> None:
    """Writes the port to a file, so that trainings that outlive us find the next daemon."""
    if _last_port(state_dir / file) == port:
        return  # the file is not rewritten: on a full disk that would lose it
    try:
        (state_dir / file).write_text(f"{port}\n", encoding="ascii")
    except OSError as error:
        raise ConfigError(f"cannot use {state_dir}: {error.strerror}") from error


def _last_port(file: Path) -> int | None:
    try:
        port = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return port if 0 < port < 2**16 else None


def _is_free(host: str, port: int) -> bool:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                # Connections of a daemon that has just ended must not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: not a valid host name") from error
    return True


def raise_descriptor_limit() -> None:
    """Jobs do not inherit this: a runner sets back what the daemon was started with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextmanager
def signals(inbox: QueueInbox) -> Iterator[threading.Event]:
    """SIGTERM and SIGINT close the inbox and set the event.

    A signal handler runs between any two instructions of the loop, perhaps while the loop holds
    the inbox's lock. So the handlers do nothing: Python writes the signal into a socket, and a
    separate thread reads it.
    """
    stopping, ended = threading.Event(), threading.Event()
    heard, told = socket.socketpair()
    told.setblocking(False)

    def stop() -> None:
        if not heard.recv(1) or ended.is_set():
            return
        stopping.set()
        inbox.close("the scheduler is stopping: try again in a moment")
        if not ended.wait(STOP_SECONDS_MAX):
            log.warning("stopped_at_once", note="a part of the daemon took too long to stop")
            os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=stop, name="signals", daemon=True).start()
    try:
        yield stopping
    finally:
        ended.set()
        signal.set_wakeup_fd(-1)
        told.close()
