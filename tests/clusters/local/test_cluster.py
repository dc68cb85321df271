"""Real trainings on this machine: started once, observed by one daemon after another, forgotten."""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.errors import Busy, ConfigError
from scheduler.core.model import (
    EpochEnded,
    Event,
    Failure,
    JobId,
    Observed,
    PodState,
    Profile,
    Share,
)
from tests.clusters.file_servers import dead_file_server
from tests.clusters.machine import ME, SAVES, SHARE, Machine, is_alive, machine, make_launch

# --- once and only once -------------------------------------------------------------------------


def test_a_second_runner_goes_at_once(here: Machine) -> None:
    key = here.up()
    command = [
        sys.executable,
        "-I",
        "-S",
        "scheduler/clusters/local/runner.py",
        str(here.folder(key)),
    ]
    first = here.read_started(key)
    assert subprocess.run(command).returncode == 0
    here.remove(key)
    here.wait_until_over(key)
    assert subprocess.run(command).returncode == 0
    assert here.read_started(key) == first
    assert here.log_text(key) == "up\n"


def test_fifty_launches_in_a_burst_are_fifty_runs(here: Machine) -> None:
    keys = [here.launch("true") for _ in range(50)]
    assert {(pod.job_id, pod.attempt) for pod in here.cluster.observe().pods} == set(keys)
    assert {here.wait_until_over(key).state for key in keys} == {PodState.SUCCEEDED}


# --- daemons come and go ------------------------------------------------------------------------


def test_a_new_daemon_adopts_what_runs_and_learns_what_ended(here: Machine) -> None:
    running, ending = here.up(), here.up(SAVES)
    before = here.read_started(running)
    os.kill(here.read_started(ending)["pid"], signal.SIGTERM)
    here.wait_until_over(ending)
    here.start_daemon()
    shown = {(pod.job_id, pod.attempt): pod for pod in here.cluster.observe().pods}
    assert shown[running].state == PodState.RUNNING
    assert shown[running].shares == (SHARE,)
    assert shown[ending].state == PodState.SUCCEEDED
    assert here.read_started(running) == before
    assert is_alive(before["pid"])
    here.remove(running)
    assert here.wait_until_over(running).reason == "stopped"


def test_killing_a_daemon_touches_no_training(here: Machine) -> None:
    """A daemon in a process of its own, with the terminal's ^C and `kill -9` of its group."""
    launch = make_launch(here.state.parent, "sh", "-c", "echo up; sleep 1000")
    text = f"""
import time
from pathlib import Path
from scheduler.gpus.watcher import parse_gpus
from scheduler.clusters.local.cluster import LocalCluster
from scheduler.core.model import *
cluster = LocalCluster(Path({str(here.state)!r}), parse_gpus("1x16384"), time.time, "", name="here")
cluster.perform({launch!r})
cluster.start(lambda event: print(len(event.pods), flush=True))
time.sleep(1000)
"""
    daemon = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"1\n"
    key = launch.job_id, 1
    pid = here.read_started(key)["pid"]
    here.wait_for_output(key, "up")
    os.killpg(daemon.pid, signal.SIGINT)
    os.killpg(daemon.pid, signal.SIGKILL)
    daemon.communicate()
    here.start_daemon()
    here.wait_until(key, lambda pod: pod.state == "running")
    assert is_alive(pid)
    here.remove(key)
    assert here.wait_until_over(key).reason == "stopped"
    assert not is_alive(pid)


def test_a_launch_that_was_recorded_but_not_started_is_started(here: Machine) -> None:
    key = here.launch("echo", "hello")
    here.wait_until_over(key)
    for name in ("started.json", "ended.json"):
        (here.folder(key) / name).unlink()
    (here.folder(key).with_name(f".{key[0]}-2")).mkdir()  # half made
    here.start_daemon()
    assert here.wait_until_over(key).state == PodState.SUCCEEDED
    assert here.log_text(key) == "hello\nhello\n"
    assert [folder.name for folder in (here.state / "runs").iterdir()] == [f"{key[0]}-1"]


# --- as a source --------------------------------------------------------------------------------


def test_news_is_posted_when_there_is_some(tmp_path: Path) -> None:
    with machine(tmp_path / ("a" * 60) / ("b" * 60), observe_every_seconds=1000.0) as here:
        news: queue.Queue[Any] = queue.Queue()  # observations only
        here.cluster.start(news.put)
        assert news.get(timeout=60).pods == ()
        key = here.launch("true")
        seen = []
        while "succeeded" not in seen:
            seen += [pod.state for pod in news.get(timeout=60).pods]
        assert seen[0] in ("pending", "running", "succeeded")
        here.remove(key)
        while news.get(timeout=60).pods:
            pass
        here.cluster.stop()


