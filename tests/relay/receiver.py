"""A process that takes entries as a gateway does, and keeps them in a file. Tests kill it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "secret-of-the-job"


class Receiver:
    """Its file survives it, as a gateway's does."""

    def __init__(self, folder: Path, slow_seconds: float = 0.0) -> None:
        self._path, self._slow_seconds = folder / "received.ndjson", slow_seconds
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Receiver:
        words = [str(self.port), str(self._path), str(self._slow_seconds)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        with self.process.stdout as spoken:
            assert spoken.readline() == b"ready\n"
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def artifact(self, path: str) -> bytes:
        return self._path.with_name(f"artifact-{path.replace('/', '_')}").read_bytes()

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Without where they came from."""
        return [entry for _, _, entry in self.received]

    @property
    def received(self) -> list[tuple[str, int, dict[str, Any]]]:
        """Spool, number, entry."""
        if not self._path.exists():
            return []
        records = map(json.loads, self._path.read_text().splitlines())
        return [(each["spool"], each["number"], each["entry"]) for each in records]

    @property
    def lines(self) -> list[str]:
        """Of line protocol."""
        texts = (entry["lines"] for entry in self.entries if "lines" in entry)
        return [line for text in texts for line in text.split("\n")]

    @property
    def points(self) -> list[list[Any]]:
        return [point for entry in self.entries for point in entry.get("points", ())]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    path_of_file = Path()
    slow_seconds = 0.0
    expected: dict[str, int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        time.sleep(self.slow_seconds)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(401, {"detail": "no such token"})
            return
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self._answer(200, {"next": self._take(asked, body.splitlines()), "refused": 0})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = urlsplit(self.path).path.removeprefix("/api/v1/tracking/artifacts/")
        self.path_of_file.with_name(f"artifact-{name.replace('/', '_')}").write_bytes(body)
        self._answer(200, {})

    def _take(self, asked: dict[str, str], lines: Sequence[bytes]) -> int:
        number, spool = int(asked["first"]), f"{asked['attempt']}/{asked['spool']}"
        with self.path_of_file.open("a") as file:
            for at, line in enumerate(lines, number):
                if at >= self.expected.get(spool, 0):
                    record = {"spool": spool, "number": at, "entry": json.loads(line)}
                    file.write(json.dumps(record) + "\n")
                    self.expected[spool] = at + 1
            file.flush()
            os.fsync(file.fileno())
        return self.expected[spool]

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(port: int, path: Path, slow_seconds: float) -> None:
    expected: dict[str, int] = {}
    if path.exists():
        whole = path.read_text().rpartition("\n")[0]  # half a line was never acknowledged
        path.write_text(whole + "\n" if whole else "")
        for record in map(json.loads, whole.splitlines()):
            expected[record["spool"]] = record["number"] + 1
    handler: Any = type(
        "Handler",
        (_Handler,),
        {"path_of_file": path, "slow_seconds": slow_seconds, "expected": expected},
    )
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        os.write(1, b"ready\n")
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
