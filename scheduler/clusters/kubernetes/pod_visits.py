"""Shells, commands and connections to ports in pods, by WebSockets of the API server.

Two threads for each visit copy between the WebSocket, which blocks, and the visit's descriptors,
which do not. The server cannot end what it has started in a container: all processes of a visit
have a mark in their environment, by which another command there finds and kills them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence

import msgspec
import websocket

from scheduler.core.errors import Busy

MARK = "EPOCH_SCHEDULER_VISIT"
INPUT, OUTPUT, ERRORS, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255  # channels
PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]  # only the first one can end the input
PIECE_BYTES = 64 * 1024
SIGKILL = 9
NOT_STARTED = 126
# As in a shell beside a local run: what is tried there does not speak for the job.
SPEAKING = (
    *("KUBEPROFILER_SERVER", "KUBEPROFILER_HTTP", "KUBEPROFILER_TOKEN", "KUBEPROFILER_RELAY"),
    *("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_ID"),
)
START = f"""\
export {MARK}="$0"; [ -z "$1" ] || export TERM="$1"; shift
unset {" ".join(SPEAKING)}
export KUBEPROFILER_SNAPSHOTS="$KUBEPROFILER_SNAPSHOTS/.shell"
[ $# -gt 0 ] || {{ command -v bash > /dev/null && set -- bash || set -- sh; }}
exec "$@\""""
SIGNAL = f"""\
for f in /proc/[0-9]*/environ; do
    case "$(cat "$f" 2> /dev/null)" in
        *"{MARK}=$1"*) p=${{f#/proc/}}; kill -"$0" "${{p%/environ}}" ;;
    esac
done 2> /dev/null
true"""

Size = tuple[int, int]  # lines and columns
# Opens a WebSocket for the pod: the subresource, its query, and the protocols.
OpenPodSocket = Callable[[str, Sequence[tuple[str, str]], Sequence[str]], websocket.WebSocket]


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Outcome(msgspec.Struct):
    """What the server says of a command that has ended."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details = msgspec.field(default_factory=_Details)

    def told(self) -> tuple[int, str]:
        if self.status == "Success":
            return 0, ""
        if self.reason == "NonZeroExitCode":
            codes = [each.message for each in self.details.causes if each.reason == "ExitCode"]
            if codes and codes[0].isdecimal():
                return int(codes[0]), ""
        return NOT_STARTED, " ".join(self.message.split())


class PodCommand:
    """A shell or command in the container of a training."""

    def __init__(
        self,
        open_socket: OpenPodSocket,
        container: str,
        command: Sequence[str],
        terminal: Size | None,
        term: str,
    ) -> None:
        self._open_socket, self._container = open_socket, container
        self._mark = secrets.token_hex(8)
        self._has_terminal = terminal is not None
        words = ["/bin/sh", "-c", START, self._mark, term if terminal else "", *command]
        self._socket = self._exec(words, stdin=True, terminal=self._has_terminal)
        self._can_end_input = self._socket.getsubprotocol() == PROTOCOLS[0]
        self._lock, self._signalling = threading.Lock(), threading.Lock()
        self._files: set[int] = set()
        self._told: tuple[int, str] | None = None
        self._ended = False
        try:
            taken, self.input = self._pipe(write=True)
            self.output, shown = self._pipe(write=False)
            wrong = -1
            self.errors: int | None = None
            if not terminal:
                self.errors, wrong = self._pipe(write=False)
            asks, self._asks = self._pipe(write=True)
            self._end, end = socket.socketpair()
        except OSError as error:
            self._socket.shutdown()
            self.close()
            raise Busy(f"nothing can be started now: {error.strerror}: try again") from error
        if terminal:
            self.resize(terminal)
        sending, receiving = (taken, asks), {OUTPUT: shown, ERRORS: wrong}
        for work in (lambda: self._send(*sending), lambda: self._receive(receiving, end)):
            threading.Thread(target=work, name="pod-visit", daemon=True).start()

    def _pipe(self, write: bool) -> tuple[int, int]:
        """Ours does not block: its end for writing, or for reading."""
        ends = os.pipe()
        own = ends[1] if write else ends[0]
        os.set_blocking(own, False)
        self._files.add(own)
        return ends

    def _exec(self, words: Sequence[str], stdin: bool, terminal: bool) -> websocket.WebSocket:
        asked = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
        query = [(name, str(value).lower()) for name, value in asked.items()]
        query += [("container", self._container), *(("command", word) for word in words)]
        return self._open_socket("exec", query, PROTOCOLS)

    @property
    def end(self) -> int:
        return self._end.fileno()

    def told(self) -> tuple[int, str] | None:
        return self._told

    def signal(self, number: int) -> None:
        """One at a time, because each is a command of its own; another one meanwhile is lost."""
        if self._signalling.acquire(blocking=False):
            threading.Thread(target=self._signal, args=(number,), daemon=True).start()

    def resize(self, size: Size) -> None:
        with contextlib.suppress(OSError):  # so many are waiting that it does not matter
            os.write(self._asks, struct.pack("2H", *size))

    def end_input(self) -> None:
        if not self._has_terminal:
            self._close(self.input)

    def close(self) -> None:
        if not self._ended:
            threading.Thread(target=self._run_signal, args=(SIGKILL,), daemon=True).start()
        for number in [*self._files]:
            self._close(number)
        self._end.close()
        with contextlib.suppress(OSError):
            if self._socket.sock:
                self._socket.sock.shutdown(socket.SHUT_RDWR)

    def _close(self, number: int) -> None:
        with self._lock:
            if number in self._files:
                self._files.remove(number)
                os.close(number)

    # --- in threads of their own ----------------------------------------------------------------

    def _signal(self, number: int) -> None:
        try:
            self._run_signal(number)
        finally:
            self._signalling.release()

    def _run_signal(self, number: int) -> None:
        with contextlib.suppress(Exception):  # the pod is gone
            words = ["/bin/sh", "-c", SIGNAL, str(number), self._mark]
            asked = self._exec(words, stdin=False, terminal=False)
            while asked.recv():
                pass
            asked.shutdown()

    def _send(self, taken: int, asks: int) -> None:
        """Not select(): descriptors of a busy daemon have high numbers."""
        ready = select.poll()
        for number in (taken, asks):
            ready.register(number, select.POLLIN)
        open_ones = {taken, asks}
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while asks in open_ones:
                for number, _ in ready.poll():
                    data = os.read(number, PIECE_BYTES if number == taken else 4)
                    if data:
                        self._pass_on(data, is_input=number == taken)
                        continue
                    ready.unregister(number)
                    open_ones.discard(number)
                    if number == taken and self._can_end_input:
                        self._socket.send_binary(bytes([CLOSE, INPUT]))
        for number in (taken, asks):
            os.close(number)

    def _pass_on(self, data: bytes, is_input: bool) -> None:
        if is_input:
            self._socket.send_binary(bytes([INPUT]) + data)
            return
        lines, columns = struct.unpack("2H", data)
        size = json.dumps({"Width": columns, "Height": lines}).encode()
        self._socket.send_binary(bytes([RESIZE]) + size)

    def _receive(self, files: dict[int, int], end: socket.socket) -> None:
        with contextlib.suppress(OSError, websocket.WebSocketException, msgspec.MsgspecError):
            while data := _message(self._socket):
                channel, rest = data[0], data[1:]
                if channel == STATUS:
                    self._told = msgspec.json.decode(rest, type=_Outcome).told()
                    self._ended = True
                elif (number := files.get(channel, -1)) >= 0:
                    _write_all(number, rest)
        for number in files.values():
            if number >= 0:
                os.close(number)
        end.close()
        with contextlib.suppress(OSError, websocket.WebSocketException):
            self._socket.shutdown()


class PodPort:
    """A TCP connection to a port of a pod. The server passes no end of one direction on."""

    errors, end = None, None

    def __init__(self, open_socket: OpenPodSocket, port: int) -> None:
        query = [("ports", str(port))]
        self._socket = open_socket("portforward", query, PROTOCOLS[1:])
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.input = self.output = self._ours.fileno()
        for work in (self._send, self._receive):
            threading.Thread(target=work, name="pod-port", daemon=True).start()

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._ours.close()
        with contextlib.suppress(OSError):
            if self._socket.sock:
                self._socket.sock.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while data := self._theirs.recv(PIECE_BYTES):
                self._socket.send_binary(b"\0" + data)

    def _receive(self) -> None:
        """The first message of each channel is the number of the port."""
        named = set[int]()
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while data := _message(self._socket):
                channel, rest = data[0], data[1:]
                if channel in named and channel == 0:
                    self._theirs.sendall(rest)
                elif channel in named:
                    break  # nothing listens there
                named.add(channel)
        self._theirs.close()
        with contextlib.suppress(OSError, websocket.WebSocketException):
            self._socket.shutdown()


def _message(opened: websocket.WebSocket) -> bytes:
    """Empty: it has ended."""
    while True:
        kind, data = opened.recv_data()
        if kind == websocket.ABNF.OPCODE_CLOSE:
            return b""
        if data:
            return bytes(data)


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]
