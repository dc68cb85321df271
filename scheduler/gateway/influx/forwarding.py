"""What trainings log, sent on to an InfluxDB 1.x or 2.x, each point at least once.

Points leave the queue (`forward_queue.py`) when the InfluxDB has them. So nothing that a relay was
told is kept is missing there, whichever process is killed; a point that is sent twice is one there,
because its time is its own. A line that the InfluxDB refuses is dropped alone and counted.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import groupby
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import structlog

from scheduler.gateway.influx.tagged_series import JOB
from scheduler.gateway.series.forward_queue import POINTS_MAX, ForwardQueue, QueuedPoint
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.series_writer import TakenLater

BATCH_MAX, EVERY_SECONDS = 1000, 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 60.0
ANSWER_SECONDS, STOP_SECONDS = 30.0, 2.0
V2_PATH = "/api/v2/write"
_NAME = re.compile(r"([,= ])")
_MEASUREMENT = re.compile(r"([, ])")

log = structlog.get_logger("scheduler.gateway.influx.forwarding")


class BadDestination(ValueError):
    """The message says what is wrong with it."""


class NotTaken(Exception):
    """The message says why. The same again, later."""


class InfluxServer:
    """One that takes lines at a URL, as its own clients would send them."""

    def __init__(self, url: str, credentials: str = "") -> None:
        """`credentials`: USER:PASSWORD of 1.x, a token of 2.x. Raises BadDestination."""
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        is_v2 = parts.path.endswith(V2_PATH)
        needed = ("bucket",) if is_v2 else ("db",)
        known = parts.scheme in ("http", "https") and parts.path.endswith("/write")
        if not (known and parts.hostname and all(given.get(name) for name in needed)):
            told = parts._replace(query="...").geturl()  # it may have a password
            raise BadDestination(
                f"{told!r} is neither http://HOST:8086/write?db=NAME"
                f" nor http://HOST:8086{V2_PATH}?org=NAME&bucket=NAME"
            )
        self.name = f"{parts.hostname}:{parts.port or parts.scheme}"
        self._parts, self._database = parts, "" if is_v2 else given["db"]
        self._path = f"{parts.path}?{urlencode({**given, 'precision': 'ns'})}"
        self._headers = {"User-Agent": "epoch-scheduler"}
        if credentials:
            basic = b64encode(credentials.encode()).decode()
            self._headers["Authorization"] = f"Token {credentials}" if is_v2 else f"Basic {basic}"

    def write(self, lines: Sequence[str]) -> list[str]:
        """Returns why lines were refused. Raises NotTaken."""
        status, said = self._post(self._path, "\n".join(lines).encode())
        if status == 404 and self._database:
            created = f"{self._parts.path.removesuffix('/write')}/query"
            statement = f'CREATE DATABASE "{self._database}"'
            self._post(f"{created}?q={quote(statement)}", b"")
            status, said = self._post(self._path, "\n".join(lines).encode())
        if status in (200, 204):
            return []
        if status not in (400, 413, 422):
            raise NotTaken(f"HTTP {status}: {said}")
        if "partial write" in said:  # all the others are there
            found = re.search(r"dropped=(\d+)", said)
            return [said] * max(1, int(found[1]) if found else 0)
        if len(lines) == 1:
            return [said]
        middle = len(lines) // 2
        return [*self.write(lines[:middle]), *self.write(lines[middle:])]

    def _post(self, path: str, body: bytes) -> tuple[int, str]:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=ANSWER_SECONDS, context=context
            )
        else:
            connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", path, body, self._headers)
            answer = connection.getresponse()
            return answer.status, _message(answer.read(65536))
        except (OSError, HTTPException) as error:
            raise NotTaken(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()


class Forwarding:
    """The thread that empties the queue of a store."""

    def __init__(self, server: InfluxServer, points_max: int = POINTS_MAX) -> None:
        self._server, self.queue = server, ForwardQueue(BATCH_MAX, points_max)
        self.refused = self._dropped = 0
        self._said = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, store: SeriesStore) -> None:
        self._thread = threading.Thread(target=self._run, args=(store,), daemon=True)
        self._thread.name = "forwarding"
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self.queue.due.set()
        if self._thread:
            self._thread.join(STOP_SECONDS)

    def _run(self, store: SeriesStore) -> None:
        pause = PAUSE_SECONDS
        while not self._stopped.is_set():
            self.queue.due.wait(EVERY_SECONDS)
            self.queue.due.clear()
            try:
                while not self._stopped.is_set() and self.send(store) == BATCH_MAX:
                    pause = PAUSE_SECONDS
                self._say("")
                pause = PAUSE_SECONDS
            except (NotTaken, TakenLater) as error:
                self._say(str(error))
                self._stopped.wait(pause)
                self.queue.due.set()
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            except Exception:  # a thread's entry: what waits is sent the next time
                log.exception("forwarding_failed")
                self._stopped.wait(PAUSE_SECONDS_MAX)

    def send(self, store: SeriesStore) -> int:
        """Sends the oldest points; returns how many. Raises NotTaken."""
        points = store.unforwarded(BATCH_MAX)
        if self.queue.dropped > self._dropped:
            lost, self._dropped = self.queue.dropped - self._dropped, self.queue.dropped
            log.warning("forwarding_full", points_dropped=lost, points_max=self.queue.points_max)
        if not points:
            return 0
        lines = [*lines_of(points)]
        reasons = self._server.write(lines) if lines else []
        if reasons:
            self.refused += len(reasons)
            log.warning("forwarding_refused", server=self._server.name, error=reasons[0])
        store.forwarded(points[-1])
        return len(points)

    def _say(self, trouble: str) -> None:
        """Each once."""
        if trouble and trouble != self._said:
            log.warning("not_forwarded", server=self._server.name, error=trouble, note="it waits")
        elif self._said and not trouble:
            log.warning("forwarded_again", server=self._server.name)
        self._said = trouble


def lines_of(points: Sequence[QueuedPoint]) -> Iterator[str]:
    """Fields of one moment that came together are one line, as they were logged. What is not a
    number is left out: InfluxDB has no such values."""
    for (job, measurement, tags, at_ns), fields in groupby(
        points, lambda each: (each.job, each.measurement, each.tags, each.at_ns)
    ):
        known = {each.field: _value(each) for each in fields}
        shown = ",".join(f"{_escaped(name)}={text}" for name, text in known.items() if text)
        if not shown:
            continue
        pairs = sorted({**dict(json.loads(tags)), JOB: job}.items())
        told = "".join(f",{_escaped(key)}={_escaped(value)}" for key, value in pairs if value)
        yield f"{_MEASUREMENT.sub(_BEFORE, measurement)}{told} {shown} {at_ns}"


_BEFORE = r"\\\1"


def _escaped(name: str) -> str:
    return _NAME.sub(_BEFORE, name)


def _value(point: QueuedPoint) -> str:
    value = point.value
    match point.kind:
        case "string":
            text = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{text}"'
        case "boolean":
            return "true" if value else "false"
        case "integer":
            return f"{value}i"
    number = math.nan if value is None else float(value)
    return repr(number) if math.isfinite(number) else ""


def _message(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    try:
        told = json.loads(text)
        text = str(told.get("error") or told.get("message") or text)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:300]
