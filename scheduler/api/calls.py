"""How a call is received: its request is read, within limits, before a thread takes it.

Theory of operation. One thread runs an event loop that receives all calls as bytes. A call whose
request has not arrived costs a coroutine and no thread: none may wait long, and when there are too
many of them, the one that has waited longest is ended. A complete request is handed to a thread of
its lane (see lanes.py), which parses it and runs the method. A stream takes a thread for each of
its messages, and none while it waits for news or for its caller. A conversation, in which both
sides send many messages, is opened by a thread and then is a coroutine that never blocks.

Every method runs in `_call` or `_parts`, and every error ends in `_refuse`, so no method has to
handle malformed bytes or exceptions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError

from scheduler.api.lanes import Lane
from scheduler.api.peer_names import PeerNames
from scheduler.core.errors import Busy, Rejected, SchedulerError

REQUEST_SECONDS = 10.0  # from the headers of a call to the last byte of its request
READING_MAX = 250  # calls whose request has not arrived
PAUSE_SECONDS = 0.2  # of a stream that has no news
_SWEEP_SECONDS = 0.5
_REMEMBERED_SECONDS = 10.0  # who is at the other end of a connection
_DETAILS_MAX = 2000  # characters; details are sent in a header, and headers must be small
_END = object()


class Bell:
    """Rings when there is news, for streams that wait for it. `ring` is for any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ring(self) -> None:
        with self._lock:
            self.count += 1
            waiting, self._waiting = self._waiting, []
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for loop, event in waiting:
            by_loop.setdefault(loop, []).append(event)
        for loop, events in by_loop.items():
            with suppress(RuntimeError):  # the server has been closed
                loop.call_soon_threadsafe(_set_all, events)

    async def wait(self, count: int, seconds: float) -> None:
        """Returns when it has rung more than `count` times, or after so many seconds."""
        entry = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self.count > count:
                return
            self._waiting.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await entry[1].wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()


@dataclass(frozen=True, slots=True)
class Rest:
    """A part of a stream that has no news until a bell rings more than `count` times."""

    bell: Bell
    count: int
    seconds: float


Receive = Callable[[], Awaitable[Any]]  # the caller's next message; None: there will be none
Send = Callable[[Any], Awaitable[None]]  # returns when the caller has room for more


class Conversation(Protocol):
    """What a method returns, in a thread, for the first message of a caller that sends many."""

    async def hold(self, receive: Receive, send: Send) -> None:
        """Runs in the event loop, and ends the call when it returns."""


Metadata = tuple[tuple[str, str | bytes], ...]
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # a handler of grpc
Body = Callable[[bytes, Any], Awaitable[bytes | None]]  # of a call: its request and context

log = structlog.get_logger("scheduler.api.calls")


class Overdue(SchedulerError):
    """The caller's request has not arrived in time."""

    status = "DEADLINE_EXCEEDED"


