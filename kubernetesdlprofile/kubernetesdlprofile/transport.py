"""How bytes get to the scheduler and back: gRPC, by `grpcio` if the image has it. No retries."""

from types import ModuleType
from typing import Any, Dict, Optional

from kubernetesdlprofile import __version__

SERVICE = "/scheduler.v1.Profiler/"

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
        self._methods: Dict[str, Any] = {}

    def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """One thread at a time. Raises Unreachable or Refused."""
        if self._channel is None:
            self._channel = self._open()
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(
                SERVICE + method, request_serializer=None, response_deserializer=None
            )
        try:
            reply: bytes = self._methods[method](
                request, timeout=timeout_seconds, metadata=self._metadata
            )
        except self._grpc.RpcError as error:
            code = error.code().name
            said = "{}: {}".format(code, " ".join((error.details() or "").split())[:200])
            raise (Refused if code in _FINAL else Unreachable)(said) from error
        return reply

    def close(self) -> None:
        """Ends a call that is under way. Any thread."""
        if self._channel is not None:
            self._channel.close()

    def _open(self) -> Any:
        options = (
            ("grpc.primary_user_agent", "kubernetesdlprofile/" + __version__),
            ("grpc.enable_http_proxy", 0),  # meant for the world outside, not for our server
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),  # the courier makes the longer pauses
        )
        return self._grpc.insecure_channel(self._server, options=options)


def connect(server: str, token: str) -> Optional[GrpcTransport]:
    """None if there is nothing in this image that could speak to the scheduler."""
    try:
        import grpc
    except ImportError:
        return None
    return GrpcTransport(grpc, server, token)
