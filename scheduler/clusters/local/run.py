"""One run on this machine, read from its folder: requests to its runner, and how it ended.

The files are described in runner.py. Everything in memory here can be read again, so a restarted
daemon knows as much as the one before it.
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
from typing import Annotated, Any, TypeVar

import msgspec
import structlog

from scheduler import run_logs
from scheduler.clusters.local import cgroups, runner
from scheduler.clusters.local.owners import remaining_processes
from scheduler.core.model import (
    EXIT_SKIPPED,
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

log = structlog.get_logger("scheduler.clusters.local.run")

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
Pid = Annotated[int, msgspec.Meta(ge=2, le=2**22)]  # Linux has no greater ones
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _EpochReport(msgspec.Struct):
    """One epoch as the client library writes it to the file."""

    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    step_seconds: Seconds = 0.0
    epoch_seconds: Seconds = 0.0
    samples_per_second: Seconds = 0.0
    memory_mib: Count = 0
    gpu_util: Seconds = 0.0
    score: float | None = None


class _Launched(msgspec.Struct):
    """What `launch.json` says that is still needed after the start."""

    log: str = ""
    shares: list[tuple[str, str, int]] = []
    uid: int | None = None  # of the job's user, if that is another one than the daemon's


class _Started(msgspec.Struct):
    """`started.json`. Without `runner` and `pid`, the file is damaged."""

    runner: Pid | None = None
    pid: Pid | None = None
    start_time: int | None = None
    boot_id: str = ""
    cgroup: str = ""
    output: str = ""  # the pipe into which it prints, as /proc shows it


class _Ended(msgspec.Struct):
    """`ended.json`. A damaged one is that of a run that was lost."""

    exit_code: Annotated[int, msgspec.Meta(ge=-255, le=255)] | None = None
    stopped: bool = False
    killed: bool = False
    reason: str = ""
    at: float | None = None
    refused: bool = False  # what the machine lacked, not the job: see runner.NOT_THE_JOBS_FAULT


_File = TypeVar("_File", _Launched, _Started, _Ended)


class LocalRun:
    """A run with its launch on disk. Not safe for use by two threads at a time."""

    def __init__(self, folder: Path) -> None:
        job_id, _, attempt = folder.name.rpartition("-")
        self.key: RunKey = JobId(job_id), int(attempt)
        self.folder = folder
        launch = _read(folder / runner.LAUNCH, _Launched) or _Launched()
        self._startable = bool(launch.log)
        self.log = Path(launch.log or os.devnull)
        self.uid = launch.uid  # of the job's user; None: it is ours
        self.shares = tuple(Share(*share) for share in launch.shares)
        self.stopping = (folder / runner.STOP).exists()
        self._runner: subprocess.Popen[bytes] | None = None
        self._started: _Started | None = None
        self._pod = self._build_pod(PodState.PENDING)

    @classmethod
    def create(cls, folder: Path, launch: Mapping[str, Any]) -> LocalRun:
        """Makes the folder, whole or not at all; in the latter case the launch is repeated."""
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
        """Returns the same object as long as nothing changed, or the files cannot be read."""
        self.is_reaped()
        if self._pod.alive:
            with contextlib.suppress(OSError):
                pod = self._observe(now)
                self._pod = self._pod if pod == self._pod else pod
        return self._pod

    def stop(self) -> None:
        """Asks the runner to end the training. Idempotent."""
        self.stopping = True
        with contextlib.suppress(OSError):
            (self.folder / runner.STOP).touch(mode=0o600)
            # A runner checks for that file after it has written `started.json`. So either the
            # runner finds that file, or this process finds `started.json` and sends a signal.
            self._started = self._started or _read(self.folder / runner.STARTED, _Started)
            if self._started and self._has_runner():
                # The lock is held, so the pid is still the runner's, unless the file is damaged.
                if self._started.runner and _is_runner(self._started.runner, self.folder):
                    os.kill(self._started.runner, signal.SIGTERM)
                else:
                    _kill_remaining(self._started, self.key, self.uid)

    def keepers(self) -> dict[int, RunKey]:
        """The runner and the first process, while there is a runner: ancestors of all others."""
        if not self._pod.alive or self._started is None:
            return {}
        return {pid: self.key for pid in (self._started.runner, self._started.pid) if pid}

    def is_reaped(self) -> bool:
        """Whether the runner leaves no zombie, if it is a child of this process."""
        return self._runner is None or self._runner.poll() is not None

    def unreported_epochs(self) -> tuple[Profile, ...]:
        """The epochs that it had finished but could not report before it ended. They are trusted
        as much as a report, because a process with the job's token could report them as well."""
        if self._pod.alive:
            return ()
        try:
            with (self.folder / runner.LAST_WORDS).open("rb") as file:
                said = msgspec.json.decode(
                    file.read(runner.LAST_WORDS_BYTES_MAX) or b"[]", type=list[_EpochReport]
                )
        except (OSError, msgspec.MsgspecError):
            return ()
        return tuple(Profile(*self.key, **msgspec.structs.asdict(epoch)) for epoch in said)

    def forget(self) -> None:
        """Deletes everything except the log."""
        gone = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(gone, ignore_errors=True)
        self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _observe(self, now: Time) -> Pod:
        if ended := self._read_ended():
            return ended
        self._started = self._started or _read(self.folder / runner.STARTED, _Started)
        if self._started is None:
            return self._start_runner(now)
        if self._has_runner():
            return self._build_pod(PodState.TERMINATING if self.stopping else PodState.RUNNING)
        if ended := self._read_ended():  # the runner finished between the two reads
            return ended
        if _kill_remaining(self._started, self.key, self.uid):
            return self._build_pod(PodState.TERMINATING)
        return self._mark_ended(Failure.LOST, now)

    def _start_runner(self, now: Time) -> Pod:
        if not self._startable:
            return self._mark_ended(Failure.LOST, now)
        code = self._runner.returncode if self._runner else 0
        if code is None:
            return self._build_pod(PodState.PENDING)
        if code < 0:
            return self._mark_ended(Failure.LOST, now)
        if code > 0:
            errno = code - runner.CANNOT_START
            if errno > 0:  # it found something wrong with our files, and none of the job's
                return self._mark_refused(os.strerror(errno), now)
            return self._mark_ended(f"cannot start: its runner failed with code {code}", now)
        # There is no runner, or this daemon does not know it after a restart. In the latter case
        # the second runner finds the lock held, and exits at once.
        try:
            self._runner = subprocess.Popen(
                [sys.executable, "-I", "-S", runner.__file__, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return self._mark_refused(error.strerror or str(error), now)
        return self._build_pod(PodState.PENDING)

    def _has_runner(self) -> bool:
        """Whether a runner lives. Reliable once `started.json` exists."""
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
        ended = _read(self.folder / runner.ENDED, _Ended)
        if ended is None:
            return None
        code = ended.exit_code
        if code is not None and code < 0:
            code = 128 - code  # as shells and Kubernetes write a signal
        state, reason = self._verdict(ended)
        if ended.refused:
            return self._build_pod(state, reason=Failure.REFUSED, said=reason, at=ended.at)
        said = run_logs.read_out_of_memory_line(self.log) if reason == Failure.OUT_OF_MEMORY else ""
        if reason == Failure.LOST:
            said = run_logs.read_old_library_error(self.log)
        return self._build_pod(state, exit_code=code, reason=reason, said=said, at=ended.at)

    def _verdict(self, ended: _Ended) -> tuple[PodState, str]:
        code = ended.exit_code
        if ended.reason:
            return PodState.FAILED, ended.reason
        if code is None or (ended.stopped and not self.stopping):
            # Not this daemon stopped it, so its reaction to the signal does not count.
            return PodState.FAILED, Failure.LOST
        if code == 0:
            return PodState.SUCCEEDED, ""
        if ended.killed:
            return PodState.FAILED, "killed: it did not stop when it was asked to"
        if ended.stopped:
            return PodState.FAILED, "stopped"
        if code == EXIT_SKIPPED and (said := run_logs.read_skip_line(self.log)):
            return PodState.FAILED, said
        if code != EXIT_STOPPED and run_logs.read_out_of_memory_line(self.log):
            return PodState.FAILED, Failure.OUT_OF_MEMORY
        if code > 0 and run_logs.read_old_library_error(self.log):
            return PodState.FAILED, Failure.LOST
        return (
            PodState.FAILED,
            f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}",
        )

    def _mark_refused(self, why: str, now: Time) -> Pod:
        """Records that nothing was started, which is not the job's fault."""
        said = f"cannot start: {why}"
        self._mark_ended(said, now, refused=True)
        return self._build_pod(PodState.FAILED, reason=Failure.REFUSED, said=said, at=now)

    def _mark_ended(self, reason: str, now: Time, *, refused: bool = False) -> Pod:
        """Records the end in place of the runner."""
        with contextlib.suppress(OSError):  # then the next observation finds it again
            ended = self.folder / f".{runner.ENDED}"
            ended.write_text(json.dumps({"reason": reason, "refused": refused, "at": now}))
            ended.rename(self.folder / runner.ENDED)
        return self._build_pod(PodState.FAILED, reason=reason, at=now)

    def _build_pod(self, state: PodState, **more: Any) -> Pod:
        return Pod(*self.key, state, self.shares, **more)


def _read(path: Path, kind: type[_File]) -> _File | None:
    """Returns the file's content; None if there is no file, only defaults if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError, RecursionError, IsADirectoryError):
        log.error("run_file_damaged", path=str(path))
        return kind()


def _is_runner(pid: int, folder: Path) -> bool:
    try:
        return os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _kill_remaining(started: _Started, key: RunKey, uid: int | None) -> bool:
    """Kills the processes of a training that has lost its runner, including those that left its
    session. Returns whether any was alive."""
    leader = started.pid
    if leader:
        stat = runner.stat_of(leader)
        if started.boot_id != runner.boot_id():
            return False
        if stat and stat.start_time != started.start_time:
            leader = None  # the pid was reused, which happens only after its session was gone
    if started.cgroup and cgroups.end(started.cgroup):
        return True
    left = remaining_processes(leader, started.output, key, uid)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
