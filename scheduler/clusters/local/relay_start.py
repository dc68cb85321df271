"""Starts the relay of a training when something is there for it; a training that logs nothing has
none.

Part of the runner: it binds the sockets before the training begins, so that its environment can
name their port, and waits beside it. A relay is no process of the training: it ends by itself after
it, with what is left to deliver.
"""

# A runner waits beside every training, so it stays as small as it can: no pathlib.
# ruff: noqa: PTH100, PTH103, PTH120

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from scheduler.clusters.local.written_logs import descendants, has_logs, left_logs, open_logs

PROGRAM = f"{os.path.abspath(__file__).rsplit('/clusters/', 1)[0]}/relay/__main__.py"
PORT = "RELAY_PORT"  # stands in the variables of a training for the number
TRIES = 20  # for a number that is free for datagrams and for connections
DATAGRAM_BUFFER_BYTES = 4 * 2**20
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 60.0  # after a relay that ended too early
FIRST_LOOK_SECONDS = 0.25  # at what the training has open; later ones are rarer
SO_RCVBUFFORCE = 33
# So that what a request of megabytes took is given back, and two threads share one heap.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}


class RelayStart(threading.Thread):
    def __init__(self, wanted: Mapping[str, Any]) -> None:
        """`wanted`: as in `launch.json`. Raises OSError if no port can be had."""
        super().__init__(name="relay", daemon=True)
        self._settings, self._record = wanted["settings"], wanted["record"]
        self._folders, self._look_seconds = wanted["folders"], wanted["look_seconds"]
        self._places, self._renamed = wanted["places"], wanted["renamed"]
        self._seen = set[int]()  # the processes of the training, at any look
        self._began_at = time.time()
        self._listener, self._datagrams = bind()
        self.port = self._listener.getsockname()[1]
        self._ended, self._end = os.pipe()
        self._died, self._die = os.pipe()
        self._leash = -1
        self._logs: set[str] = set()  # files that the training writes, wherever they are
        self._told: set[str] = set()  # of these, those that the relay knows
        self._lock = threading.Lock()
        self._pid: int | None = None

    def variables(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: text.replace(PORT, str(self.port)) for name, text in texts.items()}

    def run(self) -> None:
        """Looks often at first, so that a short training is not over before the first look."""
        pause, look = PAUSE_SECONDS, min(FIRST_LOOK_SECONDS, self._look_seconds)
        self._seen.update(descendants(os.getpid()))
        while not self._wait(0, self._ended):
            if self.pid is None:
                if self._is_needed(look):
                    self._start()
            elif self._wait(look, self._ended, self._died) == self._died:
                os.read(self._died, 1)
                self._wait(pause, self._ended)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            else:
                self._find_logs()
            self._tell_logs()
            look = min(2 * look, self._look_seconds)

    def finish(self) -> None:
        """After the training: what it sent last needs a relay, too."""
        os.close(self._end)
        self.join()
        job_id = self._settings["job_id"]
        self._logs |= left_logs(self._places, self._logs, self._began_at, self._seen, job_id)
        if self.pid is None and self._is_needed(0):
            self._start()
        self._tell_logs()
        if self._leash >= 0:
            os.close(self._leash)

    @property
    def pid(self) -> int | None:
        with self._lock:
            return self._pid

    def reaped(self, pid: int) -> None:
        """A child has ended, perhaps the relay."""
        with self._lock:
            if pid != self._pid:
                return
            self._pid = None
        os.write(self._die, b"!")

    def _is_needed(self, seconds: float) -> bool:
        """Waits for so long at most."""
        if self._wait(seconds, self._listener.fileno(), self._datagrams.fileno(), self._ended) in (
            self._listener.fileno(),
            self._datagrams.fileno(),
        ):
            return True
        self._find_logs()
        return bool(self._logs) or any(has_logs(folder) for folder in self._folders)

    def _find_logs(self) -> None:
        pids = descendants(os.getpid()) - {self.pid}
        self._seen.update(pids)
        for path in open_logs(pids):
            place, real = self._renamed
            if place and path.startswith(f"{place}/"):  # as the training sees it
                path = real + path[len(place) :]
            self._logs.add(path)

    def _tell_logs(self) -> None:
        """What cannot be told now is told at the next look."""
        if self.pid is None:
            return
        for path in sorted(self._logs - self._told):
            line = json.dumps(path).encode() + b"\n"
            with contextlib.suppress(OSError):
                if os.write(self._leash, line) == len(line):
                    self._told.add(path)

    def _wait(self, seconds: float, *files: int) -> int | None:
        """Returns the first of the files that is ready."""
        ready = select.poll()
        for file in files:
            ready.register(file, select.POLLIN)
        found = {file for file, _ in ready.poll(seconds * 1000)}
        return next((file for file in files if file in found), None)

    def _start(self) -> None:
        text = json.dumps(self._settings).encode() + b"\n"
        with contextlib.suppress(OSError):  # so that the daemon delivers what a relay leaves
            keep(self._record, text)
        if self._leash >= 0:
            os.close(self._leash)
        leash, self._leash = os.pipe()
        self._told.clear()
        try:
            os.write(self._leash, text)  # it fits into the pipe
            os.set_blocking(self._leash, False)  # a relay that hangs must not hold up anybody
            with self._lock:  # so that it is known before its end can be seen
                self._pid = spawn(leash, self._listener.fileno(), self._datagrams.fileno())
        except OSError:
            self._wait(PAUSE_SECONDS, self._ended)  # it is tried again
        finally:
            os.close(leash)


def bind() -> tuple[socket.socket, socket.socket]:
    """Connections and datagrams have the same port: clients of both kinds know only one."""
    for left in reversed(range(TRIES)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            listener.bind(("127.0.0.1", 0))
            listener.listen(64)
            datagrams.bind(listener.getsockname())
        except OSError:
            listener.close()
            datagrams.close()
            if not left:
                raise
            continue
        for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):  # the second one is root's
            with contextlib.suppress(OSError):
                datagrams.setsockopt(socket.SOL_SOCKET, option, DATAGRAM_BUFFER_BYTES)
        return listener, datagrams
    raise AssertionError("unreachable")


def spawn(leash: int, listener: int, datagrams: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.chdir("/")
        # First out of the way, so that none is overwritten before it is moved.
        moved = [os.dup(file) for file in (leash, listener, datagrams)]
        moved = [os.dup2(file, 10 + at) for at, file in enumerate(moved)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for file, place in zip((moved[0], nowhere, nowhere, *moved[1:]), range(5), strict=True):
            os.dup2(file, place)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(5, 256)
        os.execve(sys.executable, [sys.executable, "-I", "-S", PROGRAM], ENVIRONMENT)
    finally:
        os._exit(127)


def keep(path: str, text: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, text)
        os.fsync(file)
    finally:
        os.close(file)
