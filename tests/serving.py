"""The API on a real loop, store and inbox, in this process; only the cluster is made up."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest

from scheduler.access.agent_tokens import AgentAuthenticator
from scheduler.access.authentication import Authenticator
from scheduler.access.identity import user_of, user_token
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.access.job_tokens import JobTokens
from scheduler.access.sessions import LoginCodes, Sessions
from scheduler.api.agents import AgentReports, AgentService
from scheduler.api.event_feed import EventFeed
from scheduler.api.gateway_service import (
    STREAMS_MAX,
    STREAMS_OF_USER_MAX,
    GatewayService,
    Logins,
)
from scheduler.api.grpc_server import GrpcServer
from scheduler.api.jobs import JobService
from scheduler.api.lookup import Lookup
from scheduler.api.packages import PackageService
from scheduler.api.seats import Seats
from scheduler.api.target import Preview, first_launch
from scheduler.api.trainings import TrainingService
from scheduler.clusters import environment
from scheduler.core.loop import Scheduler
from scheduler.core.model import (
    Action,
    Gpu,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Rules,
    RunKey,
    RunPhase,
)
from scheduler.inbox import QueueInbox
from scheduler.job_secrets import JobSecrets
from scheduler.outlook.service import Outlook
from scheduler.packages.store import PackageStore
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from scheduler.store.annotations import Annotations
from scheduler.store.reader import Reader
from scheduler.store.writer import SqliteStore
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.support import eventually

DENIED = grpc.StatusCode.PERMISSION_DENIED
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
REFUSED = grpc.StatusCode.FAILED_PRECONDITION
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED
SECRET = b"s" * 32
NODE = Node("westworld", tuple(Gpu(f"gpu{i}", i, "pretended", 16384, 512) for i in range(2)))
Metadata = tuple[tuple[str, str | bytes], ...]


class Cluster:
    """Launched is running; it ends when the test says so."""

    reserved = environment.RESERVED_ENVIRONMENT

    def __init__(self, inbox: QueueInbox, nodes: tuple[Node, ...]) -> None:
        self._inbox, self._nodes = inbox, nodes
        self._lock = threading.Lock()
        self._pods: dict[RunKey, Pod] = {}
        self.previews = 0  # how often one was asked for
        # Submissions meet here after they were checked and before the loop hears of them.
        self.admitted: threading.Barrier | None = None

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        with self._lock:
            if isinstance(action, Launch):
                pod = Pod(action.job_id, action.attempt, PodState.RUNNING, action.shares)
                self._pods.setdefault(key, pod)
            else:
                self._pods.pop(key, None)
        self.show()

    def end(self, job_id: str, attempt: int, exit_code: int = 0) -> None:
        state = PodState.FAILED if exit_code else PodState.SUCCEEDED
        with self._lock:
            pod = self._pods[JobId(job_id), attempt]
            self._pods[JobId(job_id), attempt] = replace(pod, state=state, exit_code=exit_code)
        self.show()

    def show(self) -> None:
        with self._lock:
            pods = tuple(self._pods.values())
        self._inbox.put(Observed(self._inbox.now(), self._nodes, pods))

    maps_ports = True

    def refuses(self, user: str, users: Callable[[], Sequence[str]]) -> str | None:
        return "mallory may run nothing here" if user == "mallory" else None

    def prepare(self, specs: Iterable[JobSpec], dry_run: bool) -> None:
        """Its jobs share nothing."""

    def preview(self, job_id: JobId, spec: JobSpec, nodes: Sequence[Node]) -> Preview:
        self.previews += 1
        if self.admitted:
            self.admitted.wait(10)
        paths = environment.Paths()
        launch = first_launch(job_id, spec, nodes)
        told = environment.environment(launch, self._nodes[0].gpus, "127.0.0.1:7070", paths)
        notes = environment.notes(spec, paths)
        return Preview.without_token(environment.command(spec, paths), told, notes)


class Wall:
    """The wall clock, which a test sets forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


