"""What logging through a relay costs a training with steps of 1 ms that logs 10 values each step.

    datagrams  line protocol, one datagram each step, as pytelegraf sends it
    mlflow     a request with 1,000 values each 100 steps, as MLflow's client sends batches

The baseline makes the same calls to a sink: a socket whose datagrams nobody reads, and a server
that answers and keeps nothing. In one process, 250 steps log to the sink, 500 to the relay, 250 to
the sink, and so on. The figure is the median of the ratios of these groups, minus 1, in per cent,
with an interval that contains it with a certainty of 95 %:

    datagrams_present, …_low, …_high   time; the gateway is real and beside a real daemon
    datagrams_present_cpu, …           CPU of the training
    datagrams_slow, datagrams_absent   the gateway answers after 5 s, or there is none
    mlflow_present, …                  the same

and of the relay itself:

    busy_cpu     CPU, in per cent of a core, while 10,000 values arrive each second in datagrams
    rss_mib      its memory after all of that
    idle_cpu     its CPU when nothing arrives, with a file of TensorBoard's that it watches
    idle_rss_mib
    lost         values that were logged and are not in the gateway
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks import figures
from benchmarks.overhead import calibrated, step
from benchmarks.reports import Job, start_jobs
from scheduler.clusters.local.relay_start import bind, spawn
from tests.gateway.serving_http import gateway
from tests.support import Daemon

BLOCK = 250  # steps; a group has four
VALUES = 10
BATCH_STEPS = 100
WAYS = ("datagrams", "mlflow")
GATEWAYS = ("present", "slow", "absent")
SLOW_SECONDS = 5.0
NAMES = [f"metric_{number}" for number in range(VALUES)]
JOB = "8d3b4b0a-9c4e-4a8e-9e0a-0123456789ab"


class SlowGateway(BaseHTTPRequestHandler):
    """It takes everything, after a while."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(SLOW_SECONDS)
        first = int(parse_qs(urlsplit(self.path).query)["first"][0])
        told = json.dumps({"next": first + 1 + body.count(b"\n"), "refused": 0}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        with suppress(OSError):  # the relay is gone
            self.wfile.write(told)

    def log_message(self, format: str, *args: object) -> None:
        pass


class RelayProcess:
    """A relay without a runner."""

    def __init__(self, folder: Path, url: str, job: Job) -> None:
        self._sockets, self.job = bind(), job
        self.port: int = self._sockets[0].getsockname()[1]
        watched = folder / "watched"
        watched.mkdir(parents=True)
        (watched / "events.out.tfevents.1700000000.host").touch()
        settings = {
            **{"job_id": job[0], "token": job[1], "attempt": 1, "gateway": url},
            **{"folder": str(folder / "1"), "folders": [str(watched)], "linger_seconds": 60.0},
        }
        reading, self._leash = os.pipe()
        os.write(self._leash, json.dumps(settings).encode() + b"\n")
        self.pid = spawn(reading, *(each.fileno() for each in self._sockets))
        os.close(reading)

    def cpu_seconds(self) -> float:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)

    def end(self) -> None:
        os.close(self._leash)
        os.waitpid(self.pid, 0)
        for each in self._sockets:
            each.close()

    def kill(self) -> None:
        os.kill(self.pid, 9)
        self.end()


# --- the training, in a process of its own --------------------------------------------------------


def datagrams(port: int, job: Job) -> Callable[[int], None]:
    mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mouth.connect(("127.0.0.1", port))

    def log(number: int) -> None:
        fields = ",".join(f"{name}={number / (at + 1)}" for at, name in enumerate(NAMES))
        mouth.send(f"training,rank=0 {fields} {time.time_ns()}\n".encode())

    return log


def mlflow(port: int, job: Job) -> Callable[[int], None]:
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting: list[dict[str, Any]] = []

    def log(number: int) -> None:
        at = time.time_ns() // 1_000_000
        waiting.extend(
            {"key": name, "value": number / (place + 1), "timestamp": at, "step": number}
            for place, name in enumerate(NAMES)
        )
        if len(waiting) < VALUES * BATCH_STEPS:
            return
        body = json.dumps({"run_id": job[0], "metrics": waiting}).encode()
        waiting.clear()
        head = (
            "POST /api/2.0/mlflow/runs/log-batch HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {job[1]}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        peer.sendall(head.encode() + body)
        answer = peer.recv(65536)
        if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"{}"):
            raise RuntimeError(f"not logged: {answer!r}")

    return log


def train(given: Any) -> None:
    open_log = {"datagrams": datagrams, "mlflow": mlflow}[given.way]
    job = given.job, given.token
    to_relay, to_sink = open_log(given.relay, job), open_log(given.sink, job)
    walls: list[float] = []
    cpus: list[float] = []
    number = 0
    for _ in range(given.groups + 1):
        times = [(perf_counter(), thread_time())]
        for log in (to_sink, to_relay, to_relay, to_sink):
            for _ in range(BLOCK):
                step(given.work)
                log(number)
                number += 1
            times.append((perf_counter(), thread_time()))
        for clock, ratios in enumerate((walls, cpus)):
            first, second, _, fourth, fifth = (at[clock] for at in times)
            ratios.append((fourth - second) / (second - first + fifth - fourth))
    json.dump([walls[1:], cpus[1:]], sys.stdout)  # the first one is a warm-up


