"""The scheduler's API as the commands use it: address, token, deadlines, one-line errors."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from cli.command import CommandError, UsageError
from scheduler.presentation.call_errors import call_error_text
from scheduler.v1 import scheduler_pb2 as pb

DEADLINE_SECONDS = 15.0  # the daemon gives up after 10, with a better message
PAUSES_SECONDS = (0.2, 0.5, 1.0)  # between attempts to submit
POLL_SECONDS = 2.0
TOKEN_SECONDS = 5.0
TOKEN_BYTES_MAX = 64 * 1024
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
AUTHORITY_BYTES_MAX = 4 * 1024 * 1024  # a machine's whole trust store is a tenth of it

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the web, and would break 127.0.0.1
    ("grpc.max_receive_message_length", -1),  # a reply is long only if we asked for a long list
    ("grpc.max_reconnect_backoff_ms", 2_000),  # a restarting daemon is back soon
)
_AGAIN = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
_EXIT_CODES = {
    "INVALID_ARGUMENT": 2,
    "NOT_FOUND": 2,
    "UNAVAILABLE": 3,
    "DEADLINE_EXCEEDED": 3,
    "PERMISSION_DENIED": 4,
    "UNAUTHENTICATED": 4,
    "FAILED_PRECONDITION": 4,
    "RESOURCE_EXHAUSTED": 4,
}

Reply = TypeVar("Reply", bound=Message)


class CallError(CommandError):
    """A call failed; `status` is the name of gRPC's status code."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message, _EXIT_CODES.get(status, 1))
        self.status = status


