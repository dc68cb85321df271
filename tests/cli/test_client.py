"""The client against real servers: servers that answer late, and the daemon's token socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from cli import client as cli_client
from cli import run
from cli.client import CallError, Client, _listener_uid, address
from cli.command import CommandError, UsageError
from scheduler.access.identity import TokenSocket, user_token
from scheduler.api.seats import STREAMS_MAX
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.cli.conftest import Command
from tests.serving import SECRET, Serving, by

UNREACHABLE = "127.0.0.1:1"


class Flaky(pb_grpc.SchedulerServicer):
    """Fails with each of `failures` in turn before it answers."""

    def __init__(self) -> None:
        self.failures: list[grpc.StatusCode] = []
        self.asked: list[Any] = []

    def Submit(self, request: pb.SubmitRequest, context: grpc.ServicerContext) -> pb.SubmitReply:
        self.asked.append(request)
        self._fail(context)
        return pb.SubmitReply(job=pb.Job(id=request.job_id))

    def ListJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> pb.ListJobsReply:
        self.asked.append(dict(context.invocation_metadata()))
        self._fail(context)
        return pb.ListJobsReply()

    def WatchJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ListJobsReply]:
        self.asked.append(request)
        yield pb.ListJobsReply(total=len(self.asked))
        self._fail(context)

    def _fail(self, context: grpc.ServicerContext) -> None:
        if self.failures:
            context.abort(self.failures.pop(0), "not now")


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    servicer = Flaky()
    server = grpc.server(ThreadPoolExecutor(2))
    pb_grpc.add_SchedulerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("SCHEDULER_SERVER", f"127.0.0.1:{port}")
    yield servicer
    server.stop(None).wait()


def client() -> Client:
    return Client(run.parser().get_default("server"))


# --- the address --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "host", "port"),
    [("127.0.0.1:7070", "127.0.0.1", 7070), ("gpu.lab:1", "gpu.lab", 1), ("[::1]:7", "[::1]", 7)],
)
def test_an_address_is_a_host_and_a_port(server: str, host: str, port: int) -> None:
    assert address(server) == (host, port)


@pytest.mark.parametrize(
    "server",
    ["", "x", ":1", "x:", "x:y", "x:0", "x:65536", "::1:7", "unix:/tmp/x:1", "x:" + "9" * 5000],
)
def test_an_invalid_address_is_refused(server: str) -> None:
    with pytest.raises(UsageError, match="must be HOST:PORT"):
        address(server)


def test_a_scheduler_that_is_not_there(command: Command) -> None:
    done = command("scheduler-state", "--server", UNREACHABLE)
    assert (done.exit_code, done.out) == (3, "")
    assert done.err == (
        f"scheduler-state: cannot reach scheduler at {UNREACHABLE}: Connection refused\n"
    )


def test_a_port_where_something_else_listens(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            for _ in range(2):  # grpc tries twice before it gives up, at most
                try:
                    peer, _ = other.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        pool.submit(answer)
        server = f"127.0.0.1:{other.getsockname()[1]}"
        done = command("scheduler-state", "--server", server)
        other.shutdown(socket.SHUT_RDWR)
    assert done.exit_code == 3
    assert done.err.startswith(f"scheduler-state: cannot reach scheduler at {server}: ")
    assert done.err.count("\n") == 1


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.NOT_FOUND, 2),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3),
        (grpc.StatusCode.CANCELLED, 3),  # as a daemon that stops ends a call
        (grpc.StatusCode.PERMISSION_DENIED, 4),
        (grpc.StatusCode.UNAUTHENTICATED, 4),
        (grpc.StatusCode.FAILED_PRECONDITION, 4),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 4),
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.UNIMPLEMENTED, 1),
    ],
)
def test_each_status_has_its_exit_code(
    status: grpc.StatusCode, exit_code: int, flaky: Flaky
) -> None:
    flaky.failures = [status]
    with pytest.raises(CallError) as failed:
        client().list_jobs(pb.ListJobsRequest())
    assert failed.value.exit_code == exit_code


def test_the_message_of_an_unavailable_scheduler_is_passed_on(flaky: Flaky) -> None:
    flaky.failures = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(CallError, match=r"cannot reach scheduler at 127.0.0.1:\d+: not now$"):
        client().list_jobs(pb.ListJobsRequest())


def test_a_submission_is_repeated_under_the_same_id(flaky: Flaky) -> None:
    flaky.failures = [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    ]
    reply = client().submit(pb.SubmitRequest(job_id="one"), pauses=(0, 0, 0, 0))
    assert reply.job.id == "one"
    assert [request.job_id for request in flaky.asked] == ["one"] * 5


def test_a_submission_is_not_repeated_for_ever(flaky: Flaky) -> None:
    flaky.failures = [grpc.StatusCode.UNAVAILABLE] * 9
    with pytest.raises(CallError) as failed:
        client().submit(pb.SubmitRequest(), pauses=(0, 0))
    assert failed.value.exit_code == 3
    assert len(flaky.asked) == 3


def test_a_submission_that_is_refused_is_not_repeated(flaky: Flaky) -> None:
    flaky.failures = [grpc.StatusCode.FAILED_PRECONDITION]
    with pytest.raises(CallError, match="not now"):
        client().submit(pb.SubmitRequest(), pauses=(0, 0))
    assert len(flaky.asked) == 1


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_watch_outlives_a_daemon_that_restarts(status: grpc.StatusCode, flaky: Flaky) -> None:
    lost: list[None] = []
    flaky.failures = [status]
    replies = client().watch_jobs(pb.ListJobsRequest(), lambda: lost.append(None), pause=0)
    assert [next(replies).total, next(replies).total] == [1, 2]
    assert lost == [None]


def test_a_watch_ends_when_it_is_refused(flaky: Flaky) -> None:
    flaky.failures = [grpc.StatusCode.UNAUTHENTICATED]
    replies = client().watch_jobs(pb.ListJobsRequest(), pytest.fail, pause=0)
    assert next(replies).total == 1
    with pytest.raises(CallError, match="not now"):
        next(replies)


def test_who_gets_no_place_to_watch_asks_instead(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_client, "POLL_SECONDS", 0.01)
    monkeypatch.setenv("SCHEDULER_TOKEN", user_token(SECRET, "ada"))
    job_id = server.submit()
    request = pb.ListJobsRequest(jobs=[job_id], all_users=True)
    with ExitStack() as taken:
        for number in range(STREAMS_MAX):
            taken.enter_context(server.api.seats.taken_by(f"user-{number}"))
        news = client().watch_jobs(request, lost=lambda: pytest.fail("nothing was lost"))
        assert [next(news).total for _ in range(3)] == [1, 1, 1]
        server.people.CancelJob(pb.CancelJobRequest(job=job_id), metadata=by("ada"), timeout=10)
        assert any(job.HasField("ended_at") for reply in news for job in reply.jobs)


# --- tokens -------------------------------------------------------------------------------------


def test_a_local_daemon_issues_the_users_token(
    server: Serving, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenSocket(server.server.port, SECRET, "1.2.3")
    try:
        monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
        assert client().list_jobs(pb.ListJobsRequest()).total == 0
    finally:
        tokens.stop()


def test_without_a_token_the_error_says_how_to_get_one(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    with pytest.raises(CallError, match="token issue USER") as refused:
        client().list_jobs(pb.ListJobsRequest())
    assert refused.value.exit_code == 4


def test_a_given_token_is_sent_before_any_other(
    flaky: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_TOKEN", f" {user_token(SECRET, 'eve')}\n")
    client().list_jobs(pb.ListJobsRequest())
    assert flaky.asked[0]["authorization"] == f"Bearer {user_token(SECRET, 'eve')}"


def test_the_token_is_not_sent_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process may listen on the same port of another machine."""
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:  # reserves the port number for this test
        port = taken.getsockname()[1]
        tokens = TokenSocket(port, SECRET, "1.2.3")
    try:
        assert Client(f"192.0.2.1:{port}").metadata == ()
        assert Client(f"127.0.0.1:{port}").metadata != ()
        assert Client(f"localhost:{port}").metadata != ()
    finally:
        tokens.stop()


