"""Bad input over the wire gets a clear answer, changes nothing, and does not disturb others."""

from __future__ import annotations

import json
import os
import resource
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from benchmarks.hostile import OUR_FAULT, Honest, bearer, errors, prepare, rows
from benchmarks.malformed import GOAWAY, GREETING, HUGE, Attacker, Target, frame
from scheduler.access.identity import socket_name, user_name
from scheduler.api.probes import WATCHERS_MAX
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.serving import DENIED, INVALID, UNKNOWN
from tests.support import Daemon, eventually

TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED

REFLECTION = "reflection.v1alpha.ServerReflection/ServerReflectionInfo"
ME = user_name(os.geteuid())
HOSTILE = int(os.environ.get("HOSTILE", "2000"))


@dataclass(frozen=True)
class Attacked:
    daemon: Daemon
    target: Target
    channel: grpc.Channel
    people: pb_grpc.SchedulerStub
    jobs: pb_grpc.ProfilerStub

    @property
    def port(self) -> int:
        return int(self.target.address.rpartition(":")[2])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Attacked, Honest]]:
    daemon = Daemon(tmp_path_factory.mktemp("attacked") / "state", "2x16384")
    daemon.under = ("prlimit", "--nofile=256:256")
    try:
        honest, target = prepare(daemon.start())
        with grpc.insecure_channel(daemon.address) as channel:
            people, jobs = pb_grpc.SchedulerStub(channel), pb_grpc.ProfilerStub(channel)
            yield Attacked(daemon, target, channel, people, jobs), honest
    finally:
        daemon.end()


@pytest.fixture
def attacked(prepared: tuple[Attacked, Honest]) -> Iterator[Attacked]:
    """Whatever a test sends, nothing changes, and the next good request is answered."""
    attacked, honest = prepared
    before = rows(attacked.daemon)
    yield attacked
    honest.ask()
    assert honest.answered == honest.asked
    assert rows(attacked.daemon) == before
    assert errors(attacked.daemon) == []


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ("nonsense", UNKNOWN),
        ("root." + "0" * 64, UNKNOWN),
        ("", UNKNOWN),
        ("of a job", UNKNOWN),
        ("of another user", DENIED),
    ],
)
def test_a_user_needs_their_own_token(
    attacked: Attacked, token: str, status: grpc.StatusCode
) -> None:
    victim, of_victim = attacked.target.jobs[0]
    token = {"of a job": of_victim, "of another user": attacked.target.nobody}.get(token, token)
    sent = bearer(token) if token else ()
    for call in (
        lambda: attacked.people.CancelJob(pb.CancelJobRequest(job=victim), metadata=sent),
        lambda: attacked.people.UpdateJob(
            pb.UpdateJobRequest(job=victim, priority=9), metadata=sent
        ),
    ):
        assert refusal(call)[0] == status


def test_a_job_needs_its_own_token(attacked: Attacked) -> None:
    victim, _ = attacked.target.jobs[0]
    profile = pb.Profile(job_id=victim, attempt=1, epoch=6)
    reports: list[Callable[[Any], object]] = [
        lambda sent: attacked.jobs.StartEpoch(
            pb.StartEpochRequest(job_id=victim, attempt=1, epoch=6), metadata=sent
        ),
        lambda sent: attacked.jobs.Report(pb.ReportRequest(profiles=[profile]), metadata=sent),
        lambda sent: attacked.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=sent),
        lambda sent: attacked.jobs.Finish(
            pb.FinishRequest(job_id=victim, attempt=1), metadata=sent
        ),
    ]
    for report in reports:
        for token in (attacked.target.stranger, attacked.target.jobs[1][1], attacked.target.owner):
            status, words = refusal(lambda: report(bearer(token)))  # noqa: B023 - called at once
            assert (status, words) == (DENIED, f"this token is not the token of job {victim}")
        assert refusal(lambda: report(()))[0] == UNKNOWN  # noqa: B023 - likewise


# --- values -------------------------------------------------------------------------------------


def test_epochs_that_go_backwards_do_no_harm(attacked: Attacked) -> None:
    victim, token = attacked.target.jobs[0]
    for epoch in (4, 1):
        profile = pb.Profile(job_id=victim, attempt=1, epoch=epoch)
        reply = attacked.jobs.EndEpoch(
            pb.EndEpochRequest(profiles=[profile]), metadata=bearer(token)
        )
        assert reply.epochs_done == 5
    for epoch in (0, -1, -(2**31)):
        profile = pb.Profile(job_id=victim, attempt=1, epoch=epoch)
        request = pb.EndEpochRequest(profiles=[profile])
        call = lambda: attacked.jobs.EndEpoch(request, metadata=bearer(token))  # noqa: E731, B023
        assert refusal(call) == (INVALID, f"epoch {epoch}: must be at least 1")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("field", ["step_seconds", "epoch_seconds", "samples_per_second"])
def test_an_invalid_measurement_is_refused(attacked: Attacked, field: str, value: float) -> None:
    victim, token = attacked.target.jobs[0]
    profile = pb.Profile(job_id=victim, attempt=1, epoch=6)
    setattr(profile, field, value)
    for call in (
        lambda: attacked.jobs.EndEpoch(
            pb.EndEpochRequest(profiles=[profile]), metadata=bearer(token)
        ),
        lambda: attacked.jobs.Report(pb.ReportRequest(profiles=[profile]), metadata=bearer(token)),
    ):
        assert refusal(call) == (INVALID, f"{field} {value}: must be a number, 0 or greater")


