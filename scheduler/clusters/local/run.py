"""One run on this machine, as its folder tells: what is asked of its runner, what became of it.

The files are described in runner.py. Nothing here is remembered that cannot be read again, so a
daemon that starts anew knows as much as the one before it did.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from scheduler import run_logs
from scheduler.clusters.local import runner
from scheduler.clusters.local.owners import belongs_to
from scheduler.core.model import (
    EXIT_STOPPED,
    Failure,
    JobId,
    Pod,
    PodState,
    Profile,
    RunKey,
    Share,
    Time,
)

UNREPORTED_BYTES_MAX = 2**20

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _EpochReport(msgspec.Struct):
    """One epoch as the client library writes it down."""

    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    step_seconds: Seconds = 0.0
    epoch_seconds: Seconds = 0.0
    samples_per_second: Seconds = 0.0
    memory_mib: Count = 0
    gpu_util: Seconds = 0.0


class LocalRun:
    """A run whose launch is on disk. Not safe for use by two threads at a time."""

    def __init__(self, folder: Path) -> None:
        job_id, _, attempt = folder.name.rpartition("-")
        self.key: RunKey = JobId(job_id), int(attempt)
        self.folder = folder
        launch = _read(folder / runner.LAUNCH) or {}
        self.log = Path(launch.get("log", os.devnull))
        self.shares = tuple(Share(*share) for share in launch.get("shares", ()))
        self.stopping = (folder / runner.STOP).exists()
        self._runner: subprocess.Popen[bytes] | None = None
        self._started: dict[str, Any] | None = None
        self._pod = self._build_pod(PodState.PENDING)

    @classmethod
    def create(cls, folder: Path, launch: Mapping[str, Any]) -> LocalRun:
        """The folder appears whole, or not at all: then the launch is asked for again."""
        unfinished = folder.with_name(f".{folder.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        path = unfinished / runner.LAUNCH
        path.touch(mode=0o600)  # the job's token is in it
        with path.open("w") as file:
            json.dump(launch, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(folder)
        return cls(folder)

    def observe(self, now: Time) -> Pod:
        """The same object again while nothing changed. What cannot be seen is as it was."""
        self.is_reaped()
        if self._pod.alive:
            with contextlib.suppress(OSError):
                pod = self._observe(now)
                self._pod = self._pod if pod == self._pod else pod
        return self._pod

    def stop(self) -> None:
        """Ask the runner to end the training; it knows how. Asking twice is asking once."""
        self.stopping = True
        with contextlib.suppress(OSError):
            (self.folder / runner.STOP).touch(mode=0o600)
            # A runner looks for that file after it has written `started.json`. So either it
            # finds the one, or we find the other and tell it.
            self._started = self._started or _read(self.folder / runner.STARTED)
            if self._started and self._has_runner():
                os.kill(self._started["runner"], signal.SIGTERM)  # the lock is held: it is the one

    def keepers(self) -> dict[int, RunKey]:
        """Its runner and its first process, as long as there is a runner: above all that is its."""
        if not self._pod.alive or self._started is None:
            return {}
        return {self._started[who]: self.key for who in ("runner", "pid") if who in self._started}

    def is_reaped(self) -> bool:
        """Whether no zombie is left of the runner, if it is a child of ours."""
        return self._runner is None or self._runner.poll() is not None

    def unreported_epochs(self) -> tuple[Profile, ...]:
        """The epochs that it had finished and could report to nobody when it ended. Believed as
        far as a report would be, because whoever holds the job's token could as well report."""
        if self._pod.alive:
            return ()
        try:
            with (self.folder / runner.LAST_WORDS).open("rb") as file:
                said = msgspec.json.decode(
                    file.read(UNREPORTED_BYTES_MAX) or b"[]", type=list[_EpochReport]
                )
        except (OSError, msgspec.MsgspecError):
            return ()
        return tuple(Profile(*self.key, **msgspec.structs.asdict(epoch)) for epoch in said)

    def forget(self) -> None:
        """Only the log stays."""
        gone = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(gone, ignore_errors=True)
        self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _observe(self, now: Time) -> Pod:
        if ended := self._read_ended():
            return ended
        self._started = self._started or _read(self.folder / runner.STARTED)
        if self._started is None:
            return self._start_runner(now)
        if self._has_runner():
            return self._build_pod(PodState.TERMINATING if self.stopping else PodState.RUNNING)
        if ended := self._read_ended():  # the runner finished between the two glances
            return ended
        if _kill_remaining(self._started, self.key):
            return self._build_pod(PodState.TERMINATING)
        return self._mark_ended(Failure.LOST, now)

    def _start_runner(self, now: Time) -> Pod:
        code = self._runner.returncode if self._runner else 0
        if code is None:
            return self._build_pod(PodState.PENDING)
        if code < 0:
            return self._mark_ended(Failure.LOST, now)
        if code > 0:
            errno = code - runner.CANNOT_START
            trouble = os.strerror(errno) if errno > 0 else f"its runner failed with code {code}"
            return self._mark_ended(f"cannot start: {trouble}", now)
        # No runner that we know of: the daemon was started anew. If there is one nevertheless,
        # the second finds the lock held, and goes at once.
        try:
            self._runner = subprocess.Popen(
                [sys.executable, "-I", "-S", runner.__file__, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return self._mark_ended(f"cannot start: {error.strerror}", now)
        return self._build_pod(PodState.PENDING)

    def _has_runner(self) -> bool:
        """Whether a runner lives. Reliable once `started.json` is there."""
        try:
            lock = os.open(self.folder / runner.LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _read_ended(self) -> Pod | None:
        ended = _read(self.folder / runner.ENDED)
        if ended is None:
            return None
        code = ended.get("exit_code")
        if code is not None and code < 0:
            code = 128 - code  # as shells and Kubernetes tell a signal
        state, reason = self._verdict(ended)
        said = run_logs.read_out_of_memory_line(self.log) if reason == Failure.OUT_OF_MEMORY else ""
        return self._build_pod(state, exit_code=code, reason=reason, said=said, at=ended.get("at"))

    def _verdict(self, ended: Mapping[str, Any]) -> tuple[PodState, str]:
        code = ended.get("exit_code")
        if said := ended.get("reason"):
            return PodState.FAILED, said
        if code is None or (ended["stopped"] and not self.stopping):
            return PodState.FAILED, Failure.LOST  # whatever it made of a stop that was not ours
        if code == 0:
            return PodState.SUCCEEDED, ""
        if ended["killed"]:
            return PodState.FAILED, "killed: it did not stop when it was asked to"
        if ended["stopped"]:
            return PodState.FAILED, "stopped"
        if code != EXIT_STOPPED and run_logs.read_out_of_memory_line(self.log):
            return PodState.FAILED, Failure.OUT_OF_MEMORY
        return (
            PodState.FAILED,
            f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}",
        )

    def _mark_ended(self, reason: str, now: Time) -> Pod:
        """End it in the runner's place."""
        with contextlib.suppress(OSError):  # then it is found out again
            ended = self.folder / f".{runner.ENDED}"
            ended.write_text(json.dumps({"reason": reason, "at": now}))
            ended.rename(self.folder / runner.ENDED)
        return self._build_pod(PodState.FAILED, reason=reason, at=now)

    def _build_pod(self, state: PodState, **more: Any) -> Pod:
        return Pod(*self.key, state, self.shares, **more)


def _read(path: Path) -> dict[str, Any] | None:
    """None: it is not there. Empty: it is, but damaged."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _kill_remaining(started: Mapping[str, Any], key: RunKey) -> bool:
    """Of a training whose runner is gone, also what has left its session. Tells whether anything
    was found alive."""
    leader, boot = started.get("pid"), started.get("boot_id")
    if leader is None or boot != runner.boot_id():
        return False
    stat = runner.stat_of(leader)
    if stat and stat.start_time != started["start_time"]:
        return False  # the number is another's by now: not before its whole session was gone
    left = [
        pid
        for pid, stat in runner.processes()
        if stat.alive and (stat.session == leader or belongs_to(pid, key))
    ]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