class Serving:
    def __init__(
        self,
        folder: Path,
        *,
        look: bool = True,
        heartbeat_seconds: float = 30.0,
        version: str = "1.2.3",
    ) -> None:
        path = self.database = folder / "scheduler.db"
        self.logs = folder / "logs"
        self.url = ""  # of a gateway
        self.inbox = QueueInbox()
        self._store = SqliteStore(path)
        self.reader = Reader(path)
        self.cluster = Cluster(self.inbox, (NODE,))
        rules = Rules(plan_every_seconds=0.01)
        self.scheduler = Scheduler(
            self.inbox, self._store, self.cluster, fifo_sharing(rules), rules
        )
        view = lambda: self.scheduler.view  # noqa: E731
        self.annotations = Annotations(path)
        lookup = Lookup(
            view,
            self.reader,
            self.inbox.now,
            heartbeat_seconds,
            Outlook(fifo_sharing(rules), rules, self.reader.job, by_memory=True),
            annotations=self.annotations.of,
        )
        self.wall = Wall()
        self.packages = PackageStore(folder, self.wall.now, mib_per_user=8)
        self._tokens = IssuedTokens(path, self.wall.now)
        self.sessions = Sessions(path, SECRET, self.wall.now)
        people = Authenticator([partial(user_of, SECRET), self._tokens.user, self.sessions.user])
        self.feed = EventFeed(view, lookup, look_seconds=0.02)
        api = JobService(
            inbox=self.inbox,
            view=view,
            lookup=lookup,
            target=self.cluster,
            logs=self.logs,
            rules=rules,
            people=people,
            admins=frozenset({"root"}),
            policy="fifo_sharing",
            version=version,
            secrets=JobSecrets(folder),
            disk=folder,
            heard_at=lambda view: self.reports.heard_at({node.name for node in view.nodes}),
            events=self.feed.cursor,
            annotate=self.annotations.change,
            packages=self.packages,
        )
        self.reports = AgentReports(self.inbox.now)
        speaking = AgentAuthenticator([self._tokens.node])
        agents = AgentService(speaking, self.reports)
        self.api, self.profiler = api, TrainingService(self.inbox, view)
        self.seats = Seats(STREAMS_MAX, STREAMS_OF_USER_MAX)
        gateway = GatewayService(
            people=people,
            logins=Logins(LoginCodes(self.wall.now), self.sessions, self._tokens),
            jobs=JobTokens(view),
            agents=speaking,
            lookup=lookup,
            feed=self.feed,
            logs=self.logs,
            admins=frozenset({"root"}),
            now=self.inbox.now,
            version=version,
            policies={"fifo": "first", "fifo_sharing": "first, sharing"},
            policy="fifo_sharing",
            seats=self.seats,
            url=lambda: self.url,
        )
        packages = PackageService(
            self.packages,
            people,
            frozenset({"root"}),
            JobTokens(view).job,
            lambda job_id: self.job(job_id).spec.code,
        )
        self.server = GrpcServer(
            "127.0.0.1:0",
            api,
            self.profiler,
            agents=agents,
            gateway=gateway,
            packages=packages,
        )
        self._stopped = threading.Event()
        self._loop = threading.Thread(target=self._run, name="loop")
        self._loop.start()
        self.server.start()
        if look:
            self.cluster.show()
            eventually(lambda: self.scheduler.view.observed_at)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.people = pb_grpc.SchedulerStub(self.channel)
        self.jobs = pb_grpc.ProfilerStub(self.channel)
        self.gateway = pb_grpc.GatewayStub(self.channel)
        self.code = pb_grpc.PackagesStub(self.channel)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.scheduler.step()

    def stop(self) -> None:
        self.channel.close()
        self._stopped.set()
        self.inbox.close("the test is over")
        self.server.stop(0)
        self.feed.stop()
        self._loop.join()
        self.sessions.close()
        self.reader.close()
        self._store.close()

    def submit(self, name: str = "demo", user: str = "ada", **spec: object) -> str:
        request = submission(name, **spec)
        reply: pb.SubmitReply = self.people.Submit(request, metadata=by(user), timeout=10)
        return reply.job.id

    def job(self, job_id: str) -> Job:
        return self.scheduler.view.jobs[JobId(job_id)]

    def running(self, name: str = "demo", user: str = "ada", **spec: object) -> Job:
        """A job that has been submitted and is seen to run."""
        job_id = self.submit(name, user, **spec)
        eventually(lambda: (run := self.job(job_id).run) and run.phase is RunPhase.RUNNING)
        return self.job(job_id)


@contextmanager
def serving(folder: Path, **given: object) -> Iterator[Serving]:
    made = Serving(folder, **given)  # type: ignore[arg-type]  # passed on as they are
    try:
        yield made
    finally:
        made.stop()


def by(user: str) -> Metadata:
    return bearer(user_token(SECRET, user))


def of(job: Job) -> Metadata:
    return bearer(job.token)


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def submission(name: str = "demo", **spec: object) -> pb.SubmitRequest:
    given = {"script_path": "/custom/train.py", "max_epochs": 5, **spec}
    return pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=pb.JobSpec(name=name, **given))  # type: ignore[arg-type]


@contextmanager
def refused(status: grpc.StatusCode, words: str) -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as error:
        yield
    assert (error.value.code(), words in (error.value.details() or "")) == (status, True), (
        error.value
    )