class CallContext:
    """What a method may know of its call: a part of `grpc.ServicerContext`, for any thread."""

    def __init__(self, context: Any) -> None:
        self._metadata: Metadata = tuple(context.invocation_metadata())
        self._peer: str = context.peer()
        self._secured: Mapping[str, Any] = context.auth_context()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] | None = []

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, Any]:
        return self._secured

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """The callback is called when the call ends. False: it has ended already."""
        with self._lock:
            if self._callbacks is None:
                return False
            self._callbacks.append(callback)
            return True

    def end(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            callback()


class Reception:
    """Makes handlers for grpc's event loop of methods that know nothing of it."""

    def __init__(
        self, request_seconds: float = REQUEST_SECONDS, reading_max: int = READING_MAX
    ) -> None:
        self._request_seconds, self._reading_max = request_seconds, reading_max
        self.peers = PeerNames()
        self._reading: dict[asyncio.Task[Any], float] = {}  # since when; the oldest is first
        self._ended: dict[asyncio.Task[Any], SchedulerError] = {}
        self.refused: dict[str, int] = {}  # how many calls ended with each status; only grows

    def method(
        self, given: Any, lane: Lane, streams: Lane, patience: float | None = None
    ) -> Method:
        """`given`: a handler of a method with one request, or with many and one answer: such a
        method is a generator, into which its requests are sent, and None after the last one.
        `patience`: for how many seconds a stream waits until its caller takes a part. None: as long
        as the connection lasts."""
        parse, serialize = given.request_deserializer, given.response_serializer

        async def call(request: bytes, context: Any) -> bytes:
            caller = CallContext(context)
            peer = self.peers.name(caller.peer())
            try:
                return await lane.run(
                    peer, _call, given.unary_unary, parse, serialize, request, caller
                )
            finally:
                caller.end()

        async def stream(request: bytes, context: Any) -> None:
            caller = CallContext(context)
            peer = self.peers.name(caller.peer())
            parts = _parts(given.unary_stream, parse, serialize, request, caller)
            try:
                while (part := await streams.run(peer, next, parts, _END)) is not _END:
                    if part is None:
                        await asyncio.sleep(PAUSE_SECONDS)
                    elif isinstance(part, Rest):
                        await part.bell.wait(part.count, part.seconds)
                    else:
                        await _send(context, part, patience)
            finally:
                caller.end()

        async def receive(request: bytes | None, context: Any) -> bytes:
            caller = CallContext(context)
            peer = self.peers.name(caller.peer())
            receiving = given.stream_unary(None, caller)
            try:
                await lane.run(peer, next, receiving)
                while request is not None:
                    await lane.run(peer, _receive, receiving, parse, request)
                    request = await self.read(context)
                return await lane.run(peer, _finish, receiving, serialize)
            finally:
                receiving.close()
                caller.end()

        if given.stream_unary:
            return grpc.stream_unary_rpc_method_handler(self.entry(receive))

        async def conversation(request: bytes, context: Any) -> None:
            caller = CallContext(context)
            peer = self.peers.name(caller.peer())
            turn = asyncio.Lock()  # grpc sends one message of a call at a time

            async def receive() -> Any:
                message = await context.read()
                return None if message is grpc.aio.EOF else parsed(parse, bytes(message))

            async def send(reply: Any) -> None:
                async with turn:
                    await context.write(serialize(reply))

            try:
                opened = await lane.run(
                    peer, lambda: given.stream_stream(parsed(parse, request), caller)
                )
                await opened.hold(receive, send)
            finally:
                caller.end()

        if given.stream_stream:
            return grpc.stream_stream_rpc_method_handler(self.entry(conversation))
        if given.unary_unary:
            return grpc.stream_unary_rpc_method_handler(self.entry(call))
        return grpc.stream_stream_rpc_method_handler(self.entry(stream))

    def entry(self, body: Body) -> Any:
        """The entry of a call. Its request is read here, because grpc would wait without limit;
        for that, grpc must take the method for one with many requests."""

        async def answer(_: object, context: Any) -> bytes | None:
            try:
                request = await self.read(context)
                if request is None:
                    raise Rejected("the call has no request")
                return await body(request, context)
            except grpc.aio.BaseError:  # the call has ended already
                raise
            except Exception as error:  # noqa: BLE001 - the entry of each call
                status = _refuse(context, error)
                self.refused[status] = self.refused.get(status, 0) + 1
                return b""  # not sent: grpc sends the status

        return answer

    async def read(self, context: Any) -> bytes | None:
        """Returns the next request of the call; None: the caller has ended its requests."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._reading) >= self._reading_max:
            self._end(next(iter(self._reading)), Busy("too many calls are sending their request"))
        self._reading[task] = asyncio.get_running_loop().time()
        try:
            request = await context.read()
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise self._ended.pop(task) from None
        finally:
            self._reading.pop(task, None)
        return None if request is grpc.aio.EOF else bytes(request)

    async def sweep(self) -> None:
        """Ends calls whose request does not arrive, for as long as the server runs."""
        clock, limit = asyncio.get_running_loop().time, self._request_seconds
        forgot = clock()
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, limit))
            for task, since in list(self._reading.items()):
                if clock() - since < limit:
                    break
                self._end(task, Overdue(f"the request has not arrived in {limit:g} s"))
            if clock() - forgot > _REMEMBERED_SECONDS:
                forgot = clock()
                self.peers.forget()

    def _end(self, task: asyncio.Task[Any], error: SchedulerError) -> None:
        del self._reading[task]
        self._ended[task] = error
        task.cancel()


def _call(behaviour: Any, parse: Any, serialize: Any, request: bytes, caller: CallContext) -> bytes:
    answer: bytes = serialize(behaviour(parsed(parse, request), caller))
    return answer


def _receive(receiving: Any, parse: Any, request: bytes) -> None:
    receiving.send(parsed(parse, request))


def _finish(receiving: Any, serialize: Any) -> bytes:
    try:
        receiving.send(None)
    except StopIteration as end:
        answer: bytes = serialize(end.value)
        return answer
    raise RuntimeError("a method goes on after its last request")


async def _send(context: Any, part: bytes, patience: float | None) -> None:
    try:
        async with asyncio.timeout(patience):
            await context.write(part)
    except TimeoutError:
        raise Overdue(f"the caller has taken nothing for {patience:g} s: call again") from None


def _parts(
    behaviour: Any, parse: Any, serialize: Any, request: bytes, caller: CallContext
) -> Iterator[bytes | Rest | None]:
    """None: there is no news. Bytes: a part that is encoded already."""
    for part in behaviour(parsed(parse, request), caller):
        yield part if part is None or isinstance(part, bytes | Rest) else serialize(part)


def parsed(parse: Callable[[bytes], Any], request: bytes) -> Any:
    """Parses here and not in grpc, which reports garbage as an internal error."""
    try:
        return parse(request)
    except DecodeError as error:
        raise Rejected(
            "the request is not the protobuf message that this method expects"
        ) from error


def _refuse(context: Any, error: Exception) -> str:
    """Sets and returns the status with which the call ends: the only place where errors become
    statuses. `context.abort` would leave a cycle of objects behind, and callers without a token
    many."""
    if isinstance(error, SchedulerError):
        status, details = error.status, str(error)
    else:
        log.error("call_failed", exc_info=error)
        status, details = "INTERNAL", f"{type(error).__name__}; the daemon's log has the details"
    context.set_code(grpc.StatusCode[status])
    context.set_details(details[:_DETAILS_MAX])
    return status
