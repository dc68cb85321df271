"""A script that logs with a client of others, as a job of a real daemon with its gateway.

The job is preempted at the end of an epoch, and in a later one killed, so that it repeats that
epoch. The gateway is killed as well, again and again. What it has at the end is looked at by its
own interfaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.clients.trainings.epochs import STEPS
from tests.support import DEADLINE_SECONDS, Daemon, Gate, eventually

PYTHON = os.environ.get("CLIENTS", "")
TRAININGS = Path(__file__).parent / "trainings"
EPOCHS = 5
ALL_STEPS = EPOCHS * STEPS
LOOK = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"


def python_with(*modules: str, python: str = PYTHON) -> str:
    """The Python that has them; without it the test is skipped."""
    if not python:
        pytest.skip("CLIENTS names no Python that has them: `make test-clients` installs one")
    if subprocess.run([python, "-c", LOOK, *modules]).returncode:
        pytest.skip(f"{python} lacks one of {', '.join(modules)}")
    return python


@dataclass
class TrackedJob:
    daemon: Daemon
    gate: Gate
    snapshots: Path
    code: Path  # in which the script runs
    url: str  # of the gateway
    id: str = ""
    patience_seconds: float = DEADLINE_SECONDS

    # --- its life -------------------------------------------------------------------------------

    def submit(
        self, python: str, script: str, *words: str, epochs: int = EPOCHS, **env: str
    ) -> None:
        variables = {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "GATE": str(self.gate.path),
            **env,
        }
        self.id = self.daemon.submit(
            *("--num_gpus", "1", "--snapshots_dir", str(self.snapshots), "--retries", "3"),
            *("--custom_dir", str(self.code)),
            *(word for pair in variables.items() for word in ("--env", "=".join(pair))),
            *("--max_epochs", str(epochs), "--script_path", str(TRAININGS / script)),
            *("job", *words),
        )

    def train_through_hardship(self, written_to: str = "") -> None:
        """From its first step to its last. `written_to`: a metric that is read from files; those of
        a training that ends within a second may be overlooked, or not be written."""

        def arrives(epochs: int) -> None:
            self.gate.await_ring(self.patience_seconds)
            if written_to:
                known = epochs * STEPS - 1  # wandb keeps a step back until the next one begins
                eventually(lambda: len(self.values("metrics", written_to, run="")) >= known)

        arrives(1)
        self.kill_gateway()
        self.gate.open()
        arrives(2)  # this epoch is its last one for now
        self.daemon.submit("--num_gpus", "1", "--priority", "10", "urgent", "--", "true")
        self.daemon.wait_state(job="STOPPING")
        self.gate.open()
        self.daemon.wait_state(urgent="FINISHED")
        arrives(3)
        self.kill_gateway()
        self.gate.open()
        arrives(4)  # this one is repeated
        self.kill()
        self.gate.await_ring(self.patience_seconds)
        self.kill_gateway()
        self.gate.open()
        arrives(5)
        self.gate.open()
        jobs = self.daemon.wait(
            lambda jobs: jobs["job"].state in ("FINISHED", "FAILED"), self.patience_seconds
        )
        assert jobs["job"].state == "FINISHED", self.output
        assert (jobs["job"].attempt, jobs["job"].epochs_done) == (3, EPOCHS)

    def kill(self) -> None:
        """Its first process, as an error would."""
        attempt = self.daemon.job_of(self.id)["attempt"]
        started = self.daemon.state / "runs" / f"{self.id}-{attempt}" / "started.json"
        os.kill(json.loads(started.read_text())["pid"], signal.SIGKILL)

    def kill_gateway(self) -> bool:
        """Returns whether there was one."""
        for child in psutil.Process(self.daemon.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                if "scheduler.gateway.command" in child.cmdline():
                    child.kill()
                    child.wait()
                    return True
        return False

    @property
    def output(self) -> str:
        return self.daemon.run("scheduler-get-logs", self.id).stdout

    # --- what the gateway has -------------------------------------------------------------------

    def ask(self, path: str, **query: str) -> Any:
        return self._get(path, query).json()

    def artifact(self, path: str) -> bytes:
        return self._get(f"/api/v1/jobs/{self.id}/artifacts/{path}", {}).content

    def _get(self, path: str, query: Mapping[str, str]) -> httpx.Response:
        """Again if it was just killed."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(
                    f"{self.url}{path}",
                    params=query,
                    headers={"authorization": f"Bearer {self.daemon.token('root')}"},
                    trust_env=False,
                    timeout=60,
                )
                assert answer.status_code in (200, 503), answer.text
                answers[:] = [answer] if answer.status_code == 200 else []
            return bool(answers)

        eventually(answered)
        return answers[0]

    def points(self, measurement: str, field: str, **tags: str) -> list[tuple[int, Any]]:
        """Time and value of each, by time; of a step only that of the newest attempt."""
        where = " AND ".join(
            f"\"{key}\" = '{value}'" for key, value in {"job": self.id, **tags}.items()
        )
        query = f'SELECT "{field}" FROM "{measurement}" WHERE {where}'
        (result,) = self.ask("/query", db="x", epoch="ns", q=query)["results"]
        return [(at, value) for at, value in result.get("series", [{"values": []}])[0]["values"]]

    def values(self, measurement: str, field: str, **tags: str) -> list[Any]:
        return [value for _, value in self.points(measurement, field, **tags)]

    def metrics(self) -> Mapping[str, Any]:
        """What the page Compare shows."""
        told = self.ask("/api/v1/compare", job=self.id)["metrics"]
        return {each["name"]: each["values"][self.id] for each in told}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Of its file, for what no interface shows."""
        path = self.daemon.state / "gateway" / "series.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            return file.execute(query).fetchall()

    def pairs(self, kind: str) -> dict[str, str]:
        return dict(self.rows(f"SELECT key, value FROM pairs WHERE kind = '{kind}'"))

    def troubles(self) -> list[tuple[Any, ...]]:
        """What was refused or lost."""
        return self.rows("SELECT kind, reason, count FROM troubles")

    def await_delivery(self) -> None:
        """Until its relays have nothing left."""
        eventually(lambda: not self.waiting)

    @property
    def waiting(self) -> list[Path]:
        folder = self.snapshots / ".tracking" / self.id
        return [*folder.glob("*/spools/*"), *folder.glob("*/outbox/*")]

    def said(self) -> str:
        """By its relays."""
        logs = (self.snapshots / ".tracking" / self.id).glob("*/relay.log")
        return "".join(log.read_text() for log in sorted(logs))


@contextlib.contextmanager
def tracked_job(folder: Path, **settings: str) -> Iterator[TrackedJob]:
    """`settings`: of the gateway."""
    daemon = Daemon(folder / "state", "1x16384")
    daemon.environment = {
        "SCHEDULER_GATEWAY__LISTEN": "127.0.0.1:0",
        # Nobody may not pass the folders of tests.
        "SCHEDULER_GATEWAY__USER": pwd.getpwuid(os.geteuid()).pw_name,
        "SCHEDULER_HEARTBEAT_SECONDS": "1",
        **{f"SCHEDULER_GATEWAY__{name.upper()}": value for name, value in settings.items()},
    }
    daemon.start()
    gate, code = Gate(folder / "gate"), folder / "code"
    code.mkdir()
    try:
        yield TrackedJob(daemon, gate, folder / "snapshots", code, url_of(daemon))
    finally:
        gate.close()
        daemon.end()


def url_of(daemon: Daemon) -> str:
    """Where it serves, as the daemon tells the command."""
    found: list[str] = []

    def opened() -> bool:
        done = daemon.run("scheduler-open")
        found[:] = [done.stdout.partition("/login")[0]]
        return done.returncode == 0

    eventually(opened)
    return found[0]
