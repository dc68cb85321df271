"""Server-sent events as Argo's clients read them: workflows as they change, and lines of logs.

A line is `data: {"result": ...}`. Clients take every line that is longer than `data: ` for one, so
what only keeps a connection alive is an empty line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from scheduler.gateway.argo.selectors import Requirement
from scheduler.gateway.argo.workflow_calls import WorkflowCalls
from scheduler.gateway.argo.workflow_view import Workflow
from scheduler.gateway.influx.patterns import Pattern, PatternError, compiled
from scheduler.gateway.problems import Problem
from scheduler.v1 import scheduler_pb2 as pb

STREAMS_MAX = 100
LOOK_SECONDS = 1.0  # as often as `argo` draws,
REST = 8  # but at least so many times as long as a look took
LOOKS_AT_ONCE = 2
BEAT_SECONDS = 15.0
LOGS_AT_ONCE = 8
LINE_BYTES_MAX = 64 * 1024
_WAITING_LINES_MAX = 1000
_BEAT = b"\n"
_NO_TIMES = ("sinceSeconds", "sinceTime", "timestamps")


@dataclass(slots=True)
class WorkflowStreams:
    """Belongs to one event loop."""

    _open: int = 0
    _places: asyncio.Semaphore | None = None

    async def watch(
        self, calls: WorkflowCalls, labels: Sequence[Requirement], fields: Sequence[Requirement]
    ) -> Response:
        found = await self._found(calls, labels, fields)  # a refusal is an answer, and no stream
        if not found and (name := _name_in(fields)):
            raise Problem(404, f"workflow {name!a} not found in namespace {calls.namespace!a}")
        return self._response(self._changes(calls, labels, fields))

    async def log(
        self, calls: WorkflowCalls, workflow: Workflow, pod: str, query: Mapping[str, str]
    ) -> Response:
        wanted = WantedLines.asked(query, pod)
        if pod and wanted.step(workflow) is None:
            raise Problem(404, f"workflow {workflow.name!a} has no pod {pod!a}")
        return self._response(_lines(calls, workflow, wanted))

    def _response(self, parts: AsyncIterator[bytes]) -> Response:
        if self._open >= STREAMS_MAX:
            raise Problem(429, f"there are already {STREAMS_MAX} streams: try again")
        self._open += 1
        return StreamingResponse(
            self._counted(parts),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )

    async def _counted(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            yield _BEAT
            async with aclosing(parts) as these:  # type: ignore[type-var]
                async for part in these:
                    yield part
        except Problem:
            return  # the client asks again, and is told
        finally:
            self._open -= 1

    async def _changes(
        self, calls: WorkflowCalls, labels: Sequence[Requirement], fields: Sequence[Requirement]
    ) -> AsyncIterator[bytes]:
        told: dict[str, tuple[Workflow, bytes]] = {}
        beat_at = _now() + BEAT_SECONDS
        while True:
            began = _now()
            found = await self._found(calls, labels, fields)
            rest = max(LOOK_SECONDS, REST * (_now() - began))
            news = []
            for workflow in found:
                encoded = await asyncio.to_thread(_encoded, workflow)
                before = told.get(workflow.id)
                if before is None or before[1] != encoded:
                    told[workflow.id] = (workflow, encoded)
                    news.append(_event("MODIFIED" if before else "ADDED", encoded))
            missing = told.keys() - {each.id for each in found}
            news += [_event("DELETED", told.pop(gone)[1]) for gone in missing]
            for part in news:
                yield part
            if news:
                beat_at = _now() + BEAT_SECONDS
            elif _now() > beat_at:
                beat_at = _now() + BEAT_SECONDS
                yield _BEAT
            await asyncio.sleep(rest)

    async def _found(
        self, calls: WorkflowCalls, labels: Sequence[Requirement], fields: Sequence[Requirement]
    ) -> list[Workflow]:
        """One that is named is not looked for among all."""
        if name := _name_in(fields):
            try:
                found = [await calls.find(name)]
            except Problem as problem:
                if problem.status != 404:
                    raise
                return []
            return [each for each in found if all(one.holds(each.labels()) for one in labels)]
        self._places = self._places or asyncio.Semaphore(LOOKS_AT_ONCE)
        async with self._places:
            return await calls.select(labels, fields, 0)


def _name_in(fields: Sequence[Requirement]) -> str:
    """Empty: no single one is named."""
    names = [each.values for each in fields if each.key == "metadata.name" and each.wanted]
    found = set.intersection(*map(set, filter(None, names))) if names else set[str]()
    return next(iter(found)) if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class WantedLines:
    pod: str  # empty: of all steps
    follow: bool
    tail: int | None
    grep: Pattern | None

    @classmethod
    def asked(cls, query: Mapping[str, str], pod: str) -> WantedLines:
        for name in _NO_TIMES:
            if query.get(f"logOptions.{name}", "false") not in ("false", "", "0"):
                raise Problem(501, f"logOptions.{name}: lines of logs have no times here")
        if query.get("selector"):
            raise Problem(501, "selector: logs are chosen by the name of a pod only")
        tail = query.get("logOptions.tailLines", "")
        if tail and not (tail.isascii() and tail.isdigit() and len(tail) < 10):
            raise Problem(400, f"logOptions.tailLines {tail!a}: is not a whole number")
        try:
            grep = compiled(query["grep"]) if query.get("grep") else None
        except PatternError as error:
            raise Problem(400, f"grep: {error}") from None
        follow = query.get("logOptions.follow", "") == "true"
        return cls(pod, follow, int(tail) if tail else None, grep)

    def step(self, workflow: Workflow) -> str | None:
        """The name of a pod is the id of its node; of a single step also the workflow's."""
        for name in workflow.steps:
            if self.pod in (workflow.node_id(name), name):
                return name
        return next(iter(workflow.steps), None) if self.pod == workflow.name else None


