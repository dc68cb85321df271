"""Calls whose request does not arrive: they take nothing from the others, and are ended."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.malformed import CALL, GREETING, HEADERS, NO_REQUEST, frame
from scheduler.api.calls import Bell, Reception
from scheduler.api.grpc_server import GrpcServer
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.serving import Serving, by, of, refused
from tests.support import eventually

HALF_OPEN = 120  # more than the threads of all lanes together
PING = frame(6, 0, 0, b"whatever")
LIST_JOBS = "/scheduler.v1.Scheduler/ListJobs"


@contextmanager
def half_open(port: int, count: int, per_connection: int = 1) -> Iterator[Sequence[socket.socket]]:
    """Connections with calls that have sent their headers, and nothing of their request."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count // per_connection):
            raw = socket.create_connection(("127.0.0.1", port), timeout=10)
            opened.append(raw)
            calls = (
                frame(HEADERS, NO_REQUEST, 1 + 2 * number, CALL) for number in range(per_connection)
            )
            raw.sendall(GREETING + b"".join(calls))
        yield opened
    finally:
        for raw in opened:
            raw.close()


@pytest.mark.parametrize("per_connection", [1, 60])
def test_calls_without_a_request_take_no_thread(served: Serving, per_connection: int) -> None:
    job = served.running()
    profile = pb.Profile(job_id=job.id, attempt=1, epoch=1, epoch_seconds=1.0)
    with half_open(served.server.port, HALF_OPEN, per_connection):
        served.people.ListJobs(pb.ListJobsRequest(), metadata=by("ada"), timeout=10)
        done = served.jobs.EndEpoch(
            pb.EndEpochRequest(profiles=[profile]), metadata=of(job), timeout=10
        )
        assert done.epochs_done == 1


class _Waiting(pb_grpc.SchedulerServicer):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.go, self.asked, self.gone = threading.Event(), 0, threading.Event()

    def GetCluster(self, request: pb.GetClusterRequest, context: Any) -> pb.Cluster:
        context.add_callback(self.gone.set)
        self.asked += 1
        assert self.go.wait(60)
        return pb.Cluster(version="1")

    def WatchJobs(self, request: pb.ListJobsRequest, context: Any) -> Iterator[pb.ListJobsReply]:
        self.asked += 1
        while True:
            yield pb.ListJobsReply(jobs=[pb.Job(id="x" * 100_000)])


class _Door:
    """A server with limits of its own, and callers of it."""

    def __init__(self, **limits: Any) -> None:
        self.methods = _Waiting()
        self.server = GrpcServer(
            "127.0.0.1:0",
            self.methods,
            pb_grpc.ProfilerServicer(),
            reception=Reception(**limits),
        )
        self.server.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.people = pb_grpc.SchedulerStub(self.channel)

    def silent_call(self, silent: threading.Event) -> Any:
        """A call whose request comes when the event is set."""

        def requests() -> Iterator[bytes]:
            silent.wait(60)
            yield b""

        method: Any = self.channel.stream_unary(LIST_JOBS, lambda data: data, lambda data: data)
        return method.future(requests())


@contextmanager
def door(**limits: Any) -> Iterator[_Door]:
    made = _Door(**limits)
    try:
        yield made
    finally:
        made.methods.go.set()
        made.channel.close()
        made.server.stop(0)


def test_a_request_must_arrive_in_time() -> None:
    silent = threading.Event()
    with door(request_seconds=0.1) as made:
        late = made.silent_call(silent)
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "the request has not arrived in 0.1 s"):
            late.result(60)
        silent.set()


def test_the_call_that_has_been_silent_longest_is_ended_for_another_one() -> None:
    silent = threading.Event()
    with door(reading_max=2) as made:
        calls = [made.silent_call(silent) for _ in range(3)]
        eventually(lambda: any(call.done() for call in calls))
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls are sending"):
            next(call for call in calls if call.done()).result(60)
        made.methods.go.set()
        assert made.people.GetCluster(pb.GetClusterRequest(), timeout=60).version == "1"
        silent.set()


def _await_pong(raw: socket.socket) -> None:
    with raw.makefile("rb") as answers:
        while head := answers.read(9):
            if answers.read(int.from_bytes(head[:3])) == PING[9:]:
                return
    raise AssertionError("the connection was closed")


def test_no_call_is_cancelled_because_thousands_arrived_before_it() -> None:
    received = threading.Event()
    with door() as made:
        made.methods.go.set()
        made.people.GetCluster(pb.GetClusterRequest(), timeout=60)
        made.server._loop.call_soon_threadsafe(received.wait, 60)
        with half_open(made.server.port, 3_600, per_connection=180) as opened:
            for raw in opened:
                raw.sendall(PING)
            for raw in opened:  # grpc has all calls, and waits for us to take them
                _await_pong(raw)
            calls: list[Any] = [
                made.people.GetCluster.future(pb.GetClusterRequest(), timeout=60) for _ in range(20)
            ]
            received.set()
            assert {call.result(60).version for call in calls} == {"1"}


def test_a_call_without_any_request_is_the_callers_fault() -> None:
    with door() as made:
        method: Any = made.channel.stream_unary(LIST_JOBS)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request"):
            method(iter(()), timeout=60)


def test_a_method_hears_that_its_caller_has_gone() -> None:
    with door() as made:
        call: Any = made.people.GetCluster.future(pb.GetClusterRequest())
        eventually(lambda: made.methods.asked)
        call.cancel()
        assert made.methods.gone.wait(60)


def test_who_waits_for_a_bell_is_woken_also_by_an_earlier_ring() -> None:
    bell, woken = Bell(), list[int]()

    async def wait(count: int) -> None:
        await bell.wait(count, 60)
        woken.append(count)

    async def ring() -> None:
        bell.ring()
        await wait(0)  # it has rung since
        waiting = [asyncio.create_task(wait(1)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(bell.ring)
        await asyncio.gather(*waiting)
        await bell.wait(bell.count, 0)  # it does not ring, and is not waited for
        left = asyncio.create_task(wait(bell.count))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)

    asyncio.run(ring())
    bell.ring()  # where the loop is gone
    assert woken == [0, 1, 1, 1]


def test_health_is_told_while_all_threads_are_busy() -> None:
    with door() as made:
        calls: list[Any] = [
            made.people.GetCluster.future(pb.GetClusterRequest()) for _ in range(150)
        ]
        eventually(lambda: made.methods.asked)
        stub: Any = health_pb2_grpc.HealthStub(made.channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        made.methods.go.set()
        assert {call.result(60).version for call in calls} == {"1"}


def test_streams_whose_callers_do_not_read_take_no_thread() -> None:
    with door() as made:
        streams = [made.people.WatchJobs(pb.ListJobsRequest()) for _ in range(40)]
        eventually(lambda: made.methods.asked == len(streams))
        made.methods.go.set()
        assert made.people.GetCluster(pb.GetClusterRequest(), timeout=60).version == "1"
        for stream in streams:
            assert len(next(stream).jobs) == 1
            stream.cancel()
