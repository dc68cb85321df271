"""Honest callers beside hostile connections: `python -m benchmarks.frontdoor --json`.

A process without a token has 2,000 connections to a real daemon. On each it begins a call and never
sends the request; when the daemon has ended the calls, it begins another 2,000 at once, every 5 s.
An honest user and an honest training call meanwhile, every tenth time on a new connection.

    calm_p99_ms      an honest call before the attack
    one_user_p99_ms  all connections come from one address
    many_p99_ms      each comes from an address of its own (127.x.y.z)
    failed           honest calls without an answer, of `honest`
    rss_growth_mib   of the daemon since before the attacks, at its peak (the kernel's VmHWM)
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import selectors
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import grpc
import psutil

from benchmarks.figures import options, show
from benchmarks.hostile import bearer
from benchmarks.malformed import CALL, GREETING, HEADERS, NO_REQUEST, frame
from benchmarks.reports import milliseconds
from scheduler.access.identity import user_name
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.support import Daemon

CONNECTIONS = 2_000
ATTACKER_UID = 65_534  # if root runs this
AGAIN_SECONDS = 5.0
ATTACK_SECONDS = 12.0  # calls are begun three times
NEW_CONNECTION_EVERY = 10  # calls
Attack = tuple[int, bool]  # port; whether each connection has an address of its own


def main() -> None:
    given = options(__doc__, connections=CONNECTIONS, calls=600)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        daemon = Daemon(Path(folder) / "state", "0").start()
        try:
            honest = Honest(daemon)
            process = psutil.Process(daemon.pid)
            honest.call(given.calls // 3)  # buffers and caches get their size
            calm = honest.call(given.calls)
            before = process.memory_info().rss
            peaks, attacked = [], []
            for many in (False, True):
                forget_peak(daemon.pid)
                with attack(honest.port, many, given.connections):
                    attacked.append(honest.call(given.calls, ATTACK_SECONDS))
                peaks.append(peak(daemon.pid) - before)
            show(
                calm_p99_ms=milliseconds(calm, 99),
                one_user_p99_ms=milliseconds(attacked[0], 99),
                many_p99_ms=milliseconds(attacked[1], 99),
                honest=honest.asked,
                failed=honest.failed,
                rss_growth_mib=round(max(peaks) / 2**20, 1),
            )
        finally:
            daemon.end()


def forget_peak(pid: int) -> None:
    """The kernel measures from now on; see proc_pid_clear_refs(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) * 1024


class Honest:
    """A user, and a training of theirs."""

    def __init__(self, daemon: Daemon) -> None:
        self._address = daemon.address
        self.port = int(daemon.address.rpartition(":")[2])
        job_id = daemon.submit(
            *("--image", "none", "--num_gpus", "0", "--max_epochs", "1000000000"),
            *("honest", "--", "sleep", "1000"),
        )
        daemon.wait_state(honest="RUNNING")
        with sqlite3.connect(daemon.state / "scheduler.db") as db:
            ((token,),) = db.execute("select token from jobs where id = ?", (job_id,))
        self._job, self._of_job = job_id, bearer(token)
        self._of_user = bearer(daemon.token(user_name(os.geteuid())))
        self._channel = grpc.insecure_channel(self._address)
        self.asked, self.failed, self._epoch = 0, 0, 0

    def call(self, times: int, seconds: float = 0.0) -> list[float]:
        """Calls at least so often and so long. Returns the seconds to each answer."""
        found: list[float] = []
        until = time.monotonic() + seconds
        while (number := len(found)) < times or time.monotonic() < until:
            if number % NEW_CONNECTION_EVERY == 0:
                self._channel.close()
                alone = [("grpc.use_local_subchannel_pool", 1)]
                self._channel = grpc.insecure_channel(self._address, alone)
            self.asked += 1
            began = time.perf_counter()
            try:
                self._ask(number)
            except grpc.RpcError as error:
                self.failed += 1
                sys.stderr.write(f"an honest call failed: {error}\n")
            found.append(time.perf_counter() - began)
        return found

    def _ask(self, number: int) -> None:
        if number % 2:
            pb_grpc.SchedulerStub(self._channel).GetJob(
                pb.GetJobRequest(job=self._job), metadata=self._of_user, timeout=10
            )
            return
        self._epoch += 1
        profile = pb.Profile(job_id=self._job, attempt=1, epoch=self._epoch, epoch_seconds=1.0)
        pb_grpc.ProfilerStub(self._channel).EndEpoch(
            pb.EndEpochRequest(profiles=[profile]), metadata=self._of_job, timeout=10
        )


# --- the attack ---------------------------------------------------------------------------------


@contextmanager
def attack(port: int, many: bool, connections: int) -> Iterator[None]:
    """While it lasts, another process has that many connections with a call that is not sent."""
    context = multiprocessing.get_context("spawn")
    ready: Queue[int] = context.Queue()
    over = context.Event()
    attacker = context.Process(
        target=_attack, args=(port, many, connections, ready, over), daemon=True
    )
    attacker.start()
    sys.stderr.write(f"{ready.get()} hostile connections\n")
    try:
        yield
    finally:
        over.set()
        attacker.join()


def _attack(port: int, many: bool, connections: int, ready: Queue[int], over: Event) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if os.geteuid() == 0:
        os.setuid(ATTACKER_UID)
    selector = selectors.DefaultSelector()
    for number in range(connections):
        _open(selector, port, number, many)
    ready.put(len(selector.get_map()))
    stream, again = 1, time.monotonic() + AGAIN_SECONDS
    while not over.is_set():
        for key, _ in selector.select(0.05):
            _drain(selector, key, port, many)
        if time.monotonic() >= again:
            stream, again = stream + 2, time.monotonic() + AGAIN_SECONDS
            for key in list(selector.get_map().values()):
                with suppress(OSError):
                    key.fileobj.send(frame(HEADERS, NO_REQUEST, stream, CALL))  # type: ignore[union-attr]  # sockets


def _open(selector: selectors.BaseSelector, port: int, number: int, many: bool) -> None:
    raw = socket.socket()
    if many:
        raw.bind((f"127.{1 + number // 60_000}.{number // 250 % 250}.{1 + number % 250}", 0))
    try:
        raw.connect(("127.0.0.1", port))
        raw.sendall(GREETING + frame(HEADERS, NO_REQUEST, 1, CALL))
    except OSError:
        raw.close()
        return
    raw.setblocking(False)
    selector.register(raw, selectors.EVENT_READ, number)


def _drain(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, port: int, many: bool
) -> None:
    """A connection that the daemon has closed is opened again."""
    raw: socket.socket = key.fileobj  # type: ignore[assignment]  # all are sockets
    try:
        if raw.recv(65_536):
            return
    except BlockingIOError:
        return
    except OSError:
        pass
    selector.unregister(raw)
    raw.close()
    _open(selector, port, key.data, many)


if __name__ == "__main__":
    main()
