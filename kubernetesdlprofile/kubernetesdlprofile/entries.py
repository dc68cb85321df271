"""What a training logs, as entries for the relay beside it: lines of JSON, by HTTP on loopback.

The relay acknowledges entries when they are in a file. Until then they are sent again, and the same
point twice is one point. What finds no place here is counted, and the count is an entry, too.
(Datagrams are lost without a word, and line protocol has no steps.)
"""

import json
import os
import socket
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import time
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import quote

from kubernetesdlprofile.log import warn
from kubernetesdlprofile.transport import AGENT

WAITING_MAX, BATCH_MAX, FILES_MAX = 20_000, 2_000, 1_000  # calls of the script
CALLS_MAX = 100  # in an entry
PACE_SECONDS = 0.2  # between two requests
CALL_SECONDS = 10.0  # a relay may only now be started
EXIT_SECONDS = 2.0

_NOT_FINAL = (408, 425, 429, 503)

# Numbers of one moment (nanoseconds, step, by name), or an entry.
_Call = Union[Tuple[int, int, Dict[str, float]], Dict[str, Any]]


class _Connection(HTTPConnection):
    def connect(self) -> None:
        """A text as host would import codecs, and a process forked meanwhile could not."""
        address: Any = (self.host.encode(), self.port)
        self.sock = socket.create_connection(address, self.timeout)


