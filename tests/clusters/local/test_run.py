"""Runs on this machine that are lost: without their runner, with damaged files, with wrong pids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from scheduler.clusters.local.runner import boot_id, processes, stat_of
from scheduler.core.model import RunKey
from tests.clusters.machine import SAVES, Machine, is_alive
from tests.support import eventually


def test_a_training_without_its_runner_is_killed_and_lost(here: Machine) -> None:
    key = here.launch("sh", "-c", "timeout 1000 sleep 1000 & echo $!; sleep 1000")
    eventually(lambda: here.log_text(key))
    os.kill(here.read_started(key)["runner"], signal.SIGKILL)
    assert here.wait_until_over(key).reason == "lost"
    assert not is_alive(here.read_started(key)["pid"])
    assert not is_alive(int(here.log_text(key)))
    here.start_daemon()
    pod = here.pod(key)
    assert pod is not None
    assert (pod.state, pod.reason) == ("failed", "lost")


@pytest.mark.parametrize("cgroup", [True, False])
def test_what_hides_from_a_dead_runner_is_killed_too(
    here: Machine, tmp_path: Path, cgroup: bool
) -> None:
    """It has a session, an environment and a parent of its own."""
    hides = f"setsid env -i /bin/sh -c 'echo $$ > {tmp_path}/pid; sleep 1000; :' &"
    silent = "> /dev/null 2>&1" if cgroup else ""  # only a cgroup finds what also closes its files
    key = here.launch("sh", "-c", f"{hides.replace(' &', f' {silent} &')} sleep 1000")
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    hidden = int((tmp_path / "pid").read_text())
    started = here.read_started(key)
    if cgroup and not started["cgroup"]:
        pytest.skip("no cgroup v2 here, or not for this user")
    children_of_it = [pid for pid, stat in processes() if stat.parent == hidden]
    os.kill(started["runner"], signal.SIGKILL)
    if not cgroup:
        started_file = here.folder(key) / "started.json"
        started_file.write_text(json.dumps({**started, "cgroup": ""}))
        here.start_daemon()
    assert here.wait_until_over(key).reason == "lost"
    assert not any(is_alive(pid) for pid in (hidden, started["pid"], *children_of_it))
    if cgroup:
        assert not Path(started["cgroup"]).exists()


def test_a_foreign_process_that_only_reads_the_output_is_spared(here: Machine) -> None:
    key = here.launch("sh", "-c", "echo up; sleep 1000")
    here.wait_for_output(key, "up")
    started = here.read_started(key)
    with (
        Path(f"/proc/{started['pid']}/fd/1").open("rb", buffering=0) as output,
        subprocess.Popen(["sleep", "1000"], stdin=output) as reader,
    ):
        os.kill(started["runner"], signal.SIGKILL)
        assert here.wait_until_over(key).reason == "lost"
        assert reader.poll() is None
        reader.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_that_pretends_to_be_of_a_run_does_not_count(
    here: Machine,
) -> None:
    key = here.launch("sh", "-c", "sleep 1000")
    started = here.read_started(key)
    pretended = {"JOB_UUID": key[0], "KUBEPROFILER_ATTEMPT": str(key[1])}
    with subprocess.Popen(["sleep", "1000"], env=pretended, user=65534) as other:
        os.kill(started["runner"], signal.SIGKILL)
        assert here.wait_until_over(key).reason == "lost"
        assert other.poll() is None
        other.kill()


def test_a_run_leaves_no_cgroup(here: Machine) -> None:
    key = here.launch("true")
    assert here.wait_until_over(key).state == "succeeded"
    cgroup = here.read_started(key)["cgroup"]
    assert not cgroup or not Path(cgroup).exists()


def test_a_training_dies_with_its_runner_also_while_no_daemon_looks(here: Machine) -> None:
    key = here.up()
    started = here.read_started(key)
    os.kill(started["runner"], signal.SIGKILL)
    eventually(lambda: not is_alive(started["pid"]))


def test_a_stop_that_was_not_ours_is_a_loss(here: Machine) -> None:
    """At shutdown a machine sends SIGTERM to all; a training that then exits with 0 is not done."""
    key = here.up(SAVES)
    os.kill(here.read_started(key)["runner"], signal.SIGTERM)
    pod = here.wait_until_over(key)
    assert (pod.state, pod.reason, pod.exit_code) == ("failed", "lost", 0)


def pretend_lost(here: Machine, **started: object) -> RunKey:
    """A run without a runner, with this content of started.json."""
    key = here.script("")
    here.wait_until_over(key)
    path = here.folder(key) / "started.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | started))
    (here.folder(key) / "ended.json").unlink()
    here.start_daemon()
    return key


def test_nobody_else_is_killed_in_its_place(here: Machine) -> None:
    """Neither after a restart of the machine, nor when another process has the pid by now."""
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    stat = stat_of(other.pid)
    assert stat is not None
    ids = {"pid": other.pid, "start_time": stat.start_time, "boot_id": boot_id()}
    for wrong in ({"boot_id": "another"}, {"start_time": stat.start_time - 1}, {"pid": None}):
        key = pretend_lost(here, **(ids | wrong))
        assert here.wait_until_over(key).reason == "lost"
        assert other.poll() is None
    here.wait_until_over(pretend_lost(here, **ids))
    assert other.wait() == -signal.SIGKILL, "but it is, if it is the one"


@pytest.mark.parametrize("content", ["", '{"pid": 1', "[]", "\0\0"])
@pytest.mark.parametrize("name", ["started.json", "ended.json"])
def test_a_damaged_file_is_a_lost_run(here: Machine, name: str, content: str) -> None:
    key = here.script("")
    here.wait_until_over(key)
    (here.folder(key) / "ended.json").unlink()
    (here.folder(key) / name).write_text(content)
    here.start_daemon()
    assert here.wait_until_over(key).reason == "lost"


def test_a_damaged_launch_cannot_be_started(here: Machine) -> None:
    key = here.script("")
    here.wait_until_over(key)
    for name in ("started.json", "ended.json"):
        (here.folder(key) / name).unlink()
    (here.folder(key) / "launch.json").write_text('{"command": ["ec')
    here.start_daemon()
    assert here.wait_until_over(key).reason == "lost", "it is not the job's fault"