@pytest.mark.parametrize("answer", [b"", b"garbage\n", b'{"user": "x"}\n', b"[]\n", b"\xff\n"])
def test_a_socket_that_answers_nonsense_is_no_daemon(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        port = _bind(listener)
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(answer)

        pool.submit(serve)
        assert Client(f"127.0.0.1:{port}").metadata == ()


def test_a_daemon_that_others_ask_all_the_time_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        port = _bind(listener)
        listener.listen(0)
        listener.settimeout(60)
        pool = opened.enter_context(ThreadPoolExecutor(1))
        opened.enter_context(socket.socket(socket.AF_UNIX)).connect(listener.getsockname())
        client = pool.submit(Client, f"127.0.0.1:{port}")
        wait([client], timeout=0.3)  # it finds no place before the one of the other is taken
        listener.accept()[0].close()
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b'{"token": "ada.1"}\n')
        assert client.result(60).metadata == (("authorization", "Bearer ada.1"),)


def test_a_daemon_without_a_place_for_the_question_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    monkeypatch.setattr(cli_client, "TOKEN_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        port = _bind(listener)
        listener.listen(0)
        other.connect(listener.getsockname())
        with pytest.raises(CommandError, match="has too many callers: try again") as refused:
            Client(f"127.0.0.1:{port}")
    assert refused.value.exit_code == 3


SQUAT = """
import os, socket, sys
os.setuid(65534)
name, port = sys.argv[1], int(sys.argv[2])
taken = socket.socket(socket.AF_UNIX if name == "socket" else socket.AF_INET)
taken.bind(f"\\0epoch-scheduler:{port}" if name == "socket" else ("127.0.0.1", port))
taken.listen()
print("taken", flush=True)
while True:
    wire = taken.accept()[0]
    wire.sendall(b'{"token": "evil"}\\n')
    print("a caller", wire.recv(1000), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", ["socket", "port"])
def test_nothing_is_sent_to_another_user_who_took_the_daemons_place(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-I", "-c", SQUAT, name, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as squatter:
        assert squatter.stdout
        try:
            assert squatter.stdout.readline() == "taken\n"
            with pytest.raises(CommandError, match="a process of nobody, and neither") as refused:
                Client(f"localhost:{port}")
        finally:
            squatter.kill()
        heard = squatter.stdout.read()
    assert refused.value.exit_code == 4
    assert heard in ("", "a caller b''\n")


def test_ones_own_listener_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a tunnel to another machine."""
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as tunnel:
            port = tunnel.getsockname()[1]
            assert Client(f"localhost:{port}").metadata == ()
            assert _listener_uid(family, host, port) == os.geteuid()
            assert _listener_uid(family, host, 1) is None


def _bind(listener: socket.socket) -> int:
    """Binds to the first free name."""
    for port in range(46_000, 47_000):
        try:
            listener.bind(f"\0epoch-scheduler:{port}")
        except OSError:
            continue
        return port
    raise AssertionError("a thousand names are taken")


@pytest.mark.parametrize("token", ["töken", "two\nlines"])
def test_a_token_that_cannot_be_sent_is_refused(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_TOKEN", token)
    with pytest.raises(UsageError, match="SCHEDULER_TOKEN"):
        Client(UNREACHABLE)
