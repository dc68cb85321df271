"""What happens, as server-sent events: facts, and jobs that have changed.

Theory of operation. All pages want the same, so one stream of the daemon serves them all: what
comes is encoded once and put into the queue of each follower. The last messages are kept. A page
that comes back names the cursor of what it has; from there on, it gets what was kept. If it is
further behind than that, it gets a stream of its own until it has caught up. So it misses nothing
and gets no fact twice, also if the daemon or the gateway has started again in between. Who wants
some events only has a stream of its own all the time, which the daemon filters.

What the parts of a cursor mean is in scheduler/api/event_feed.py; only its order matters here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from scheduler.gateway.api.endpoint import Parameter, given
from scheduler.gateway.auth import Auth
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.gpu_history import GpuHistory
from scheduler.gateway.problems import Problem
from scheduler.presentation import records, story
from scheduler.presentation.cursor import Cursor
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

FOLLOWERS_MAX = 50
WAITING_BYTES_MAX = 16 * 2**20  # for one follower
KEPT_MAX = 500  # messages, for those who come back
KEPT_BYTES_MAX = 8 * 2**20
BEAT_SECONDS = 15.0  # without news, so that who is between does not end the connection
CHECK_SECONDS = 60.0  # between two looks whether a follower's token is still valid
LOOK_SECONDS = 5.0  # between two looks whether GPUs are due
AGAIN_SECONDS = 0.5  # between two attempts to reach the daemon
RETRY_MILLISECONDS = 1000  # told to browsers
_BEAT = b": nothing new\n\n"
_EVERYTHING = pb.WatchEventsRequest()
PARAMETERS = (
    Parameter("after", "the id of the last message"),
    Parameter("job", "only of this job", several=True),
    Parameter("user", "only of jobs of this user"),
    Parameter("project", "only of jobs of this project"),
    Parameter("experiment", "only of jobs of this experiment"),
    Parameter("kind", "only facts of this kind, and no jobs", several=True),
)


class Message(NamedTuple):
    before: Cursor  # the end of the one before it
    after: Cursor
    reply: pb.WatchEventsReply
    encoded: bytes


@dataclass(eq=False)
class Follower:
    token: str
    wanted: pb.WatchEventsRequest  # the filters; none: everything
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)  # None: the end
    waiting_bytes: int = 0  # in the queue
    fact: int = 0  # it has the facts up to this one
    dropped: bool = False

    @property
    def alone(self) -> bool:
        """Whether it cannot share the common stream."""
        return self.wanted != _EVERYTHING


class Events:
    """Belongs to one event loop."""

    def __init__(self, daemon: DaemonCalls) -> None:
        self._daemon = daemon
        self.gpus = GpuHistory()
        self._followers: set[Follower] = set()  # all of them but those alone
        self._alone: set[Follower] = set()
        self._joined: set[Follower] = set()  # those of them that the common stream serves
        self._streams = 0
        self._kept: deque[Message] = deque()
        self._kept_bytes = 0
        self._head: Cursor | None = None  # where the common stream is; None: there is none yet
        self._away = b""  # what is told of a daemon that cannot be reached; empty: it can
        self._moved = asyncio.Event()  # there is a head
        self._task: asyncio.Task[None] | None = None

    # --- for the pages --------------------------------------------------------------------------

    async def serve(self, request: Request, auth: Auth) -> Response:
        caller = await auth.caller(request)
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if after and Cursor.parse(after) is None:
            raise Problem(400, "after: is not the id of an event", "after")
        follower = Follower(caller.token, _wanted(given(PARAMETERS, request.query_params)))
        if self._streams >= FOLLOWERS_MAX:
            raise Problem(429, f"there are already {FOLLOWERS_MAX} streams of events: try again")
        if follower.alone:
            await self._check_wanted(follower)
        self._streams += 1
        return StreamingResponse(
            self._stream(follower, after, auth),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )

    def end(self, token: str) -> None:
        """Ends the streams of a session that was logged out."""
        for follower in (*self._followers, *self._alone):
            if follower.token == token:
                self._drop(follower)

    def close(self) -> None:
        for follower in (*self._followers, *self._alone):
            self._drop(follower)
        if self._task:
            self._task.cancel()

    async def _stream(self, follower: Follower, after: str, auth: Auth) -> AsyncIterator[bytes]:
        checking = asyncio.create_task(self._check(follower, auth))
        try:
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS
            if follower.alone:
                self._alone.add(follower)
                async with aclosing(self._with_beats(follower, after)) as parts:
                    async for part in parts:
                        yield part
                return
            self._followers.add(follower)
            self._start()
            async for part in self._catch_up(follower, after):
                yield part
            while (news := await self._next(follower)) is not None:
                yield news
        finally:
            checking.cancel()
            self._followers.discard(follower)
            self._alone.discard(follower)
            self._joined.discard(follower)
            self._streams -= 1

    async def _check_wanted(self, follower: Follower) -> None:
        """Raises the daemon's refusal. If it cannot be reached, the stream says so."""
        try:
            async with aclosing(self._watch("", follower)) as replies:
                await anext(replies, None)
        except Problem as problem:
            if problem.status < 500:
                raise

    async def _with_beats(self, follower: Follower, after: str) -> AsyncGenerator[bytes, None]:
        """The daemon waits until what it has sent was read, so nothing piles up here."""
        parts = self._catch_up(follower, after)
        end = asyncio.ensure_future(follower.queue.get())
        coming = asyncio.ensure_future(anext(parts, None))
        try:
            while not end.done():
                if not coming.done():
                    done, _ = await asyncio.wait(
                        (coming, end),
                        timeout=BEAT_SECONDS,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if not done:
                        yield _BEAT
                elif (part := coming.result()) is None:
                    return
                else:
                    yield part
                    coming = asyncio.ensure_future(anext(parts, None))
        finally:
            end.cancel()
            coming.cancel()
            await asyncio.wait((coming,))
            await parts.aclose()

    async def _next(self, follower: Follower) -> bytes | None:
        try:
            part = await asyncio.wait_for(follower.queue.get(), BEAT_SECONDS)
        except TimeoutError:
            return _BEAT
        follower.waiting_bytes -= len(part or b"")
        return part

    async def _check(self, follower: Follower, auth: Auth) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await auth.holder(follower.token)
            except Problem as problem:
                if problem.status in (401, 403):
                    self._drop(follower)

    # --- following ------------------------------------------------------------------------------

    async def _catch_up(self, follower: Follower, after: str) -> AsyncGenerator[bytes, None]:
        """Ends when the follower goes on with the common stream."""
        place = _place(after)
        told: bytes | None = None  # of the daemon
        follower.fact = place.fact
        while not follower.dropped:
            if not follower.alone:
                await self._await_head()
                if not after and self._head:  # from now on
                    after, place = str(self._head), self._head
                    follower.fact = place.fact
                    yield _encoded(pb.WatchEventsReply(), after)
                if self._head and told != (self._away or _HERE):
                    told = self._away or _HERE
                    yield told
                if self._follow(follower, place):
                    return
            try:
                async with aclosing(self._watch(after, follower)) as replies:
                    async for reply in replies:
                        if told != _HERE:
                            told = _HERE
                            yield told
                        after, place = reply.cursor, _place(reply.cursor)
                        follower.fact = place.fact
                        yield _encoded(reply, after)
                        if not follower.alone and self._follow(follower, place):
                            return
            except Problem as problem:
                if problem.status == 401:
                    return
                if problem.status == 400:  # no cursor of this daemon: then by number alone
                    after = str(place.fact)
                if told != (away := _told_away(problem)):
                    told = away
                    yield told
                await asyncio.sleep(AGAIN_SECONDS)

    def _watch(self, after: str, follower: Follower) -> AsyncGenerator[pb.WatchEventsReply, None]:
        request = pb.WatchEventsRequest(after=after)
        request.MergeFrom(follower.wanted)
        return self._daemon.stream(
            "Gateway/WatchEvents", request, pb.WatchEventsReply, follower.token
        )

    def _follow(self, follower: Follower, place: Cursor) -> bool:
        """Gives the follower what was kept since this place; all else comes by itself."""
        if self._head is None or follower.dropped:
            return False
        since = None
        if place.reaches(self._head):
            since = len(self._kept)
        else:
            for index in reversed(range(len(self._kept))):
                if place.reaches(self._kept[index].before):
                    since = index
                    break
        if since is None:
            return False
        self._joined.add(follower)
        for message in list(self._kept)[since:]:
            self._give(follower, message)
        return True

    def _give(self, follower: Follower, message: Message) -> None:
        """No fact is given twice: the follower may already have some of this message."""
        encoded = message.encoded
        facts = message.reply.facts
        if facts and facts[0].number <= follower.fact:
            reply = pb.WatchEventsReply()
            reply.CopyFrom(message.reply)
            del reply.facts[:]
            reply.facts.extend(fact for fact in facts if fact.number > follower.fact)
            encoded = _encoded(reply, message.reply.cursor)
        follower.fact = max(follower.fact, message.after.fact)
        self._put(follower, encoded)

    def _put(self, follower: Follower, encoded: bytes) -> None:
        if follower.waiting_bytes > WAITING_BYTES_MAX:  # it reads too slowly: it will come again
            self._drop(follower)
        elif not follower.dropped:
            follower.waiting_bytes += len(encoded)
            follower.queue.put_nowait(encoded)

    def _drop(self, follower: Follower) -> None:
        self._joined.discard(follower)
        if not follower.dropped:
            follower.dropped = True
            follower.queue.put_nowait(None)

    # --- the common stream ----------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _look_at_gpus(self) -> None:
        """While pages are open. What is seen on GPUs is told by no event."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            follower = next(iter(self._followers), None)
            if follower and self.gpus.is_due(time.time()):
                with suppress(Problem):
                    cluster = await self._daemon.ask(
                        "Scheduler/GetCluster", pb.GetClusterRequest(), pb.Cluster, follower.token
                    )
                    self.gpus.enter(cluster, time.time())

    async def _await_head(self) -> None:
        """Returns when the common stream has a place, or cannot be had now."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), AGAIN_SECONDS)

    async def _run(self) -> None:
        """Reads for as long as there are followers, with the token of any of them."""
        looking = asyncio.create_task(self._look_at_gpus())
        try:
            while self._followers:
                follower = next(iter(self._joined or self._followers))
                after = str(self._head) if self._head else ""
                try:
                    async with aclosing(self._watch(after, follower)) as replies:
                        async for reply in replies:
                            self._receive(reply)
                            if follower not in self._followers:
                                break  # its token may be of a session that has ended
                except Problem as problem:
                    self._lose(problem, follower)
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            looking.cancel()
            # Who comes later may be far behind: then this place helps nobody.
            self._head, self._away = None, b""
            self._kept.clear()
            self._kept_bytes = 0
            self._moved.clear()

    def _lose(self, problem: Problem, follower: Follower) -> None:
        if problem.status == 401:
            for each in [each for each in self._followers if each.token == follower.token]:
                self._drop(each)
                self._followers.discard(each)
        elif problem.status == 400:  # our place is none of this daemon's
            self._head = None
            self._kept.clear()
            self._kept_bytes = 0
            for each in list(self._joined):
                self._drop(each)
        elif self._away != (away := _told_away(problem)):
            self._away = away
            for each in list(self._joined):
                self._put(each, away)

    def _receive(self, reply: pb.WatchEventsReply) -> None:
        after = _place(reply.cursor)
        if self._away:
            self._away = b""
            for each in list(self._joined):
                self._put(each, _HERE)
        if self._head is not None and (reply.facts or reply.jobs or reply.list_again or reply.lost):
            message = Message(self._head, after, reply, _encoded(reply, reply.cursor))
            self._keep(message)
            for each in list(self._joined):
                self._give(each, message)
        self._head = after
        self._moved.set()

    def _keep(self, message: Message) -> None:
        self._kept.append(message)
        self._kept_bytes += len(message.encoded)
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept_bytes -= len(self._kept.popleft().encoded)


def _wanted(given: Mapping[str, Any]) -> pb.WatchEventsRequest:
    return pb.WatchEventsRequest(
        jobs=given.get("job", ()),
        user=given.get("user", ""),
        project=given.get("project", ""),
        experiment=given.get("experiment", ""),
        kinds=given.get("kind", ()),
    )


def _place(text: str) -> Cursor:
    return Cursor.parse(text) or Cursor(0)


def _encoded(reply: pb.WatchEventsReply, cursor: str) -> bytes:
    told = {
        "facts": [fact_record(fact) for fact in reply.facts],
        "jobs": [records.job(job) for job in reply.jobs],
        "list_again": reply.list_again,
        "lost": [
            {"first": each.first, "last": each.last, "reason": each.reason} for each in reply.lost
        ],
    }
    return b"id: %b\ndata: %b\n\n" % (cursor.encode(), msgspec.json.encode(told))


def fact_record(fact: pb.Fact) -> records.Record:
    """A fact of any job, with the sentence that the story of the job has for it."""
    return {
        "number": fact.number,
        "job_id": fact.job_id,
        "text": printable(story.sentence(fact)),
        **records.fact(fact),
    }


def _told_away(problem: Problem) -> bytes:
    told = {"state": "away", "code": problem.code, "message": problem.message}
    return b"event: daemon\ndata: %b\n\n" % msgspec.json.encode(told)


_HERE = b'event: daemon\ndata: {"state":"here","code":"","message":""}\n\n'
