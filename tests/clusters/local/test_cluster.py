"""Real trainings on this machine: how they are started, observed, stopped, lost and forgotten."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters import library_renewal
from scheduler.clusters.local.runner import boot_id, stat_of
from scheduler.core.errors import Busy, ConfigError
from scheduler.core.model import (
    EpochEnded,
    Event,
    JobId,
    Observed,
    PodState,
    Profile,
    Remove,
    RunKey,
    Share,
)
from tests.clusters.machine import ME, SHARE, Machine, is_alive, machine, make_launch
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
    here.wait_for_output(key, "up")
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
    log = str(here.cluster.logs / key[0] / "attempt-1" / "rank0.log")
    assert sorted(files) == sorted(
        ["/dev/null", log, log, str(here.folder(key) / "last_words.json")]
    )
    assert umask == "0022"


def test_the_folder_for_snapshots_is_made_for_it(here: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "snapshots"
    key = here.launch(
        "sh", "-c", "test -d /snapshots || ls -d $0", "/snapshots", snapshots_dir=str(folder)
    )
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
        here.wait_for_output(key, "up")
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
    assert here.wait_until_over(key).reason == "cannot start: its runner failed with code 1"


def test_what_cannot_be_launched_here_shows_as_failed_until_it_is_removed(here: Machine) -> None:
    gone = here.launch("true", user="no-such-user")
    strange = here.launch("true", job_id=JobId("../../etc"))
    nowhere = here.launch("true", shares=(Share("here", "gpu7", 1),))
    shown = {pod.job_id: (pod.state, pod.reason) for pod in here.cluster.observe().pods}
    assert shown == {
        gone[0]: ("failed", "cannot start: user 'no-such-user' does not exist on this machine"),
        strange[0]: ("failed", "cannot start: '../../etc' is not the id of a job"),
        nowhere[0]: ("failed", "cannot start: there is no GPU gpu7 on here"),
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


# --- an old library -----------------------------------------------------------------------------


def test_a_run_with_an_old_library_finds_that_of_today_first(tmp_path: Path) -> None:
    folder = library_renewal.install_files(library_renewal.files(), tmp_path / "state")
    prints = "import os, sys, kubernetesdlprofile as k; print(os.path.realpath(k.__file__))\n"
    prints += "print(*sys.path[1:3], 'KUBEPROFILER_RENEWED' in os.environ)"
    with machine(tmp_path / "state", library=folder) as here:
        key = here.script(prints, renew_library=True, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(key).exit_code == 0
        found, path = here.log_text(key).splitlines()
        assert found == str(folder / "kubernetesdlprofile" / "__init__.py") if folder else found
        first, *rest = path.split()
        assert (first.startswith("/proc/"), rest) == (True, ["/own", "True"])
        as_it_is = here.script(prints, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(as_it_is).exit_code == 0
        assert here.log_text(as_it_is).splitlines()[1].split()[0] == "/own"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run what is another user's")
def test_another_users_run_finds_it_in_a_folder_that_it_may_not_enter(tmp_path: Path) -> None:
    state = tmp_path / "state"
    folder = library_renewal.install_files(library_renewal.files(), state)
    state.chmod(0o700)
    source = "import subprocess, sys, kubernetesdlprofile as k; print(k.__file__)\n"
    source += "subprocess.run([sys.executable, '-c', 'import kubernetesdlprofile as k; "
    source += "print(k.__file__)'])"
    with machine(state, library=folder) as here:
        key = here.launch(
            "/usr/bin/python3", "-c", source, renew_library=True, user="nobody", snapshots_dir=""
        )
        assert here.wait_until_over(key).exit_code == 0, here.log_text(key)
        said = [line for line in here.log_text(key).splitlines() if line.startswith("/")]
        assert len(said) == 2, "it, and what it started"
        assert all(line.startswith("/proc/") for line in said)
