"""Real trainings on this machine: how they are started, observed, stopped, lost and forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kubernetesdlprofile
from scheduler.clusters import library_renewal
from scheduler.clusters.local import runner
from scheduler.clusters.local.accounts import LOGIN_PATH
from scheduler.clusters.local.runner import boot_id, processes, stat_of
from scheduler.core.errors import Busy, ConfigError
from scheduler.core.model import (
    EpochEnded,
    Event,
    Failure,
    JobId,
    Observed,
    PodState,
    Profile,
    Remove,
    RunKey,
    Share,
)
from tests.clusters.file_servers import dead_file_server
from tests.clusters.machine import (
    ME,
    SHARE,
    SNAPSHOTS,
    Machine,
    is_alive,
    machine,
    make_launch,
    shows_snapshots,
)
from tests.support import eventually

SLEEP = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
SAVES = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved", flush=True)))
print("up", flush=True)
signal.pause()
"""


def up(here: Machine, text: str = SLEEP, **fields: object) -> RunKey:
    key = here.script(text, **fields)
    here.wait_for_output(key, "up\n")  # Python may write the end of the line by itself
    return key


def remove(here: Machine, key: RunKey) -> None:
    here.cluster.perform(Remove(*key))


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state", "exit_code", "reason"),
    [
        ("", "succeeded", 0, ""),
        ("exit(3)", "failed", 3, "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "failed", 139, "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "failed", 168, "killed by signal 40"),
        ("exit('CUDA out of memory. Tried ...')", "failed", 1, "out_of_memory"),
        ("print('CUDA out of memory'); exit(85)", "failed", 85, "exit code 85"),
        ("print('CUDA out of memory'); exit(0)", "succeeded", 0, ""),
    ],
)
def test_an_end_is_told(here: Machine, text: str, state: str, exit_code: int, reason: str) -> None:
    before = time.time()
    pod = here.wait_until_over(here.script(text))
    assert (pod.state, pod.exit_code, pod.reason) == (state, exit_code, reason)
    assert pod.said == ("CUDA out of memory. Tried ..." if reason == "out_of_memory" else "")
    assert pod.at is not None
    assert before <= pod.at <= time.time()


@pytest.mark.parametrize(
    ("command", "code", "trouble"),
    [
        ("/no/such/program", 127, "No such file or directory"),
        ("no-such-program", 127, "No such file or directory"),
        ("/etc/passwd", 127, "Permission denied"),
        ("nul\0inside", 127, "execve: embedded null character in path"),
    ],
)
def test_what_cannot_be_executed_is_named_in_the_log_and_in_the_reason(
    here: Machine, command: str, code: int, trouble: str
) -> None:
    key = here.launch(command, env=(("PATH", "/usr/bin:/bin"),))
    pod = here.wait_until_over(key)
    assert (pod.state, pod.exit_code) == ("failed", code)
    assert pod.reason == f"cannot start: {command}: {trouble}".replace(
        "nul\0inside: ", "nul\0inside: "
    )
    assert here.log_text(key) == f"[epoch-scheduler] {pod.reason}\n"


def test_an_end_leaves_no_zombie_and_stays_what_it_was(here: Machine) -> None:
    key = here.script("")
    pod = here.wait_until_over(key)
    eventually(here.is_reaped)
    here.cluster.perform(make_launch(here.state, job_id=key[0]))
    assert here.pod(key) is pod, "what has ended is not started again"


# --- what it is given ---------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_given(here: Machine) -> None:
    words = ["a b", "", "'\"$HOME`*;\\", "żółć 日本 🙂", "--x=1", "two\nlines", "-"]
    key = here.script("import json, sys; print(json.dumps(sys.argv[1:]))", *words)
    here.wait_until_over(key)
    assert json.loads(here.log_text(key)) == words


