"""The commands on a Slurm that is reached by ssh: a real sshd, and the system's ssh."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.slurmd import SlurmCluster, SlurmUser, folder_for_all, needs_slurm
from tests.clients.sshd import SshServer, needs_sshd
from tests.clients.test_slurm import ODD_WORDS, TRAIN, is_warned, job, logged, training
from tests.support import Gate, eventually

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.clients, needs_slurm, needs_sshd]


@pytest.fixture
def server(cluster: SlurmCluster) -> Iterator[SshServer]:
    with folder_for_all("sshd-") as folder:
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


def processes_of(user: str) -> list[str]:
    told = subprocess.run(["ps", "-o", "args=", "-u", user], capture_output=True, text=True)
    return [line for line in told.stdout.splitlines() if "sshd" not in line]


@pytest.fixture
def ordinary(cluster: SlurmCluster) -> Iterator[str]:
    """An account without any rights, as people have on clusters."""
    name = "slurm-test-user"
    subprocess.run(["useradd", "--create-home", "--password", "*", name], check=True)
    yield name
    cluster.cancel_all()  # a process that is left would be of whoever gets the number next
    subprocess.run(["userdel", "--remove", "--force", name], check=True, capture_output=True)


def test_an_ordinary_user_trains_with_the_machines_python_and_loses_nothing(
    afar: SlurmUser, server: SshServer, ordinary: str
) -> None:
    server.write_config(user=ordinary)
    afar.configure(host="login")
    with folder_for_all("gate-") as folder:
        gate = Gate(folder / "gate")
        words = ["--env", f"GATE={gate.path}", "--max_epochs", "3", "--num_gpus", "2"]
        job_id = afar.submit("mine", *words, "--", "/usr/bin/python3", str(TRAIN))
        gate.await_ring()
        number = afar.cluster.run("squeue", "-h", "-n", "mine", "-o", "%i").strip()
        assert afar.cluster.run("squeue", "-h", "-n", "mine", "-o", "%u").strip() == ordinary
        eventually(lambda: is_warned(afar, job_id, number))
        gate.open()
        gate.await_ring()  # its next run: an ordinary user may put a job back into the queue
        gate.open(2)
        eventually(lambda: job(afar, job_id)["state"] == "FINISHED")
        gate.close()
    assert [line for line in logged(afar, job_id) if "begins" in line] == [
        "begins at epoch 0 restarted False epochs done 0",
        "begins at epoch 1 restarted True epochs done 1",
    ]
    eventually(lambda: not processes_of(ordinary))
    home = Path(f"/home/{ordinary}")
    jobs = home / ".epoch-scheduler/slurm/jobs"
    assert (jobs.stat().st_mode & 0o777, jobs.owner()) == (0o700, ordinary)


@pytest.fixture
def shared_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ours, where any user may execute it: this one may be in root's home."""
    with folder_for_all("python-") as folder:
        (folder / "home").mkdir()
        # Read-only, so that whoever removes the folder cannot remove what is below.
        mount = ["mount", "-o", "bind,ro", sys.base_prefix, str(folder / "home")]
        subprocess.run(mount, check=True)
        try:
            program = folder / "home/bin" / f"python3.{sys.version_info[1]}"
            paths = [
                str(ROOT / "kubernetesdlprofile"),
                str(ROOT),
                *(path for path in sys.path if path.endswith("site-packages")),
            ]
            setting = f"PYTHONPATH={':'.join(paths)} LD_LIBRARY_PATH={folder}/home/lib"
            setting += " SCHEDULER_GPUS=1x16384"
            (folder / "python").write_text(f'#!/bin/sh\n{setting} exec {program} "$@"\n')
            (folder / "python").chmod(0o755)
            yield folder / "python"
        finally:
            subprocess.run(["umount", "--lazy", str(folder / "home")], check=True)


def test_jobs_of_an_ordinary_user_share_a_gpu_in_a_pilot(
    afar: SlurmUser, server: SshServer, ordinary: str, shared_python: Path
) -> None:
    server.write_config(user=ordinary)
    afar.configure(pilot="gpus=1 idle=2s", host="login", python=str(shared_python))
    with folder_for_all("gate-") as folder:
        gate = Gate(folder / "gate")
        words = ["--env", f"GATE={gate.path}", "--max_epochs", "3", "--estimated_memory", "6000"]
        command = ["--", "/usr/bin/python3", str(TRAIN)]
        ids = [afar.submit(name, *words, *command) for name in ("one", "two")]
        gate.await_ring()
        gate.await_ring()
        afar.says("scheduler-cancel-job", "--graceful", ids[1])
        gate.open(4)
        eventually(lambda: job(afar, ids[0])["state"] == "FINISHED")
        eventually(lambda: job(afar, ids[1])["state"] == "CANCELED")
        gate.close()
    assert job(afar, ids[1])["epochs_done"] == 1
    assert logged(afar, ids[0])[-1] == "epoch 3 done"
    eventually(lambda: not processes_of(ordinary))
    files = Path(f"/home/{ordinary}/.epoch-scheduler/slurm/pilots")
    assert (files.stat().st_mode & 0o777, files.owner()) == (0o700, ordinary)


def test_every_argument_arrives_as_it_was_given(afar: SlurmUser) -> None:
    words = [*ODD_WORDS, "!!", "~"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    flags = ["--num_gpus", "0", "--wait"]
    afar.submit("words", *flags, "--", "/usr/bin/python3", "-c", script, *words)
    assert json.loads(afar.says("scheduler-get-logs", "words")) == words


def test_the_second_command_uses_the_connection_of_the_first(
    afar: SlurmUser, server: SshServer
) -> None:
    # A socket's path is short, and that of a test's home is not.
    afar.environment["XDG_CACHE_HOME"] = "/tmp/slurm-test-cache"
    try:
        afar.says("scheduler-state")
        began_at = time.monotonic()
        afar.says("scheduler-state")
        seconds = time.monotonic() - began_at
        log = (server.folder / "sshd.log").read_text()
        assert log.count("Accepted publickey") == 1, f"{seconds:.2f} s"
    finally:
        path = "ControlPath=/tmp/slurm-test-cache/epoch-scheduler/ssh/%C"
        words = ["ssh", "-F", str(server.config), "-O", "exit", "-o", path, "login"]
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
