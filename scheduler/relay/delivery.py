"""Delivers a spool to the gateway, in a thread, as fast as that answers and no faster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import quote, urlsplit

from scheduler.relay.spool import Batch, Spool

if TYPE_CHECKING:
    import ssl

BATCH_BYTES, BATCH_ENTRIES = 2**20, 5000
EVERY_SECONDS = 1.0  # between two requests, while little arrives
PACE_SECONDS = 0.2  # the same, while much does
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 30.0  # after a failure; doubled each time
REFUSED_SECONDS = 60.0  # after the token was refused
ANSWER_SECONDS = 30.0
ANSWER_BYTES_MAX = 2**20
PIECE_BYTES = 256 * 1024
REASONS_MAX = 10


class Refused(Exception):
    """The gateway will not take these entries, however often they are sent."""


class NotNow(Exception):
    """The message says why. Try again after so many seconds; None: as usual."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Link:
    """Where the gateway is, and as which job we speak."""

    def __init__(self, url: str, token: str, certificate: str = "") -> None:
        """`certificate`: of the gateway, in PEM. Any other one is refused."""
        parts = urlsplit(url)
        self._host, self._token = parts.hostname or "127.0.0.1", token
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            import ssl

            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname = False  # it is called by the address of this machine
            self._tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._tls.load_verify_locations(cadata=certificate)

    def call(
        self, method: str, path: str, body: bytes | BinaryIO, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and body of the answer. Raises OSError or ValueError."""
        length = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
        head = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Authorization: Bearer {self._token}",
            f"Content-Length: {length}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        # A name as bytes: a text would load the tables of international names, a megabyte.
        where: Any = self._host.encode("ascii"), self._port
        plain = socket.create_connection(where, timeout=ANSWER_SECONDS)
        connection = self._tls.wrap_socket(plain) if self._tls else plain
        with contextlib.closing(connection):
            failure = _send(connection, "\r\n".join([*head, "", ""]).encode("latin-1"), body)
            answer = bytearray()
            try:
                while len(answer) < ANSWER_BYTES_MAX and (data := connection.recv(65536)):
                    answer += data
            except OSError:
                if not answer:
                    raise
            if failure and not answer:
                raise failure
        first, _, rest = bytes(answer).partition(b"\r\n\r\n")
        lines = first.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1]) if lines[0].startswith("HTTP/1.") else 0
        if status == 0:
            raise ValueError("the answer is not HTTP")
        found = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip()
        if "chunked" in found.get("transfer-encoding", ""):
            rest = _unchunk(rest)
        return status, found, rest


def _send(connection: socket.socket, head: bytes, body: bytes | BinaryIO) -> OSError | None:
    """Returns why it could not be sent to its end: whoever refuses a body before it was read has
    answered nevertheless."""
    try:
        connection.sendall(head)
        if isinstance(body, bytes):
            connection.sendall(body)
        else:
            while piece := body.read(PIECE_BYTES):
                connection.sendall(piece)
    except (ConnectionResetError, BrokenPipeError) as error:
        return error
    return None


class Delivery:
    """Of one spool of one attempt. `step` is called again and again by one thread."""

    def __init__(
        self, spool: Spool, link: Link, attempt: int, name: str, say: Callable[[str], None]
    ) -> None:
        """`name` is the spool's, unlike all others of the job."""
        self._spool, self._link, self._say = spool, link, say
        self._path = f"/api/v1/tracking?attempt={attempt}&spool={quote(name, safe='')}&first="
        self._most = BATCH_ENTRIES
        self._pause = PAUSE_SECONDS
        self._said = ""

    def step(self) -> float:
        """Delivers once. Returns how many seconds to wait; less than 0: nothing is left."""
        batch = self._spool.read(BATCH_BYTES, self._most)
        if not batch.entries:
            return -1.0
        self._spool.sync()
        try:
            number = self._send(batch)
        except NotNow as error:
            self._tell(str(error))
            pause = self._pause if error.seconds is None else error.seconds
            self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
            return pause
        except Refused as error:
            if len(batch.entries) > 1:
                self._most = max(1, len(batch.entries) // 2)  # until the bad one is alone
                return 0.0
            self._tell(f"an entry was refused: {error}")
            number = batch.end
        self._pause = PAUSE_SECONDS
        self._spool.deliver(number)
        self._most = min(2 * self._most, BATCH_ENTRIES)
        return 0.0

    def close(self) -> None:
        """Removes what is delivered, and gives the spool up."""
        self._spool.clear()

    def _send(self, batch: Batch) -> int:
        """Returns the number of the first entry that the gateway does not have."""
        body = zlib.compress(body_of(batch), 1, wbits=31)
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        try:
            status, found, answer = self._link.call(
                "POST", f"{self._path}{batch.first}", body, headers
            )
        except (OSError, ValueError) as error:
            raise NotNow(f"the gateway cannot be reached: {error}") from error
        if status == 200:
            return self._read(answer, batch)
        why = f"{status} {answer[:200].decode('utf-8', 'replace')}"
        if status in (401, 403):
            raise NotNow(f"the gateway refuses the token: {why}", REFUSED_SECONDS)
        if status in (408, 429) or status >= 500 or status < 400:
            raise NotNow(f"the gateway answers {why}", _seconds(found.get("retry-after")))
        raise Refused(why)

    def _read(self, answer: bytes, batch: Batch) -> int:
        try:
            told = json.loads(answer)
            number = told["next"]
            reasons = [str(each)[:200] for each in told.get("reasons", ())]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NotNow(f"the gateway's answer is not understood: {answer[:100]!r}") from error
        if type(number) is not int or number <= batch.first:
            raise NotNow(f"the gateway took nothing: its next entry is {number!r}")
        for reason in reasons[:REASONS_MAX]:
            self._say(f"refused: {reason}")
        self._said = ""
        return number

    def _tell(self, why: str) -> None:
        """The same is said once."""
        if why != self._said:
            self._say(why)
        self._said = why


class Steps(Protocol):
    def step(self) -> float:
        """Delivers once. Returns how many seconds to wait; less than 0: nothing is left."""

    def close(self) -> None: ...


class DeliveryThread(threading.Thread):
    """Delivers as it arrives, until it is told to end."""

    def __init__(
        self, own: Sequence[Steps], left: Sequence[Steps], say: Callable[[str], None]
    ) -> None:
        """`left`: what others have left. It comes to its end."""
        super().__init__(name="delivery", daemon=True)
        self._own, self._left, self._say = own, [*left], say
        self._next_at: dict[Steps, float] = {}
        self._arrived, self._ending = threading.Event(), threading.Event()
        self._until = float("inf")

    @property
    def left(self) -> int:
        """How many of those that others have left still have something."""
        return len(self._left)

    def wake(self) -> None:
        self._arrived.set()

    def finish(self, seconds: float) -> None:
        """Waits until everything is delivered, for so long at most."""
        self._until = time.monotonic() + seconds
        self._ending.set()
        self._arrived.set()
        self.join(seconds + 1)

    def run(self) -> None:
        while (now := time.monotonic()) < self._until:
            self._arrived.clear()
            ending = self._ending.is_set()
            waits = [self._step(each, now) for each in (*self._left, *self._own)]
            waits = [seconds for seconds in waits if seconds >= 0]
            if waits and ending:
                time.sleep(max(0.0, min(*waits, self._until - time.monotonic(), EVERY_SECONDS)))
            elif waits:
                self._ending.wait(max(PACE_SECONDS, min(*waits, EVERY_SECONDS)))
            elif ending:
                return
            else:
                self._arrived.wait()
                self._ending.wait(EVERY_SECONDS)  # more of it arrives meanwhile

    def _step(self, steps: Steps, now: float) -> float:
        rest = self._next_at.get(steps, now) - now
        if rest > 0:
            return rest
        try:
            pause = steps.step()
        except Exception as error:  # noqa: BLE001  # a bug of ours: the spool is kept
            self._say(f"a bug: {error!r}")
            pause = PAUSE_SECONDS_MAX
        self._next_at[steps] = now + max(0.0, pause)
        if pause < 0 and steps in self._left:
            self._left.remove(steps)
            steps.close()
        return pause


def body_of(batch: Batch) -> bytes:
    return b"\n".join(batch.entries) + b"\n"


def _seconds(text: str | None) -> float | None:
    """Of the header Retry-After."""
    if text and text.isascii() and text.isdigit():
        return min(float(text), PAUSE_SECONDS_MAX)
    return None


def _unchunk(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16)
        if length == 0:
            break
        whole, data = whole + data[:length], data[length + 2 :]
    return whole
