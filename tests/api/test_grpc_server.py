"""The server around the services: limits, garbage on the port, and what errors become."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from scheduler.api.grpc_server import GrpcServer
from scheduler.api.seats import STREAMS_MAX, STREAMS_OF_USER_MAX
from scheduler.core.errors import ConfigError
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.serving import Serving, by, of, refused, submission
from tests.support import eventually

METHODS = [
    f"/{service.full_name}/{method.name}"
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
STREAMS = ("WatchJobs", "GetLogs")


def _answers(served: Serving) -> None:
    """The next good request is answered."""
    served.people.ListJobs(pb.ListJobsRequest(), metadata=by("ada"), timeout=10)


# --- garbage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_are_the_callers_fault(served: Serving, method: str) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "not the protobuf message"):
        _raw(served, method, b"\xff" * 40, by("ada"))
    _answers(served)


def test_text_that_is_not_utf8_is_the_callers_fault(served: Serving) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "not the protobuf message"):
        _raw(served, METHODS[1], b"\x0a\x02\xff\xfe", by("ada"))  # a job's id


def test_random_bytes_are_survived(served: Serving) -> None:
    chance = random.Random(1)
    job = served.running()
    allowed = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    for _ in range(300):
        method = chance.choice(METHODS)
        if method.endswith(STREAMS):
            continue  # a good one of these would go on
        known = by("ada") if "Scheduler/" in method else of(job)
        code = _code(lambda: _raw(served, method, chance.randbytes(chance.randrange(60)), known))  # noqa: B023 - called at once
        assert code not in allowed, method
    _answers(served)


def test_hostile_messages_are_survived(served: Serving) -> None:
    chance = random.Random(2)
    job = served.running()
    for _ in range(300):
        request = submission("demo")
        _spoil(request, chance)
        if chance.random() < 0.5:
            request.job_id = str(job.id)
        code = _code(lambda: served.people.Submit(request, metadata=by("ada"), timeout=10))  # noqa: B023
        assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), request
        report = pb.EndEpochRequest(profiles=[pb.Profile(job_id=job.id, attempt=1, epoch=1)])
        _spoil(report.profiles[0], chance)
        code = _code(lambda: served.jobs.EndEpoch(report, metadata=of(job), timeout=10))  # noqa: B023
        assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), report
    _answers(served)


def test_a_message_of_ten_megabytes_is_refused(served: Serving) -> None:
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"):
        served.people.Submit(submission("x" * 10_000_000), metadata=by("ada"), timeout=10)
    _answers(served)


def test_what_is_not_http2_is_survived(served: Serving) -> None:
    chance = random.Random(3)
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(200),
        chance.randbytes(4000),
    ):
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as raw:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not raw.recv(4096):
                        break
                except ConnectionResetError:
                    break
    _answers(served)


def test_an_unknown_method_is_unimplemented(served: Serving) -> None:
    with refused(grpc.StatusCode.UNIMPLEMENTED, "Method not found"):
        _raw(served, "/scheduler.v1.Scheduler/Destroy", b"", by("ada"))


# --- errors -------------------------------------------------------------------------------------


class _Broken(pb_grpc.SchedulerServicer):
    def GetCluster(self, request: pb.GetClusterRequest, context: grpc.ServicerContext) -> Any:
        raise ZeroDivisionError("a secret detail")

    def WatchJobs(self, request: pb.ListJobsRequest, context: grpc.ServicerContext) -> Any:
        yield pb.ListJobsReply(total=1)
        raise ZeroDivisionError("a secret detail")


def test_a_bug_of_ours_is_told_in_one_line_and_logged_whole() -> None:
    server = GrpcServer("127.0.0.1:0", _Broken(), pb_grpc.ProfilerServicer())
    server.start()
    try:
        with (
            grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
            capture_logs() as logs,
        ):
            stub = pb_grpc.SchedulerStub(channel)
            with refused(grpc.StatusCode.INTERNAL, "ZeroDivisionError; the daemon's log has"):
                stub.GetCluster(pb.GetClusterRequest(), timeout=10)
            replies = stub.WatchJobs(pb.ListJobsRequest(), timeout=10)
            assert next(replies).total == 1
            with refused(grpc.StatusCode.INTERNAL, "ZeroDivisionError"):
                next(replies)
    finally:
        server.stop(0)
    assert [line["event"] for line in logs] == ["call_failed", "call_failed"]
    assert "a secret detail" in str(logs[0]["exc_info"])


# --- limits -------------------------------------------------------------------------------------


def test_watchers_cannot_starve_the_others(served: Serving) -> None:
    request = pb.ListJobsRequest()
    users = [f"u{number}" for number in range(STREAMS_MAX // STREAMS_OF_USER_MAX)]
    watchers = [
        served.people.WatchJobs(request, metadata=by(user))
        for user in users
        for _ in range(STREAMS_OF_USER_MAX)
    ]
    for watcher in watchers:
        next(watcher)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {STREAMS_MAX} at a time"):
        next(served.people.WatchJobs(request, metadata=by("ada"), timeout=10))
    _answers(served)
    watchers.pop().cancel()
    eventually(lambda: _watches(served, "ada"))
    for watcher in watchers:
        watcher.cancel()


def test_one_user_cannot_take_the_places_of_all_watchers(served: Serving) -> None:
    request = pb.ListJobsRequest()
    watchers = [
        served.people.WatchJobs(request, metadata=by("bob")) for _ in range(STREAMS_OF_USER_MAX)
    ]
    for watcher in watchers:
        next(watcher)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"bob has {STREAMS_OF_USER_MAX} streams"):
        next(served.people.WatchJobs(request, metadata=by("bob"), timeout=10))
    assert _watches(served, "ada")
    watchers.pop().cancel()
    eventually(lambda: _watches(served, "bob"))
    for watcher in watchers:
        watcher.cancel()


def _watches(served: Serving, user: str) -> bool:
    """Whether there is room for one more."""
    stream = served.people.WatchJobs(pb.ListJobsRequest(), metadata=by(user), timeout=10)
    code = _code(lambda: next(stream))
    stream.cancel()
    return code is None


def test_a_port_in_use_is_refused(served: Serving) -> None:
    address = f"127.0.0.1:{served.server.port}"
    with pytest.raises(ConfigError, match=f"cannot listen on {address}: address already in use"):
        GrpcServer(address, pb_grpc.SchedulerServicer(), pb_grpc.ProfilerServicer())


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:7070: cannot assign"):
        GrpcServer("192.0.2.1:7070", pb_grpc.SchedulerServicer(), pb_grpc.ProfilerServicer())


# --- health and reflection ----------------------------------------------------------------------


def test_health_is_told_without_a_token(served: Serving) -> None:
    stub: Any = health_pb2_grpc.HealthStub(served.channel)  # whose stubs know no methods
    for service in ("", "scheduler.v1.Scheduler", "scheduler.v1.Profiler"):
        reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_names_the_services(served: Serving) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)  # likewise
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = stub.ServerReflectionInfo(iter([request]), timeout=10)
    names = {service.name for service in reply.list_services_response.service}
    assert {"scheduler.v1.Scheduler", "scheduler.v1.Profiler", "grpc.health.v1.Health"} <= names


@pytest.mark.slow
def test_thousands_of_bad_requests_leave_no_trace(served: Serving) -> None:
    chance = random.Random(4)
    job = served.running()
    calls = [_multi(served, method) for method in METHODS if not method.endswith(STREAMS)]
    me = psutil.Process(os.getpid())
    before = 0
    for round in range(30):
        futures = [
            chance.choice(calls).future(
                b"\xff" + chance.randbytes(30), metadata=of(job), timeout=60
            )
            for _ in range(1000)
        ]
        for future in futures:
            assert future.code() is not grpc.StatusCode.OK
        if round == 9:  # buffers and caches have their size now
            before = me.memory_info().rss
    _answers(served)
    assert me.memory_info().rss - before < 30 * 2**20


# --- how to be a bad caller ---------------------------------------------------------------------


def _multi(served: Serving, method: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    return served.channel.unary_unary(method, lambda data: data, lambda data: data)


def _raw(served: Serving, method: str, data: bytes, metadata: Any) -> bytes:
    """As bytes, whatever they are."""
    if method.endswith(STREAMS):
        stream = served.channel.unary_stream(method, lambda data: data, lambda data: data)
        reply: bytes = next(stream(data, metadata=metadata, timeout=10))
        return reply
    return _multi(served, method)(data, metadata=metadata, timeout=10)


def _code(call: Callable[[], object]) -> grpc.StatusCode | None:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return None


def _spoil(message: Any, chance: random.Random) -> None:
    """Put something hostile into one field, or into one of a message within."""
    field = chance.choice(message.DESCRIPTOR.fields)
    hostile: dict[int, list[Any]] = {
        field.TYPE_STRING: ["", "\n", "\0", "\x1b[2J", "x" * 100_000, "‮", "../..", "%s%n", "'"],
        field.TYPE_BYTES: [b"", b"\0", b"x\x9c", b"\xff" * 100_000],
        field.TYPE_INT32: [-(2**31), -1, 0, 2**31 - 1],
        field.TYPE_DOUBLE: [float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324],
        field.TYPE_BOOL: [True, False],
    }
    if field.type == field.TYPE_MESSAGE:
        inner = getattr(message, field.name)
        _spoil(inner.add() if field.is_repeated else inner, chance)
    elif field.is_repeated:
        getattr(message, field.name).extend([chance.choice(hostile[field.type])] * 2)
    else:
        setattr(message, field.name, chance.choice(hostile[field.type]))
