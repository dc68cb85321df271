"""A gateway that is killed while it takes what trainings log: nothing it acknowledged is lost, and
nothing that is sent again counts twice."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import httpx

from tests.gateway.series.delivering import NOW_NS, entries, metric
from tests.gateway.serving_http import Gateway, Served, gateway
from tests.serving import serving

KILLS = int(os.environ.get("KILLS", "4"))
POINTS = 50  # of a request


def relay(made: Gateway, token: str, first: int, acknowledged: threading.Semaphore) -> int:
    """Sends until there is no gateway. Returns the number of the entry that is next."""
    with made.client(token) as client:
        while True:
            steps = range(POINTS * first, POINTS * first + POINTS)
            told = entries(
                {"points": [metric("loss", step / 7, step, NOW_NS + step) for step in steps]}
            )
            query: dict[str, str | int] = {"attempt": 1, "spool": "s", "first": first}
            try:
                answer = client.post("/api/v1/tracking", params=query, content=told)
            except httpx.TransportError:
                return first
            assert answer.status_code == 200, answer.text
            first = answer.json()["next"]
            acknowledged.release()


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with serving(tmp_path) as daemon:
        jobs = [daemon.job(daemon.submit(f"job-{number}")) for number in range(3)]
        following: dict[str, int] = {job.id: 0 for job in jobs}

        def sends(made: Gateway, job_id: str, token: str, taken: threading.Semaphore) -> None:
            following[job_id] = relay(made, token, following[job_id], taken)

        for kill in range(KILLS):
            with gateway(f"127.0.0.1:{daemon.server.port}", "--folder", str(kept)) as made:
                taken = threading.Semaphore(0)
                relays = [
                    threading.Thread(target=sends, args=(made, job.id, job.token, taken))
                    for job in jobs
                ]
                for each in relays:
                    each.start()
                for _ in range(10 + 7 * kill):
                    assert taken.acquire(timeout=30)
                made.process.kill()
                for each in relays:
                    each.join()
        with gateway(f"127.0.0.1:{daemon.server.port}", "--folder", str(kept)) as made:
            for job in jobs:
                with Served(daemon, made).by() as person:
                    found = person.get(
                        f"/api/v1/jobs/{job.id}/points", params={"points_max": 1_000_000}
                    ).json()
                (curve,) = found["curves"]
                # One request more may be on disk, of which nobody was told.
                assert len(curve["steps"]) // POINTS - following[job.id] in (0, 1)
                assert curve["steps"] == list(range(len(curve["steps"])))
                assert curve["values"] == [step / 7 for step in curve["steps"]]