class Client:
    def __init__(self, server: str, ca: str = "", token: str = "") -> None:
        """`token`: for this server; "": that of the environment, or of a daemon here."""
        host, port = address(server)
        self.server, self.ca = server, ca
        if ca:
            trusted = grpc.ssl_channel_credentials(authority(ca))
            self._channel = grpc.secure_channel(f"{host}:{port}", trusted, options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(f"{host}:{port}", options=_OPTIONS)
        self.token = token or _token_from_environment()
        self.is_token_local = not self.token  # then it is for processes of root's, or our own
        self._find_token()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def _find_token(self) -> bool:
        """Asks the daemon of this machine, which may not have been there before. Returns whether
        there is a new token."""
        if self.token:
            return False
        host, port = address(self.server)
        self.token = _local_token(host.strip("[]"), port) or ""
        return bool(self.token)

    # --- the calls ------------------------------------------------------------------------------

    def submit(
        self, request: pb.SubmitRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitReply:
        """Sends the request again if no answer came; its id makes that harmless."""
        return self._again("Submit", request, pb.SubmitReply, pauses)

    def submit_many(
        self, request: pb.SubmitManyRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitManyReply:
        """As `submit`: all of the jobs or none."""
        return self._again("SubmitMany", request, pb.SubmitManyReply, pauses)

    def get_job(self, job: str, in_full: bool = False) -> pb.GetJobReply:
        """`in_full`: with the job's story and forecast."""
        request = pb.GetJobRequest(job=job, story=in_full, outlook=in_full)
        return self._unary("GetJob", request, pb.GetJobReply)

    def list_jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsReply:
        return self._unary("ListJobs", request, pb.ListJobsReply)

    def cancel_job(
        self, job: str, graceful: bool, with_dependents: bool = False
    ) -> pb.CancelJobReply:
        request = pb.CancelJobRequest(job=job, graceful=graceful, with_dependents=with_dependents)
        return self._unary("CancelJob", request, pb.CancelJobReply)

    def update_job(self, request: pb.UpdateJobRequest) -> pb.Job:
        return self._unary("UpdateJob", request, pb.Job)

    def get_cluster(self) -> pb.Cluster:
        return self._unary("GetCluster", pb.GetClusterRequest(), pb.Cluster)

    def create_login(self) -> pb.CreateLoginReply:
        """A code with which a browser logs in as this user."""
        request = pb.CreateLoginRequest()
        return self._unary("CreateLogin", request, pb.CreateLoginReply, service="Gateway")

    def compare(self, jobs: Sequence[str], everything: bool) -> dict[str, Any]:
        """The record that `presentation/comparison_view.py` shows. The gateway knows it."""
        from cli.gateway import GatewayClient  # slow, as http.client is

        query = {"job": list(jobs), "all": "true" if everything else ""}
        found: dict[str, Any] = GatewayClient(self).get("/compare", query)
        return found

    # --- packages of code -----------------------------------------------------------------------

    def store_package(self, package: str, origin: pb.CodeOrigin) -> pb.StorePackageReply:
        request = pb.StorePackageRequest(package=package, origin=origin)
        return self._unary("StorePackage", request, pb.StorePackageReply, "Packages")

    def find_package(self, beginning: str, latest: bool = False) -> pb.Package:
        """`latest`: the one that was stored last from the same folder."""
        request = pb.FindPackageRequest(package=beginning, latest=latest)
        return self._unary("FindPackage", request, pb.Package, "Packages")

    def put_files(self, messages: Iterator[pb.FileParts]) -> pb.PutFilesReply:
        """Sends them as fast as the scheduler takes them."""
        call = self._channel.stream_unary(
            "/scheduler.v1.Packages/PutFiles",
            request_serializer=pb.FileParts.SerializeToString,
            response_deserializer=pb.PutFilesReply.FromString,
        )
        try:
            answer: pb.PutFilesReply = call(messages, metadata=self.metadata)
        except grpc.RpcError as error:
            raise self._call_error(error) from error
        return answer

    def fetch_files(self, package: str, digests: Sequence[bytes]) -> Iterator[pb.FileParts]:
        """The files with these hashes, one after the other; none are named: the manifest and all
        files."""
        request = pb.FetchFilesRequest(package=package, digests=digests)
        return self._stream("FetchFiles", request, pb.FileParts, service="Packages")

    # --- what streams ---------------------------------------------------------------------------

    def get_logs(self, request: pb.GetLogsRequest, wait: bool = False) -> Iterator[pb.LogChunk]:
        """`wait`: for the daemon, if it cannot be reached."""
        return self._stream("GetLogs", request, pb.LogChunk, wait)

    def watch_jobs(
        self,
        request: pb.ListJobsRequest,
        lost: Callable[[], None],
        pause: float = PAUSES_SECONDS[-1],
    ) -> Iterator[pb.ListJobsReply]:
        """Never ends. If the connection breaks, calls `lost` and waits for the daemon to return;
        a daemon that was never reached is an error."""
        connected = False
        while True:
            try:
                for reply in self._news(request, wait=connected):
                    connected = True
                    yield reply
            except CallError as error:
                if not connected or error.status != "UNAVAILABLE":
                    raise
            lost()
            time.sleep(pause)

    def _news(self, request: pb.ListJobsRequest, wait: bool) -> Iterator[pb.ListJobsReply]:
        """As long as there is no place for another watcher, asks now and then instead."""
        while True:
            try:
                yield from self._stream("WatchJobs", request, pb.ListJobsReply, wait=wait)
                return
            except CallError as error:
                if error.status != "RESOURCE_EXHAUSTED":
                    raise
            yield self.list_jobs(request)
            time.sleep(POLL_SECONDS)

    def visit(self, requests: Iterator[pb.ConnectRequest]) -> Iterator[pb.ConnectReply]:
        """A shell, a command or a port beside a job. It ends when either side ends."""
        call = self._channel.stream_stream(
            "/scheduler.v1.Scheduler/Connect",
            request_serializer=pb.ConnectRequest.SerializeToString,
            response_deserializer=pb.ConnectReply.FromString,
        )(requests, metadata=self.metadata)
        yield from self._received(call)

    # --- how a call is made ---------------------------------------------------------------------

    def _again(
        self, method: str, request: Message, reply: type[Reply], pauses: Sequence[float]
    ) -> Reply:
        for pause in pauses:
            try:
                return self._unary(method, request, reply)
            except CallError as error:
                lacks_token = error.status == "UNAUTHENTICATED" and self._find_token()
                if error.status not in _AGAIN and not lacks_token:
                    raise
            time.sleep(pause)
            self._find_token()
        return self._unary(method, request, reply)

    def _unary(
        self, method: str, request: Message, reply: type[Reply], service: str = "Scheduler"
    ) -> Reply:
        call = self._channel.unary_unary(
            f"/scheduler.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            answer: Reply = call(request, timeout=DEADLINE_SECONDS, metadata=self.metadata)
        except grpc.RpcError as error:
            raise self._call_error(error) from error
        return answer

    def _stream(
        self,
        method: str,
        request: Message,
        reply: type[Reply],
        wait: bool = False,
        service: str = "Scheduler",
    ) -> Iterator[Reply]:
        call = self._channel.unary_stream(
            f"/scheduler.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )(request, metadata=self.metadata, wait_for_ready=wait)
        yield from self._received(call)

    def _received(self, call: Any) -> Iterator[Any]:  # grpc names no type of such calls
        """Whoever reads no more ends the call."""
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._call_error(error) from error
        finally:
            call.cancel()

    def _call_error(self, error: grpc.RpcError) -> CallError:
        status, details = error.code().name, error.details() or ""
        if status == "CANCELLED":  # by a server that ends: we never cancel a call that we wait for
            status, details = "UNAVAILABLE", "it is stopping"
        return CallError(call_error_text(status, details, self.server, self.ca), status)


def address(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not (colon and host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536):
        raise UsageError(f"--server {server!r} must be HOST:PORT")
    if "/" in host or (":" in host and not host.startswith("[")):
        raise UsageError(f"--server {server!r} must be HOST:PORT, or [HOST]:PORT for IPv6")
    return host, int(port)


# --- trust --------------------------------------------------------------------------------------


def authority(file: str) -> bytes:
    """Returns the certificates in this file, checked: grpc would only report a failed handshake."""
    import ssl  # slow, and used only here

    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - pathlib is slow
            content = opened.read(AUTHORITY_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"--ca {file}: {error.strerror}") from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise UsageError(f"--ca {file}: contains no PEM certificate") from None
    return content


# --- the token ----------------------------------------------------------------------------------


def _token_from_environment() -> str:
    token = os.environ.get("SCHEDULER_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise UsageError("SCHEDULER_TOKEN contains characters that a token cannot contain")
    return token


def _local_token(host: str, port: int) -> str | None:
    """The token that a daemon on this machine gives to the user that the kernel identifies.

    None if the host is another machine: its process on the same port must not get our token. The
    process that gives the token, and the one that will get it, must be root's or our own: while no
    daemon runs, any user could have taken its names.
    """
    addresses = _addresses_here(host)
    if not addresses:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            # Not settimeout(): connect() would then fail at once while there is no place to wait.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _seconds(TOKEN_SECONDS))
            wire.connect(f"\0epoch-scheduler:{port}")
            wire.settimeout(TOKEN_SECONDS)
            peer = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            _check_owner(f"the socket @epoch-scheduler:{port}", _PEER.unpack(peer)[1])
            with wire.makefile("rb") as answer:
                line = answer.readline(TOKEN_BYTES_MAX)
        token: str | None = str(json.loads(line)["token"])
    except BlockingIOError:
        raise CommandError(
            f"the socket @epoch-scheduler:{port} of the daemon has too many callers: try again", 3
        ) from None
    except (OSError, ValueError, LookupError, TypeError):
        token = None  # no daemon here; the call itself will fail, with a better message
    _check_listeners(host, port, addresses)
    return token


def check_listener(host: str, port: int) -> None:
    """Raises CommandError if a port of this machine is neither root's nor ours."""
    _check_listeners(host, port, _addresses_here(host))


def _check_listeners(host: str, port: int, addresses: Sequence[tuple[int, str]]) -> None:
    for family, address in addresses:
        uid = _listener_uid(family, address, port)
        if uid is not None:
            _check_owner(f"port {port} of {host}", uid)


def _seconds(seconds: float) -> bytes:
    """As a struct timeval."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _check_owner(what: str, uid: int) -> None:
    if uid in (0, os.geteuid()):
        return
    import pwd  # slow, and used only here

    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    raise CommandError(
        f"{what} belongs to a process of {name}, and neither to root nor to you: nothing was sent;"
        " if this is your scheduler, set SCHEDULER_TOKEN",
        4,
    )


def _listener_uid(family: int, address: str, port: int) -> int | None:
    """Whose process listens there, by sock_diag(7); None if the kernel does not say."""
    raw = socket.inet_pton(family, address).ljust(16, b"\0")
    # Asked about a connection that does not exist, it answers with the listener for it.
    asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, 0xFFFFFFFF)
    asked += struct.pack(">HH", port, port) + raw + raw + struct.pack("=III", 0, *[0xFFFFFFFF] * 2)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:  # NETLINK_SOCK_DIAG
            kernel.setblocking(False)  # it answers within send()
            kernel.send(struct.pack("=IHHII", 16 + len(asked), 20, 1, 0, 0) + asked)
            answer = kernel.recv(4096)
        if struct.unpack_from("=IH", answer)[1] == 20:  # SOCK_DIAG_BY_FAMILY
            uid: int = struct.unpack_from("=I", answer, 80)[0]
            return uid
    except OSError:
        pass
    return None


def _addresses_here(host: str) -> list[tuple[int, str]]:
    """The addresses of the host; none if it is another machine. An address belongs to this machine
    if a socket can be bound to it."""
    # A str would be encoded as IDNA, and loading its tables takes longer than all of this.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
    except OSError:
        return []
    return [(family, str(where[0])) for family, _, _, _, where in found]