def test_the_environment_is_its_own_and_nothing_of_the_daemons(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_SECRET", "of the daemon")
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    key = here.script(text, env=(("LR", "0.1"), ("LANG", "pl_PL.UTF-8")))
    here.wait_until_over(key)
    told = json.loads(here.log_text(key))
    told.pop("LC_CTYPE", None)  # Python's own doing
    assert told.pop("KUBEPROFILER_LAST_WORDS").startswith("/proc/")
    process = here.cluster.prepare(
        make_launch(here.state.parent, job_id=key[0], env=(("LR", "0.1"),))
    )
    assert told == {**process.environment, "LANG": "pl_PL.UTF-8"}
    assert told["LR"] == "0.1"
    assert told["USER"] == ME
    assert told["CUDA_VISIBLE_DEVICES"] == "0"
    assert told["KUBEPROFILER_TOKEN"] == "secret-of-the-job"


def test_it_starts_in_its_folder_with_default_signals_and_nothing_open_but_its_own(
    here: Machine, tmp_path: Path
) -> None:
    text = 'pwd; grep -E "Sig(Blk|Ign)" /proc/self/status; readlink /proc/$$/fd/*; umask; cat'
    key = here.launch("sh", "-c", text, custom_dir=str(tmp_path))
    here.wait_until_over(key)
    folder, blocked, ignored, *files, umask = here.log_text(key).splitlines()
    assert folder == str(tmp_path)
    # Of the 31 that have names; the next two are the C library's, and under make it ignores them.
    assert [int(mask.split()[1], 16) & 0x7FFFFFFF for mask in (blocked, ignored)] == [0, 0]
    null, words, out, err = sorted(files)
    assert (null, words) == ("/dev/null", str(here.folder(key) / "last_words.json"))
    assert out == err
    assert out.startswith("pipe:")
    assert umask == "0022"


def test_the_folder_for_snapshots_is_made_for_it(here: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "snapshots"
    key = here.launch("sh", "-c", "ls -d $0", "/snapshots", snapshots_dir=str(folder))
    assert here.wait_until_over(key).state == "succeeded"
    assert here.log_text(key) == f"{folder}\n"


def test_folders_that_cannot_be_are_named(here: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere, blocked = str(tmp_path / "nowhere"), str(tmp_path / "file" / "snapshots")
    reasons = [
        here.wait_until_over(here.launch("true", **{folder: path})).reason
        for folder, path in (("custom_dir", nowhere), ("snapshots_dir", blocked))
    ]
    assert reasons == [
        f"cannot start: {nowhere}: No such file or directory",
        f"cannot start: {blocked}: Not a directory",
    ]


def test_what_holds_a_token_is_for_the_daemon_alone(here: Machine) -> None:
    key = up(here)
    launch = here.folder(key) / "launch.json"
    assert "secret-of-the-job" in launch.read_text()
    assert launch.stat().st_mode & 0o777 == 0o600
    assert here.folder(key).stat().st_mode & 0o777 == 0o700
    assert (here.state / "runs").stat().st_mode & 0o777 == 0o700
    assert here.cluster.logs.stat().st_mode & 0o777 == 0o700


# --- once and only once -------------------------------------------------------------------------


def test_a_second_runner_goes_at_once(here: Machine) -> None:
    key = up(here)
    command = [
        sys.executable,
        "-I",
        "-S",
        "scheduler/clusters/local/runner.py",
        str(here.folder(key)),
    ]
    first = here.read_started(key)
    assert subprocess.run(command).returncode == 0
    remove(here, key)
    here.wait_until_over(key)
    assert subprocess.run(command).returncode == 0
    assert here.read_started(key) == first
    assert here.log_text(key) == "up\n"


def test_fifty_launches_in_a_burst_are_fifty_runs(here: Machine) -> None:
    keys = [here.launch("true") for _ in range(50)]
    assert {(pod.job_id, pod.attempt) for pod in here.cluster.observe().pods} == set(keys)
    assert {here.wait_until_over(key).state for key in keys} == {PodState.SUCCEEDED}


# --- how it is stopped --------------------------------------------------------------------------


def test_a_stop_gives_time_to_save(here: Machine) -> None:
    key = up(here, SAVES)
    remove(here, key)
    remove(here, key)
    pod = here.wait_until_over(key)
    assert (pod.state, pod.exit_code) == ("succeeded", 0)
    assert here.log_text(key) == "up\nsaved\n"


def test_what_ends_by_the_signal_was_stopped(here: Machine) -> None:
    key = up(here)
    remove(here, key)
    assert here.wait_until(key, lambda pod: pod.state != "running").state in (
        "terminating",
        "failed",
    )
    pod = here.wait_until_over(key)
    assert (pod.exit_code, pod.reason) == (143, "stopped")


def test_what_ignores_the_signal_is_killed_after_the_grace(here: Machine) -> None:
    key = up(here, STUBBORN)
    remove(here, key)
    pod = here.wait_until_over(key)
    assert (pod.exit_code, pod.reason) == (137, "killed: it did not stop when it was asked to")


def test_helpers_have_the_grace_even_if_their_leader_goes_first(tmp_path: Path) -> None:
    with machine(tmp_path / "state", grace_seconds=1000.0) as here:
        key = here.launch("sh", "-c", '"$0" -c "$1" & wait', sys.executable, SAVES)
        here.wait_for_output(key, "up\n")
        remove(here, key)
        assert here.wait_until_over(key).reason == "stopped"
        assert here.log_text(key) == "up\nsaved\n"


@pytest.mark.parametrize("escape", ["", "setsid", "timeout 1000"])
def test_what_a_training_leaves_behind_dies_with_it(here: Machine, escape: str) -> None:
    key = here.launch("sh", "-c", f"{escape} sleep 1000 & echo $!; exit 3")
    assert here.wait_until_over(key).exit_code == 3
    assert not is_alive(int(here.log_text(key)))


def test_grandchildren_die_when_it_is_stopped(here: Machine) -> None:
    text = 'setsid sh -c "trap : TERM; echo \\$\\$; sleep 1000; sleep 1000" & wait'
    key = here.launch("sh", "-c", text)
    eventually(lambda: here.log_text(key).strip())
    remove(here, key)
    here.wait_until_over(key)
    assert not is_alive(int(here.log_text(key)))


def test_a_run_may_be_stopped_before_it_starts(here: Machine) -> None:
    key = here.launch("echo", "never")
    remove(here, key)  # the runner, a Python process, takes longer to start than this
    assert here.wait_until_over(key).reason == "stopped before it started"
    assert here.log_text(key) == ""


def test_the_log_stays_when_a_run_is_forgotten(here: Machine) -> None:
    key = here.launch("echo", "kept")
    here.wait_until_over(key)
    remove(here, key)
    assert here.pod(key) is None
    assert list((here.state / "runs").iterdir()) == []
    assert here.log_text(key) == "kept\n"


# --- daemons come and go ------------------------------------------------------------------------


def test_a_new_daemon_adopts_what_runs_and_learns_what_ended(here: Machine) -> None:
    running, ending = up(here), up(here, SAVES)
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
    remove(here, running)
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
    remove(here, key)
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


# --- what may go wrong --------------------------------------------------------------------------


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


def test_a_run_leaves_no_cgroup(here: Machine) -> None:
    key = here.launch("true")
    assert here.wait_until_over(key).state == "succeeded"
    cgroup = here.read_started(key)["cgroup"]
    assert not cgroup or not Path(cgroup).exists()


def test_a_training_dies_with_its_runner_also_while_no_daemon_looks(here: Machine) -> None:
    key = up(here)
    started = here.read_started(key)
    os.kill(started["runner"], signal.SIGKILL)
    eventually(lambda: not is_alive(started["pid"]))


def test_a_stop_that_was_not_ours_is_a_loss(here: Machine) -> None:
    """At shutdown a machine sends SIGTERM to all; a training that then exits with 0 is not done."""
    key = up(here, SAVES)
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
        remove(here, key)
    assert here.cluster.observe().pods == ()


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state_dir .*/file/state: Not a directory"):
        Machine(tmp_path / "file" / "state")


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
        remove(here, key)
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
    key = up(here)
    here.cluster.stop()
    here.cluster.stop()
    assert is_alive(here.read_started(key)["pid"])


# --- its output ---------------------------------------------------------------------------------


def test_a_job_that_prints_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    with machine(tmp_path / "state", log_mib=1) as here:
        text = "echo begin; yes $(seq 2000) | head -c 200000000; echo; echo the end; exit 3"
        key = here.launch("sh", "-c", text)
        log = here.cluster.logs / key[0] / "attempt-1" / "rank0.log"
        most = 0

        def is_over() -> bool:
            nonlocal most
            most = max(most, log.stat().st_blocks * 512 if log.exists() else 0)
            return here.wait_until(key, bool).exit_code == 3

        eventually(is_over)
        assert most <= 2**20 + 2 * 2**16
        assert log.stat().st_size > 200_000_000, "places in the file are those in the output"
        with log.open("rb") as file:
            assert file.readline() == b"begin\n"
            file.seek(-8, os.SEEK_END)
            assert file.read() == b"the end\n"


def test_a_job_cannot_change_what_it_has_said(here: Machine) -> None:
    text = "echo one; truncate -s 4T /proc/self/fd/1; : > /dev/stderr; echo two >> /dev/stderr"
    key = here.launch("sh", "-c", text)
    here.wait_until_over(key)
    said = here.log_text(key).splitlines()
    assert (said[0], said[-1]) == ("one", "two")


def test_a_process_outside_of_the_run_that_has_its_output_does_not_keep_it_from_ending(
    here: Machine, tmp_path: Path
) -> None:
    key = here.launch("sh", "-c", f"echo up; head -c 1 {tmp_path}/go; echo done")
    os.mkfifo(tmp_path / "go")
    here.wait_for_output(key, "up")
    training = here.read_started(key)["pid"]
    with Path(f"/proc/{training}/fd/1").open("ab", buffering=0) as held:
        (tmp_path / "go").write_text(".")
        assert here.wait_until_over(key).state == "succeeded"
        assert here.log_text(key) == "up\n.done\n"
        eventually(here.is_reaped)
        with pytest.raises(BrokenPipeError):
            held.write(b"late")


# --- what the world lacks is not the job's fault ------------------------------------------------


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
    remove(here, key)
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


# --- its owner's Python and folder --------------------------------------------------------------

SHOWS = "echo $PATH $VIRTUAL_ENV; pwd"


def test_a_job_gets_what_its_owner_took_along_and_nothing_of_the_daemons(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", "/of/the/daemon")
    taken = (("PATH", "/my/venv/bin:/usr/bin:/bin"), ("VIRTUAL_ENV", "/my/venv"))
    key = here.launch("/bin/sh", "-c", SHOWS, directory=str(tmp_path), exported=taken)
    here.wait_until_over(key)
    assert here.log_text(key) == f"/my/venv/bin:/usr/bin:/bin /my/venv\n{tmp_path}\n"
    nothing = here.launch("/bin/sh", "-c", SHOWS)
    here.wait_until_over(nothing)
    assert here.log_text(nothing).splitlines()[0] == LOGIN_PATH


def test_what_the_job_says_has_precedence_over_what_was_taken_along(
    here: Machine, tmp_path: Path
) -> None:
    taken = (("PATH", "/bin"), ("VIRTUAL_ENV", "/a"), ("RANK", "7"))
    said = (("VIRTUAL_ENV", "/b"),)
    key = here.launch(
        *("/bin/sh", "-c", SHOWS + "; echo $RANK"),
        **{"exported": taken, "env": said, "directory": "/usr", "custom_dir": str(tmp_path)},
    )
    here.wait_until_over(key)
    assert here.log_text(key) == f"/bin /b\n{tmp_path}\n0\n"


@pytest.mark.parametrize("process_per_gpu", [False, True])
def test_python_is_python3_where_there_is_no_other(
    here: Machine, tmp_path: Path, process_per_gpu: bool
) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho three $*\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "sleep").symlink_to("/bin/sleep")
    wish = {"exported": (("PATH", str(tmp_path)),), "process_per_gpu": process_per_gpu}
    key = here.launch("python", "a b", **wish)
    here.wait_until_over(key)
    assert here.log_text(key) == "three a b\n"
    (tmp_path / "python").write_text("#!/bin/sh\necho two $*\n")
    (tmp_path / "python").chmod(0o755)
    key = here.launch("python", "a b", **wish)
    here.wait_until_over(key)
    assert here.log_text(key) == "two a b\n"


# --- an old library -----------------------------------------------------------------------------


def test_a_run_with_an_old_library_finds_that_of_today_first(tmp_path: Path) -> None:
    folder = library_renewal.install_files(library_renewal.files(), tmp_path / "state")
    prints = "import os, sys, kubernetesdlprofile as k; print(os.path.realpath(k.__file__))\n"
    prints += "print(*sys.path[1:3], 'KUBEPROFILER_RENEWED' in os.environ)"
    assert folder is not None
    with machine(tmp_path / "state", library=folder, renew_library=True) as here:
        key = here.script(prints, renew_library=True, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(key).exit_code == 0
        found, path = here.log_text(key).splitlines()
        assert found == str(folder / "current" / "kubernetesdlprofile" / "__init__.py")
        first, *rest = path.split()
        assert (first.startswith("/proc/"), rest) == (True, ["/own", "True"])
        as_it_is = here.script(prints, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(as_it_is).exit_code == 0
        assert here.log_text(as_it_is).splitlines()[0] == kubernetesdlprofile.__file__


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run what is another user's")
@pytest.mark.parametrize("renewed", [True, False])
def test_another_users_run_finds_it_in_a_folder_that_it_may_not_enter(
    tmp_path: Path, renewed: bool
) -> None:
    state = tmp_path / "state"
    folder = library_renewal.install_files(library_renewal.files(), state)
    state.chmod(0o700)
    source = "import subprocess, sys, kubernetesdlprofile as k; print(k.__file__)\n"
    source += "subprocess.run([sys.executable, '-c', 'import kubernetesdlprofile as k; "
    source += "print(k.__file__)'])"
    with machine(state, library=folder, renew_library=True) as here:
        key = here.launch(
            "/usr/bin/python3", "-c", source, renew_library=renewed, user="nobody", snapshots_dir=""
        )
        assert here.wait_until_over(key).exit_code == 0, here.log_text(key)
        said = [line for line in here.log_text(key).splitlines() if line.startswith("/")]
        assert len(said) == 2, "it, and what it started"
        assert all(line.startswith("/proc/") for line in said)


@shows_snapshots
def test_the_folder_for_snapshots_is_also_where_old_libraries_save(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    folder, closed = tmp_path / "snapshots", tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    (closed / "inside").chmod(0o777)
    closed.chmod(0o700)
    with machine(tmp_path / "state") as here:
        saves = ("sh", "-c", 'mkdir "/snapshots/$JOB_UUID" && id -un > "/snapshots/$JOB_UUID/net"')
        for parent in tmp_path.parents[:3]:
            parent.chmod(parent.stat().st_mode | 0o055)
        key = here.launch(*saves, user="nobody", snapshots_dir=str(folder))
        assert here.wait_until_over(key).exit_code == 0, here.log_text(key)
        assert (folder / key[0] / "net").read_text() == "nobody\n"
        assert not list(Path("/snapshots").iterdir()), "only the job sees it there"
        refused = here.launch(*saves, user="nobody", snapshots_dir=str(closed / "inside"))
        assert "Permission denied" in here.wait_until_over(refused).reason
        assert not list((closed / "inside").iterdir())


@shows_snapshots
def test_a_job_that_was_begun_in_the_machines_own_snapshots_goes_on_there(tmp_path: Path) -> None:
    """A thread with mounts of its own is the machine where /snapshots is an ordinary folder."""
    own = tmp_path / "own"
    own.mkdir(mode=0o777)
    own.chmod(0o1777)
    prints = ("sh", "-c", "echo $KUBEPROFILER_SNAPSHOTS; mkdir -p /snapshots/$JOB_UUID")
    said: list[list[str]] = []

    def use_machine() -> None:
        libc, place = runner.LIBC, runner.OLD_SNAPSHOTS.encode()
        assert not libc.unshare(runner.CLONE_NEWNS)
        assert not libc.mount(None, b"/", None, runner.MS_REC | runner.MS_SLAVE, None)
        assert not libc.mount(str(own).encode(), place, None, runner.MS_BIND, None)
        with machine(tmp_path / "state") as here:
            first = make_launch(tmp_path, *prints)
            for attempt in (1, 2):
                here.cluster.perform(replace(first, attempt=attempt))
                key = first.job_id, attempt
                here.wait_until_over(key)
                said.append(here.log_text(key).split())

    Path(runner.OLD_SNAPSHOTS).mkdir(exist_ok=True)
    Path(runner.OLD_SNAPSHOTS).chmod(runner.MOUNT_POINT_MODE)
    elsewhere = threading.Thread(target=use_machine)
    elsewhere.start()
    elsewhere.join()
    assert said == [[str(tmp_path / SNAPSHOTS)], [runner.OLD_SNAPSHOTS]]
    assert len(list(own.iterdir())) == 1
