"""/query, /write and /ping, as InfluxDB 1.x answers them, and the /api/v2/write of 2.x.

Telegraf drops what is answered with 4xx, so that overload is 503, and a wrong line does not fail
those beside it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from scheduler.gateway.api.endpoint import open_series
from scheduler.gateway.api.tracking_endpoints import unpacked
from scheduler.gateway.auth import Auth, KnownCaller
from scheduler.gateway.influx import go_json, parser, queries
from scheduler.gateway.influx.sorting_lines import LinesOfJobs, entries_of_one
from scheduler.gateway.influx.syntax import QueryError, Statement
from scheduler.gateway.influx.tagged_series import SeriesView, is_node, of_node
from scheduler.gateway.problems import RETRY_SECONDS, Problem
from scheduler.gateway.series.intake import SentEntries, Taken
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.series_writer import TakenLater
from scheduler.gateway.visible_jobs import VisibleJobs

VERSION = "1.6.7"  # of the InfluxDB whose answers these are
BODY_BYTES_MAX = 4 * 2**20
AT_ONCE = 2  # queries
WAITING_MAX = 50
_PRECISIONS = {
    "": "ns",
    **dict.fromkeys(("n", "ns"), "ns"),
    **dict.fromkeys(("u", "us"), "us"),
    "ms": "ms",
    "s": "s",
}
_HEADERS = {"X-Influxdb-Version": VERSION, "X-Influxdb-Build": "OSS", "Cache-Control": "no-store"}
_JSON = "application/json"
_NO_ATTEMPT = 0  # what is written here belongs to a job, and to none of its attempts

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class InfluxEndpoints:
    auth: Auth
    visible: VisibleJobs
    kept_series: SeriesStore | None
    _waiting: int = 0
    _places: asyncio.Semaphore | None = None

    def routes(self) -> list[Route]:
        return [
            Route("/ping", self._ping, methods=["GET", "HEAD"]),
            Route("/health", self._health),
            Route("/query", _told(self._query), methods=["GET", "POST"]),
            Route("/write", _told(self._write), methods=["POST"]),
            Route("/api/v2/write", _told(self._write), methods=["POST"]),
            Route("/api/v2/query", _told(self._flux), methods=["POST"]),
        ]

    async def _ping(self, request: Request) -> Response:
        return Response(status_code=204, headers=_HEADERS)

    async def _health(self, request: Request) -> Response:
        about = {"name": "influxdb", "message": "ready", "status": "pass", "version": VERSION}
        return Response(json.dumps(about), 200, _HEADERS, _JSON)

    async def _flux(self, request: Request) -> Response:
        raise Problem(501, "Flux is not served: /query takes InfluxQL")

    # --- queries --------------------------------------------------------------------------------

    async def _query(self, request: Request) -> Response:
        caller = await self.auth.caller(request)
        given = await _parameters(request)
        query = given.get("q", "").strip()
        if not query:
            raise Problem(400, 'missing required parameter "q"')
        if given.get("params"):
            raise Problem(400, "bound parameters (params) are not supported here")
        try:
            statements = parser.parse(query)
            return await self._answered(caller, statements, given)
        except QueryError as error:
            raise Problem(400, f"error parsing query: {error}") from None

    async def _answered(
        self, caller: KnownCaller, statements: list[Statement], given: Mapping[str, str]
    ) -> Response:
        series = open_series(self.kept_series)
        form = _form(given)
        if self._waiting >= WAITING_MAX:
            raise Problem(503, f"{WAITING_MAX} queries wait already: try again")
        self._places = self._places or asyncio.Semaphore(AT_ONCE)
        self._waiting += 1
        try:
            async with self._places:
                kept = await asyncio.to_thread(series.jobs)
                seen = await self._seen(caller, kept)
                view = SeriesView(series, None if len(seen) == len(kept) else seen)
                documents = await asyncio.to_thread(
                    _documents, statements, view, given.get("db", ""), form
                )
        finally:
            self._waiting -= 1
        if form.chunk_rows:
            return StreamingResponse(_each(documents), 200, _HEADERS, _JSON)
        return Response("".join(documents), 200, _HEADERS, _JSON)

    async def _seen(self, caller: KnownCaller, kept: Set[str]) -> Set[str]:
        """Of jobs and nodes with series. What nodes tell, people and nodes may see."""
        nodes = {each for each in kept if is_node(each)}
        if caller.identity.node:
            return nodes
        jobs = set(await self.visible.owners(caller, kept - nodes))
        return jobs if caller.identity.job_id else jobs | nodes

    # --- lines ----------------------------------------------------------------------------------

    async def _write(self, request: Request) -> Response:
        caller = await self.auth.caller(request)
        series = open_series(self.kept_series)
        precision = _PRECISIONS.get(request.query_params.get("precision", ""))
        if precision is None:
            raise Problem(400, "precision must be one of ns, us, ms, s")
        body, encoding = await request.body(), request.headers.get("content-encoding", "")
        content = await asyncio.to_thread(unpacked, body, encoding)
        text, now = content.decode("utf-8", "replace"), time.time_ns()
        node = caller.identity.node
        if own := of_node(node) if node else caller.identity.job_id:
            entries = {own: entries_of_one(text, precision, now)}
            sent, reasons = sum(1 for line in text.splitlines() if line.strip()), list[str]()
        else:
            lines = await asyncio.to_thread(LinesOfJobs.sorted_out, text, precision, now)
            reasons = lines.refused
            users = await self.visible.owners(caller, lines.points)
            reasons += lines.drop_those_of_others(users, caller.identity)
            entries, sent = lines.entries(), lines.total
        taken = await self._deliver(series, entries)
        refused = len(reasons) + sum(each.refused for each in taken)
        reasons += [reason for each in taken for reason in each.reasons]
        if reasons and refused >= sent:
            raise Problem(400, reasons[0])
        told = {"X-Influxdb-Error": _header(f"{refused} refused: {reasons[0]}")} if reasons else {}
        return Response(status_code=204, headers={**_HEADERS, **told})

    async def _deliver(self, series: SeriesStore, entries: Mapping[str, bytes]) -> list[Taken]:
        """By job. Answers when all is on disk."""
        now = time.time()
        try:
            futures = [
                asyncio.wrap_future(
                    series.deliver(SentEntries(job, _NO_ATTEMPT, "", 0, content, now))
                )
                for job, content in entries.items()
                if content
            ]
            return list(await asyncio.gather(*futures))
        except TakenLater as error:
            raise Problem(503, str(error)) from None


def _documents(
    statements: list[Statement], view: SeriesView, database: str, form: go_json.Form
) -> list[str]:
    results = queries.answer(statements, view, database, time.time_ns())
    return list(go_json.written(results, form))


async def _each(documents: list[str]) -> AsyncIterator[str]:
    for document in documents:
        yield document


def _form(given: Mapping[str, str]) -> go_json.Form:
    rows = 0
    if given.get("chunked") == "true":
        asked = given.get("chunk_size", "")
        rows = int(asked) if asked.isdigit() and asked.isascii() and len(asked) < 10 else 0
        rows = rows or go_json.CHUNK_ROWS
    return go_json.Form(given.get("epoch", "").strip(), given.get("pretty") == "true", rows)


async def _parameters(request: Request) -> dict[str, str]:
    """Of the address, and of a form; the form counts."""
    given = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "POST":
        return given
    body = await request.body()
    if kind == "application/x-www-form-urlencoded":
        try:
            given |= dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
        except ValueError:
            raise Problem(400, "the body is not a form") from None
    elif body:
        raise Problem(415, "a query is sent as application/x-www-form-urlencoded, or as ?q=")
    return given


def _told(handler: Handler) -> Handler:
    """What goes wrong, in the way that clients of InfluxDB understand: as a text. Those of 2.x look
    for `message`."""

    async def told(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            content = go_json.error_text(problem.message)
            if request.url.path.startswith("/api/v2"):
                known = {"code": problem.code, "message": problem.message}
                content = json.dumps({**known, "error": problem.message})
            again = {"Retry-After": str(RETRY_SECONDS)} if problem.status == 503 else {}
            challenge = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
            error = {"X-Influxdb-Error": _header(problem.message)}
            headers = {**_HEADERS, **again, **challenge, **error}
            return Response(content, problem.status, headers, _JSON)

    return told


def _header(message: str) -> str:
    """As InfluxDB, not all of it; no other character can be in a header."""
    return ascii(message)[1:-1][:1000]
