"""A machine with two pretended GPUs and real processes, on which daemons start and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from scheduler.access.identity import user_name
from scheduler.clusters.local import runner
from scheduler.clusters.local.cluster import LocalCluster
from scheduler.clusters.local.runner import children, stat_of
from scheduler.core.model import JobId, JobSpec, Launch, Pod, Remove, RunKey, Share
from scheduler.gpus.watcher import parse_gpus
from tests.support import eventually

ME = user_name(os.geteuid())
SHARE = Share("here", "gpu0", 4000)
SNAPSHOTS = "snapshots"
SLEEP = "import signal; print('up', flush=True); signal.pause()"
SAVES = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved", flush=True)))
print("up", flush=True)
signal.pause()
"""


def _can_show_snapshots() -> bool:
    place = Path(runner.OLD_SNAPSHOTS)
    ours = not place.exists() or place.stat().st_mode & 0o7777 == runner.MOUNT_POINT_MODE
    unshare = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({runner.CLONE_NEWNS}))"
    tried = ours and os.geteuid() == 0 and subprocess.run([sys.executable, "-c", unshare])
    return bool(tried and tried.returncode == 0)


shows_snapshots = pytest.mark.skipif(
    not _can_show_snapshots(), reason="only root can mount a job's folder as /snapshots"
)


class Machine:
    """The state folder and the processes. `cluster` belongs to the current daemon."""

    def __init__(self, state: Path, **settings: Any) -> None:
        self.state = state
        self._settings = {"grace_seconds": 0.5, "name": "here", **settings}
        self._clusters: list[LocalCluster] = []
        self._others = set(children())
        self.start_daemon()

    def start_daemon(self) -> None:
        """Starts a daemon. The one before it was not asked to stop: it died."""
        self.cluster = LocalCluster(
            self.state, parse_gpus("2x16384"), time.time, "127.0.0.1:7070", **self._settings
        )
        self._clusters.append(self.cluster)

    def launch(self, *command: str, **fields: Any) -> RunKey:
        launch = make_launch(self.state.parent, *command, **fields)
        self.cluster.perform(launch)
        return launch.job_id, launch.attempt

    def script(self, text: str, *arguments: str, **fields: Any) -> RunKey:
        return self.launch(sys.executable, "-c", text, *arguments, **fields)

    def up(self, text: str = SLEEP, **fields: Any) -> RunKey:
        """Launches a script, and waits until it says that it is up."""
        key = self.script(text, **fields)
        self.wait_for_output(key, "up\n")  # Python may write the end of the line by itself
        return key

    def remove(self, key: RunKey) -> None:
        self.cluster.perform(Remove(*key))

    def pod(self, key: RunKey) -> Pod | None:
        pods = [pod for pod in self.cluster.observe().pods if (pod.job_id, pod.attempt) == key]
        assert len(pods) <= 1
        return pods[0] if pods else None

    def wait_until(self, key: RunKey, true: Callable[[Pod], object]) -> Pod:
        seen: list[Pod] = []

        def shown() -> bool:
            seen[:] = [pod] if (pod := self.pod(key)) else []
            return bool(seen and true(seen[0]))

        eventually(shown)
        return seen[0]

    def wait_until_over(self, key: RunKey) -> Pod:
        return self.wait_until(key, lambda pod: not pod.alive)

    def log_text(self, key: RunKey) -> str:
        log = self.cluster.logs / key[0] / f"attempt-{key[1]}" / "rank0.log"
        return log.read_text() if log.exists() else ""

    def wait_for_output(self, key: RunKey, words: str) -> None:
        """Waits until the training has written this."""
        eventually(lambda: words in self.log_text(key))

    def folder(self, key: RunKey) -> Path:
        return self.state / "runs" / f"{key[0]}-{key[1]}"

    def read_started(self, key: RunKey) -> dict[str, Any]:
        eventually((self.folder(key) / "started.json").exists)
        return dict(json.loads((self.folder(key) / "started.json").read_text()))

    def clean_up(self) -> None:
        """Kills everything that a test has left."""
        for started in self.state.glob("runs/*/started.json"):
            with suppress(ValueError, TypeError, KeyError, RecursionError, ProcessLookupError):
                ids = json.loads(started.read_text())
                # A test may have damaged the file: what is not ours must not be killed.
                if ids["runner"] in children():
                    os.kill(ids["runner"], signal.SIGKILL)
                leader = stat_of(ids["pid"])
                if leader and leader.start_time == ids["start_time"]:
                    os.killpg(ids["pid"], signal.SIGKILL)
        for cluster in self._clusters:
            cluster.stop()
            for pod in cluster.observe().pods:
                cluster.perform(Remove(pod.job_id, pod.attempt))
        eventually(self.is_reaped)

    def is_reaped(self) -> bool:
        """Whether no runner is left as a child of this process, not even as a zombie."""
        for cluster in self._clusters:
            cluster.observe()
        return self._others.issuperset(children())


@contextmanager
def machine(state: Path, **settings: Any) -> Iterator[Machine]:
    made = Machine(state, **settings)
    try:
        yield made
    finally:
        made.clean_up()


def make_launch(folder: Path, *command: str, **fields: Any) -> Launch:
    """A launch of a new job. Other arguments are fields of its spec."""
    told: dict[str, Any] = {
        "job_id": JobId(str(uuid.uuid4())),
        "attempt": 1,
        "shares": (SHARE,),
        "epochs_done": 0,
        "max_epochs": 3,
        "token": "secret-of-the-job",
        "renew_library": False,
    }
    told |= {name: fields.pop(name) for name in list(fields) if name in told}
    spec = {"name": "j", "user": ME, "snapshots_dir": str(folder / SNAPSHOTS), "command": command}
    return Launch(spec=JobSpec(**(spec | fields)), **told)


def is_alive(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.alive
