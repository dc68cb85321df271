"""The overhead of the library for a training with steps of 1 ms, in per cent.

The daemon is `present` (answers at once), `slow` (after 5 s), or `absent`. For each of these, a
process trains for some epochs of 1.6 s. Such epochs are short, so the cost of an epoch counts much.
A figure is the sum of

    the cost of a step: five steps without the library, ten with it, five without it, and so on; the
    median of the ratios of these groups, minus 1. All steps run the same code in the same memory,
    and other work on the machine affects both alike.
  + the cost of an epoch: start_epoch, end_epoch, and the work of other threads, which are the
    library's, divided by the time of all its steps. The median of the epochs.

Each median has an interval that contains it with a certainty of 95 %, and so has their sum:

    present, present_low, present_high      CPU
    present_wall, …_low, …_high             time, if the training stands while other threads run
    present_start_ms                        how long `start_epoch` waits; this has a limit and is
                                            not part of the others

On a busy machine an epoch takes longer and contains more of the periodic work, so the figures are
then too high rather than too low.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any, NamedTuple
from zlib import crc32

import grpc

from benchmarks import figures
from kubernetesdlprofile.kubeprofiler import KubeProfiler
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as rpc

STEP_SECONDS = 1e-3
DAEMONS = {"present": 0.0, "slow": 5.0, "absent": -1.0}  # seconds until it answers
BLOCK = 5  # steps; a group has four
DATA = bytes(4096)


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
    """Its address, and a function that ends it. Negative: no daemon listens."""
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


class Spent(NamedTuple):
    """The measurements of one process."""

    step_cpu: list[float]  # ratios of groups
    step_wall: list[float]
    epoch_cpu: list[float]  # relative to all steps of an epoch
    epoch_wall: list[float]
    start_seconds: list[float]


def spent(seconds: float, epochs: int, groups: int, work: int) -> Spent:
    """Measures in a process of its own, with a daemon that answers after `seconds`."""
    address, end = serve(seconds)
    words = ["--epochs", str(epochs), "--groups", str(groups), "--work", str(work)]
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "KUBEPROFILER_SERVER": address,
            "KUBEPROFILER_SNAPSHOTS": folder,
            "JOB_UUID": "overhead",
            "EPOCHS_TO_BE_DONE": "1000000",
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.overhead", *words],
            env={**os.environ, **given},
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    end()
    return Spent(*json.loads(done.stdout))


def told(name: str, found: Spent) -> dict[str, float]:
    shown = {f"{name}_start_ms": round(median(found.start_seconds) * 1e3, 1)}
    for key, parts in (
        (name, (found.step_cpu, found.epoch_cpu)),
        (f"{name}_wall", (found.step_wall, found.epoch_wall)),
    ):
        lows, highs = zip(*map(figures.interval, parts), strict=True)
        for suffix, ratios in (("", map(median, parts)), ("_low", lows), ("_high", highs)):
            shown[key + suffix] = round((sum(ratios) - 1) * 100, 3)
    return shown


# --- the training -------------------------------------------------------------------------------


def step(work: int) -> None:
    # Not the sum of a range: that makes a million numbers, so the result would depend on the
    # addresses of the few numbers that the library makes.
    for _ in range(work):
        crc32(DATA)


def calibrated() -> int:
    """The amount of work that takes 1 ms without disturbance."""
    least = float("inf")
    for _ in range(50):
        began = thread_time()
        step(100)
        least = min(least, thread_time() - began)
    return round(100 * STEP_SECONDS / least)


def train(epochs: int, groups: int, work: int) -> Spent:
    api, found = KubeProfiler(), Spent([], [], [], [], [])
    for _ in range(epochs + 1):
        train_epoch(api, groups, work, found)
    for ratios in found:
        del ratios[: len(ratios) // (epochs + 1)]  # the first epoch is a warm-up
    return found


def train_epoch(api: KubeProfiler, groups: int, work: int, found: Spent) -> None:
    before, began = clocks(), others()
    api.start_epoch()
    started = clocks()
    cpu = started[0] - before[0]
    found.start_seconds.append(started[1] - before[1])
    steps = 0.0
    for _ in range(groups):
        times = [clocks()]
        for library in (None, api, api, None):
            make_steps(work, library)
            times.append(clocks())
        for clock, ratios in enumerate((found.step_cpu, found.step_wall)):
            first, second, _, fourth, fifth = (at[clock] for at in times)
            ratios.append((fourth - second) / (second - first + fifth - fourth))
        steps += times[-1][0] - times[0][0]
    before = clocks()
    api.end_epoch()
    ended = clocks()
    threads = others() - began
    found.epoch_cpu.append((cpu + ended[0] - before[0] + threads) / steps)
    found.epoch_wall.append((ended[1] - before[1] + threads) / steps)


def make_steps(work: int, api: KubeProfiler | None) -> None:
    if api is None:
        for _ in range(BLOCK):
            step(work)
    else:
        for _ in range(BLOCK):
            step(work)
            api.measure()


def clocks() -> tuple[float, float]:
    return thread_time(), perf_counter()


def others() -> float:
    """CPU of all threads except this one."""
    return process_time() - thread_time()


def main() -> None:
    options = figures.options(__doc__, epochs=12, groups=80, work=0, only="")
    if options.work:
        json.dump(train(options.epochs, options.groups, options.work), sys.stdout)
        return
    work = calibrated()
    shown: dict[str, float] = {}
    for name in options.only.split() or DAEMONS:
        shown |= told(name, spent(DAEMONS[name], options.epochs, options.groups, work))
    figures.show(**shown)


if __name__ == "__main__":
    main()
