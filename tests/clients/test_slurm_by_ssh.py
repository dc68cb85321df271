"""The commands on a Slurm that is reached by ssh: a real sshd, and the system's ssh."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmCluster, SlurmUser, needs_slurm
from tests.clients.sshd import SshServer, needs_sshd
from tests.clients.test_slurm import job, logged, training
from tests.support import Gate, eventually

pytestmark = [pytest.mark.clients, needs_slurm, needs_sshd]


@pytest.fixture
def server(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SshServer]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    made = SshServer(folder, cluster.environment)
    yield made.start()
    made.end()


@pytest.fixture
def afar(server: SshServer, user: SlurmUser, tmp_path: Path) -> SlurmUser:
    """A user whose laptop has no Slurm."""
    user.configure(host="login", folder=str(tmp_path / "files"))
    user.environment["PATH"] = f"{server.path}:{user.environment['PATH']}"
    user.environment["SLURM_CONF"] = "/nowhere"
    return user


def test_a_training_goes_on_after_a_stop_on_a_cluster_afar(afar: SlurmUser, gate: Gate) -> None:
    words = ["--env", f"PATH={afar.environment['PATH']}", *training(gate)]
    job_id = afar.submit("afar", *words, "--max_epochs", "3")
    gate.await_ring()
    assert "afar" in afar.says("scheduler-state")
    afar.says("scheduler-cancel-job", "--graceful", job_id)
    gate.open()
    eventually(lambda: job(afar, job_id)["state"] in ("CANCELED", "FINISHED"))
    assert job(afar, job_id)["epochs_done"] == 1
    assert logged(afar, job_id) == [
        "begins at epoch 0 restarted False epochs done 0",
        "epoch 1 done",
    ]
    again = afar.says("scheduler-resubmit-job", job_id).strip()
    gate.await_ring()
    gate.open(3)
    eventually(lambda: job(afar, again)["state"] == "FINISHED")


def test_every_argument_arrives_as_it_was_given(afar: SlurmUser) -> None:
    words = [
        "a b",
        "it's",
        'say "x"',
        "$HOME",
        "`id`",
        "*",
        "\\n",
        "",
        "line\nbreak",
        "ü",
        "!!",
        "~",
    ]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    flags = ["--num_gpus", "0", "--wait"]
    afar.submit("words", *flags, "--", "/usr/bin/python3", "-c", script, *words)
    assert json.loads(afar.says("scheduler-get-logs", "words")) == words


def test_the_second_command_uses_the_connection_of_the_first(afar: SlurmUser) -> None:
    # A socket's path is short, and that of a test's home is not.
    afar.environment["XDG_CACHE_HOME"] = "/tmp/slurm-test-cache"
    try:
        afar.says("scheduler-state")
        began_at = time.monotonic()
        afar.says("scheduler-state")
        seconds = time.monotonic() - began_at
        log = (afar.home / "ssh/sshd.log").read_text()
        assert log.count("Accepted publickey") == 1, f"{seconds:.2f} s"
    finally:
        path = "ControlPath=/tmp/slurm-test-cache/epoch-scheduler/ssh/%C"
        words = ["ssh", "-F", str(afar.home / "ssh/config"), "-O", "exit", "-o", path, "login"]
        subprocess.run(words, capture_output=True)


def test_without_a_key_there_is_one_line(afar: SlurmUser, server: SshServer) -> None:
    server.write_config(key="none")
    done = afar.run("scheduler-state")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line == (
        "scheduler-state: cannot reach login by ssh: root@127.0.0.1: Permission denied"
        " (publickey): `ssh login` has to work without a question (ssh-add your key)"
    )


def test_a_host_that_is_not_known_is_one_line(afar: SlurmUser, server: SshServer) -> None:
    server.write_config(known="none")
    done = afar.run("run-scheduler", "x", "--", "true")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "run-scheduler: cannot reach login by ssh: Host key verification failed: `ssh login` has to"
        " work without a question; run it once"
    ]


def test_a_host_that_is_away_is_one_line(afar: SlurmUser, server: SshServer) -> None:
    server.end()
    done = afar.run("scheduler-state")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("scheduler-state: cannot reach login by ssh: ssh: connect to host")
    assert line.endswith("Connection refused")
