"""What a relay answers to each request of its training, and what of it goes into the spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.relay import line_protocol
from scheduler.relay.artifacts import Outbox
from scheduler.relay.http import ArrivingFile, Incoming, Response
from scheduler.relay.mlflow import ROOTS, Mlflow
from scheduler.relay.mlflow_runs import LoggedRuns

ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
UNAUTHENTICATED = Response.json(
    {"error_code": "UNAUTHENTICATED", "message": "MLFLOW_TRACKING_TOKEN is not set"}, 401
)
INFLUX_VERSION = "1.8.10"
MLFLOW_VERSION = b"3.17.0"  # whose client is tested
Add = Callable[[Sequence[bytes]], bool]
Lose = Callable[[int, str], None]


class Answers:
    """`add` and `lose` are the spool's. `token` is the job's: what it has told MLflow is shown to
    nobody else on this machine."""

    def __init__(
        self,
        add: Add,
        lose: Lose,
        now_ns: Callable[[], int],
        runs: LoggedRuns,
        token: str,
        outbox: Outbox,
    ) -> None:
        self._add, self._lose, self._now_ns = add, lose, now_ns
        self._mlflow, self._token, self._outbox = Mlflow(runs, add, lose), token, outbox

    def answer(self, request: Incoming) -> Response:
        """Of a browser nothing is taken: a page that somebody reads must not write to a job."""
        if "origin" in request.headers or not is_ours(request.headers.get("host", "")):
            return Response.json({"error": "a relay hears its own training only"}, 403)
        for root in ROOTS:
            if request.path.startswith(root):
                return self._answer_mlflow(request, request.path.removeprefix(root))
        if request.method == "PUT" and request.path.startswith(ARTIFACTS):
            return self._keep_artifact(request)
        match request.method, request.path.rstrip("/"):
            case "GET", "/version":
                return Response(200, MLFLOW_VERSION, "text/plain")
            case "POST", "/entries":
                return self._keep_entries(request)
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

    def _answer_mlflow(self, request: Incoming, path: str) -> Response:
        if not self._is_job(request):
            return UNAUTHENTICATED
        return self._mlflow.answer(request, path, self._now_ns() // 1_000_000)

    def open_file(self, request: Incoming) -> ArrivingFile | None:
        """For the body of a request: artifacts are too big for anything else."""
        if request.method != "PUT" or not request.path.startswith(ARTIFACTS):
            return None
        path = request.path.removeprefix(ARTIFACTS).partition("/")[2]  # first comes the run
        return self._outbox.receive(path) if self._is_job(request) else None

    def _keep_artifact(self, request: Incoming) -> Response:
        """Always success: a training does not fail because a file has no place."""
        if not self._is_job(request):
            return UNAUTHENTICATED
        if request.file is None or not request.file.finish():
            self._lose(1, f"there was no place for artifact {request.path[-100:]}")
        return Response.json({})

    def _is_job(self, request: Incoming) -> bool:
        return request.headers.get("authorization", "") == f"Bearer {self._token}"

    def _keep_entries(self, request: Incoming) -> Response:
        """What our client library tells are entries already."""
        if not self._is_job(request):
            return UNAUTHENTICATED
        entries = [line for line in request.body.split(b"\n") if line]
        kept = [line for line in entries if line.startswith(b"{")]
        if kept:
            self._add(kept)
        if lost := len(entries) - len(kept) + (request.dropped_bytes > 0):
            self._lose(lost, "entries that are no objects of JSON, or are too long")
        return Response(204)

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
