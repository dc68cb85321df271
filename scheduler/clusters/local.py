"""The embedded cluster: this machine's GPUs, and trainings as processes beside the daemon.

What runs is kept by runners (runner.py) and told by files (runs.py), so that this object may come
and go with the daemon. Here is what looks at them all, and what decides as whom a job runs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scheduler import logs
from scheduler.clusters import environment, runner
from scheduler.clusters.environment import Paths
from scheduler.clusters.runs import LocalRun
from scheduler.errors import (
    Busy,
    ConfigError,
    Forbidden,
    Impossible,
    Rejected,
    SchedulerError,
    Unavailable,
)
from scheduler.model import (
    Action,
    Gpu,
    JobSpec,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Remove,
    RunKey,
    Time,
)
from scheduler.ports import Put

LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GATHER_SECONDS = 0.02  # hints come in swarms: one look answers them all
BUSY_SECONDS = 0.2

_RUN_FOLDER = re.compile(r"[0-9a-fA-F-]{36}-[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be executed for a launch, and how: what `dry_run` shows."""

    command: list[str]
    environment: dict[str, str]
    directory: str
    notes: list[str]


class LocalCluster:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(
        self,
        state_dir: Path,
        gpus: Sequence[Gpu],
        clock: Callable[[], Time],
        server: str,
        *,
        grace_seconds: float = 10.0,
        observe_every_seconds: float = 5.0,
        heartbeat_seconds: int = 30,
        name: str | None = None,
    ) -> None:
        self.node = Node(name or socket.gethostname(), tuple(gpus))
        self._nodes = (self.node,)
        self._state_dir = state_dir.absolute()
        self.logs = self._state_dir / "logs"
        self._folder = self._state_dir / "runs"
        self._clock = clock
        self._server = server
        self._grace_seconds = grace_seconds
        self._observe_every_seconds = observe_every_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = threading.Lock()
        self._runs: dict[RunKey, LocalRun] = {}
        self._unstartable: dict[RunKey, Pod] = {}  # of these there is nothing on disk
        self._leaving: list[LocalRun] = []  # forgotten, but their runner is not reaped yet
        self._hints: Hints | None = None
        self._thread: threading.Thread | None = None
        try:
            self._find()
        except OSError as error:
            raise ConfigError(f"state_dir: {_words(error)}") from error

    # -- Cluster ---------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        with self._lock:
            match action:
                case Launch():
                    if key not in self._runs and key not in self._unstartable:
                        self._launch(key, action)
                case Remove():
                    self._remove(key)
            if self._hints:
                self._hints.give()

    def observe(self) -> Observed:
        with self._lock:
            at = self._clock()
            self._leaving = [run for run in self._leaving if not run.reaped()]
            pods = [run.look(at) for run in self._runs.values()]
            return Observed(at, self._nodes, (*pods, *self._unstartable.values()))

    # -- Source ----------------------------------------------------------------------------------

    def start(self, put: Put) -> None:
        """Post what is seen: after each change, at each hint of a runner, and now and then."""
        self._hints = hints = Hints(self._state_dir)
        self._thread = threading.Thread(
            target=self._watch, args=(put, hints), name="local-cluster", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """The trainings go on."""
        if self._hints and self._thread:
            self._hints.end()
            self._thread.join()
            with self._lock:
                self._hints.close()
                self._hints = None

    def _watch(self, put: Put, hints: Hints) -> None:
        while not hints.ended:
            try:
                put(self.observe())
                hints.wait(self._observe_every_seconds)
            except (Busy, Unavailable):
                hints.wait(BUSY_SECONDS)

    # -- for the API -----------------------------------------------------------------------------

    def refuses(self, user: str) -> str | None:
        """Why no job of this user can run here, in one line. None: it can."""
        try:
            self._account(user)
        except Rejected as error:
            return str(error)
        return None

    def preview(self, launch: Launch) -> Preview:
        """What a launch would come to. Raises Rejected if it would come to nothing."""
        spec, account = launch.spec, self._account(launch.spec.user)
        login = _login(account)
        paths = _paths(spec, account, dict(spec.env).get("PATH", login["PATH"]))
        own = environment.environment(
            launch,
            self.node.gpus,
            self._server,
            paths,
            node=self.node.name,
            heartbeat_seconds=self._heartbeat_seconds,
        )
        home = account.pw_dir if Path(account.pw_dir).is_dir() else "/"
        return Preview(
            command=environment.command(spec, paths),
            environment=login | own,
            directory=spec.custom_dir or home,
            notes=environment.notes(spec, paths),
        )

    # -- below the lock --------------------------------------------------------------------------

    def _find(self) -> None:
        """What runs here, or has ended while nobody looked. There is no more to a restart."""
        for folder in (self.logs, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in sorted(self._folder.iterdir()):
            if folder.name.startswith("."):  # half made, or half deleted
                shutil.rmtree(folder, ignore_errors=True)
            elif _RUN_FOLDER.fullmatch(folder.name):
                run = LocalRun(folder)
                self._runs[run.key] = run

    def _launch(self, key: RunKey, launch: Launch) -> None:
        try:
            recorded = self._recorded(launch)
            run = LocalRun.create(self._folder / f"{launch.job_id}-{launch.attempt}", recorded)
            run.look(self._clock())  # which starts its runner
            self._runs[key] = run
        except (SchedulerError, OSError) as error:
            why = _words(error) if isinstance(error, OSError) else error
            self._unstartable[key] = Pod(
                *key,
                PodState.FAILED,
                launch.shares,
                reason=f"cannot start: {why}",
                at=self._clock(),
            )

    def _remove(self, key: RunKey) -> None:
        self._unstartable.pop(key, None)
        run = self._runs.get(key)
        if run is None:
            return
        if run.look(self._clock()).alive:
            run.stop()
            return
        with contextlib.suppress(OSError):  # then it still shows, and we are asked again
            run.forget()
            self._leaving.append(self._runs.pop(key))

    def _recorded(self, launch: Launch) -> dict[str, object]:
        """All that a runner must know; it knows nothing else."""
        log = logs.log_path(self.logs, launch.job_id, launch.attempt, rank=0)
        account = self._account(launch.spec.user)
        preview = self.preview(launch)
        root = os.geteuid() == 0
        return {
            "command": preview.command,
            "environment": preview.environment,
            "directory": preview.directory,
            "snapshots": preview.environment["KUBEPROFILER_SNAPSHOTS"],
            "snapshots_wanted": bool(launch.spec.snapshots_dir),
            "user": account.pw_name,
            "uid": account.pw_uid if root else None,
            "gid": account.pw_gid if root else None,
            "log": str(log),
            "grace_seconds": self._grace_seconds,
            "shares": [(share.node, share.gpu, share.memory_mib) for share in launch.shares],
        }

    def _account(self, user: str) -> pwd.struct_passwd:
        try:
            account = pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise Impossible(f"user {user!r} does not exist on {self.node.name}") from None
        if os.geteuid() not in (0, account.pw_uid):
            me = pwd.getpwuid(os.geteuid()).pw_name
            raise Forbidden(
                f"this daemon is run by {me} and takes jobs of {me} only, not of {user}"
            )
        return account


class Hints:
    """That something has changed. A runner drops a datagram here; the daemon wakes itself too."""

    def __init__(self, folder: Path) -> None:
        self.ended = False
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        (folder / runner.HINTS).unlink(missing_ok=True)
        opened = os.open(folder, os.O_RDONLY)
        try:
            short = f"/proc/self/fd/{opened}/{runner.HINTS}"  # a socket's path has 108 bytes
            self._ear.bind(short)
            self._mouth.connect(short)
        finally:
            os.close(opened)

    def give(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: then there is hint enough
            self._mouth.send(b"look")

    def wait(self, seconds: float) -> None:
        """Until a hint comes, and those that come with it."""
        self._ear.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._ear.recv(16)
            self._ear.settimeout(GATHER_SECONDS)
            while not self.ended:
                self._ear.recv(16)

    def end(self) -> None:
        self.ended = True
        self.give()

    def close(self) -> None:
        self._ear.close()
        self._mouth.close()


def _login(account: pwd.struct_passwd) -> dict[str, str]:
    """What every login has, and nothing else of the daemon's own environment. A bare `python` is
    the daemon's own, which has the client library, unless the job brings a PATH of its own."""
    own = account.pw_uid == os.geteuid()
    usual = os.environ.get("PATH", LOGIN_PATH) if own else LOGIN_PATH
    return {
        "PATH": f"{Path(sys.executable).parent}:{usual}",
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def _paths(spec: JobSpec, account: pwd.struct_passwd, path: str) -> Paths:
    """What a container would mount. A real /data stays itself, unless there is ~/datasets."""
    home = Path(account.pw_dir)
    data = home / "datasets"
    return Paths(
        custom=os.path.normpath(spec.custom_dir) if spec.custom_dir else "",
        snapshots=os.path.normpath(spec.snapshots_dir or home / ".epoch-scheduler/snapshots"),
        data="/data" if Path("/data").is_dir() and not data.is_dir() else str(data),
        python="python" if shutil.which("python", path=path) else sys.executable,
    )


def _words(error: OSError) -> str:
    return ": ".join(str(word) for word in (error.filename, error.strerror) if word)
