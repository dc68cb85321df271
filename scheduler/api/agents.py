"""The service for agents, and what each of them last told of its node."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from scheduler.access.authentication import Authenticator
from scheduler.api.grpc_server import token_of
from scheduler.core.admission import shown
from scheduler.core.errors import Forbidden, Rejected
from scheduler.core.model import Gpu, Time
from scheduler.gpus.usage import DRIVER, LIBRARY, WATCHDOG, GpuReading, GpuReport, Process
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

AGENT = "agent"  # the user whose token they bring
SILENT_SECONDS = 60.0  # what was told longer ago than this is no longer so
CARDS_MAX, PROCESSES_MAX = 64, 4096  # of a node, of a card
NAME_MAX = 253  # characters, as Kubernetes has it


class AgentReports:
    """The newest of each node. For any thread."""

    def __init__(self, clock: Callable[[], Time]) -> None:
        self.clock = clock
        self.on_change: Callable[[], None] = lambda: None  # called when a node is not as it was
        self._lock = threading.Lock()
        self._newest: dict[str, GpuReport] = {}  # by node

    def enter(self, report: GpuReport) -> None:
        with self._lock:
            before = self._newest.get(report.node)
            self._newest[report.node] = report
        if before is None or before.cards != report.cards:
            self.on_change()

    def newest(self) -> Sequence[GpuReport]:
        """Of nodes that are not silent."""
        since = self.clock() - SILENT_SECONDS
        with self._lock:
            self._newest = {n: report for n, report in self._newest.items() if report.at >= since}
            return tuple(self._newest.values())


@dataclass(frozen=True, slots=True)
class AgentService(pb_grpc.AgentsServicer):
    authenticator: Authenticator
    reports: AgentReports

    def ReportNode(self, request: pb.AgentReport, context: grpc.ServicerContext) -> pb.Ack:
        user = self.authenticator.user(token_of(context))  # in the clear as well: so do jobs
        if user != AGENT:
            raise Forbidden(f"agents report here, and {shown(user)} is none")
        self.reports.enter(parse_report(request, self.reports.clock()))
        return pb.Ack()


def parse_report(message: pb.AgentReport, at: Time) -> GpuReport:
    """Raises Rejected at the first thing that cannot be."""
    node = message.node
    _require(0 < len(node) <= NAME_MAX, f"node: {shown(node)} is no name")
    _require(len(message.cards) <= CARDS_MAX, f"cards: {len(message.cards)}, at most {CARDS_MAX}")
    _require(
        message.keeps in (LIBRARY, WATCHDOG, DRIVER), f"keeps: {shown(message.keeps)} is not known"
    )
    readings = tuple(map(_parse_gpu, message.cards))
    uuids = {card.gpu.uuid for card in readings}
    _require(len(uuids) == len(readings), f"cards: {shown(node)} tells of one twice")
    return GpuReport(node, at, readings, message.keeps)


def report_message(report: GpuReport) -> pb.AgentReport:
    return pb.AgentReport(
        node=report.node,
        keeps=report.keeps,
        cards=[
            pb.AgentCard(
                uuid=card.gpu.uuid,
                index=card.gpu.index,
                type=card.gpu.type,
                memory_mib=card.gpu.memory_mib,
                reserved_mib=card.gpu.reserved_mib,
                used_mib=card.used_mib,
                busy=card.busy,
                fault=card.gpu.fault,
                lost=card.gpu.lost,
                processes=[
                    pb.AgentProcess(
                        pid=each.pid, memory_mib=each.memory_mib, pod=each.pod, name=each.name
                    )
                    for each in card.processes
                ],
            )
            for card in report.cards
        ],
    )


def _parse_gpu(message: pb.AgentCard) -> GpuReading:
    uuid, count = message.uuid, len(message.processes)
    _require(0 < len(uuid) <= NAME_MAX, f"uuid: {shown(uuid)} is no name of a card")
    sizes = (message.index, message.reserved_mib, message.used_mib, message.memory_mib - 1)
    _require(min(sizes) >= 0, f"{shown(uuid)}: a number of it is negative, or it has no memory")
    _require(math.isfinite(message.busy), f"{shown(uuid)}: busy is no number")
    _require(count <= PROCESSES_MAX, f"{shown(uuid)}: {count} processes, at most {PROCESSES_MAX}")
    gpu = Gpu(
        uuid,
        message.index,
        message.type,
        message.memory_mib,
        message.reserved_mib,
        fault=message.fault,
        lost=message.lost,
    )
    processes = tuple(
        Process(each.pid, max(0, each.memory_mib), each.pod, each.name)
        for each in message.processes
    )
    return GpuReading(gpu, message.used_mib, min(1.0, max(0.0, message.busy)), processes)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Rejected(message)