class EntrySender:
    """Any thread of the process `pid` may call the public methods. They raise nothing."""

    def __init__(self, relay: str, token: str, job_id: str, rank: str) -> None:
        """`relay`: host:port; empty: there is none. `job_id`: empty outside the scheduler, where
        that is no news. `rank`: of a process that is not the first."""
        self.pid = os.getpid()
        self._connection = _Connection(relay or "localhost", timeout=CALL_SECONDS)
        self._headers = {"User-Agent": AGENT, "Authorization": "Bearer " + token}
        self._artifacts = f"/api/2.0/mlflow-artifacts/artifacts/{quote(job_id)}/"
        self._tags = json.dumps({"rank": rank} if rank else {})

        self._changed = threading.Condition()  # guards what follows
        self._calls: List[_Call] = []
        self._files: List[Path] = []
        self._lost = 0
        self._is_idle = self._is_leaving = False
        self._is_closed = not relay
        self._is_missed = bool(job_id) and not relay
        self._thread: Optional[threading.Thread] = None

    def add_metrics(self, metrics: Any, step: Any) -> None:
        values: Dict[str, float] = {}
        try:
            for name, value in metrics.items():
                try:
                    values[str(name)] = float(value)
                except Exception as error:  # noqa: BLE001, PERF203  # whatever a script gives
                    _refuse(f"metric {name}", error)
            self._add((int(time() * 1e9), int(step), values), len(values))
        except Exception as error:  # noqa: BLE001
            _refuse("log_metrics", error)

    def add_params(self, params: Any, within: str = "") -> None:
        try:
            for name, value in getattr(params, "__dict__", params).items():
                if isinstance(value, dict) and value:
                    self.add_params(value, f"{within}{name}.")
                else:  # each in an entry of its own, so that a bad one is refused alone
                    self._add({"params": {f"{within}{name}": str(value)[:8192]}})
        except Exception as error:  # noqa: BLE001
            _refuse("log_params", error)

    def add_file(self, path: Any) -> None:
        try:
            self._add(Path.cwd() / path)
        except Exception as error:  # noqa: BLE001
            _refuse("log_artifact", error)

    def _add(self, item: "Union[_Call, Path]", values: int = 1) -> None:
        with self._changed:
            if self._is_missed:
                warn("this run has no relay: what it logs is not kept", "no relay")
            if self._is_closed:
                return
            if len(self._calls) >= WAITING_MAX or len(self._files) >= FILES_MAX:
                self._lost += values
                return
            self._tell_lost()
            self._files.append(item) if isinstance(item, Path) else self._calls.append(item)
            if self._thread is None:
                from multiprocessing.util import Finalize  # as in the courier

                self._thread = threading.Thread(target=self._run, name="entries", daemon=True)
                self._thread.start()
                Finalize(None, self.close, exitpriority=0)
            if self._is_idle:
                self._changed.notify_all()

    def _tell_lost(self) -> None:
        if self._lost:
            why = "a training logged faster than its relay took it"
            self._calls.append({"lost": self._lost, "why": why})
            self._lost = 0

    def close(self) -> None:
        """Delivers what it can quickly, and ends the thread."""
        with self._changed:
            self._tell_lost()
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed, EXIT_SECONDS)
            self._is_closed = True
            left = len(self._calls) + len(self._files)
        if left:
            warn(f"the relay has not taken what the last {left} calls logged")

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True
                self._changed.wait_for(lambda: self._calls or self._files or self._is_leaving)
                self._is_idle = False
                calls, files = self._calls[:BATCH_MAX], self._files[:1]
                if self._is_closed or not (calls or files):
                    self._is_closed = True
                    self._changed.notify_all()
                    return
            try:
                if calls:
                    self._deliver("POST", "/entries", self._entries(calls))
                for path in files:
                    self._deliver_file(path)
            except Exception as error:  # noqa: BLE001  # it cannot be read, or a bug of ours
                _refuse(f"{files[0] if files else 'a batch'}", error)
            with self._changed:
                del self._calls[: len(calls)], self._files[: len(files)]
                if not self._is_leaving:
                    self._changed.wait(PACE_SECONDS)

    def _entries(self, calls: List[_Call]) -> bytes:
        forms: Dict[Any, str] = {}  # by the names
        points: List[str] = []  # one text for each call
        lines: List[str] = []
        for call in calls:
            if isinstance(call, dict):
                lines.append(json.dumps(call))
                continue
            at_ns, step, values = call
            names = tuple(values)
            told: Tuple[Any, ...] = tuple(values.values())
            if names not in forms:
                written = [json.dumps(name).replace("%", "%%") for name in names]
                each = [f'["metrics",{self._tags},{name},\0,%s]' for name in written]
                forms[names] = ",".join(each)
            total = sum(told)
            if total - total != 0:  # one is not finite, and is written in another way
                told = tuple(map(json.dumps, told))
            points.append(forms[names].replace("\0", f"{at_ns},{step}") % told)
        for at in range(0, len(points), CALLS_MAX):
            joined = ",".join(points[at : at + CALLS_MAX])
            lines.append(f'{{"points":[{joined}]}}')
        return "\n".join(lines).encode()

    def _deliver_file(self, path: Path) -> None:
        if not path.is_file():  # a pipe would have to be waited for
            raise OSError("it is not a file")
        with path.open("rb") as file:
            self._deliver("PUT", self._artifacts + quote(os.fsencode(path.name)), file)

    def _deliver(self, method: str, path: str, body: Any) -> None:
        """Sends it until there is an answer."""
        while True:
            try:
                status = self._send(method, path, body)
            except (OSError, HTTPException) as error:
                self._connection.close()
                why = f"{type(error).__name__}: {error}"
                warn(f"the relay does not answer ({why}); what is logged waits", "relay away")
            else:
                if status not in _NOT_FINAL:
                    if status >= 300:
                        said = f"the relay refuses what is logged: HTTP {status} to {path[:50]}"
                        warn(said, f"relay {status}")
                    return
            with self._changed:
                if self._is_closed:
                    return
                self._changed.wait(PACE_SECONDS)

    def _send(self, method: str, path: str, body: Any) -> int:
        headers = self._headers
        if not isinstance(body, bytes):
            body.seek(0)
            size = os.fstat(body.fileno()).st_size
            headers, body = {**headers, "Content-Length": str(size)}, _pieces(body, size)
        self._connection.request(method, path, body, headers)
        reply = self._connection.getresponse()
        reply.read()
        return reply.status


def _pieces(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left:
        piece = file.read(min(left, 1 << 18))
        if not piece:
            raise OSError("the file has become shorter")
        left -= len(piece)
        yield piece


def _refuse(what: str, error: Exception) -> None:
    warn(f"{what} was not logged ({type(error).__name__}: {error})", what[:100])
