"""What this machine has for jobs."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.errors import ConfigError
from scheduler.core.model import Gpu
from scheduler.daemon.config import Config
from scheduler.doctor.findings import Level
from scheduler.doctor.machine import Machine, examine, look
from scheduler.gpus.usage import GpuReading, Process
from tests.doctor.found import bad

GPU = Gpu("GPU-1", 0, "t4", 15_360)
WELL = Machine(
    (3, 12),
    "ada",
    Path("/state"),
    free_mib=50_000,
    ports={"127.0.0.1:7070": ""},
    driver="550.54.15",
    gpus=(GpuReading(GPU),),
)
FOREIGN = GpuReading(GPU, 900, processes=(Process(7, 900, name="python"),))
TABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"python": (3, 10)}, "wrong", "3.10. It must be 3.11 or newer"),
    (
        {"state": "ada has no permission to write to /"},
        "wrong",
        "/state: ada has no permission to write to /. Make",
    ),
    ({"free_mib": 900}, "warning", "only 900 MiB are free"),
    ({"free_mib": 90}, "wrong", "only 90 MiB are free"),
    ({"ports": {"127.0.0.1:7070": "it is in use"}}, "wrong", "127.0.0.1:7070: it is in use. Set"),
    ({"gpus": None}, "wrong", "the driver 550.54.15 does not answer"),
    ({"gpus": (), "driver": ""}, "warning", "no NVIDIA driver is loaded"),
    ({"gpus": ()}, "warning", "the driver 550.54.15 shows no GPUs"),
    ({"gpus": (GpuReading(replace(GPU, fault="XID 79")),)}, "wrong", "0 (t4, 15360 MiB): XID 79"),
    ({"gpus": (FOREIGN,)}, "warning", "foreign processes use 900 MiB of its memory (python 7)"),
    ({"files": 256}, "warning", "at most 256 files may be open at once"),
    ({"file_size": 2**20}, "warning", "no file, e.g. the database or a log, may exceed 1 MiB"),
]


def test_of_a_machine_of_which_all_is_well_nothing_else_is_said() -> None:
    assert bad(examine(WELL)) == []
    assert [each.what for each in examine(WELL)] == ["python", "state", "port", "gpus"]


@pytest.mark.parametrize(("changed", "level", "words"), TABLE)
def test_each_trouble_is_one_line(changed: dict[str, Any], level: str, words: str) -> None:
    findings = examine(replace(WELL, **changed))
    (trouble,) = (each for each in findings if each.level is not Level.OK)
    assert trouble.level == level
    assert words in trouble.line


def test_a_daemon_that_runs_is_no_trouble() -> None:
    there = replace(WELL, daemon="7", ports={"127.0.0.1:7070": "in use"}, gpus=(FOREIGN,))
    assert bad(examine(there)) == []


def test_simulated_gpus_need_no_driver() -> None:
    assert bad(examine(replace(WELL, driver="", gpus=(), pretended=2))) == []


# --- looking ------------------------------------------------------------------------------------


def config(state: Path, **changed: Any) -> Config:
    return Config(state_dir=state, gpus="2x16384", **{"listen": "127.0.0.1:0", **changed})


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    found = look(config(tmp_path / "a" / "b"))
    assert (found.state, found.pretended, found.daemon) == ("", 2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        found = look(config(tmp_path, listen=address))
    assert found.ports == {address: f"cannot listen on {address}: the port is in use"}


def test_a_file_in_the_place_of_the_state_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a folder" in look(config(tmp_path / "file" / "state")).state


def test_a_daemon_that_has_the_state_folder_is_seen(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look(config(tmp_path)).daemon == str(os.getpid())
    assert look(config(tmp_path)).daemon == ""


def test_impossible_gpus_are_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        look(replace(config(tmp_path), gpus="two"))
