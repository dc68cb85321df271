"""The service for agents, and the newest report of each."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import grpc

from scheduler.access.agent_tokens import AgentAuthenticator
from scheduler.api.grpc_server import token_of
from scheduler.core.admission import quote
from scheduler.core.errors import Forbidden, Rejected
from scheduler.core.model import Gpu, Time
from scheduler.gpus.usage import DRIVER, LIBRARY, WATCHDOG, GpuReading, GpuReport, Process
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

SILENT_SECONDS = 60.0  # an older report is no longer used
CARDS_MAX, PROCESSES_MAX = 64, 4096  # of a node, of a GPU
NAME_MAX = 253  # characters, as in Kubernetes


class AgentReports:
    """The newest report of each node. For any thread."""

    def __init__(self, clock: Callable[[], Time]) -> None:
        self.clock = clock
        self.on_change: Callable[[], None] = lambda: None  # called when a node has changed
        self._lock = threading.Lock()
        self._newest: dict[str, GpuReport] = {}  # by node
        self._heard_at: dict[str, Time] = {}  # by node, also of those that are silent now

    def enter(self, report: GpuReport) -> None:
        with self._lock:
            before = self._newest.get(report.node)
            self._newest[report.node] = report
            self._heard_at[report.node] = report.at
        if before is None or before.cards != report.cards:
            self.on_change()

    def heard_at(self, nodes: Collection[str]) -> dict[str, Time]:
        """Returns when each of these nodes has reported last, if ever, and forgets the others."""
        with self._lock:
            self._heard_at = {node: at for node, at in self._heard_at.items() if node in nodes}
            return self._heard_at

    def newest(self) -> Sequence[GpuReport]:
        """Returns the reports of nodes that are not silent."""
        since = self.clock() - SILENT_SECONDS
        with self._lock:
            self._newest = {n: report for n, report in self._newest.items() if report.at >= since}
            return tuple(self._newest.values())


@dataclass(frozen=True, slots=True)
class AgentService(pb_grpc.AgentsServicer):
    agents: AgentAuthenticator
    reports: AgentReports
    # Whether an agent on this node calls itself so.
    speaks_for: Callable[[str, str], bool] = operator.eq

    def ReportNode(self, request: pb.AgentReport, context: grpc.ServicerContext) -> pb.Ack:
        node = self.agents.node(token_of(context))  # also unencrypted, like jobs
        if not self.speaks_for(node, request.node):
            raise Forbidden(
                f"this token is of the agent on {quote(node)}, which may not report "
                f"{quote(request.node)}"
            )
        self.reports.enter(parse_report(request, self.reports.clock()))
        return pb.Ack()


def parse_report(message: pb.AgentReport, at: Time) -> GpuReport:
    """Raises Rejected at the first invalid value."""
    node = message.node
    _require(0 < len(node) <= NAME_MAX, f"node: {quote(node)} is not a valid name")
    _require(len(message.cards) <= CARDS_MAX, f"cards: {len(message.cards)}, at most {CARDS_MAX}")
    _require(
        message.keeps in (LIBRARY, WATCHDOG, DRIVER), f"keeps: {quote(message.keeps)} is not known"
    )
    readings = tuple(map(_parse_gpu, message.cards))
    uuids = {reading.gpu.uuid for reading in readings}
    _require(len(uuids) == len(readings), f"cards: {quote(node)} reports one GPU twice")
    return GpuReport(node, at, readings, message.keeps)


def report_message(report: GpuReport) -> pb.AgentReport:
    return pb.AgentReport(
        node=report.node,
        keeps=report.keeps,
        cards=[
            pb.AgentCard(
                uuid=reading.gpu.uuid,
                index=reading.gpu.index,
                type=reading.gpu.type,
                memory_mib=reading.gpu.memory_mib,
                reserved_mib=reading.gpu.reserved_mib,
                used_mib=reading.used_mib,
                busy=reading.busy,
                fault=reading.gpu.fault,
                leave=reading.gpu.leave,
                lost=reading.gpu.lost,
                processes=[
                    pb.AgentProcess(
                        pid=each.pid,
                        memory_mib=each.memory_mib,
                        pod=each.pod,
                        name=each.name,
                        busy=each.busy,
                    )
                    for each in reading.processes
                ],
            )
            for reading in report.cards
        ],
    )


def _parse_gpu(message: pb.AgentCard) -> GpuReading:
    uuid, count = message.uuid, len(message.processes)
    _require(0 < len(uuid) <= NAME_MAX, f"uuid: {quote(uuid)} is not a valid name of a GPU")
    sizes = (message.index, message.reserved_mib, message.used_mib, message.memory_mib - 1)
    _require(min(sizes) >= 0, f"{quote(uuid)}: a number is negative, or the GPU has no memory")
    _require(math.isfinite(message.busy), f"{quote(uuid)}: busy is not a number")
    _require(count <= PROCESSES_MAX, f"{quote(uuid)}: {count} processes, at most {PROCESSES_MAX}")
    gpu = Gpu(
        uuid,
        message.index,
        message.type,
        message.memory_mib,
        message.reserved_mib,
        fault=message.fault,
        leave=message.leave,
        lost=message.lost,
    )
    processes = tuple(
        Process(each.pid, max(0, each.memory_mib), each.pod, each.name, _part(each.busy))
        for each in message.processes
    )
    return GpuReading(gpu, message.used_mib, _part(message.busy), processes)


def _part(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Rejected(message)
