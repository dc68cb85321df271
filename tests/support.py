"""A real daemon for tests: started, asked, killed and started again, with everything it left.

Used by the end-to-end tests, the demo's test and the benchmarks. Nothing here waits by the clock:
`wait` follows the daemon's own stream of changes, and a training goes on when its gate is opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

BIN = Path(sys.executable).parent
Jobs = Mapping[str, scheduler_pb2.Job]  # by name
DEADLINE_SECONDS = 60.0


class Daemon:
    def __init__(self, state: Path, gpus: str = "1x16384", *flags: str) -> None:
        self.state, self.gpus, self.flags = state, gpus, flags
        self._err = state.parent / f"{state.name}.err"
        self.address = "127.0.0.1:0"
        self.environment: Mapping[str, str] = {}  # variables of its process, beside ours
        self.process: subprocess.Popen[str] | None = None
        self._tokens: dict[str, str] = {}
        self.under: tuple[str, ...] = ()  # a command that starts it, such as prlimit

    # --- its life ---------------------------------------------------------------------------

    def start(self) -> Daemon:
        self.spawn()
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), f"the daemon did not start: {line!r} {self.said()}"
        self.address = line.split()[1]
        return self

    def spawn(self) -> None:
        """Only begin to start it: it serves when it has said that it is ready."""
        if self.process is not None and self.process.stdout:
            self.process.stdout.close()
        with self._err.open("ab") as err:
            self.process = subprocess.Popen(
                [
                    *self.under,
                    BIN / "scheduler-daemon",
                    *("--state_dir", self.state, "--gpus", self.gpus, "--listen", self.address),
                    *self.flags,
                ],
                env={
                    "SCHEDULER_RULES__PLAN_EVERY_SECONDS": "0.05",
                    "SCHEDULER_METRICS__LISTEN": "off",
                    "SCHEDULER_GATEWAY__LISTEN": "off",
                    **os.environ,
                    **self.environment,
                },
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def kill(self) -> None:
        """As a power cut would, for this one process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)

    def said(self) -> str:
        return self._err.read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self) -> None:
        """Leave nothing behind: neither the daemon nor what it started."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()
        for started in self.state.glob("runs/*/started.json"):
            who = json.loads(started.read_text())
            for pid in (who["pid"], who["runner"]):
                assert pid > 1, "a number that the kernel does not take for one process"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # --- asking it --------------------------------------------------------------------------

    def token(self, user: str) -> str:
        if user not in self._tokens:
            made = subprocess.run(
                [BIN / "scheduler-daemon", "--state_dir", self.state, "--token_for", user],
                capture_output=True,
                text=True,
                check=True,
            )
            self._tokens[user] = made.stdout.strip()
        return self._tokens[user]

    def run(
        self, *words: str | Path, user: str | None = None, answer: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """One of the commands, as a person would give it in our virtual environment."""
        environment = {
            **os.environ,
            "SCHEDULER_SERVER": self.address,
            "COLUMNS": "120",
            "XDG_CACHE_HOME": str(self.state.parent / "cache"),
        }
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        if user is not None:
            environment["SCHEDULER_TOKEN"] = self.token(user)
        return subprocess.run(
            [BIN / words[0], *words[1:]],
            env=environment,
            input=answer,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    def submit(self, *words: str | Path, user: str | None = None) -> str:
        """The id of a job that must be accepted."""
        done = self.run("run-scheduler", *words, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state_of(self, *flags: str) -> dict[str, Any]:
        done = self.run("scheduler-state", "--output", "json", "--all_users", *flags)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def job_of(self, reference: str) -> dict[str, Any]:
        """One job, as `scheduler-state` tells it in JSON."""
        done = self.run("scheduler-state", reference, "--output", "json")
        assert done.returncode == 0, done.stderr
        (job,) = json.loads(done.stdout)["jobs"]
        found: dict[str, Any] = job
        return found

    def story(self, job_id: str) -> list[scheduler_pb2.Fact]:
        """What the daemon tells of one job, oldest first."""
        with self.stub() as (stub, metadata):
            request = scheduler_pb2.GetJobRequest(job=job_id, story=True)
            return list(stub.GetJob(request, metadata=metadata, timeout=10).story)

    def wait(self, true: Callable[[Jobs], bool], seconds: float = DEADLINE_SECONDS) -> Jobs:
        """The first state, in the stream of all its changes, for which this is so."""
        jobs: Jobs = {}
        with self.stub() as (stub, metadata):
            request = scheduler_pb2.ListJobsRequest(all_users=True, limit=1000)
            try:
                for reply in stub.WatchJobs(request, metadata=metadata, timeout=seconds):
                    jobs = {job.spec.name: job for job in reply.jobs}
                    if true(jobs):
                        return jobs
            except grpc.RpcError as error:
                raise AssertionError(f"never so: {error.code()}\n{jobs}\n{self.said()}") from None
        raise AssertionError(f"the daemon ended its stream\n{jobs}\n{self.said()}")

    def wait_state(self, **states: str) -> Jobs:
        """Until each named job is in that state."""
        return self.wait(
            lambda jobs: all(
                name in jobs and jobs[name].state == state for name, state in states.items()
            )
        )

    @contextlib.contextmanager
    def stub(
        self,
    ) -> Iterator[tuple[scheduler_pb2_grpc.SchedulerStub, Sequence[tuple[str, str]]]]:
        with grpc.insecure_channel(self.address) as channel:
            bearer = f"Bearer {self.token('root')}"
            yield scheduler_pb2_grpc.SchedulerStub(channel), [("authorization", bearer)]


class Gate:
    """A training that reads from it does one epoch for each time it is opened. It has a bell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._bell = _pipe(path), _pipe(path.with_name(f"{path.name}.bell"))

    def open(self, epochs: int = 1) -> None:
        os.write(self._file, b"." * epochs)

    def await_ring(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Until a training stands before it: once for each epoch."""
        assert self.rings(seconds), "no signal came"

    def rings(self, seconds: float) -> bool:
        """Whether a training comes to stand before it in so long."""
        rung, _, _ = select.select([self._bell], [], [], seconds)
        if rung:
            os.read(self._bell, 1)
        return bool(rung)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._bell)


def _pipe(path: Path) -> int:
    os.mkfifo(path, 0o666)
    path.chmod(0o666)
    return os.open(path, os.O_RDWR)  # both ends, so that no process ever sees it closed


def eventually(true: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Waits for events without a notification, such as the end of a foreign process."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)
