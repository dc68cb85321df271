"""The transport of images without `grpcio`: the plain HTTP of the first library.

It opens a connection for each request, and sends only requests that old images send as well. What
these leave out is in headers.
"""

import json
from contextlib import closing
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, Dict, Iterator, Tuple

from kubernetesdlprofile import wire
from kubernetesdlprofile.transport import AGENT, Refused, Unreachable

_NOT_FINAL = (408, 425, 429)  # of 4xx: timeout, too early, too many requests


class HttpTransport:
    def __init__(self, server: str, token: str) -> None:
        self._server = server
        self._headers = {"User-Agent": AGENT, "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token

    def call(self, method: str, message: Any, timeout_seconds: float) -> Tuple[bool, str]:
        said = b""
        for what, about, body in _requests(method, message):
            said = self._send(what, about, body, timeout_seconds)
        stop = said == b"1" and method in ("StartEpoch", "Report")
        return stop, "asked to stop" if stop else ""

    def close(self) -> None:
        """Does nothing: no connection stays open."""

    def _send(self, what: str, about: Any, body: Any, timeout_seconds: float) -> bytes:
        verb = "GET" if what == "has_to_stop" else "POST"
        text = None if body is None else json.dumps(body)
        headers = {**self._headers, "X-Attempt": str(about.attempt)}
        if getattr(about, "trained", -1) >= 0:
            headers["X-Trained"] = str(about.trained)
        if what == "profiling" and about.score is not None:
            headers["X-Score"] = repr(about.score)
        if what == "has_to_stop":
            headers["X-Epoch"] = str(about.epoch)  # all ranks stop before the same one
        try:
            with closing(HTTPConnection(self._server, timeout=timeout_seconds)) as connection:
                connection.request(verb, f"/{what}/{about.job_id}", text, headers)
                reply = connection.getresponse()
                status, said = reply.status, reply.read(64)
        except (OSError, HTTPException, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise Unreachable(f"HTTP, without grpcio: {why}") from error
        if status >= 300:
            final = 400 <= status < 500 and status not in _NOT_FINAL
            raise (Refused if final else Unreachable)(f"HTTP {status} to {what}")
        return said


def _requests(method: str, message: Any) -> Iterator[Tuple[str, Any, Any]]:
    """Yields the path, the job and the body of each request."""
    if method == "StartEpoch":
        yield "has_to_stop", message, None
    elif method == "Finish" and not message.preempted:  # the exit code tells of a preemption
        yield "signal_end", message, None
    elif method != "Finish":
        for profile in message:
            yield "profiling", profile, _measured(method, profile)
    if method == "EndEpoch":
        yield "end_epoch", message[-1], {"done": message[-1].epoch}


def _measured(method: str, profile: wire.Profile) -> Dict[str, object]:
    """The fields of the first library, and the ones that it left out."""
    said = {
        "jobid": profile.job_id,
        "timestamp": datetime.now().isoformat(),  # noqa: DTZ005  # naive, as in the first library
        "iternum": profile.iterations,
        "rank": profile.rank,
        "meandur": profile.step_seconds,
        "gpumem": profile.memory_mib,
        "attempt": profile.attempt,
        "localrank": profile.local_rank,
        "epoch": profile.epoch,
    }
    return {**said, "epochDur": profile.epoch_seconds} if method == "EndEpoch" else said
