"""What a real daemon shows to Prometheus, over its life."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

from tests.e2e.conftest import Gates, Train
from tests.support import Daemon, eventually

pytestmark = pytest.mark.slow

Shown = Mapping[tuple[str, ...], float]  # by name and labels


Daemons = Callable[..., Daemon]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    made: list[Daemon] = []

    def make(gpus: str, listen: str) -> Daemon:
        made.append(Daemon(tmp_path / "state", gpus))
        made[-1].environment = {"SCHEDULER_METRICS__LISTEN": listen}
        return made[-1].start()

    yield make
    for daemon in made:
        daemon.end()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


def scrape(port: int) -> Shown:
    accepted = {"Accept": "application/openmetrics-text"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accepted)
    with urllib.request.urlopen(asked, timeout=30) as reply:
        text = reply.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(shown: Shown, name: str) -> float:
    return sum(value for key, value in shown.items() if key[0] == name)


def test_the_reasons_sum_to_the_queue_and_counts_survive_a_restart(
    daemons: Daemons, gates: Gates, train: Train, port: int
) -> None:
    daemon = daemons("1x16384", listen=f"127.0.0.1:{port}")
    gate = gates("a")
    name = 'a"<b>\\'
    job_id = daemon.submit("--num_gpus", "1", "--max_epochs", "3", *train(gate), name)
    gate.open()
    daemon.wait(lambda jobs: name in jobs and jobs[name].epochs_done == 1)
    for number in range(3):
        daemon.submit("--image", "none", "--num_gpus", "1", f"w{number}", "--", "sleep", "1000")
    daemon.submit("--image", "none", "--hold", "held", "--", "true")
    eventually(lambda: total(scrape(port), "scheduler_jobs") == 5)
    shown = scrape(port)
    assert shown["scheduler_pending_jobs", "held"] == 1
    assert total(shown, "scheduler_pending_jobs") == 4
    (granted,) = [key for key in shown if key[0] == "scheduler_run_memory_granted_bytes"]
    assert {job_id, name} <= set(granted)
    eventually(lambda: scrape(port)["scheduler_epoch_seconds_count",] == 1)
    before = scrape(port)
    daemon.kill()
    daemon.start()
    after = scrape(port)
    assert after["scheduler_facts_total", "job_submitted"] == 5
    for key in (*(("scheduler_facts_total", kind) for kind in ("run_started", "run_running")),):
        assert after[key] == before[key] >= 1
    assert after["scheduler_epoch_seconds_count",] == after["scheduler_wait_seconds_count",] == 1


def test_a_taken_port_is_said_in_one_line_and_the_daemon_goes_on(daemons: Daemons) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = daemons("0", listen=listen)
        (line,) = [line for line in daemon.said().splitlines() if '"no_metrics"' in line]
        assert f"cannot listen on {listen}" in line
        assert daemon.run("scheduler-state").returncode == 0
