"""The scheduler as the library sees it, and scripts that call the library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubernetesdlprofile import log
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as rpc

PATIENCE_SECONDS = 30.0  # for conditions that come true at once on an idle machine
PATIENCE = f"""
from kubernetesdlprofile import courier, kubeprofiler
kubeprofiler.ANSWER_SECONDS = kubeprofiler.LEAVE_SECONDS = {PATIENCE_SECONDS}
courier.CALL_SECONDS = courier.EXIT_SECONDS = {PATIENCE_SECONDS}
"""
# What the fixtures give.
Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]
Environment = dict[str, str]

JOB_ID = "123e4567-e89b-12d3-a456-426614174000"


class Recorder(rpc.ProfilerServicer):
    """Records every call, and answers as configured."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []  # (method, message), if it was valid
        self.metadata: list[dict[str, Any]] = []
        self.stop_at: int | None = None
        self.asked_to_leave = False  # sent with the answer to each sign of life
        self.refuse: dict[str, grpc.StatusCode] = {}
        self.answering = threading.Event()  # cleared: no call gets an answer
        self.answering.set()
        self._changed = threading.Condition()

    def StartEpoch(self, request: Any, context: grpc.ServicerContext) -> pb.StartEpochReply:
        self._hear("StartEpoch", request, context)
        stop = self.stop_at is not None and request.epoch >= self.stop_at
        return pb.StartEpochReply(stop=stop, reason="urgent waits" if stop else "")

    def Report(self, request: Any, context: grpc.ServicerContext) -> pb.Ack:
        self._hear("Report", request, context)
        return pb.Ack(stop=self.asked_to_leave)

    def EndEpoch(self, request: Any, context: grpc.ServicerContext) -> pb.EndEpochReply:
        self._hear("EndEpoch", request, context)
        return pb.EndEpochReply(epochs_done=max(profile.epoch for profile in request.profiles))

    def Finish(self, request: Any, context: grpc.ServicerContext) -> pb.Ack:
        self._hear("Finish", request, context)
        return pb.Ack()

    def _hear(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        with self._changed:
            self.heard.append((method, request))
            self.metadata.append(dict(context.invocation_metadata()))
            self._changed.notify_all()
        self.answering.wait(PATIENCE_SECONDS)
        if method in self.refuse:
            context.abort(self.refuse[method], "as the test wants it")

    def wait_for(self, method: str, count: int = 1) -> list[Any]:
        """Waits for at least `count` calls of a method."""
        self._wait(lambda: len(self.of(method)) >= count)
        return self.of(method)

    def wait_for_epoch(self, epoch: int) -> None:
        self._wait(lambda: epoch in self.epochs())

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), f"heard {self.heard}"

    def of(self, method: str) -> list[Any]:
        return [message for name, message in self.heard if name == method]

    def methods(self) -> list[str]:
        """The methods called, without signs of life, because their number depends on the time."""
        return [name for name, _ in self.heard if name != "Report"]

    def epochs(self) -> list[int]:
        return [p.epoch for message in self.of("EndEpoch") for p in message.profiles]


class Place:
    """An address at which a server may or may not be listening."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self._server: grpc.Server | None = None
        self._port = 0
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8))
        rpc.add_ProfilerServicer_to_server(self.recorder, self._server)
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self._server.start()

    def close(self) -> None:
        if self._server is not None:
            self.recorder.answering.set()
            self._server.stop(grace=0).wait()
            self._server = None


class Web(ThreadingHTTPServer):
    """The scheduler as the first library saw it: W1 to W5 of the contract."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.heard: list[tuple[str, str, Any]] = []  # method, path, what the JSON says
        self.headers: list[dict[str, str]] = []
        self.stop_at: int | None = None  # after this many epochs
        self.status = 200
        self.address = f"127.0.0.1:{self.server_port}"

    def bodies(self, path: str) -> list[Any]:
        return [body for _, heard, body in self.heard if heard.startswith(path)]

    def done(self) -> int:
        return max((body["done"] for body in self.bodies("/end_epoch/")), default=0)


class _Request(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.heard.append((self.command, self.path, body))
        self.server.headers.append(dict(self.headers))
        stop_at = self.server.stop_at
        asked = self.path.startswith("/has_to_stop/")
        said = b"1" if asked and stop_at is not None and self.server.done() >= stop_at else b"0"
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing: it is in `heard`."""


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    yield web
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture(autouse=True)
def _nothing_was_said() -> None:
    """The library reports each kind of trouble once in a process; here, once in a test."""
    log._said.clear()


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


@pytest.fixture
def recorder(place: Place) -> Recorder:
    return place.recorder


@pytest.fixture
def bare_environment() -> dict[str, str]:
    """This process's environment without anything the library would read."""
    ours = re.compile(
        "KUBEPROFILER_|JOB_|EPOCHS_|BATCH_|TRAINING_|NUM_|NODE|(LOCAL_)?RANK|RESERVED_"
    )
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


@pytest.fixture
def job_environment(
    bare_environment: dict[str, str], place: Place, tmp_path: Path
) -> dict[str, str]:
    """The environment of the first attempt of a job with five epochs."""
    return {
        **bare_environment,
        "KUBEPROFILER_SERVER": place.address,
        "KUBEPROFILER_TOKEN": "a-token",
        "KUBEPROFILER_ATTEMPT": "1",
        "KUBEPROFILER_SNAPSHOTS": str(tmp_path / "snapshots"),
        "JOB_UUID": JOB_ID,
        "JOB_RESTARTED": "FALSE",
        "EPOCHS_DONE": "0",
        "EPOCHS_TO_BE_DONE": "5",
        "BATCH_SIZE": "32",
        "TRAINING_SET_SIZE": "1000",
        "NUM_GPUS": "2",
        "NUM_NODES": "1",
        "NODE_RANK": "0",
        "NODELIST": "westworld",
        "HEARTBEAT_FREQ": "3",
    }


@pytest.fixture
def start_script(tmp_path: Path) -> Iterator[Start]:
    """Starts Python code as a training process with pipes, and kills it after the test. What it
    writes into its folder is not left in the checkout.

    It has longer timeouts than usual, so that a busy machine changes nothing, unless the test is
    about these timeouts."""
    started: list[subprocess.Popen[str]] = []

    def start(
        source: str, environment: dict[str, str], patient: bool = True, **more: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PATIENCE + source if patient else source],
            cwd=tmp_path,
            env={**environment, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run_script(start_script: Start) -> Run:
    """The same, until it ends by itself."""

    def run(
        source: str, environment: dict[str, str], patient: bool = True, **more: str
    ) -> subprocess.CompletedProcess[str]:
        process = start_script(source, environment, patient, **more)
        stdout, stderr = process.communicate(timeout=4 * PATIENCE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    return run
