"""How messages get to the scheduler: gRPC if the image has `grpcio`, else HTTP. No retries.

A transport has `call(method, message, timeout_seconds)`, for one thread at a time, and `close()`,
for any. A message is one tuple of `wire`, or for EndEpoch and Report a list of profiles. What
comes back is whether to stop, and why. Raises Unreachable or Refused, and nothing else.
"""

from datetime import datetime
from types import ModuleType
from typing import Any, Dict, Tuple, Union

from kubernetesdlprofile import __version__, wire

SERVICE = "/scheduler.v1.Profiler/"

_AGENT = "kubernetesdlprofile/" + __version__
# Asking again will not help: it is the message, or who sends it, that is not accepted.
_FINAL = (
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "ALREADY_EXISTS",
    "UNIMPLEMENTED",
)
_NOT_FINAL = (408, 425, 429)  # of HTTP's 4xx: too late, too early, too many


class Unreachable(Exception):
    """No answer: try again later."""


class Refused(Exception):
    """A clear no: do not send this message again."""


class GrpcTransport:
    """One channel, opened at the first call, so that a process that forks before is not harmed."""

    def __init__(self, grpc: ModuleType, server: str, token: str) -> None:
        self._grpc = grpc
        self._server = server
        self._metadata = (("authorization", "Bearer " + token),) if token else ()
        self._channel: Any = None  # a grpc.Channel; without grpcio there is no such type

    def call(self, method: str, message: Any, timeout_seconds: float) -> Tuple[bool, str]:
        if self._channel is None:
            self._channel = self._open()
        encode = wire.encode if isinstance(message, tuple) else wire.encode_profiles
        send = self._channel.unary_unary(SERVICE + method)
        try:
            return wire.read_answer(
                send(encode(message), timeout=timeout_seconds, metadata=self._metadata)
            )
        except self._grpc.RpcError as error:
            code = error.code().name
            said = "{}: {}".format(code, " ".join((error.details() or "").split())[:200])
            raise (Refused if code in _FINAL else Unreachable)(said) from error
        except ValueError as error:
            raise Unreachable(f"{method} was answered with nonsense: {error}") from error

    def close(self) -> None:
        """Ends a call that is under way."""
        if self._channel is not None:
            self._channel.close()

    def _open(self) -> Any:
        options = (
            ("grpc.primary_user_agent", _AGENT),
            ("grpc.enable_http_proxy", 0),  # meant for the world outside, not for our server
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),  # the courier makes the longer pauses
        )
        return self._grpc.insecure_channel(self._server, options=options)


class HttpTransport:
    """What the first library spoke: a connection for each request, and nothing but plain HTTP."""

    def __init__(self, server: str, token: str) -> None:
        self._server = server
        self._headers = {"User-Agent": _AGENT, "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token

    def call(self, method: str, message: Any, timeout_seconds: float) -> Tuple[bool, str]:
        newest: Any = message if isinstance(message, tuple) else message[-1]
        if method == "StartEpoch":
            said = self._send(timeout_seconds, "GET", "has_to_stop", newest)
            return said == b"1", "asked to stop" if said == b"1" else ""
        if method == "Finish":
            if not newest.preempted:  # the exit code tells that
                self._send(timeout_seconds, "POST", "signal_end", newest)
            return False, ""
        for profile in message:
            self._send(timeout_seconds, "POST", "profiling", profile, _measured(method, profile))
        if method == "EndEpoch":
            self._send(timeout_seconds, "POST", "end_epoch", newest, {"done": newest.epoch})
        return False, ""

    def close(self) -> None:
        """Nothing is kept open."""

    def _send(self, seconds: float, verb: str, what: str, whose: Any, body: Any = None) -> bytes:
        import json  # these two take long, and few images need them
        from http.client import HTTPConnection, HTTPException

        headers = {**self._headers, "X-Attempt": str(whose.attempt)}
        try:
            connection = HTTPConnection(self._server, timeout=seconds)
            try:
                text = None if body is None else json.dumps(body)
                connection.request(verb, f"/{what}/{whose.job_id}", text, headers)
                reply = connection.getresponse()
                status, said = reply.status, reply.read(64)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise Unreachable(f"HTTP, as there is no grpcio: {why}") from error
        if status >= 300:
            final = 400 <= status < 500 and status not in _NOT_FINAL
            raise (Refused if final else Unreachable)(f"HTTP {status} to {what}")
        return said


def _measured(method: str, profile: wire.Profile) -> Dict[str, object]:
    """As the first library said it, and what it left out."""
    said = {
        "jobid": profile.job_id,
        "timestamp": datetime.now().isoformat(),  # noqa: DTZ005  # naive, as it always was
        "iternum": profile.iterations,
        "rank": profile.rank,
        "meandur": profile.step_seconds,
        "gpumem": profile.memory_mib,
        "attempt": profile.attempt,
        "localrank": profile.local_rank,
        "epoch": profile.epoch,
    }
    return {**said, "epochDur": profile.epoch_seconds} if method == "EndEpoch" else said


def connect(server: str, http_server: str, token: str) -> Union[GrpcTransport, HttpTransport]:
    try:
        import grpc
    except Exception:  # noqa: BLE001  # absent, or broken: that is seen in images, too
        return HttpTransport(http_server or server, token)
    return GrpcTransport(grpc, server, token)
