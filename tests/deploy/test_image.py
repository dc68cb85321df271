"""The image of deploy/Dockerfile, built without Docker, and containers of it."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler.clusters.library_renewal import PACKAGE
from scheduler.daemon.program_flags import read_version
from tests.deploy.conftest import Image
from tests.deploy.container import Container
from tests.support import eventually

pytestmark = pytest.mark.slow

UNCHECKED = 0b01  # a flag of a .pyc: its hash is not compared (PEP 552)


def modules(unpacked: Image) -> Iterator[Path]:
    (packages,) = unpacked.root.glob("opt/epoch-scheduler/lib/python*/site-packages")
    yield from packages.rglob("*.py")


def test_it_runs_as_nobody_in_particular(daemon: Container, unpacked: Image) -> None:
    assert daemon.run("id", "-u", "-n").stdout == "epoch-scheduler\n"
    assert unpacked.config["User"] == "10001:10001"
    status = daemon.run("cat", "/proc/self/status").stdout
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


def test_nothing_but_the_state_can_be_written(daemon: Container) -> None:
    for path in ("/etc/epoch-scheduler.toml", "/opt/epoch-scheduler/x", "/x"):
        assert daemon.run("touch", path).returncode != 0
    assert " / ro," in daemon.run("cat", "/proc/self/mountinfo").stdout
    assert daemon.run("touch", "/var/lib/epoch-scheduler/x").returncode == 0


def test_probes_of_the_health_service_are_answered(daemon: Container) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs have no typed methods
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_it_ends_when_it_is_asked_to(daemon: Container) -> None:
    daemon.stop()
    assert '"stopped"' in daemon.said()


def test_the_next_container_finds_the_jobs_of_the_one_before(
    unpacked: Image, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with Container(unpacked.root, unpacked.config, state) as first:
        job = first.run("run-scheduler", "first", "--", "true").stdout.strip()
        eventually(lambda: "FINISHED" in first.run("scheduler-state", job).stdout)
        first.stop()
    with Container(unpacked.root, unpacked.config, state) as second:
        assert "FINISHED" in second.run("scheduler-state", job).stdout
        assert second.run("scheduler-get-logs", job).returncode == 0


def test_the_commands_are_in_it_and_of_this_version(daemon: Container) -> None:
    for command in ("run-scheduler", "scheduler-state", "scheduler-daemon", "scheduler-simulate"):
        assert daemon.run(command, "--help").returncode == 0
    assert daemon.run("scheduler-daemon", "--version").stdout.split()[-1] == read_version()


def test_every_module_is_compiled_and_no_clock_is_asked_whether_it_is_current(
    unpacked: Image,
) -> None:
    found = list(modules(unpacked))
    assert len(found) > 1000
    tag = next(iter(found[0].parent.glob("__pycache__/*.pyc"))).suffixes[0]
    for path in found:
        compiled = path.parent / "__pycache__" / f"{path.stem}{tag}.pyc"
        head = compiled.read_bytes()[:8]
        assert struct.unpack("<I", head[4:])[0] == UNCHECKED, compiled
        assert head[2:4] == importlib.util.MAGIC_NUMBER[2:4]


def test_there_is_nothing_in_it_that_installs_or_tests(unpacked: Image) -> None:
    names = {path.parent.name for path in modules(unpacked)}
    assert not names & {"pip", "hatchling", "tests"}
    assert not list(unpacked.root.glob("var/lib/apt/lists/*Packages*"))


def test_the_library_is_in_it_that_old_images_are_given(unpacked: Image) -> None:
    assert "kubeprofiler.py" in {
        path.name for path in modules(unpacked) if path.parent.name == PACKAGE
    }