def test_last_words_come_before_the_end_that_they_precede(here: Machine) -> None:
    text = """
import json, os
words = [{"epoch": 1, "epoch_seconds": 2.5}, {"epoch": 2}]
open(os.environ["KUBEPROFILER_LAST_WORDS"], "w").write(json.dumps(words))
"""
    news: queue.Queue[Event] = queue.Queue()
    here.cluster.start(news.put)
    key = here.script(text)
    said: list[Profile] = []
    while True:
        match news.get(timeout=60):
            case EpochEnded(profile):
                said.append(profile)
            case Observed(pods=[pod]) if not pod.alive:
                break
    assert said == [Profile(*key, 1, epoch_seconds=2.5), Profile(*key, 2)]


@pytest.mark.parametrize("words", ["", "[", "[{}]", '[{"epoch": "1"}]', '[{"epoch": -1}]', "{}"])
def test_last_words_that_make_no_sense_are_no_words(here: Machine, words: str) -> None:
    text = "import os, sys; open(os.environ['KUBEPROFILER_LAST_WORDS'], 'w').write(sys.argv[1])"
    key = here.script(text, words)
    here.wait_until_over(key)
    news: queue.Queue[Event] = queue.Queue()
    here.cluster.start(news.put)
    assert isinstance(news.get(timeout=60), Observed)


def test_a_full_inbox_is_tried_again(here: Machine) -> None:
    asked: queue.Queue[Any] = queue.Queue()
    left = [Busy("full")] * 2

    def put(event: Event) -> None:
        if left:
            raise left.pop()
        asked.put(event)

    here.cluster.start(put)
    assert asked.get(timeout=60).nodes[0].name == "here"
    here.cluster.stop()
    assert left == []


def test_to_stop_looking_leaves_the_trainings(here: Machine) -> None:
    here.cluster.start(lambda event: None)
    key = here.up()
    here.cluster.stop()
    here.cluster.stop()
    assert is_alive(here.read_started(key)["pid"])


# --- what cannot be started here ----------------------------------------------------------------


@contextlib.contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_file_descriptor_a_launch_is_refused_with_that_reason(here: Machine) -> None:
    with no_file_can_be_opened():
        key = here.launch("true", user="nobody" if os.geteuid() == 0 else ME)
    pod = here.pod(key)
    assert pod is not None
    assert pod.reason == Failure.REFUSED
    assert pod.said.startswith("cannot start: ")
    assert pod.said.endswith("Too many open files")
    here.remove(key)
    again = here.launch("true", job_id=key[0], attempt=2)
    assert here.wait_until_over(again).state == "succeeded"


def test_without_a_file_descriptor_no_user_is_said_to_be_unknown(here: Machine) -> None:
    with no_file_can_be_opened(), pytest.raises(Busy, match=r"now: .*Too many open files: try"):
        here.cluster.refuses("no-such-user")


def test_a_runner_that_finds_no_room_starts_nothing_and_blames_nobody(here: Machine) -> None:
    """Its log's folder cannot be made."""
    job_id = JobId("01234567-89ab-4def-8123-456789abcdef")
    (here.cluster.logs / job_id).write_text("a file where a folder should be")
    key = here.launch("true", job_id=job_id)
    pod = here.wait_until_over(key)
    assert (pod.reason, pod.said) == (Failure.REFUSED, "cannot start: Not a directory")
    here.start_daemon()
    again = here.pod(key)
    assert again is not None
    assert (again.reason, again.said) == (pod.reason, pod.said), "the next daemon knows it too"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_dead_file_server_is_not_the_jobs_fault(here: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "remote"
    folder.mkdir()
    with dead_file_server(folder):
        key = here.launch("true", custom_dir=str(folder))
        pod = here.wait_until_over(key)
    why = f"cannot start: {folder}: Transport endpoint is not connected"
    assert (pod.reason, pod.said) == (Failure.REFUSED, why)


def test_what_cannot_be_launched_here_shows_as_failed_until_it_is_removed(here: Machine) -> None:
    gone = here.launch("true", user="no-such-user")
    strange = here.launch("true", job_id=JobId("../../etc"))
    nowhere = here.launch("true", shares=(Share("here", "gpu7", 1),))
    pods = here.cluster.observe().pods
    assert {pod.job_id: (pod.state, pod.reason, pod.said) for pod in pods} == {
        gone[0]: (
            *("failed", Failure.REFUSED),
            "cannot start: user 'no-such-user' is not known on this machine",
        ),
        strange[0]: ("failed", "cannot start: '../../etc' is not the id of a job", ""),
        nowhere[0]: ("failed", "cannot start: there is no GPU gpu7 on here", ""),
    }
    for key in (gone, strange, nowhere):
        here.remove(key)
    assert here.cluster.observe().pods == ()


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state_dir .*/file/state: Not a directory"):
        Machine(tmp_path / "file" / "state")
