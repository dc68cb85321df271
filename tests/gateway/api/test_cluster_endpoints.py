from __future__ import annotations

from scheduler.gpus.usage import GpuReport
from tests.gateway.serving_http import Served


def test_the_cluster_is_what_the_command_shows(served: Served) -> None:
    job = served.daemon.running("big", memory_mib=4000, gpus_min=1, gpus_max=1)
    with served.by() as client:
        cluster = client.get("/api/v1/cluster").json()
        users = client.get("/api/v1/users").json()["users"]
    assert (cluster["policy"], cluster["version"]) == ("fifo_sharing", "1.2.3")
    assert [each["id"] for gpu in cluster["gpus"] for each in gpu["jobs"]] == [job.id]
    assert users == cluster["users"]
    assert users[0]["user"] == "ada"


def test_the_cluster_has_the_health_of_disk_and_agents(served: Served) -> None:
    with served.by() as client:
        cluster = client.get("/api/v1/cluster").json()
        assert 0 < cluster["disk"]["free_bytes"] <= cluster["disk"]["bytes"]
        assert cluster["agents"] == []
        served.daemon.reports.enter(GpuReport("westworld", 12.5))
        (agent,) = client.get("/api/v1/cluster").json()["agents"]
        assert agent["node"] == "westworld"
        assert agent["heard_at"] > 0
