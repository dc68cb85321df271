"""Debian's Slurm on loopback, with two nodes of four pretended GPUs, in a folder of its own.

It runs as root and without systemd. With `accounting`, also slurmdbd and MariaDB. The kernel ends
all of it with the test run; `scancel` ends the jobs before.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.clients.influxd import free_ports
from tests.kube.processes import Process
from tests.support import BIN, DEADLINE_SECONDS, eventually

NODES, GPUS = 2, 4
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
    reason="needs root and Debian's Slurm",
)
needs_accounting = pytest.mark.skipif(
    not (shutil.which("slurmdbd") and shutil.which("mariadbd")),
    reason="needs Debian's slurmdbd and mariadb-server",
)

_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
KillWait=2
MessageTimeout=3
MinJobAge={min_job_age}
SlurmdParameters=config_overrides
{accounting}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
PartitionName=graceful Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=cheap Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
"""
_NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 Sockets=1"
    " CoresPerSocket=16 ThreadsPerCore=1 RealMemory=16000 Gres=gpu:a100:{gpus} State=UNKNOWN"
)
_ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/run/munge.sock
AccountingStorageTRES=gres/gpu
"""
_DATABASE = """
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
"""
_GRANT = (
    "create user slurm@'127.0.0.1' identified by 'slurm';"
    "create user slurm@localhost identified by 'slurm';"
    "grant all on slurm_acct_db.* to slurm@'127.0.0.1';"
    "grant all on slurm_acct_db.* to slurm@localhost"
)


@contextmanager
def folder_for_all(prefix: str) -> Iterator[Path]:
    """Other users can read in it, whatever other runs of pytest do to the folder of theirs."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


