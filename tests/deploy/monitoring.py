"""Debian's Prometheus and Alertmanager, beside a real daemon, and a sink for alerts.

All listen on an address of the loopback network that no other process of this machine uses, so that
no port can be taken.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
PROGRAMS = ("prometheus", "promtool", "prometheus-alertmanager")
# Not the usual ports: where systemd runs, Debian starts its own as soon as they are installed.
DAEMON, PROMETHEUS, ALERTMANAGER = 27072, 29090, 29093


def need_programs() -> None:
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"needs Debian's prometheus and prometheus-alertmanager: no {missing[0]}")


def own_address() -> str:
    pid = os.getpid()
    return f"127.{64 + (pid >> 16) % 64}.{pid >> 8 & 255}.{pid & 255}"


class Sink:
    """Takes what an Alertmanager sends."""

    def __init__(self, host: str) -> None:
        self._host, self.alerts = host, list[Mapping[str, Any]]()
        alerts = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.server.server_port}/"

    def names(self, status: str = "firing") -> set[str]:
        return {each["labels"]["alertname"] for each in self.alerts if each["status"] == status}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class Monitoring:
    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, own_address()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_prometheus(self, rules: Sequence[Mapping[str, Any]] = ()) -> None:
        settings = yaml.decode((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = settings["scrape_configs"]
        del job["scrape_interval"]
        job["static_configs"] = [{"targets": [f"{self.host}:{DAEMON}"]}]
        (alerting,) = settings["alerting"]["alertmanagers"]
        alerting["static_configs"] = [{"targets": [f"{self.host}:{ALERTMANAGER}"]}]
        (self.folder / "rules.yml").write_bytes(
            yaml.encode({"groups": [{"name": "g", "rules": [*rules]}]})
        )
        (self.folder / "prometheus.yml").write_bytes(yaml.encode(settings))
        self._start(
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/tsdb",
            f"--web.listen-address={self.host}:{PROMETHEUS}",
        )

    def start_alertmanager(self, sink: Sink) -> None:
        hook = {"name": "hook", "webhook_configs": [{"url": sink.url}]}
        route = {"receiver": "hook", "group_wait": "0s", "group_interval": "1s"}
        settings = self.folder / "alertmanager.yml"
        settings.write_bytes(yaml.encode({"route": route, "receivers": [hook]}))
        self._start(
            "prometheus-alertmanager",
            f"--config.file={settings}",
            f"--storage.path={self.folder}/alertmanager",
            f"--web.listen-address={self.host}:{ALERTMANAGER}",
            "--cluster.listen-address=",
        )

    def ask(self, query: str) -> list[float]:
        """The values that a query has now."""
        words = urllib.parse.urlencode({"query": query})
        url = f"http://{self.host}:{PROMETHEUS}/api/v1/query?{words}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                result = json.load(reply)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return []
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except OSError:  # it has not bound its port yet
            return []
        values = [float(series["value"][1]) for series in result]
        return [value for value in values if not math.isnan(value)]

    def _start(self, program: str, *flags: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([program, *flags], cwd=self.folder, stdout=log, stderr=log)
            )

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def monitoring(folder: Path) -> Iterator[Monitoring]:
    need_programs()
    made = Monitoring(folder)
    try:
        yield made
    finally:
        made.end()
