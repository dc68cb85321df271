"""Visits: shells, commands and connections to ports beside the run of a job.

Theory of operation. A thread of the lane of people's calls checks who asks, and opens the visit.
What passes through it costs no thread: coroutines of the server's event loop copy between the call
and the visit's descriptors, one piece at a time in each direction, so the daemon never keeps more
than that. A caller that takes nothing stops the command that writes, and a command that reads
nothing stops its caller. A visit ends with its call, however that ends, with its run, and with the
token of its user.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import structlog

from scheduler.api.calls import Receive, Send
from scheduler.api.lookup import Lookup
from scheduler.api.seats import Seats
from scheduler.api.status import ENDED, state
from scheduler.api.target import CommandVisit, Visit, VisitedCluster, WantedVisit
from scheduler.core import admission
from scheduler.core.errors import NotRunning, Rejected
from scheduler.core.model import Job, RunKey, Time
from scheduler.v1 import scheduler_pb2 as pb

PIECE_BYTES = 256 * 1024
AHEAD_BYTES = 256 * 1024  # of input that a command has not taken yet
LOOK_SECONDS = 0.25  # between looks whether the run goes on
CHECK_SECONDS = 5.0  # between checks of the token
KILLED_SECONDS = (
    3.0  # from the end of a command by a signal until its run may be seen to have ended
)
SHELLS, SHELLS_OF_USER = 64, 16
PORTS, PORTS_OF_USER = 512, 128
WORDS_MAX, WORD_BYTES_MAX = 1000, 2**16
SIDES_MAX = 2000  # lines, or columns
WARNED_SECONDS = (600.0, 60.0)  # before the end of the job's time
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}")
SIGNALS = range(1, 32)

log = structlog.get_logger("scheduler.api.visits")


@dataclass(frozen=True, slots=True)
class Visits:
    """Opens visits, within limits."""

    cluster: VisitedCluster
    lookup: Lookup
    connected: Callable[[RunKey, int], object] = lambda *_: None  # to this port of a run
    shells: Seats = field(default_factory=lambda: Seats(SHELLS, SHELLS_OF_USER, "shells"))
    ports: Seats = field(default_factory=lambda: Seats(PORTS, PORTS_OF_USER, "connections"))

    def open(
        self,
        job: Job,
        attempt: int,
        user: str,
        asked: pb.ConnectTo,
        check: Callable[[], object],
        context: grpc.ServicerContext,
    ) -> HeldVisit:
        """`check` raises when the caller may not go on."""
        wanted = _wanted(asked)
        key = job.id, attempt
        parts = ExitStack()
        try:
            parts.enter_context((self.ports if wanted.port else self.shells).taken_by(user))
            visit = None
            if not asked.hold:
                visit = self.cluster.visit(key, wanted)
                parts.callback(visit.close)
            held = HeldVisit(self.lookup, job, key, visit, check)
        except BaseException:
            parts.close()
            raise
        if not context.add_callback(parts.close):
            parts.close()
        if wanted.port:
            self.connected(key, wanted.port)
        log.info("visit_opened", job=job.id, attempt=key[1], user=user, what=words(asked))
        return held


def words(asked: pb.ConnectTo) -> str:
    """What is asked for, as a story tells it. A command may contain secrets."""
    if asked.port:
        return f"port {asked.port}"
    if asked.hold:
        return "waiting"
    return f"the command {asked.command[0]}"[:100] if asked.command else "a shell"


def _wanted(asked: pb.ConnectTo) -> WantedVisit:
    if asked.port:
        admission.check_integer("--port", asked.port, 1, 65535)
    if len(asked.command) > WORDS_MAX or sum(map(len, asked.command)) > WORD_BYTES_MAX:
        raise Rejected(
            f"the command is too long: {WORDS_MAX} words and {WORD_BYTES_MAX} characters at most"
        )
    if any("\0" in word for word in asked.command) or (asked.command and not asked.command[0]):
        raise Rejected("the command must not contain NUL characters, and begin with a program")
    terminal = None
    if asked.HasField("terminal"):
        terminal = _size(asked.terminal)
    term = asked.term if _TERM.fullmatch(asked.term) else "dumb"
    return WantedVisit(tuple(asked.command), terminal, term, asked.port)


def _size(size: pb.TerminalSize) -> tuple[int, int]:
    return min(max(size.lines, 1), SIDES_MAX), min(max(size.columns, 1), SIDES_MAX)


def current_run(job: Job, now: Time) -> int:
    """Returns the attempt that runs now."""
    if job.outcome:
        raise NotRunning(
            f"job {job.spec.name} ({job.id}) is not running: it is {ENDED[job.outcome]}"
        )
    if job.run is None:
        raise NotRunning(
            f"job {job.spec.name} ({job.id}) is not running: it is {state(job, now)};"
            f" scheduler-state {job.id} says why"
        )
    return job.run.attempt


class _HungUp(Exception):
    """The caller has ended its requests, and with them the visit."""


class HeldVisit:
    """One visit and its call. All but the constructor is for the event loop."""

    def __init__(
        self,
        lookup: Lookup,
        job: Job,
        key: RunKey,
        visit: Visit | None,
        check: Callable[[], object],
    ) -> None:
        self._lookup, self._job, self._key, self._check = lookup, job, key, check
        self._visit = visit
        self._command = cast(CommandVisit, visit) if visit and visit.end is not None else None
        self._over = asyncio.Event()  # the command has ended, and writes no more
        self._waiting: deque[bytes | None] = deque()  # input; None: its end
        self._ahead = 0
        self._came = asyncio.Event()

    async def hold(self, receive: Receive, send: Send) -> None:
        await send(pb.ConnectReply(job_id=self._key[0]))
        guard = asyncio.create_task(self._guard(send))
        passing = asyncio.create_task(self._pass(receive, send))
        try:
            await asyncio.wait((guard, passing), return_when=asyncio.FIRST_COMPLETED)
            with suppress(_HungUp):
                (guard if guard.done() else passing).result()
        finally:
            for task in (guard, passing):
                task.cancel()
            await asyncio.gather(guard, passing, return_exceptions=True)

    # --- what passes ------------------------------------------------------------------------

    async def _pass(self, receive: Receive, send: Send) -> None:
        visit = self._visit
        if visit is None:
            while await receive() is not None:
                pass
            return  # the caller has enough
        if self._command is None:
            with suppress(ConnectionResetError):
                await _both(
                    self._pass_input(visit, receive), self._pass_output(visit.output, send, _data)
                )
            return
        tasks = [
            asyncio.create_task(self._hear(self._command, receive)),
            asyncio.create_task(self._take(visit, send)),
        ]
        outputs = [asyncio.create_task(self._pass_output(visit.output, send, _data))]
        if visit.errors is not None:
            outputs.append(asyncio.create_task(self._pass_output(visit.errors, send, _errors)))
        ended = asyncio.create_task(_readable(self._command.end or 0))
        try:
            every = (*tasks, *outputs, ended)
            while not ended.done():
                done, _ = await asyncio.wait(
                    [each for each in every if not each.done()],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    task.result()
            self._over.set()
            await asyncio.gather(*outputs)
            await self._tell(self._command, send)
        finally:
            for task in (*tasks, *outputs, ended):
                task.cancel()
            await asyncio.gather(*tasks, *outputs, ended, return_exceptions=True)

    async def _tell(self, command: CommandVisit, send: Send) -> None:
        told = command.told()
        if told is None or told[0] == -9:  # perhaps it was killed with the run
            for _ in range(round(KILLED_SECONDS / LOOK_SECONDS)):
                self._raise_if_over()
                await asyncio.sleep(LOOK_SECONDS)
        if told is None:
            raise NotRunning("the process that kept it was ended")
        code, failed = told
        await send(pb.ConnectReply(exit_code=128 - code if code < 0 else code, note=failed))

    async def _pass_input(self, visit: Visit, receive: Receive) -> None:
        """Of a port: the next piece is received when this one is written."""
        while request := await self._next(receive):
            try:
                await _write(visit.input, request.data)
            except BrokenPipeError:
                return  # it takes no more, but may still have something to say
            if request.end:
                visit.end_input()
                return

    async def _hear(self, command: CommandVisit, receive: Receive) -> None:
        """Of a command: its input waits here, so that a signal can overtake it."""
        while request := await self._next(receive):
            if request.HasField("size"):
                command.resize(_size(request.size))
            if request.signal in SIGNALS:
                command.signal(request.signal)
            if request.data:
                self._ahead += len(request.data)
                if self._ahead > AHEAD_BYTES:
                    raise Rejected(f"more than {AHEAD_BYTES} bytes of input that were not taken")
                self._waiting.append(request.data)
            if request.end and None not in self._waiting:
                self._waiting.append(None)
            self._came.set()

    async def _next(self, receive: Receive) -> pb.ConnectRequest:
        request = await receive()
        if request is None:
            raise _HungUp
        found: pb.ConnectRequest = request
        return found

    async def _take(self, visit: Visit, send: Send) -> None:
        while True:
            while self._waiting:
                piece = self._waiting.popleft()
                if piece is None:
                    visit.end_input()
                    return
                with suppress(OSError):  # it reads no more
                    await _write(visit.input, piece)
                self._ahead -= len(piece)
                await send(pb.ConnectReply(taken=len(piece)))
            self._came.clear()
            await self._came.wait()

    async def _pass_output(
        self, number: int, send: Send, reply: Callable[[bytes], pb.ConnectReply]
    ) -> None:
        while True:
            try:
                piece = os.read(number, PIECE_BYTES)
            except BlockingIOError:
                if self._over.is_set():
                    return
                await _first(_readable(number), self._over.wait())
                continue
            except OSError:
                if self._command is None:
                    raise
                piece = b""  # of a terminal that no process has open any more
            if not piece:
                if self._command is None:
                    await send(pb.ConnectReply(end=True))
                return
            await send(reply(piece))

    # --- what ends it -----------------------------------------------------------------------

    async def _guard(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        warned = [seconds for seconds in WARNED_SECONDS if seconds < (self._left() or 0.0)]
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._raise_if_over()
            if loop.time() - checked_at > CHECK_SECONDS:
                await loop.run_in_executor(None, self._check)
                checked_at = loop.time()
            left = self._left()
            if warned and left is not None and left <= warned[0]:
                minutes = round(warned.pop(0) / 60)
                told = f"job {self._job.spec.name} ends in {minutes} min: its time is over then"
                if self._command or self._visit is None:
                    await send(pb.ConnectReply(note=told))

    def _raise_if_over(self) -> None:
        job_id, attempt = self._key
        job = self._lookup.view().jobs.get(job_id)
        if job and job.run and job.run.attempt == attempt:
            return
        name = f"job {self._job.spec.name} ({job_id})"
        if job and not job.outcome:
            raise NotRunning(f"attempt {attempt} of {name} has ended, and what was beside it too")
        how = f": it is {ENDED[job.outcome]}" if job and job.outcome else ""
        raise NotRunning(f"{name} has ended{how}; what was beside it has ended too")

    def _left(self) -> float | None:
        """Seconds until the job has had its time; None: it has no limit."""
        job = self._lookup.view().jobs.get(self._key[0])
        if job is None or job.run is None or not job.spec.time_limit_seconds:
            return None
        ran = job.ran_seconds + self._lookup.now() - job.run.started_at
        return job.spec.time_limit_seconds - ran


async def _both(*passing: Coroutine[Any, Any, None]) -> None:
    """Until both have ended, or one has failed."""
    tasks = [asyncio.create_task(each) for each in passing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*waiting: Any) -> None:
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # When the descriptor is closed, its number may be that of another visit at once.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    come = loop.create_future()
    loop.add_reader(number, _set, come)
    try:
        await come
    finally:
        loop.remove_reader(number)


async def _write(number: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:
            come = loop.create_future()
            loop.add_writer(number, _set, come)
            try:
                await come
            finally:
                loop.remove_writer(number)


def _data(piece: bytes) -> pb.ConnectReply:
    return pb.ConnectReply(data=piece)


def _errors(piece: bytes) -> pb.ConnectReply:
    return pb.ConnectReply(errors=piece)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
