from __future__ import annotations

from scheduler.gateway import gpu_history
from scheduler.gateway.gpu_history import KEPT_SECONDS, STEP_SECONDS, GpuHistory
from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.serving_http import Served


def cluster(*used: int | None, node: str = "n1") -> pb.Cluster:
    """GPUs of 100 MiB; None: nobody sees what is used there."""
    made = pb.Cluster()
    for number, mib in enumerate(used):
        gpu = made.gpus.add(node=node, gpu=f"gpu{number}", memory_mib=100, reserved_mib=10)
        if mib is not None:
            gpu.used_mib, gpu.busy = mib, mib / 100
    return made


def test_each_step_is_kept_once() -> None:
    history = GpuHistory()
    for second in range(0, 300, 7):
        history.enter(cluster(50), 1000.0 + second)
    assert [each.at for each in history.sums()] == [1000.0, 1063.0, 1126.0, 1189.0, 1252.0]


def test_memory_is_added_up_and_what_nobody_sees_is_not_known() -> None:
    history = GpuHistory()
    history.enter(cluster(20, 40, None), 0.0)
    history.enter(cluster(None, None, None), STEP_SECONDS)
    seen, unseen = history.sums("n1")
    assert (seen.gpus, seen.memory_mib, seen.granted_mib, seen.used_mib) == (3, 300, 30, 60)
    assert seen.busy is not None
    assert abs(seen.busy - 0.3) < 1e-6
    assert (unseen.used_mib, unseen.busy) == (None, None)
    (one,) = [each for each in history.sums("n1", "gpu1") if each.used_mib is not None]
    assert (one.gpus, one.used_mib) == (1, 40)
    assert history.sums("n2") == []


def test_nodes_come_and_go() -> None:
    history = GpuHistory()
    history.enter(cluster(1), 0.0)
    history.enter(cluster(2, 3, node="n2"), STEP_SECONDS)
    history.enter(pb.Cluster(), 2 * STEP_SECONDS)
    assert [(each.at, each.gpus) for each in history.sums()] == [(0.0, 1), (STEP_SECONDS, 2)]
    assert [each.used_mib for each in history.sums("n2")] == [5]


def test_it_stays_small() -> None:
    history = GpuHistory()
    for step in range(1000):
        history.enter(cluster(*range(8)), step * STEP_SECONDS)
    assert len(history.sums()) == KEPT_SECONDS / STEP_SECONDS + 1
    many = cluster(*range(10_000))
    for step in range(1000, 1200):
        history.enter(many, step * STEP_SECONDS)
    kept = sum(len(moment.numbers) for moment in history._moments)
    assert kept <= gpu_history.NUMBERS_MAX
    assert history.sums()[-1].gpus == 10_000


def test_a_clock_that_is_set_back_begins_again() -> None:
    history = GpuHistory()
    history.enter(cluster(1), 1e9)
    history.enter(cluster(2), 5.0)
    assert [(each.at, each.used_mib) for each in history.sums()] == [(5.0, 2)]


def test_it_is_answered_to_people_and_not_to_jobs(served: Served) -> None:
    job = served.daemon.running("trains", memory_mib=4000, gpus_min=1, gpus_max=1)
    with served.by() as client:
        node = client.get("/api/v1/cluster").json()["gpus"][0]["node"]
        told = client.get("/api/v1/cluster/history", params={"node": node}).json()
        assert (told["gpus"], told["used_mib"], told["busy"]) == ([2], [None], [None])
        assert told["granted_mib"][0] >= 4000
        assert client.get("/api/v1/cluster/history?node=none").json()["at"] == []
    with served.gateway.client(job.token) as client:
        assert client.get("/api/v1/cluster/history").status_code in (401, 403)
