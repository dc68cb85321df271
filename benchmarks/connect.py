"""scheduler-connect on a real daemon: how fast a shell opens, and what a forwarded port carries.

    open_ms                     from the start of `scheduler-connect JOB -- true` to its end, median
    echo_ms                     a byte through the terminal and back, median
    up_mb_s, down_mb_s          MB/s through a forwarded port, to the job and from it
    direct_mb_s                 the same bytes by a plain connection on loopback
    tls_down_mb_s               as down_mb_s, over TLS
    daemon_cpu_down, client_…   CPU seconds of each process for a GB downwards
    others_ms_idle, others_ms   p99 of a call of another user, without and during a transfer
    rss_mib_each                what an open shell adds to the daemon
    helper_rss_mib              the process that keeps a shell

`python -m benchmarks.connect --json`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psutil

from benchmarks.figures import options, show
from scheduler.v1 import scheduler_pb2 as pb
from tests.e2e.test_tls import Secured
from tests.kube.certificates import Authority
from tests.kube.processes import free_port
from tests.support import BIN, Daemon, eventually

PIECE = bytes(2**20)
SINK_AND_SOURCE = """
import socket, sys, threading
piece = bytes(2**20)
def answer(connection):
    with connection:
        kind, mib = connection.recv(1), int(connection.recv(9))
        if kind == b"u":
            left, buffer = mib * 2**20, bytearray(2**20)
            while left:
                left -= connection.recv_into(buffer)
            connection.sendall(b"k")
        elif kind == b"e":
            while data := connection.recv(64): connection.sendall(data)
        else:
            for _ in range(mib): connection.sendall(piece)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    while True:
        threading.Thread(target=answer, args=(listening.accept()[0],)).start()
"""


def main() -> None:
    given = options(__doc__, mib=1000, rounds=3, opens=10, shells=16)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Secured(Path(folder), authority := Authority(Path(folder)))
        daemon.start()
        port = free_port()
        try:
            daemon.submit("--no_tracking", "j", "--", "python3", "-c", SINK_AND_SOURCE, str(port))
            daemon.wait_state(j="RUNNING")
            eventually(lambda: _answers(port))
            figures: dict[str, float] = {"direct_mb_s": _rate(port, b"d", given.mib)}
            figures |= _opens(daemon, given.opens) | _shells(daemon, given.shells)
            with _forwarded(daemon, port) as (local, client):
                figures["port_echo_ms"] = _echo(local)
                figures["others_ms_idle"] = _others(daemon)
                for name, kind in (("up", b"u"), ("down", b"d")):
                    rates = [_rate(local, kind, given.mib) for _ in range(given.rounds)]
                    figures[f"{name}_mb_s"] = round(median(rates), 1)
                before = [_cpu(daemon.pid), _cpu(client)]
                _rate(local, b"d", given.mib)
                after = [_cpu(daemon.pid), _cpu(client)]
                used = [(b - a) * 1000 / given.mib for a, b in zip(before, after, strict=True)]
                figures |= {"daemon_cpu_down": round(used[0], 2)}
                figures |= {"client_cpu_down": round(used[1], 2)}
                loading = threading.Thread(target=_rate, args=(local, b"d", 3 * given.mib))
                loading.start()
                figures["others_ms"] = _others(daemon)
                loading.join()
            with _forwarded(daemon, port, f"localhost:{daemon.port}", authority) as (local, _):
                figures["tls_down_mb_s"] = _rate(local, b"d", given.mib)
        finally:
            daemon.end()
    show(**figures, mib=given.mib)


def _answers(port: int) -> bool:
    try:
        return _rate(port, b"d", 1) > 0
    except OSError:
        return False


def _rate(port: int, kind: bytes, mib: int) -> float:
    """MB/s."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start = time.perf_counter()
        connection.sendall(kind + b"%9d" % mib)
        if kind == b"u":
            for _ in range(mib):
                connection.sendall(PIECE)
            assert connection.recv(1) == b"k"
        else:
            left, buffer = mib * 2**20, bytearray(2**20)
            while left:
                got = connection.recv_into(buffer)
                if not got:
                    raise OSError("it has ended too early")
                left -= got
        return round(mib * 2**20 / 1e6 / (time.perf_counter() - start), 1)


def _echo(port: int) -> float:
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"e%9d" % 0)
        for _ in range(200):
            start = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.perf_counter() - start)
    return round(1000 * median(times), 2)


def _opens(daemon: Daemon, count: int) -> dict[str, float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        done = daemon.run("scheduler-connect", "j", "--", "true")
        assert done.returncode == 0, done.stderr
        times.append(time.perf_counter() - start)
    return {"open_ms": round(1000 * median(times), 1)}


def _shells(daemon: Daemon, count: int) -> dict[str, float]:
    waiting = threading.Event()

    def asked() -> Iterator[pb.ConnectRequest]:
        yield pb.ConnectRequest(to=pb.ConnectTo(job="j", command=["sleep", "1000"]))
        waiting.wait()

    before = psutil.Process(daemon.pid).memory_info().rss
    with daemon.stub() as (stub, metadata):
        calls = [stub.Connect(asked(), metadata=metadata) for _ in range(count)]
        for call in calls:
            next(call)
        process = psutil.Process(daemon.pid)
        rss = process.memory_info().rss
        helpers = []
        for child in process.children():
            with suppress(psutil.ZombieProcess):
                if "shell_process.py" in " ".join(child.cmdline()):
                    helpers.append(child.memory_info().rss)
        waiting.set()
        for call in calls:
            call.cancel()
    return {
        "rss_mib_each": round((rss - before) / count / 2**20, 2),
        "helper_rss_mib": round(median(helpers) / 2**20, 1),
    }


def _others(daemon: Daemon) -> float:
    times = []
    with daemon.stub() as (stub, metadata):
        for _ in range(100):
            start = time.perf_counter()
            stub.ListJobs(pb.ListJobsRequest(), metadata=metadata)
            times.append(time.perf_counter() - start)
            time.sleep(0.01)
    return round(1000 * sorted(times)[98], 1)


def _cpu(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


@contextmanager
def _forwarded(
    daemon: Daemon, port: int, server: str = "", authority: Authority | None = None
) -> Iterator[tuple[int, int]]:
    local = free_port()
    flags = ["--ca", str(authority.certificate)] if authority else []
    process = subprocess.Popen(
        [BIN / "scheduler-connect", "j", "--port", f"{port}:{local}", *flags],
        env={
            **os.environ,
            "SCHEDULER_SERVER": server or daemon.address,
            "SCHEDULER_TOKEN": daemon.token("root"),
        },
        stdin=subprocess.DEVNULL,
        stderr=sys.stderr,
    )
    with process:
        try:
            eventually(lambda: _answers(local))
            yield local, process.pid
        finally:
            process.kill()


if __name__ == "__main__":
    main()