# --- beside it ------------------------------------------------------------------------------------


@contextmanager
def sinks() -> Iterator[dict[str, int]]:
    """The port for each way."""
    unread = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unread.bind(("127.0.0.1", 0))
    listener = socket.create_server(("127.0.0.1", 0))

    def discard() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=discard_requests, args=(peer,), daemon=True).start()

    threading.Thread(target=discard, daemon=True).start()
    with unread, listener:
        yield {
            "datagrams": unread.getsockname()[1],
            "mlflow": listener.getsockname()[1],
        }


def discard_requests(peer: socket.socket) -> None:
    with peer:
        data = b""
        while more := peer.recv(2**20):
            data += more
            head, found, body = data.partition(b"\r\n\r\n")
            if found and len(body) >= int(head.rpartition(b"Content-Length: ")[2]):
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                data = b""


def told(name: str, walls: list[float], cpus: list[float]) -> dict[str, float]:
    shown = {}
    for key, ratios in ((name, walls), (f"{name}_cpu", cpus)):
        low, high = figures.interval(ratios)
        for suffix, ratio in (("", median(ratios)), ("_low", low), ("_high", high)):
            shown[key + suffix] = round((ratio - 1) * 100, 3)
    return shown


def measure(
    relay: RelayProcess, way: str, name: str, groups: int, work: int, sink: int
) -> dict[str, float]:
    words = ["--way", way, "--relay", str(relay.port), "--sink", str(sink)]
    words += ["--job", relay.job[0], "--token", relay.job[1]]
    began, cpu = perf_counter(), relay.cpu_seconds()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.relay", *words),
            *("--groups", str(groups), "--work", str(work)),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    spent = 200 * (relay.cpu_seconds() - cpu) / (perf_counter() - began)  # half of it is the sink's
    walls, cpus = json.loads(done.stdout)
    return {**told(f"{way}_{name}", walls, cpus), f"{way}_{name}_busy": round(spent, 2)}


def idle(relay: RelayProcess, seconds: float) -> dict[str, float]:
    time.sleep(3)  # until what it was told before is delivered
    cpu, began = relay.cpu_seconds(), perf_counter()
    time.sleep(seconds)
    share = 100 * (relay.cpu_seconds() - cpu) / (perf_counter() - began)
    return {"idle_cpu": round(share, 3), "idle_rss_mib": relay.memory_mib()}


def present(folder: Path, given: Any, work: int, to: dict[str, int]) -> dict[str, Any]:
    """A real gateway, which has all of it at the end."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    folder.mkdir()
    daemon = Daemon(folder / "state", "0").start()
    try:
        (job,) = start_jobs(daemon, 1)
        kept = folder / "kept"
        kept.mkdir()
        with gateway(daemon.address, "--folder", str(kept), "--user", user) as served:
            relay = RelayProcess(folder / "job", served.url, job)
            shown: dict[str, Any] = idle(relay, given.seconds)
            for way in WAYS:
                shown |= measure(relay, way, "present", given.groups, work, to[way])
            shown["rss_mib"] = relay.memory_mib()
            relay.end()
            logged = (given.groups + 1) * 2 * BLOCK * VALUES * len(WAYS)
            with served.client(daemon.token("root")) as client:
                query = {"db": "x", "q": "SELECT count(/metric/) FROM metrics, training"}
                results = client.get("/query", params=query).json()["results"]
            counts = [row for each in results[0]["series"] for row in each["values"][0][1:]]
            shown["lost"] = logged - sum(counts)
    finally:
        daemon.end()
    shown["busy_cpu"] = shown.pop("datagrams_present_busy")
    return shown


def main() -> None:
    given = figures.options(
        *(__doc__,), groups=30, seconds=20.0, work=0, way="", relay=0, sink=0, job="", token=""
    )
    if given.work:
        train(given)
        return
    work = calibrated()
    with tempfile.TemporaryDirectory() as name, sinks() as to:
        folder = Path(name)
        shown = present(folder / "present", given, work, to)
        slow = ThreadingHTTPServer(("127.0.0.1", 0), SlowGateway)
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        slow_url = f"http://127.0.0.1:{slow.server_address[1]}"
        for gateway_is, url in (("slow", slow_url), ("absent", "http://127.0.0.1:1")):
            relay = RelayProcess(folder / gateway_is, url, (JOB, "token"))
            for way in WAYS:
                shown |= measure(relay, way, gateway_is, given.groups, work, to[way])
            relay.kill()
        slow.shutdown()
    figures.show(**{key: value for key, value in shown.items() if not key.endswith("_busy")})


if __name__ == "__main__":
    main()
