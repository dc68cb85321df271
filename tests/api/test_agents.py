"""Reports of agents: who may give them, what is refused, how long they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from scheduler.access.agent_tokens import AgentAuthenticator
from scheduler.access.identity import user_token
from scheduler.api.agents import (
    SILENT_SECONDS,
    AgentReports,
    AgentService,
    parse_report,
    report_message,
)
from scheduler.api.grpc_server import GrpcServer
from scheduler.core.errors import Rejected
from scheduler.core.model import Gpu
from scheduler.gpus.usage import WATCHDOG, GpuReading, GpuReport, Process
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.serving import SECRET, refused

CARD = GpuReading(
    Gpu("GPU-a", 3, "t4", 16384, 512, fault="XID 79", lost=True),
    4000,
    0.25,
    (Process(7, 3000, "0d1f2c3a-1111-4222-8333-444455556666", "python"), Process(8, 1000)),
)
NODES = {"token-of-n1": "n1", "token-of-n2": "n2"}
REPORT = GpuReport("n1", 1000.0, (CARD,), WATCHDOG)


class Office:
    """Where agents report, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told = 0
        agents = AgentAuthenticator([NODES.get])
        self.reports = AgentReports(lambda: self.now)
        self.reports.on_change = self._tell
        self.server = GrpcServer(
            "127.0.0.1:0",
            pb_grpc.SchedulerServicer(),
            pb_grpc.ProfilerServicer(),
            agents=AgentService(agents, self.reports),
        )
        self.server.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.ports[0]}")
        self._stub = pb_grpc.AgentsStub(self.channel)

    def report(self, report: GpuReport, token: str = "") -> None:
        """With the token of its node, or another one."""
        bearer = (("authorization", f"Bearer {token or f'token-of-{report.node}'}"),)
        self._stub.ReportNode(report_message(report), metadata=bearer, timeout=10)

    def _tell(self) -> None:
        self.told += 1


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.channel.close()
    made.server.stop(0)


def test_a_report_comes_through_as_it_was() -> None:
    assert parse_report(report_message(REPORT), 1000.0) == REPORT


def test_the_newest_report_of_each_node_counts(office: Office) -> None:
    office.report(REPORT)
    office.report(GpuReport("n2", 0.0, (), WATCHDOG))
    office.now = 1005.0
    office.report(GpuReport("n1", 0.0, (), WATCHDOG))
    assert set(office.reports.newest()) == {
        GpuReport("n1", 1005.0, (), WATCHDOG),
        GpuReport("n2", 1000.0, (), WATCHDOG),
    }


def test_what_is_as_it_was_is_no_news(office: Office) -> None:
    office.report(REPORT)
    office.now = 1005.0
    office.report(REPORT)
    assert office.told == 1
    office.report(GpuReport("n1", 0.0, (), WATCHDOG))
    assert office.told == 2


def test_a_silent_node_is_forgotten(office: Office) -> None:
    office.report(REPORT)
    office.now += SILENT_SECONDS + 1.0
    assert office.reports.newest() == ()


def test_only_the_agent_of_a_node_reports_it(office: Office) -> None:
    denied = "this token is of the agent on 'n2', which may not report 'n1'"
    with refused(grpc.StatusCode.PERMISSION_DENIED, denied):
        office.report(REPORT, "token-of-n2")
    for user in ("ada", "agent", "n1"):
        with refused(grpc.StatusCode.UNAUTHENTICATED, "this is not a token of a node"):
            office.report(REPORT, user_token(SECRET, user))
    assert office.reports.newest() == ()


CORRECT: dict[str, Any] = {"uuid": "GPU-a", "memory_mib": 16384}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"node": ""}, "is not a valid name"),
        ({"node": "n" * 300}, "is not a valid name"),
        ({"keeps": "hope"}, "keeps: 'hope' is not known"),
        ({"cards": [CORRECT, CORRECT]}, "one GPU twice"),
        ({"cards": [{**CORRECT, "uuid": ""}]}, "is not a valid name of a GPU"),
        ({"cards": [{**CORRECT, "memory_mib": 0}]}, "has no memory"),
        ({"cards": [{**CORRECT, "used_mib": -1}]}, "negative"),
        ({"cards": [{**CORRECT, "busy": float("nan")}]}, "busy is not a number"),
        ({"cards": [{"uuid": f"GPU-{n}", "memory_mib": 1} for n in range(65)]}, "at most 64"),
        (
            {"cards": [{**CORRECT, "processes": [{"pid": n} for n in range(5000)]}]},
            "5000 processes, at most 4096",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(fields: dict[str, Any], words: str) -> None:
    message = pb.AgentReport(**{"node": "n1", "keeps": "watchdog", **fields})
    with pytest.raises(Rejected) as refusal:
        parse_report(message, 0.0)
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 400
