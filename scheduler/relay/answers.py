"""What a relay answers to each request of its training, and what of it goes into the spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.relay import line_protocol
from scheduler.relay.http import Incoming, Response

INFLUX_VERSION = "1.8.10"
Add = Callable[[Sequence[bytes]], bool]
Lose = Callable[[int, str], None]


class Answers:
    """`add` and `lose` are the spool's."""

    def __init__(self, add: Add, lose: Lose, now_ns: Callable[[], int]) -> None:
        self._add, self._lose, self._now_ns = add, lose, now_ns

    def answer(self, request: Incoming) -> Response:
        """Of a browser nothing is taken: a page that somebody reads must not write to a job."""
        if "origin" in request.headers or not is_ours(request.headers.get("host", "")):
            return Response.json({"error": "a relay hears its own training only"}, 403)
        match request.method, request.path.rstrip("/"):
            case "POST", "/write" | "/api/v2/write":
                return self._write(request)
            case "GET" | "HEAD", "/ping":
                return Response(204, headers=(("X-Influxdb-Version", INFLUX_VERSION),))
            case "GET", "/health":
                return Response.json({"name": "influxdb", "status": "pass"})
            case "GET" | "POST", "/query":
                return _create_database(request)
        asked = f"{request.method} {request.path[:200]}"
        return Response.json({"error": f"a relay has no {asked}"}, 501)

    def take_lines(self, data: bytes) -> None:
        """Line protocol that came in datagrams."""
        self._take(data, "ns")

    def _write(self, request: Incoming) -> Response:
        """Always success: whatever else it is told, a client drops what it has, or fails."""
        if request.dropped_bytes:
            self._lose(1, f"a request had {request.dropped_bytes} bytes too many")
        try:
            self._take(request.body, request.query.get("precision", ""))
        except line_protocol.UnknownPrecision as error:
            self._lose(1, str(error))
        return Response(204, headers=(("X-Influxdb-Version", INFLUX_VERSION),))

    def _take(self, data: bytes, precision: str) -> None:
        for entry, too_long in line_protocol.entries(data, precision, self._now_ns()):
            if entry:
                self._add([entry])
            if too_long:
                self._lose(too_long, f"lines of more than {line_protocol.LINE_BYTES_MAX} bytes")


def is_ours(host: str) -> bool:
    """Another name would be that of a web page which has this machine's address."""
    name = host.rpartition(":")[0] if ":" in host else host
    return name in ("127.0.0.1", "localhost", "")


def _create_database(request: Incoming) -> Response:
    """Clients create their database before they write; here there is one for each job."""
    query = request.query.get("q", "") or _form(request.body)
    if query.upper().lstrip().startswith("CREATE DATABASE"):
        return Response.json({"results": [{"statement_id": 0}]})
    return Response.json({"error": f"a relay answers no queries: {query[:200]!r}"}, 501)


def _form(body: bytes) -> str:
    from urllib.parse import parse_qs

    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=100)
    except ValueError:
        return ""
    return fields.get("q", [""])[0]
