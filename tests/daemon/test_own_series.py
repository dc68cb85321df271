"""What the daemon itself knows of runs, as series: told to a real gateway."""

from __future__ import annotations

import getpass
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import grpc
import pytest

from scheduler.core.model import Gpu, GpuKey, Job, JobId, Profile
from scheduler.daemon import own_series
from scheduler.daemon.config import load
from scheduler.daemon.own_series import OwnSeries
from scheduler.daemon.targets import links
from scheduler.gpus.usage import LIBRARY, GpuReading, Process, Usage
from scheduler.relay.delivery import Link
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.gateway.serving_http import Served, served_for
from tests.support import Daemon, eventually


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_for(tmp_path_factory) as made:
        yield made


class LossyLink(Link):
    """Its first answers are lost, or its first requests."""

    def __init__(self, url: str, token: str, left: list[str]) -> None:
        super().__init__(url, token)
        self._left = left

    def call(
        self, method: str, path: str, body: bytes | BinaryIO, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        lost = self._left.pop() if self._left else ""
        if lost == "request":
            raise OSError("no route to host")
        answer = super().call(method, path, body, headers)
        if lost == "answer":
            raise OSError("connection reset by peer")
        return answer


def telling(
    served: Served, lost: list[str], usage: Callable[[], Mapping[GpuKey, Usage]] = dict
) -> OwnSeries:
    return OwnSeries(
        lambda token: LossyLink(served.gateway.url, token, lost),
        lambda: served.daemon.scheduler.view,
        usage,
        every_seconds=0.05,
    )


def profile(job: Job, epoch: int, **known: Any) -> Profile:
    always = {"epoch_seconds": epoch / 2, "memory_mib": 4_000, "at": 1e9 + epoch}
    return Profile(job.id, 1, epoch, **{**always, **known})


def series(served: Served, job: Job) -> dict[str, dict[str, Any]]:
    with served.by() as person:
        found = person.get(f"/api/v1/jobs/{job.id}/series").json()["series"]
    return {each["name"]: each for each in found}


def test_the_profile_of_each_epoch_becomes_a_measurement(served: Served) -> None:
    job = served.daemon.job(served.daemon.submit())
    own = telling(served, [])
    own.start()
    own.keep(profile(job, 1, placement="1 GPU", beside=(JobId("x"),)), job)
    own.keep(profile(job, 2, gpu_util=0.5), job)
    own.keep(profile(job, 2, rank=1), job)
    own.stop()
    found = series(served, job)
    seconds = found["scheduler_profile.epoch_seconds"]
    assert (seconds["last"], seconds["last_step"], seconds["points"]) == (1.0, 2, 2)
    assert found["scheduler_profile.gpu_util"]["points"] == 1
    assert found["scheduler_profile.neighbours"]["max"] == 1
    assert found["scheduler_profile.placement"]["last"] == "1 GPU"
    assert found["scheduler_profile.epoch_seconds{rank=1}"]["points"] == 1
    assert "scheduler_profile.step_seconds" not in found


def test_what_is_seen_of_a_gpu_is_told_once(served: Served) -> None:
    job = served.daemon.job(served.daemon.submit())
    reading = GpuReading(
        Gpu("gpu0", 0, "A100", 40_000),
        processes=(Process(7, 3_000, busy=0.25), Process(8, 1_000, busy=0.5), Process(9, 500)),
    )
    usage = Usage(reading, ((job.id, 1), (job.id, 1), None), 1e9, LIBRARY)
    looks = threading.Semaphore(0)

    def look() -> Mapping[GpuKey, Usage]:
        looks.release()
        return {("node1", "gpu0"): usage}

    own = telling(served, [], look)
    own.start()
    for _ in range(3):
        looks.acquire()
    own.stop()
    found = series(served, job)
    assert (found["scheduler_gpu.memory_mib"]["last"], found["scheduler_gpu.sm_share"]["last"]) == (
        4_000,
        0.75,
    )
    assert found["scheduler_gpu.sm_share"]["points"] == 1
    assert found["scheduler_gpu.sm_share"]["tags"] == {"gpu": "gpu0", "node": "node1"}


@pytest.mark.parametrize("lost", [["request"] * 3, ["answer"] * 3])
def test_what_was_lost_on_the_way_is_told_again_and_counts_once(
    lost: list[str], served: Served
) -> None:
    job = served.daemon.job(served.daemon.submit())
    own = telling(served, lost)
    own.start()
    for epoch in range(1, 6):
        own.keep(profile(job, epoch), job)
    eventually(lambda: not lost and series(served, job))
    own.stop()
    assert series(served, job)["scheduler_profile.epoch_seconds"]["points"] == 5


def test_what_finds_no_place_is_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_series, "WAITING_MAX", 30)
    job = served.daemon.job(served.daemon.submit())
    own = telling(served, [])
    for epoch in range(1, 101):
        own.keep(profile(job, epoch), job)
    own.start()
    own.stop()
    found = series(served, job)["scheduler_profile.epoch_seconds"]
    assert (found["points"], found["last_step"]) == (10, 100)
    with served.by() as person:
        assert person.get(f"/api/v1/jobs/{job.id}/record").json()["lost"] == {
            own_series.DROPPED: 270
        }


