"""Rules and dashboards, on Debian's Prometheus: each rule is right, each query has an answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import yaml

from tests.deploy.monitoring import (
    DAEMON,
    DEPLOY,
    RULES,
    Monitoring,
    Sink,
    monitoring,
    need_programs,
)
from tests.e2e.conftest import TRAIN
from tests.nvml.machine import Machine
from tests.support import Daemon, Gate, eventually

DASHBOARDS = ("queue", "gpus", "trainings")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.decode(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitoring]:
    with monitoring(tmp_path) as made:
        yield made


@pytest.fixture
def sink(monitor: Monitoring) -> Iterator[Sink]:
    made = Sink(monitor.host)
    yield made
    made.close()


@pytest.fixture
def daemon(tmp_path: Path, monitor: Monitoring) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "1x16384")
    made.environment = {"SCHEDULER_METRICS__LISTEN": f"{monitor.host}:{DAEMON}"}
    yield made
    made.end()


# --- rules --------------------------------------------------------------------------------------


def test_each_rule_fires_in_one_case_and_in_another_it_does_not() -> None:
    fires: dict[str, set[bool]] = defaultdict(set)
    for case in yaml.decode(RULES.with_name("tests.yml").read_text())["tests"]:
        for expected in case["alert_rule_test"]:
            fires[expected["alertname"]].add(bool(expected["exp_alerts"]))
    assert fires == {rule["alert"]: {True, False} for rule in rules()}
    assert len(fires) == 8


def test_each_rule_does_as_its_cases_say() -> None:
    need_programs()
    for words in (["test", "rules", "tests.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_explained_in_the_handbook() -> None:
    handbook = (DEPLOY.parent / "docs" / "operations.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in handbook] == []


@pytest.mark.slow
def test_an_alert_of_a_real_daemon_reaches_a_webhook(
    monitor: Monitoring, sink: Sink, daemon: Daemon
) -> None:
    """With no patience: `for` is a second in all rules."""
    too_much = {"SCHEDULER_HOUSEKEEPING__DISK_RESERVE": str(2**40)}
    daemon.environment = {**daemon.environment, **too_much}
    daemon.start()
    monitor.start_alertmanager(sink)
    monitor.start_prometheus([{**rule, "for": "1s"} for rule in rules()])
    eventually(lambda: "EpochSchedulerDiskFull" in sink.names())
    assert "EpochSchedulerDoesNotDecide" not in sink.names()
    daemon.kill()
    eventually(lambda: "EpochSchedulerDoesNotDecide" in sink.names())
    daemon.start()
    eventually(lambda: "EpochSchedulerDoesNotDecide" in sink.names("resolved"))
    others = sink.names() - {"EpochSchedulerDiskFull", "EpochSchedulerDoesNotDecide"}
    assert others <= {"EpochSchedulerReasonUnknown"}


# --- dashboards ---------------------------------------------------------------------------------


def dashboards() -> dict[str, Any]:
    folder = DEPLOY / "grafana"
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in DASHBOARDS}


def test_the_dashboards_are_as_their_script_makes_them(tmp_path: Path) -> None:
    folder = DEPLOY / "grafana"
    subprocess.run([sys.executable, folder / "dashboards.py", tmp_path], check=True)
    for name in DASHBOARDS:
        made = (tmp_path / f"{name}.json").read_text()
        assert made == (folder / f"{name}.json").read_text(), "run deploy/grafana/dashboards.py"


def test_the_dashboards_are_what_grafana_reads() -> None:
    schema = json.loads(Path(__file__).with_name("dashboard.schema.json").read_text())
    for made in dashboards().values():
        jsonschema.validate(made, schema)
        places = [tuple(panel["gridPos"].values()) for panel in made["panels"]]
        assert len(places) == len(set(places))


@pytest.mark.slow
def test_every_query_of_the_dashboards_is_answered_with_data(
    monitor: Monitoring, daemon: Daemon, nvml: Machine, tmp_path: Path
) -> None:
    for number in range(2):
        nvml.gpu(f"GPU-{number}", busy=60)
    daemon.gpus = ""
    daemon.flags = ("--policy", "fifo_sharing")
    often = {"SCHEDULER_LOCAL__OBSERVE_EVERY_SECONDS": "0.2"}
    daemon.environment = {**daemon.environment, **often}
    daemon.start()
    monitor.start_prometheus()
    eventually(lambda: monitor.ask("scheduler_build_info"))
    gates = {name: Gate(tmp_path / name) for name in ("a", "b")}
    train(daemon, "a", gates["a"])
    open_for(daemon, gates["a"], "a", 3)
    train(daemon, "b", gates["b"])
    daemon.wait_state(b="RUNNING")
    open_for(daemon, gates["b"], "b", 1)
    gates["a"].open(3)
    open_for(daemon, gates["a"], "a", 4)
    use(nvml, daemon)
    queries = {
        (name, panel["title"], target["expr"])
        for name, made in dashboards().items()
        for panel in made["panels"]
        for target in panel["targets"]
        if "expr" in target  # the others: test_grafana.py
    }
    assert len(queries) > 30

    def unanswered() -> set[tuple[str, str, str]]:
        return {query for query in queries if not monitor.ask(filled(query[-1]))}

    apart = "abs(sum by (gpu) (scheduler_run_sm_ratio) - on (gpu) scheduler_gpu_sm_ratio)"
    try:
        eventually(lambda: not unanswered())
        eventually(lambda: sorted(monitor.ask("scheduler_run_sm_ratio")) == [0.18, 0.4])
        (gap,) = monitor.ask(apart)
    except AssertionError:
        raise AssertionError(unanswered()) from None
    finally:
        for gate in gates.values():  # both end soon after this
            gate.close()
    assert gap < 0.05


def use(nvml: Machine, daemon: Daemon) -> None:
    """Has both runs, which share a GPU, compute on it."""
    for name, busy in (("a", 40), ("b", 18)):
        job = daemon.wait(lambda jobs: True)[name]
        started = daemon.state / "runs" / f"{job.id}-{job.attempt}" / "started.json"
        (share,) = job.shares
        pid = json.loads(started.read_text())["pid"]
        nvml.process(int(share.gpu.removeprefix("GPU-")), pid, 1500, busy)


def filled(expr: str) -> str:
    """As Grafana fills in its variables."""
    done = expr.replace("$instance", ".*").replace("$__rate_interval", "5m")
    assert not re.search(r"\$[a-z_]", done), done
    return done


def train(daemon: Daemon, name: str, gate: Gate) -> None:
    flags = ["--max_epochs", "100", "--estimated_memory", "2000", "--training_set_size", "1000"]
    flags += ["--env", f"GATE={gate.path}", "--env", "EPOCH_SECONDS=1:4"]
    folder = str(daemon.state.parent / "snapshots")
    daemon.submit(*flags, "--snapshots_dir", folder, "--script_path", str(TRAIN), name)


def open_for(daemon: Daemon, gate: Gate, name: str, epochs: int) -> None:
    """Until the job has done so many more epochs."""
    done = daemon.wait(lambda jobs: name in jobs)[name].epochs_done
    gate.open(epochs)
    daemon.wait(lambda jobs: jobs[name].epochs_done >= done + epochs)
