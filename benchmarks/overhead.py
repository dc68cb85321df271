"""How much slower a training with steps of 1 ms is with the library than without it.

Epochs with and without it take turns, in a process each; a figure is the median of the ratios of
neighbours, less 1, in per cent. The daemon is present (answers at once), slow (in 5 s), or absent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from timeit import timeit
from typing import Any

import grpc

from benchmarks import figures
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as rpc

STEP_SECONDS = 1e-3
SLOW_SECONDS = 5.0


class Scheduler(rpc.ProfilerServicer):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ended = threading.Event()

    def StartEpoch(self, request: Any, context: Any) -> pb.StartEpochReply:
        self.ended.wait(self.seconds)
        return pb.StartEpochReply()

    def Report(self, request: Any, context: Any) -> pb.Ack:
        self.ended.wait(self.seconds)
        return pb.Ack()

    def EndEpoch(self, request: Any, context: Any) -> pb.EndEpochReply:
        self.ended.wait(self.seconds)
        return pb.EndEpochReply(epochs_done=1)

    def Finish(self, request: Any, context: Any) -> pb.Ack:
        return pb.Ack()


def serve(seconds: float) -> tuple[str, Callable[[], None]]:
    """Where it listens, and how it is ended. Negative: nobody is there."""
    if seconds < 0:
        return "127.0.0.1:1", lambda: None
    scheduler, server = Scheduler(seconds), grpc.server(ThreadPoolExecutor(4))
    rpc.add_ProfilerServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def end() -> None:
        scheduler.ended.set()
        server.stop(grace=0).wait()

    return f"127.0.0.1:{port}", end


class Training:
    """A process that trains for an epoch whenever it is told to."""

    def __init__(self, kind: str, steps: int, work: int, **environment: str) -> None:
        words = ["--train", kind, "--steps", str(steps), "--work", str(work)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.overhead", *words],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.epoch()  # warms up

    def epoch(self) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def overhead(seconds: float, turns: int, steps: int, work: int) -> float:
    """Per cent: the median of the ratios of epochs that take turns."""
    address, end = serve(seconds)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "KUBEPROFILER_SERVER": address,
            "KUBEPROFILER_SNAPSHOTS": folder,
            "KUBEPROFILER_HEARTBEAT_SECONDS": "1",
            "JOB_UUID": "overhead",
            "EPOCHS_TO_BE_DONE": "1000000",
        }
        bare, profiled = (Training(kind, steps, work, **given) for kind in ("bare", "profiled"))
        ratios = []
        for turn in range(turns):
            first, second = (bare, profiled) if turn % 2 else (profiled, bare)
            spent = {first: first.epoch(), second: second.epoch()}
            ratios.append(spent[profiled] / spent[bare])
        for training in (bare, profiled):
            training.end()
    end()
    return (median(ratios) - 1) * 100


def step(work: int) -> None:
    sum(range(work))


def calibrated() -> int:
    """How much work takes 1 ms when nothing disturbs."""
    best = min(timeit(lambda: step(100_000), number=1) for _ in range(50))
    return round(100_000 * STEP_SECONDS / best)


def train(profiled: bool, steps: int, work: int) -> None:
    """For each line of input an epoch, whose seconds are printed."""
    api: Any = None
    if profiled:
        from kubernetesdlprofile.kubeprofiler import KubeProfiler

        api = KubeProfiler()
    for _ in sys.stdin:
        if profiled:
            api.start_epoch()  # what it waits is bound, and not the steps': see docs/library.md
        began = perf_counter()
        for _ in range(steps):
            step(work)
            if profiled:
                api.measure()
        if profiled:
            api.end_epoch()
        sys.stdout.write(f"{perf_counter() - began}\n")
        sys.stdout.flush()


def main() -> None:
    options = figures.options(__doc__, turns=10, steps=500, work=0, train="")
    if options.train:
        train(options.train == "profiled", options.steps, options.work)
        return
    kinds, work = {"present": 0.0, "slow": SLOW_SECONDS, "absent": -1.0}, calibrated()
    figures.show(
        **{
            name: round(overhead(seconds, options.turns, options.steps, work), 3)
            for name, seconds in kinds.items()
        }
    )


if __name__ == "__main__":
    main()
