"""The real daemon as a process: how it starts, what it refuses, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import DEADLINE_SECONDS, Daemon, eventually

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).parent / "scheduler-daemon"
SLEEPER = ("--num_gpus", "1", "--estimated_memory", "1000", "sleeper", "--", "sleep", "1000")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state")
    yield made
    made.end()


def refused(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A daemon that must not start: ends by itself, with nothing on stdout and one line."""
    done = subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("scheduler-daemon: ")
    return done


def running_pid(daemon: Daemon) -> int:
    """Of the one training."""
    (started,) = daemon.state.glob("runs/*/started.json")
    pid: int = json.loads(started.read_text())["pid"]
    return pid


def introductions(daemon: Daemon) -> list[dict[str, Any]]:
    """What it said of itself, each time that it started."""
    lines = map(json.loads, daemon.said().splitlines())
    return [line for line in lines if line["event"] == "started"]


# --- starting -----------------------------------------------------------------------------------


def test_ready_is_all_that_it_prints(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process
    assert daemon.process.stdout
    assert daemon.stop() == 0
    assert daemon.process.stdout.read() == ""


def test_it_says_at_start_what_it_found(daemon: Daemon) -> None:
    daemon.start()
    daemon.stop()
    (line,) = introductions(daemon)
    assert line["gpus"] == "pretended 16384 MiB"
    assert line["takes_jobs_of"]
    assert (line["jobs"], line["adopted"]) == (0, 0)


def test_only_the_daemons_user_can_read_its_files(daemon: Daemon) -> None:
    daemon.start()
    # Jobs of all users read these, through an open folder.
    read = {daemon.state / name for name in ("library", "step_wrapper")}
    for path in [daemon.state, *daemon.state.rglob("*")]:
        if not read.isdisjoint(path.parents):
            continue
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_second_daemon_on_the_same_folder_is_refused(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process
    done = refused("--state_dir", daemon.state, "--gpus", "1x1000", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"another scheduler-daemon (pid {daemon.process.pid}) uses {daemon.state}" in done.stderr
    daemon.state_of()  # the first one goes on


def test_a_port_in_use_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    done = refused("--state_dir", tmp_path / "other", "--gpus", "0", "--listen", daemon.address)
    assert done.returncode == 1
    assert f"cannot listen on {daemon.address}: the port is in use" in done.stderr


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--gpu 4x16384", "No such option '--gpu'. Did you mean '--gpus'?"),
        ("--gpus many", "gpus: 'many' is not COUNTxMIB"),
        ("--gpus 1x16", "a GPU of 16 MiB is too small for any job"),
        ("--listen nowhere", "listen: 'nowhere' is not HOST:PORT"),
        ("--listen 127.0.0.1:70000", "is not HOST:PORT"),
        ("--listen 192.0.2.1:0", "Cannot assign requested address"),
        ("--policy luck", "policy: 'luck' is not one of elastic, fifo, fifo_sharing, gavel"),
        ("--log-level loud", "--log_level: log.level = 'loud': expected one of"),
        ("--config /nonexistent.toml", "cannot read /nonexistent.toml: No such file"),
        ("--config", "Option '--config' requires an argument"),
        ("--token_for a\nb", "--token_for 'a\\nb': is not a valid user name"),
        ("superfluous", "No such command 'superfluous'"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(tmp_path: Path, flags: str, complaint: str) -> None:
    done = refused("--state_dir", tmp_path / "state", *flags.split(" "))
    assert done.returncode == 2
    assert complaint in done.stderr


def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[rules]\nlost_max = 'ten'\n")
    done = refused("--config", file)
    assert done.returncode == 2
    assert f"{file}: rules.lost_max = 'ten': expected int, got str" in done.stderr


def test_a_state_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = refused("--state_dir", tmp_path / "file" / "state", "--gpus", "0")
    assert done.returncode == 2
    assert f"cannot use {tmp_path}/file/state: Not a directory" in done.stderr


def test_a_state_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o500)
    if os.geteuid() == 0:  # to whom modes mean nothing
        state = Path("/sys/kernel")
    done = refused("--state_dir", state, "--gpus", "0")
    assert done.returncode == 2
    assert f"cannot use {state}: " in done.stderr


def test_a_truncated_database_is_refused_and_left_alone(daemon: Daemon) -> None:
    daemon.start()
    daemon.stop()
    database = daemon.state / "scheduler.db"
    broken = database.read_bytes()[:5000]
    database.write_bytes(broken)
    done = refused("--state_dir", daemon.state, "--gpus", "0", "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert str(database) in done.stderr
    assert database.read_bytes() == broken


def test_a_truncated_secret_is_refused(daemon: Daemon) -> None:
    daemon.start()
    daemon.stop()
    (daemon.state / "secret").write_bytes(b"short")
    done = refused("--state_dir", daemon.state, "--gpus", "0", "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert f"{daemon.state}/secret: must hold 32 bytes, has 5" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_state_folder_that_another_user_made_is_refused(tmp_path: Path) -> None:
    """Its maker knows the secret in it, and could sign a token for root."""
    state = tmp_path / "state"
    tmp_path.chmod(0o1777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    planted = "mkdir $0 && printf %032d 0 > $0/secret"
    subprocess.run(["/bin/sh", "-c", planted, state], user="nobody", check=True)
    for flags in (("--gpus", "0", "--listen", "127.0.0.1:0"), ("--token_for", "root")):
        done = refused("--state_dir", state, *flags)
        assert done.returncode == 2
        assert f"{state} belongs to nobody (mode 0755)" in done.stderr
    assert [path.name for path in state.iterdir()] == ["secret"], "nothing was written there"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_settings_that_another_user_can_change_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('admins = ["nobody"]')
    os.chown(file, 65534, 65534)
    done = refused("--config", file, "--state_dir", tmp_path / "state", "--gpus", "0")
    assert done.returncode == 2
    assert f"{file} belongs to nobody" in done.stderr


def test_port_0_is_the_port_of_last_time(daemon: Daemon) -> None:
    first = daemon.start().address
    daemon.stop()
    daemon.address = "127.0.0.1:0"
    assert daemon.start().address == first


def test_port_0_is_another_one_if_that_is_taken(daemon: Daemon) -> None:
    first = daemon.start().address
    daemon.kill()
    host, port = first.split(":")
    with socket.create_server((host, int(port))):
        daemon.address = "127.0.0.1:0"
        assert daemon.start().address != first
    assert "port_lost" in daemon.said()


@pytest.mark.parametrize("note", [b"", b"\xff\xff", b"99999\n", b"-1\n"])
def test_a_useless_note_of_the_port_is_ignored(daemon: Daemon, note: bytes) -> None:
    daemon.state.mkdir()
    (daemon.state / "port").write_bytes(note)
    daemon.address = "127.0.0.1:0"
    daemon.start()


def test_a_token_made_beside_the_daemon_opens_its_door(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.run("scheduler-state", user="ada").returncode == 0
    token = daemon.token("ada")
    assert token.startswith("ada.")
    environment = {
        **os.environ,
        "SCHEDULER_SERVER": daemon.address,
        "SCHEDULER_TOKEN": token[:-1] + ("0" if token[-1] != "0" else "1"),
    }
    wrong = subprocess.run(
        [COMMAND.with_name("scheduler-state")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 4


def test_the_version_is_told() -> None:
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("scheduler-daemon 0.")


# --- ending -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_training_running(daemon: Daemon, number: int) -> None:
    daemon.start()
    assert daemon.process
    daemon.submit(*SLEEPER)
    daemon.wait_state(sleeper="RUNNING")
    pid = running_pid(daemon)
    daemon.process.send_signal(number)
    assert daemon.process.wait(DEADLINE_SECONDS) == 0
    assert psutil.Process(pid).is_running()
    daemon.start()
    daemon.wait_state(sleeper="RUNNING")
    assert running_pid(daemon) == pid
    assert [line["adopted"] for line in introductions(daemon)] == [0, 1]


def test_watchers_do_not_keep_it_alive(daemon: Daemon) -> None:
    daemon.start()
    daemon.submit(*SLEEPER)
    watchers = [
        subprocess.Popen(
            [COMMAND.with_name(words[0]), *words[1:]],
            env={**os.environ, "SCHEDULER_SERVER": daemon.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for words in (
            ("scheduler-state", "--watch", "--output", "json"),
            ("scheduler-get-logs", "sleeper", "--follow"),
        )
    ]
    try:
        assert watchers[0].stdout
        watchers[0].stdout.read(1)  # it watches
        assert daemon.stop() == 0
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.communicate()


@pytest.mark.parametrize("trace", ["", "lock", "scheduler.db", "hints.sock", "port"])
def test_a_signal_during_the_start_leaves_nothing_in_the_way_of_the_next(
    daemon: Daemon, trace: str
) -> None:
    daemon.spawn()
    eventually((daemon.state / trace).exists if trace else lambda: True)
    assert daemon.stop() in (0, -signal.SIGTERM)
    daemon.start()


def test_a_row_that_must_not_be_ends_it_before_anything_is_written(daemon: Daemon) -> None:
    daemon.start()
    job_id = daemon.submit("--hold", *SLEEPER)
    database = sqlite3.connect(daemon.state / "scheduler.db")
    with database:
        database.execute("update jobs set outcome = 'succeeded' where id = ?", (job_id,))
    assert daemon.process
    done = daemon.run("scheduler-cancel-job", job_id)
    assert done.returncode != 0
    assert daemon.process.wait(DEADLINE_SECONDS) == 70
    broken, story = map(json.loads, daemon.said().splitlines()[-2:])
    assert "it has ended, or never existed, and cannot change" in broken["error"]
    assert any("job_submitted" in line for line in story["story"])
    (cancelled,) = database.execute("select cancelled from jobs where id = ?", (job_id,)).fetchone()
    database.close()
    assert not cancelled


def test_a_damaged_row_costs_its_own_job_only(daemon: Daemon) -> None:
    daemon.start()
    job_id = daemon.submit("--hold", "--env", "KEY=kept-to-myself", *SLEEPER)
    other = daemon.submit("--hold", *SLEEPER)
    daemon.stop()
    database = sqlite3.connect(daemon.state / "scheduler.db")
    with database:
        cut = "update jobs set spec = cast(substr(cast(spec as blob), 1, 90) || x'ff' as text)"
        database.execute(f"{cut} where id = ?", (job_id,))
    database.close()
    daemon.start()
    assert daemon.job_of(other)["state"] == "HELD"
    failed = daemon.job_of(job_id)
    assert failed["state"] == "FAILED"
    assert "its row in the database is damaged" in failed["reason"]
    assert "row_set_aside" in daemon.said()
    assert "kept-to-myself" not in daemon.said()


def test_a_full_disk_ends_it_and_takes_nothing_that_was_acknowledged(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process
    accepted = daemon.submit("--hold", *SLEEPER)
    # To a process that may not write beyond its files' sizes, every disk is full.
    log = daemon.state / "scheduler.db-wal"
    size = log.stat().st_size
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, size))
    done = daemon.run("run-scheduler", *SLEEPER)
    assert done.returncode == 3
    assert done.stdout == ""
    assert daemon.process.wait(DEADLINE_SECONDS) == 74
    daemon.start()
    assert [job["id"] for job in daemon.state_of()["jobs"]] == [accepted]


# --- living -------------------------------------------------------------------------------------


def test_garbage_on_its_port_does_no_harm(daemon: Daemon) -> None:
    daemon.start()
    host, port = daemon.address.split(":")
    dice = random.Random(0)
    samples = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + dice.randbytes(1000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        *(dice.randbytes(dice.randrange(1, 5000)) for _ in range(50)),
    ]
    for sample in samples:
        with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(sample)
    assert daemon.state_of()["jobs"] == []


def test_an_idle_daemon_is_small(daemon: Daemon) -> None:
    daemon.start()
    daemon.state_of()
    assert daemon.process
    assert psutil.Process(daemon.process.pid).memory_info().rss < 100 * 2**20
