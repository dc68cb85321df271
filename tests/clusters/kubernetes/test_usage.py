"""Pods and nodes with what agents report, also of pods that the server does not list any more."""

from __future__ import annotations

from dataclasses import replace

from scheduler.clusters.kubernetes.usage import ClusterWithUsage
from scheduler.core.model import (
    Action,
    Event,
    Gpu,
    JobId,
    Node,
    Observed,
    Pod,
    PodState,
    RunKey,
    Share,
)
from scheduler.core.ports import Put
from scheduler.gpus.usage import WATCHDOG, GpuReading, GpuReport, Process

GPU = Gpu("GPU-a", 0, "tesla-t4", 16000)  # as a node's labels describe it
DRIVERS = Gpu("GPU-a", 4, "t4", 16384, 512)
NODES = (Node("n1", (GPU,)), Node("n2", (replace(GPU, uuid="GPU-b"),)))
SEEN = Gpu("GPU-a", 0, "tesla-t4", 16384, 512)
A: RunKey = (JobId("a"), 1)
SHARE = Share("n1", "GPU-a", 4000)
POD = Pod(*A, PodState.RUNNING, (SHARE,))
UID = "0d1f2c3a-1111-4222-8333-444455556666"


class Told:
    """A cluster with given observations."""

    def __init__(self) -> None:
        self.reports: tuple[GpuReport, ...] = ()
        self.watched = ClusterWithUsage(self, lambda: self.reports)
        self._pods: tuple[Pod, ...] = ()
        self._owners: dict[str, RunKey] = {}

    def perform(self, action: Action) -> None:
        """Does nothing."""

    def observe(self) -> Observed:
        return Observed(1.0, NODES, self._pods)

    def start(self, put: Put) -> None:
        put(self.observe())

    def stop(self) -> None:
        """Does nothing."""

    def owners(self) -> dict[str, RunKey]:
        return self._owners

    def nodes(self) -> tuple[Node, ...]:
        return NODES

    def report(self, at: float, *processes: Process) -> None:
        used = sum(process.memory_mib for process in processes)
        self.reports = (
            GpuReport("n1", at, (GpuReading(DRIVERS, used, 0.5, processes),), WATCHDOG),
        )

    def look(self, *pods: Pod, owners: dict[str, RunKey] | None = None) -> Observed:
        self._pods, self._owners = pods, owners or {}
        return self.watched.observe()


def test_without_reports_all_is_as_the_server_tells() -> None:
    look = Told().look(POD, owners={UID: A})
    assert look == Observed(1.0, NODES, (POD,))
    assert look.nodes[0] is NODES[0]
    assert look.pods[0] is POD


def test_the_processes_of_a_pod_are_its_runs_and_a_gpu_is_as_its_driver_says() -> None:
    told = Told()
    told.report(1.0, Process(7, 3000, UID, "python"), Process(8, 200, UID, "python"))
    look = told.look(POD, owners={UID: A})
    assert look.pods == (replace(POD, used=(Share("n1", "GPU-a", 3200),)),)
    assert look.nodes == (Node("n1", (SEEN,)), NODES[1])
    assert told.watched.usage["n1", "GPU-a"].runs == (A, A)


def test_a_pod_that_is_gone_keeps_its_gpu_until_no_process_of_it_is_seen() -> None:
    told = Told()
    told.report(1.0, Process(7, 3000, UID, "python"))
    told.look(POD, owners={UID: A})
    (left,) = told.look().pods
    held = (Share("n1", "GPU-a", 3000),)
    assert left == Pod(*A, PodState.FAILED, held, reason="lost", used=held)
    told.report(2.0)
    assert told.look().pods == ()


def test_of_a_gang_each_pod_has_what_is_on_its_node() -> None:
    told, there = Told(), Share("n2", "GPU-b", 4000)
    other = Pod(*A, PodState.RUNNING, (there,), rank=1)
    told.report(1.0, Process(7, 3000, UID, "python"))
    look = told.look(POD, other, owners={UID: A, "another": A})
    assert look.pods == (replace(POD, used=(Share("n1", "GPU-a", 3000),)), other)


def test_who_is_in_no_pod_of_ours_is_a_stranger() -> None:
    told = Told()
    for at in (1.0, 2.0):
        told.report(at, Process(7, 3000, "another-pod", "python"))
        look = told.look(POD, owners={UID: A})
    assert look.nodes[0].gpus[0].fault == "foreign processes use 3008 MiB"
    assert look.pods == (POD,)


def test_what_the_server_posts_is_completed_as_well() -> None:
    told = Told()
    told.report(1.0, Process(7, 3000, UID, "python"))
    told.look(POD, owners={UID: A})
    posted: list[Event] = []
    told.watched.start(posted.append)
    assert posted == [told.watched.observe()]
    (look,) = posted
    assert isinstance(look, Observed)
    assert look.pods[0].used == (Share("n1", "GPU-a", 3000),)