class SlurmCluster:
    def __init__(self, folder: Path, accounting: bool = False, min_job_age: int = 300) -> None:
        """`min_job_age`: seconds after which the queue forgets a job that has ended."""
        self.folder, self._accounting = folder, accounting
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, Process] = {}
        self._host = socket.gethostname().partition(".")[0]
        self._ports = free_ports(NODES + 3)
        self._min_job_age = min_job_age

    # --- its life -------------------------------------------------------------------------------

    def start(self) -> SlurmCluster:
        for name in ("run", "log", "state", "spool", "munge", "gpus", "db"):
            (self.folder / name).mkdir()
        for number in range(GPUS):
            os.mknod(self.folder / f"gpus/gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self._start_munge()
        self._write_config()
        if self._accounting:
            self._start_accounting()
        self.start_controller()
        for number in range(NODES):
            self.start_node(f"n{number}")
        eventually(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(NODES))
        return self

    def _start_munge(self) -> None:
        key, run = self.folder / "munge/key", self.folder / "run"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = pwd.getpwnam("munge")
        for path in (key.parent, key, run):
            os.chown(path, munge.pw_uid, munge.pw_gid)
        flags = ["--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge.sock"]
        flags += [f"--pid-file={run}/munged.pid", f"--seed-file={run}/seed"]
        self._spawn("munged", *_as("munge"), "/usr/sbin/munged", *flags)
        eventually((run / "munge.sock").exists)

    def _write_config(self) -> None:
        nodes = [
            _NODE.format(name=f"n{n}", host=self._host, port=self._ports[n + 1], gpus=GPUS)
            for n in range(NODES)
        ]
        accounting = "AccountingStorageType=accounting_storage/none"
        if self._accounting:
            accounting = _ACCOUNTING.format(port=self._ports[-1], folder=self.folder)
        text = _CONFIG.format(
            host=self._host,
            port=self._ports[0],
            folder=self.folder,
            min_job_age=self._min_job_age,
            accounting=accounting,
            nodes="\n".join(nodes),
        )
        (self.folder / "slurm.conf").write_text(text)
        gres = [
            f"NodeName=n{n} Name=gpu Type=a100 File={self.folder}/gpus/gpu[0-{GPUS - 1}]"
            for n in range(NODES)
        ]
        (self.folder / "gres.conf").write_text("\n".join(gres) + "\n")

    def _start_accounting(self) -> None:
        data = self.folder / "db"
        mysql = pwd.getpwnam("mysql")
        os.chown(data, mysql.pw_uid, mysql.pw_gid)
        own = ["--no-defaults", f"--datadir={data}"]
        subprocess.run(
            [
                "mariadb-install-db",
                *own,
                "--user=mysql",
                "--auth-root-authentication-method=normal",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (storage,) = free_ports(1)
        database = ["--no-defaults", "-uroot", "-S", f"{data}/m.sock"]
        flags = [f"--socket={data}/m.sock", "--bind-address=127.0.0.1", f"--port={storage}"]
        flags += [f"--pid-file={data}/m.pid", "--innodb-buffer-pool-size=64M", "--skip-log-bin"]
        flags += ["--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"]
        self._spawn("mariadbd", *_as("mysql"), "mariadbd", *own, *flags)
        ping = ["mariadb-admin", *database, "ping"]
        eventually(lambda: subprocess.run(ping, capture_output=True).returncode == 0)
        subprocess.run(["mariadb", *database, "-e", _GRANT], check=True)
        config = self.folder / "slurmdbd.conf"
        text = _DATABASE.format(
            folder=self.folder, host=self._host, port=self._ports[-1], storage=storage
        )
        config.write_text(text)
        config.chmod(0o600)
        self._spawn("slurmdbd", "slurmdbd", "-D")
        add = ["sacctmgr", "-i", "add", "cluster", "test"]
        eventually(
            lambda: (
                subprocess.run(add, env=self._environment(), capture_output=True).returncode == 0
            )
        )
        self.run("sacctmgr", "-i", "add", "account", "lab")
        self.run("sacctmgr", "-i", "add", "user", "root", "account=lab")

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D")

    def start_node(self, name: str) -> None:
        self._spawn(name, "slurmd", "-D", "-N", name)

    def kill(self, name: str) -> None:
        """As a power cut would: `slurmctld`, or a node's slurmd. A controller that has not saved a
        job forgets it, gives its number to another one, and Slurm then takes the node out of use;
        so this one has saved the jobs that run."""
        if name == "slurmctld":
            eventually(self._has_saved)
        self._processes.pop(name).kill()

    def _has_saved(self) -> bool:
        moments = self.run("squeue", "-h", "-t", "all", "-o", "%S").split()
        state = self.folder / "state/job_state"
        began = [datetime.fromisoformat(text).timestamp() for text in moments if text != "N/A"]
        return state.exists() and state.stat().st_mtime > max(began, default=0.0) + 1.0

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def end(self) -> None:
        if "slurmctld" in self._processes:
            self.cancel_all()
        for process in reversed(self._processes.values()):
            process.stop()

    def cancel_all(self) -> None:
        eventually(lambda: not self._cancelled())

    def _cancelled(self) -> list[str]:
        """What was there to cancel: a job that is just being put back is there once more."""
        numbers = self.run("squeue", "-h", "-t", "R,CG,PD,CF,RQ", "-o", "%A").split()
        if numbers:
            self.run("scancel", *numbers, fails=True)
        return numbers

    def _spawn(self, name: str, *words: str | Path) -> None:
        words = ("env", f"SLURM_CONF={self.folder}/slurm.conf", *words)
        self._processes[name] = Process(name, words, self.folder / f"log/{name}.err")
        self._processes[name].start()

    # --- asking it ------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def run(self, *words: str, fails: bool = False) -> str:
        """What it prints; `fails`: it may fail."""
        done = subprocess.run(
            words, env=self._environment(), capture_output=True, text=True, timeout=DEADLINE_SECONDS
        )
        assert fails or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


class SlurmUser:
    """Somebody who types our commands, with a home and a context of their own."""

    def __init__(self, cluster: SlurmCluster, home: Path, **settings: str) -> None:
        self.cluster, self.home = cluster, home
        self.environment: dict[str, str] = {
            **os.environ,
            **cluster.environment,
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        self.configure(**settings)

    def configure(self, resources: str = "", pilot: str = "", **settings: str) -> None:
        """The only context is of type slurm; `settings` are those of `slurm`."""
        lines = ["current_context: lab", "contexts:", "  lab:", "    type: slurm"]
        lines += [f"    resources: {json.dumps(resources)}"] if resources else []
        lines += [f"    pilot: {json.dumps(pilot)}"] if pilot else []
        lines += ["    slurm:"] if settings else []
        lines += [f"      {name}: {json.dumps(value)}" for name, value in settings.items()]
        file = self.home / ".config/epoch-scheduler/config.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")

    def run(
        self, command: str, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, *words],
            env={**self.environment, **(env or {})},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_SECONDS,
        )

    def says(self, command: str, *words: str) -> str:
        done = self.run(command, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name: str, *words: str) -> str:
        return self.says("run-scheduler", *_flags(words), name, *_command(words)).strip()

    def folder(self, job_id: str) -> Path:
        return self.home / ".epoch-scheduler/slurm/jobs" / job_id


def _as(user: str) -> tuple[str, ...]:
    """A change of the user makes the kernel forget with whom the program is to end."""
    change = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--")
    return (*change, "setpriv", "--pdeathsig", "KILL", "--")


def _flags(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _command(words: Sequence[str]) -> Sequence[str]:
    return words[words.index("--") :] if "--" in words else ()
