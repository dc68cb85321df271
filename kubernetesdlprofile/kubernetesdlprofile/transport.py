"""Sends messages to the scheduler: by gRPC if the image has `grpcio`, else by HTTP. No retries.

A transport has `call(method, message, timeout_seconds)`, for one thread at a time, and `close()`,
for any thread. A message is one tuple of `wire`, or for EndEpoch and Report a list of profiles.
`call` returns whether to stop, and why. It raises only Unreachable or Refused.
"""

from types import ModuleType
from typing import Any, Tuple

from kubernetesdlprofile import __version__, wire

SERVICE = "/scheduler.v1.Profiler/"
AGENT = "kubernetesdlprofile/" + __version__

# A retry will not help: the scheduler does not accept this message or this sender.
# INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE,
# UNIMPLEMENTED, UNAUTHENTICATED
_FINAL = (3, 5, 6, 7, 9, 11, 12, 16)
_OPTIONS = (
    ("grpc.primary_user_agent", AGENT),
    ("grpc.enable_http_proxy", 0),  # proxies are meant for the internet, not for our server
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),  # longer pauses are the courier's
)


class Unreachable(Exception):
    """There was no answer: try again later."""


class Refused(Exception):
    """The scheduler refused the message: do not send it again."""


class GrpcTransport:
    """One channel, opened at the first call: a process may fork before that without harm."""

    def __init__(self, grpc: ModuleType, server: str, token: str) -> None:
        self._grpc = grpc
        self._server = server
        self._metadata = (("authorization", "Bearer " + token),) if token else ()
        self._channel: Any = None  # a grpc.Channel; without grpcio there is no such type

    def call(self, method: str, message: Any, timeout_seconds: float) -> Tuple[bool, str]:
        if self._channel is None:
            self._channel = self._grpc.insecure_channel(self._server, options=_OPTIONS)
        encode = wire.encode if isinstance(message, tuple) else wire.encode_profiles
        send = self._channel.unary_unary(SERVICE + method)
        try:
            reply = send(encode(message), timeout=timeout_seconds, metadata=self._metadata)
            return wire.read_answer(reply)
        except self._grpc.RpcError as error:
            code = error.code()
            said = "{}: {}".format(code.name, " ".join((error.details() or "").split())[:200])
            raise (Refused if code.value[0] in _FINAL else Unreachable)(said) from error
        except ValueError as error:
            raise Unreachable(f"invalid answer to {method}: {error}") from error

    def close(self) -> None:
        """Ends a call that is under way."""
        if self._channel is not None:
            self._channel.close()


def connect(server: str, http_server: str, token: str, files: str = "") -> Any:
    """The transport that the packages in the image allow; with `files`, a folder, that of files."""
    if files:
        from kubernetesdlprofile.files import FileTransport

        return FileTransport(files)
    try:
        import grpc
    except Exception:  # noqa: BLE001  # absent, or broken, as in some images
        from kubernetesdlprofile.http import HttpTransport

        return HttpTransport(http_server or server, token)
    return GrpcTransport(grpc, server, token)