def test_a_job_that_nobody_knows_any_more_holds_up_no_other(served: Served) -> None:
    job = served.daemon.job(served.daemon.submit())
    gone = Job(JobId("gone"), job.spec, 0.0, token="x" * 32)
    own = telling(served, [])
    own.keep(profile(gone, 1), gone)
    own.keep(profile(job, 1), job)
    own.start()
    own.stop()
    assert "scheduler_profile.epoch_seconds" in series(served, job)


def test_the_gateway_is_where_relays_deliver(served: Served, tmp_path: Path) -> None:
    def found(**flags: str) -> Callable[[str], Link] | None:
        given = {name.replace("__", "."): value for name, value in flags.items()}
        config = load(None, {}, {"state_dir": str(tmp_path), **given})
        return links(config, served.gateway.url.removeprefix("http://"))

    pods = {"cluster": "kubernetes", "kubernetes__relay_gateway": served.gateway.url}
    for link in (found(), found(**pods)):
        assert link is not None
        assert link("any").call("GET", "/healthz", b"", {})[0] == 200
    assert found(gateway__series="false") is None
    lost = found(**pods, kubernetes__relay_certificate=str(tmp_path / "lost.pem"))
    assert lost is not None
    with pytest.raises(OSError, match="lost"):
        lost("any")


def test_a_daemon_tells_its_gateway_of_each_epoch(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", "0")
    own = {"SCHEDULER_GATEWAY__USER": getpass.getuser()}
    daemon.environment = {"SCHEDULER_GATEWAY__LISTEN": "127.0.0.1:0", **own}
    daemon.start()
    try:
        job_id = daemon.submit("--image", "none", "--num_gpus", "0", "demo", "--", "sleep", "600")
        daemon.wait_state(demo="RUNNING")
        with sqlite3.connect(daemon.state / "scheduler.db") as db:
            (token,) = db.execute("select token from jobs").fetchone()
        measured = pb.Profile(job_id=job_id, attempt=1, epoch=1, epoch_seconds=2.5)
        with grpc.insecure_channel(daemon.address) as channel:
            pb_grpc.ProfilerStub(channel).EndEpoch(
                pb.EndEpochRequest(profiles=[measured]),
                metadata=[("authorization", f"Bearer {token}")],
                timeout=10,
            )
        daemon.run("scheduler-cancel-job", job_id)
        eventually(lambda: _shown(daemon, job_id).get("scheduler_profile.epoch_seconds") == 2.5)
    finally:
        daemon.end()


def _shown(daemon: Daemon, job_id: str) -> dict[str, Any]:
    done = daemon.run("scheduler-metrics", job_id, "--output", "json")
    if done.returncode:
        return {}
    (job,) = json.loads(done.stdout)["jobs"]
    return {each["name"]: each["last"] for each in job["series"]}
