"""`make demo`: a real daemon, real trainings and two pretended GPUs, then a summary of the events.

The demo does what a user would do at a terminal: start the daemon, submit jobs with
`run-scheduler`, and look. It submits the urgent job when grid-2 has done some of its epochs.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from demo.picture import Picture
from demo.story import story
from scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

BIN = Path(sys.executable).parent
TRAIN = Path(__file__).with_name("train.py")
SECONDS_MAX = 120.0
URGENT_AFTER_EPOCH = 2  # of grid-2

FIRST = (
    "--estimated_memory 6000 --max_epochs 9 grid-1",
    "--estimated_memory 7000 --max_epochs 9 grid-2",
    "--disable_gpu_sharing --estimated_memory 2000 --max_epochs 7 alone",
)
URGENT = "--priority 10 --estimated_memory 9000 --max_epochs 4 urgent"
NAMES = ("grid-1", "grid-2", "alone", "urgent")


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="epoch-scheduler-demo-") as folder,
        _daemon(Path(folder)) as address,
        grpc.insecure_channel(address) as channel,
    ):
        demo = _Demo(Path(folder), address, scheduler_pb2_grpc.SchedulerStub(channel))
        try:
            return demo.run()
        except KeyboardInterrupt:
            return 130
        finally:
            demo.cancel_all()


@contextlib.contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    words = f"scheduler-daemon --state_dir {folder / 'state'} --gpus 2x16384 --listen 127.0.0.1:0"
    print(f"$ {words}", flush=True)
    log = (folder / "daemon.log").open("w")
    process = subprocess.Popen(
        [BIN / "scheduler-daemon", *words.split()[1:]],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={
            **os.environ,
            "SCHEDULER_GATEWAY__LISTEN": "127.0.0.1:0",
            "SCHEDULER_METRICS__LISTEN": "off",
        },
    )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        if not ready:
            sys.exit(f"the daemon did not start:\n{(folder / 'daemon.log').read_text()}")
        print(" ".join(ready), flush=True)
        yield ready[1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        log.close()


class _Demo:
    def __init__(self, folder: Path, address: str, stub: scheduler_pb2_grpc.SchedulerStub) -> None:
        self.folder, self.address, self.stub = folder, address, stub
        token = self._command("scheduler-daemon", "--state_dir", f"{folder}/state", *_me())
        self.metadata = [("authorization", f"Bearer {token}")]
        self.picture = Picture()

    def run(self) -> int:
        for words in FIRST:
            self._submit(words)
        jobs = self._watch()
        facts = {job.spec.name: self._facts(job.id) for job in jobs}
        print("\nWhat happened:", flush=True)
        for line in story({job.spec.name: job for job in jobs}, facts):
            print(f"  {line}")
        exit_code = self._verdict(jobs)
        self._offer_page()
        return exit_code

    def _watch(self) -> list[scheduler_pb2.Job]:
        """Draws until all jobs have ended; submits the urgent job in between."""
        until = time.monotonic() + SECONDS_MAX
        urgent_is_sent = False
        with self.picture:
            while time.monotonic() < until:
                request = scheduler_pb2.ListJobsRequest(all_users=True)
                jobs = sorted(
                    self.stub.ListJobs(request, metadata=self.metadata, timeout=10).jobs,
                    key=lambda job: NAMES.index(job.spec.name),
                )
                cluster = self.stub.GetCluster(
                    scheduler_pb2.GetClusterRequest(), metadata=self.metadata, timeout=10
                )
                self.picture.draw(cluster, jobs)
                done = {job.spec.name: job.epochs_done for job in jobs}
                if not urgent_is_sent and done["grid-2"] >= URGENT_AFTER_EPOCH:
                    self._submit(URGENT)
                    urgent_is_sent = True
                awaited = NAMES if urgent_is_sent else NAMES[: len(FIRST)]
                if len(jobs) == len(awaited) and all(job.ended_at for job in jobs):
                    return jobs
                time.sleep(0.2)
        sys.exit(f"not all jobs ended within {SECONDS_MAX:.0f} s")

    def _verdict(self, jobs: list[scheduler_pb2.Job]) -> int:
        """grid-1 and grid-2 are the same training: both must learn the same network."""
        networks = {
            job.spec.name: re.findall(r"network (\w+)", self._command("scheduler-get-logs", job.id))
            for job in jobs
        }
        same = networks["grid-1"] == networks["grid-2"] != []
        finished = all(job.state == "FINISHED" for job in jobs)
        if same and finished:
            print(
                f"  grid-1 and grid-2 learned the same network ({networks['grid-1'][0]}),"
                " whether they were stopped or not"
            )
            return 0
        print(f"  unexpected result: {networks} {[job.state for job in jobs]}")
        for job in jobs:
            if job.state != "FINISHED":
                last = self._command("scheduler-get-logs", job.id, "--tail", "1")
                print(f"  {job.spec.name}: {last}")
        return 1

    def _offer_page(self) -> None:
        """On a terminal, the page is there until its reader has seen enough."""
        opened = self._run("scheduler-open")
        if opened.returncode:  # nothing serves it here
            return
        print(f"\nThe same as a page: {opened.stdout.strip()}", flush=True)
        if sys.stdin.isatty() and sys.stdout.isatty():
            print("It logs you in once, within a minute. Enter ends the demo.")
            with contextlib.suppress(EOFError):
                input()

    def _submit(self, words: str) -> None:
        flags = f"--image none --script_path {TRAIN} --snapshots_dir {self.folder / 'snapshots'}"
        self.picture.say(f"$ run-scheduler {words}")
        environment = ["--env", "OPENBLAS_NUM_THREADS=1"]
        self._command("run-scheduler", *flags.split(), *environment, *words.split())

    def _facts(self, job_id: str) -> list[scheduler_pb2.Fact]:
        request = scheduler_pb2.GetJobRequest(job=job_id, story=True)
        return list(self.stub.GetJob(request, metadata=self.metadata, timeout=10).story)

    def _command(self, name: str, *words: str) -> str:
        done = self._run(name, *words)
        if done.returncode:
            sys.exit(f"{name} {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        # As in a shell with this environment active: the jobs get its Python, which has numpy.
        path = f"{BIN}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "SCHEDULER_SERVER": self.address}
        return subprocess.run([BIN / name, *words], env=environment, capture_output=True, text=True)

    def cancel_all(self) -> None:
        """Leaves no job running after an interrupted demo."""
        request = scheduler_pb2.ListJobsRequest(all_users=True, states=["QUEUE", "STOPPING"])
        with contextlib.suppress(grpc.RpcError):
            for job in self.stub.ListJobs(request, metadata=self.metadata, timeout=10).jobs:
                cancel = scheduler_pb2.CancelJobRequest(job=job.id)
                self.stub.CancelJob(cancel, metadata=self.metadata, timeout=10)


def _me() -> list[str]:
    return ["--token_for", getpass.getuser()]


if __name__ == "__main__":
    sys.exit(main())