def test_a_name_of_ten_megabytes_is_refused(attacked: Attacked) -> None:
    def submit(name: str) -> object:
        spec = pb.JobSpec(name=name, image="img")
        request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
        return attacked.people.Submit(request, metadata=bearer(attacked.target.owner))

    assert refusal(lambda: submit(HUGE))[0] == TOO_MUCH  # grpc refuses it before it is read
    status, words = refusal(lambda: submit("x" * 1_000_000))
    assert status == INVALID
    assert words == f"job_name '{'x' * 60}...': has 1000000 characters, 253 at most"


def test_a_line_break_in_an_image_is_refused_in_one_line(attacked: Attacked) -> None:
    flags = ("--image_name", "img\nevil", "--script_path", "/custom/train.py")
    done = attacked.daemon.run("run-scheduler", *flags, "name")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "--image_name 'img\\nevil': must be one line" in line


def test_the_length_of_a_filter_is_limited(attacked: Attacked) -> None:
    """Otherwise one request of a megabyte would keep a thread busy for seconds."""
    label, victim = pb.KeyValue(key="a", value="b"), attacked.target.jobs[0][0]
    for request, words in (
        (pb.ListJobsRequest(labels=[label] * 1_000), "--label: 1000 values given, 100 at most"),
        (pb.ListJobsRequest(states=["QUEUE"] * 1_000), "--status: 1000 values given, 100 at most"),
        (pb.ListJobsRequest(jobs=[victim] * 20_000), "jobs: 20000 values given, 1000 at most"),
    ):
        sent = bearer(attacked.target.owner)
        for call in (
            lambda: attacked.people.ListJobs(request, metadata=sent),  # noqa: B023 - called at once
            lambda: next(attacked.people.WatchJobs(request, metadata=sent)),  # noqa: B023
        ):
            assert refusal(call) == (INVALID, words)


# --- garbage ------------------------------------------------------------------------------------


def test_hostile_requests_change_nothing(prepared: tuple[Attacked, Honest]) -> None:
    """A part of `python -m benchmarks.hostile`: requests of each kind, on both sockets, while the
    daemon has few descriptors. What an honest client was told stays so."""
    (attacked, honest), ended = prepared, Counter[str]()
    before = rows(attacked.daemon)
    with Attacker(attacked.target, seed=7) as attacker:
        for _ in range(HOSTILE // 200):
            ended += attacker.attack(200)
            honest.ask()
    assert honest.answered == honest.asked
    assert attacked.daemon.job_of("honest")["epochs_done"] == honest.epoch
    assert rows(attacked.daemon) == before
    assert errors(attacked.daemon) == []
    assert ended.total() == HOSTILE
    assert {status: ended[status] for status in OUR_FAULT} == dict.fromkeys(OUR_FAULT, 0)
    assert ended["connection"] > 0
    assert ended["OK"] > 0, "some requests are well formed, and only useless"


@pytest.mark.parametrize("method", ["health.v1.Health/Check", "health.v1.Health/Watch", REFLECTION])
def test_garbage_for_the_services_around_ours_is_the_callers_fault(
    attacked: Attacked, method: str
) -> None:
    stream: Any = attacked.channel.stream_stream(f"/grpc.{method}", None, None)
    for garbage in (b"\xff\xff", b"\x0a\x02\xff\xfe\x1a\x02\xff\xfe"):
        status, words = refusal(lambda: list(stream(iter([garbage]), timeout=10)))  # noqa: B023
        assert (status, "not the protobuf message" in words) == (INVALID, True)


def test_an_unknown_service_cannot_be_watched(attacked: Attacked) -> None:
    watch: Any = attacked.channel.unary_stream("/grpc.health.v1.Health/Watch", None, None)
    request = health_pb2.HealthCheckRequest(service="x" * 100_000).SerializeToString()
    assert refusal(lambda: next(watch(request, timeout=10)))[0] == grpc.StatusCode.NOT_FOUND


def test_anonymous_watchers_do_not_block_users(attacked: Attacked) -> None:
    watch: Any = attacked.channel.unary_stream("/grpc.health.v1.Health/Watch", None, None)
    ask: Any = attacked.channel.stream_stream(f"/grpc.{REFLECTION}", None, None)
    streams = [watch(b"") for _ in range(WATCHERS_MAX)]
    for stream in streams:
        next(stream)
    assert refusal(lambda: next(watch(b"", timeout=10)))[0] == TOO_MUCH
    assert refusal(lambda: next(ask(iter([b""]), timeout=10)))[0] == TOO_MUCH
    attacked.daemon.wait_state(honest="RUNNING")  # over a user's stream
    for stream in streams:
        stream.cancel()


def test_an_anonymous_caller_cannot_write_to_the_log(attacked: Attacked) -> None:
    before = attacked.daemon.said()
    words = b'bye\n{"event": "job_finished", "level": "info"}\n\xff\x1b[2J'
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=10) as raw:
        raw.sendall(GREETING + frame(GOAWAY, 0, 0, bytes(8) + words))
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(4096):
            pass  # until the daemon has read everything and closed the connection
    assert attacked.daemon.said() == before


def test_a_flood_of_connections_confuses_no_identity(attacked: Attacked) -> None:
    """The flood leaves the daemon no file descriptor, neither for the port nor for the socket."""
    process = psutil.Process(attacked.daemon.pid)
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    limit = process.num_fds() + 20
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    flood = [socket.create_connection(("127.0.0.1", attacked.port)) for _ in range(40)]
    eventually(lambda: process.num_fds() >= limit - 1)  # grpc leaves one
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(10)
        asking.connect(socket_name(attacked.port))
        while flood:
            flood.pop().close()
        assert user_in(asking.recv(4096)) in (None, ME), "there may be no answer"
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(10)
        asking.connect(socket_name(attacked.port))
        assert user_in(asking.recv(4096)) == ME


def user_in(answer: bytes) -> str | None:
    """The user of the issued token."""
    return json.loads(answer)["user"] if answer else None