async def _lines(
    calls: WorkflowCalls, workflow: Workflow, wanted: WantedLines
) -> AsyncIterator[bytes]:
    """Of steps that have begun, in the order in which they have; with `follow`, of all until the
    workflow has ended. Several steps that run at once are read at once."""
    lines: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_LINES_MAX)
    readers: dict[str, asyncio.Task[None]] = {}  # by job
    places = asyncio.Semaphore(LOGS_AT_ONCE if wanted.follow else 1)
    own = wanted.step(workflow) if wanted.pod else None
    beat_at = _now() + BEAT_SECONDS
    try:
        while True:
            begun = _begun(workflow, own)
            for name, job in begun.items():
                if job.id in readers:
                    continue
                reading = _LogReading(calls, job.id, workflow.node_id(name), wanted, lines)
                readers[job.id] = asyncio.create_task(reading.run(places))
            looked_at = _now()
            while not (all(task.done() for task in readers.values()) and lines.empty()):
                with suppress(TimeoutError):
                    yield await asyncio.wait_for(lines.get(), LOOK_SECONDS)
                    beat_at = _now() + BEAT_SECONDS
                if wanted.follow and _now() > looked_at + LOOK_SECONDS:
                    break
                if _now() > beat_at:
                    beat_at = _now() + BEAT_SECONDS
                    yield _BEAT
            over = all(task.done() for task in readers.values()) and lines.empty()
            if over and (not wanted.follow or workflow.has_ended):
                return
            if over:
                await asyncio.sleep(LOOK_SECONDS)
            workflow = await calls.find(workflow.name)
    finally:
        for task in readers.values():
            task.cancel()


def _begun(workflow: Workflow, only: str | None) -> dict[str, pb.Job]:
    """Steps with a log, those first that began first."""
    found = [
        (name, job)
        for name, job in workflow.steps.items()
        if job.HasField("started_at") and only in (None, name)
    ]
    return dict(sorted(found, key=lambda each: each[1].started_at))


@dataclass(slots=True)
class _LogReading:
    """Of the log of one job."""

    calls: WorkflowCalls
    job: str
    pod: str
    wanted: WantedLines
    lines: asyncio.Queue[bytes]
    _rest: bytes = b""  # a line of which the end is to come

    async def run(self, places: asyncio.Semaphore) -> None:
        request = pb.GetLogsRequest(job=self.job, follow=self.wanted.follow, tail=self.wanted.tail)
        calls = self.calls
        async with places:
            stream = calls.daemon.stream(
                "Scheduler/GetLogs", request, pb.LogChunk, calls.caller.token
            )
            try:
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        await self._take(chunk)
            except Problem as problem:
                await self._put(f"(the log cannot be read: {problem.message})".encode())
            if self._rest:
                await self._put(self._rest)

    async def _take(self, chunk: pb.LogChunk) -> None:
        *whole, rest = (self._rest + chunk.data).split(b"\n")
        while len(rest) > LINE_BYTES_MAX:
            whole.append(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest = rest
        for line in whole:
            await self._put(line)

    async def _put(self, content: bytes) -> None:
        line = content.removesuffix(b"\r").decode("utf-8", "replace")
        if self.wanted.grep is None or self.wanted.grep.found_in(line):
            await self.lines.put(_result({"content": line, "podName": self.pod}))


def _encoded(workflow: Workflow) -> bytes:
    return msgspec.json.encode(workflow.record())


def _now() -> float:
    return asyncio.get_running_loop().time()


def _result(record: Mapping[str, Any]) -> bytes:
    return b'data: {"result":%b}\n\n' % msgspec.json.encode(record)


def _event(kind: str, workflow: bytes) -> bytes:
    return b'data: {"result":{"type":"%b","object":%b}}\n\n' % (kind.encode(), workflow)
