"""Graphs that are submitted over the wire while the gateway and the daemon are killed: each step
runs as often as it should, and none is lost.

KILLS=200 kills as often, as at night.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler.access.identity import user_name
from tests.gateway.argo.argo_server import Json, dag, shell
from tests.gateway.serving_http import Gateway, gateway
from tests.support import DEADLINE_SECONDS, Daemon

KILLS = int(os.environ.get("KILLS", "6"))
STEPS = 8


class Hardship:
    """Asks again until it is answered; kills something in between."""

    def __init__(self, daemon: Daemon, seed: int) -> None:
        self.daemon, self.chance = daemon, random.Random(seed)
        self.kills = 0
        self.listen = "127.0.0.1:0"
        self._serving: Any = None
        self.gateway: Gateway = self._serve()

    def _serve(self) -> Gateway:
        self._serving = gateway(self.daemon.address, listen=self.listen)
        made: Gateway = self._serving.__enter__()
        self.listen = made.url.removeprefix("http://")
        return made

    def strike(self) -> None:
        self.kills += 1
        if self.chance.random() < 0.5:
            self.gateway.process.kill()
            self._serving.__exit__(None, None, None)
            self.gateway = self._serve()
        else:
            self.daemon.kill()
            self.daemon.start()

    def close(self) -> None:
        self._serving.__exit__(None, None, None)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The first answer that is one. What was asked before may have been done."""
        token = self.daemon.token(user_name(os.geteuid()))
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                with self.gateway.client(token) as client:
                    answer = client.request(method, f"/api/v1/workflows/default{path}", json=body)
                if answer.status_code < 500:
                    return answer
            except httpx.TransportError:
                pass
            assert time.monotonic() < until, "nobody answers"
            time.sleep(0.05)


@pytest.fixture
def hardship(daemon: Daemon) -> Iterator[Hardship]:
    made = Hardship(daemon, seed=KILLS)
    yield made
    made.close()


def graph(chance: random.Random, log: Path, mended: Path) -> Json:
    """Each step writes its name; one fails as long as nobody has mended it."""
    broken = chance.randrange(STEPS // 2)
    tasks: dict[str, Json] = {}
    for number in range(STEPS):
        before = [f"s{each}" for each in range(number) if chance.random() < 0.4]
        tasks[f"s{number}"] = {"dependencies": before} if before else {}
    say = f"echo {{{{inputs.parameters.n}}}} >> {log}"
    for name, task in tasks.items():
        task["template"] = "broken" if name == f"s{broken}" else "good"
        task["arguments"] = {"parameters": [{"name": "n", "value": name}]}
    inputs = {"inputs": {"parameters": [{"name": "n"}]}}
    good = shell(f"{say}; sleep 0.1", **inputs)
    return dag(tasks, good=good, broken=shell(f"{say}; test -e {mended}", **inputs))


def expected(workflow: Json) -> tuple[list[str], list[str]]:
    """What is written until it has failed, and what the retry adds."""
    tasks = {task["name"]: task for task in workflow["spec"]["templates"][0]["dag"]["tasks"]}
    behind = set[str]()
    (broken,) = (name for name, task in tasks.items() if task["template"] == "broken")
    for name, task in tasks.items():
        if {broken, *behind} & set(task.get("dependencies", ())):
            behind.add(name)
    return sorted(tasks.keys() - behind), sorted([broken, *behind])


def test_no_step_is_lost_or_runs_twice(hardship: Hardship, tmp_path: Path) -> None:
    number, random_times = 0, random.Random(f"times {KILLS}")
    while hardship.kills < KILLS:
        number += 1
        log, mended = tmp_path / f"log-{number}", tmp_path / f"mended-{number}"
        log.touch()
        log.chmod(0o666)
        workflow = graph(hardship.chance, log, mended)
        workflow["metadata"] = {"name": f"w{number}"}
        first, second = expected(workflow)
        with striking(hardship, random_times):
            answer = hardship.ask("POST", "", {"workflow": workflow})
            assert answer.status_code in (200, 409), answer.text
            await_phase(hardship, f"w{number}", "Failed")
        assert sorted(log.read_text().split()) == first
        mended.touch()
        with striking(hardship, random_times):
            answer = hardship.ask("PUT", f"/w{number}/retry", {})
            assert answer.status_code in (200, 400), answer.text
            await_phase(hardship, f"w{number}", "Succeeded")
        assert sorted(log.read_text().split()) == sorted([*first, *second])
    jobs = hardship.daemon.state_of("--nlast", "1000")["jobs"]
    ran = [job for job in jobs if job["state"] != "SKIPPED"]
    assert all(job["attempt"] == 1 for job in ran)
    print(f"{hardship.kills} kills, {number} workflows, {len(ran)} jobs that ran")


def await_phase(hardship: Hardship, name: str, phase: str) -> None:
    until = time.monotonic() + DEADLINE_SECONDS
    while (found := hardship.ask("GET", f"/{name}").json()["status"]["phase"]) != phase:
        assert found == "Running", found
        assert time.monotonic() < until, f"{name} is {found}"
        time.sleep(0.02)


@contextmanager
def striking(hardship: Hardship, times: random.Random) -> Iterator[None]:
    """In the meantime, something is killed, one to three times."""

    def strike() -> None:
        for _ in range(times.randint(1, 3)):
            time.sleep(times.uniform(0.0, 0.4))
            hardship.strike()

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        yield
    finally:
        striker.join()
