"""The part of a kubelet that sends logs, for tests with an API server but no nodes.

The API server reaches it like any kubelet. It keeps the containers' logs in memory, and does to the
streams what a node can do to them.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clusters.cri import Entry, answer_since, kept_text
from tests.kube.control import LOOPBACK, ControlPlane
from tests.kube.processes import free_port


class ContainerLogs:
    """Logs by the names of pods. `asked` are all requests, `open` those that are not finished."""

    def __init__(self, control: ControlPlane) -> None:
        self.port = free_port()
        self.asked: list[str] = []
        self.open = 0
        self._lock = threading.RLock()
        self._changed = defaultdict[str, threading.Condition](self._condition)  # of each pod
        self._said: dict[str, list[Entry]] = defaultdict(list)
        self._kept: dict[str, int] = defaultdict(int)  # how many of them the node has deleted
        self._over: set[str] = set()
        self._generation = 0  # of streams: a cut ends those of the former one
        self._identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._identity.load_cert_chain(*control.authority.issue("kubelet", LOOPBACK))

    def say(self, pod: str, words: bytes, partial: bool = False) -> None:
        with self._changed[pod]:
            self._said[pod].append(Entry(time.time_ns(), words, partial))
            self._changed[pod].notify_all()

    def text_of(self, pod: str) -> bytes:
        return kept_text(self._said[pod])

    def end(self, pod: str) -> None:
        """Its container has ended."""
        with self._changed[pod]:
            self._over.add(pod)
            self._changed[pod].notify_all()

    def rotate(self, pod: str) -> None:
        """Rotates its log: what it printed so far is in another file, which is not sent."""
        with self._lock:
            self._kept[pod] = len(self._said[pod])

    def cut(self) -> None:
        """Breaks all streams, as when the kubelet is killed."""
        with self._lock:
            self._generation += 1
            for changed in self._changed.values():
                changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[ContainerLogs]:
        logs = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                logs._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer((LOOPBACK, self.port), Handler) as server:
            server.daemon_threads = True
            server.socket = self._identity.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, args=(0.1,))
            thread.start()
            try:
                yield self
            finally:
                self.cut()
                server.shutdown()
                thread.join()

    def _condition(self) -> threading.Condition:
        return threading.Condition(self._lock)

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        pod, query = url.path.split("/")[3], parse_qs(url.query)
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.close_connection = True
        with self._lock:
            self.asked.append(request.path)
            self.open += 1
        try:
            if self._send(request, pod, query.get("sinceTime", [""])[0], "follow" in query):
                request.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has closed the connection
            pass
        finally:
            with self._lock:
                self.open -= 1

    def _send(self, request: BaseHTTPRequestHandler, pod: str, since: str, follow: bool) -> bool:
        """Returns whether the stream was complete, and not cut."""
        done = 0
        with self._lock:
            generation = self._generation
        while True:
            with self._lock:
                if generation != self._generation:
                    return False
                words = answer_since(self._said[pod][self._kept[pod] :], since)
                fresh, done = words[done:], len(words)
                over = not follow or pod in self._over
                if not fresh and not over:
                    self._changed[pod].wait()
                    continue
            if fresh:
                request.wfile.write(b"%x\r\n%s\r\n" % (len(fresh), fresh))
            elif over:
                return True
