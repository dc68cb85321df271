"""Requests to an API server, streams from it, and their errors. Knows no pods.

The official client connects to the server: kubeconfig, certificates, tokens, plugins. Answers are
bytes of JSON. Each caller decodes the fields that it needs, because the official classes would take
seconds for the pods of a large cluster.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
import websocket
import yaml  # type: ignore[import-untyped]  # comes with the client, without types
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration

from scheduler.core.errors import ConfigError, SchedulerError

CONNECT_SECONDS = 5.0
CONNECTIONS = 16  # kept open
CHUNK_BYTES = 2**16
RETRY_AFTER_SECONDS_MAX = 60.0  # even if a server, or a proxy before it, asks for more
JSON = {"Accept": "application/json", "Content-Type": "application/json"}
PASSING = (0, 401, 408, 409, 410, 425, 429)  # and all from 500 on

NEVER_CAME = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


class ApiError(SchedulerError):
    """A refusal by the server, or (code 0) the reason why no answer came."""

    status = "UNAVAILABLE"

    def __init__(
        self, words: str, code: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(words)
        self.code, self.reason, self.retry_after = code, reason, retry_after

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in PASSING or self.code >= 500


class KubernetesClient:
    """For any thread. Requests are not repeated, except after a token has expired."""

    def __init__(
        self,
        kubeconfig: Path | None,
        request_seconds: float,
        before_changes: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """Without a kubeconfig, uses a pod's own account, or what kubectl would use.
        `before_changes` returns how many seconds a change may take, and raises ApiError if no
        change is allowed."""
        self._kubeconfig, self._before_changes = kubeconfig, before_changes
        self._seconds = request_seconds
        self._lock = threading.Lock()
        self._client = self._connect()
        self._streams: set[urllib3.HTTPResponse] = set()
        self._closed = False

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> bytes:
        with contextlib.closing(self._request(method, path, query, body, self._seconds)) as answer:
            return _read(answer)

    @property
    def url(self) -> str:
        return str(self._client.configuration.host)

    def headers(self, path: str) -> Mapping[str, str]:
        """The headers of an answer, such as its date."""
        with contextlib.closing(self._request("GET", path, None, None, self._seconds)) as answer:
            _read(answer)
            return answer.headers

    def lines(self, path: str, query: Mapping[str, str], silent_seconds: float) -> Iterator[bytes]:
        """Yields the lines of a stream until it ends or is silent for too long."""
        rest = b""
        with self.stream(path, query, silent_seconds) as pieces:
            for piece in pieces:
                *whole, rest = (rest + piece).split(b"\n")
                yield from whole

    @contextlib.contextmanager
    def stream(
        self, path: str, query: Mapping[str, str], silent_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        """The pieces of a stream as they come, once the server has begun to answer."""
        answer = self._request("GET", path, query, None, silent_seconds)
        with self._lock:
            self._streams.add(answer)
            if self._closed:
                self._shut_down(answer)
        try:
            yield _read_chunks(answer)
        finally:
            with self._lock:
                self._streams.discard(answer)
            answer.close()

    def open_socket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> websocket.WebSocket:
        """Opens a WebSocket, which then waits without limit. Raises ApiError."""
        client = self._client
        try:
            return self._open_socket(client, path, query, protocols)
        except ApiError as error:
            if error.code != 401:
                raise
        return self._open_socket(self._renew(client), path, query, protocols)

    def _open_socket(
        self,
        client: ApiClient,
        path: str,
        query: Sequence[tuple[str, str]],
        protocols: Sequence[str],
    ) -> websocket.WebSocket:
        settings = client.configuration
        headers: dict[str, str] = {}
        client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        trust = {
            "ca_certs": settings.ssl_ca_cert,
            "certfile": settings.cert_file,
            "keyfile": settings.key_file,
            "cert_reqs": ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE,
            "check_hostname": settings.verify_ssl,
        }
        opened = websocket.WebSocket(
            sslopt={name: value for name, value in trust.items() if value is not None},
            enable_multithread=True,
            skip_utf8_validation=True,
        )
        opened.settimeout(self._seconds)
        url = f"ws{settings.host.removeprefix('http')}{path}?{urlencode(query)}"
        try:
            opened.connect(
                url,
                header=[f"{name}: {value}" for name, value in headers.items()],
                subprotocols=list(protocols),
                http_no_proxy=["*"],
                suppress_origin=True,
            )
        except websocket.WebSocketBadStatusException as error:
            raise _refusal(error.status_code, {}, error.resp_body or b"") from error
        except (websocket.WebSocketException, *NEVER_CAME) as error:
            raise _connection_error(error) from error
        opened.settimeout(None)
        return opened

    def close(self) -> None:
        """Ends all streams."""
        with self._lock:
            self._closed = True
            for answer in self._streams:
                self._shut_down(answer)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        seconds: float,
    ) -> urllib3.HTTPResponse:
        client = self._client
        try:
            return self._request_once(client, method, path, query, body, seconds)
        except ApiError as error:
            if error.code != 401:
                raise
        return self._request_once(self._renew(client), method, path, query, body, seconds)

    def _request_once(
        self,
        client: ApiClient,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        seconds: float,
    ) -> urllib3.HTTPResponse:
        left = math.inf if method == "GET" else self._before_changes()
        connect_seconds = min(CONNECT_SECONDS, left / 2)
        seconds = min(seconds, left - connect_seconds)
        request = client.param_serialize(
            method,
            path,
            query_params=dict(query or {}),
            header_params=dict(JSON),
            body=body,
            auth_settings=["BearerToken"],
        )
        answer: urllib3.HTTPResponse
        try:
            answer = client.call_api(*request, _request_timeout=(connect_seconds, seconds)).response
        except (ApiException, *NEVER_CAME) as error:
            raise _connection_error(error) from error
        if answer.status < 300:
            return answer
        with contextlib.closing(answer):
            raise _refusal(answer.status, answer.headers, _read(answer))

    def _renew(self, client: ApiClient) -> ApiClient:
        """Connects again, once for all requests that were refused with the same token."""
        with self._lock:
            if self._client is client:
                try:
                    self._client = self._connect()
                except ConfigError as error:
                    raise ApiError(str(error), 401) from error
            return self._client

    def _connect(self) -> ApiClient:
        settings = Configuration()
        where = self._kubeconfig or "the default kubeconfig"
        in_a_pod = Path(config.incluster_config.SERVICE_TOKEN_FILENAME).exists()
        try:
            if self._kubeconfig:
                self._kubeconfig.open("rb").close()  # the client would not say what is wrong
            if self._kubeconfig is None and in_a_pod:
                config.load_incluster_config(settings)
            else:
                config.load_kube_config(
                    self._kubeconfig and str(self._kubeconfig), client_configuration=settings
                )
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename or where}: {error.strerror}") from error
        except (config.ConfigException, yaml.YAMLError, ValueError, TypeError, KeyError) as error:
            words = " ".join(str(error).split())
            raise ConfigError(f"{where} is not a valid kubeconfig: {words}") from error
        settings.retries = False  # the caller decides when to repeat a request
        settings.connection_pool_maxsize = CONNECTIONS
        return ApiClient(settings)

    def _shut_down(self, answer: urllib3.HTTPResponse) -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has ended by itself
            answer.shutdown()


class _Status(msgspec.Struct):
    """The body of a refusal."""

    message: str = ""
    reason: str = ""


def _read_chunks(answer: urllib3.HTTPResponse) -> Iterator[bytes]:
    try:
        yield from answer.stream(CHUNK_BYTES)
    except NEVER_CAME as error:
        raise _connection_error(error) from error


def _read(answer: urllib3.HTTPResponse) -> bytes:
    try:
        return answer.read()
    except NEVER_CAME as error:
        raise _connection_error(error) from error


def _refusal(code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        status = _Status(body[:200].decode(errors="replace"))
    wait = headers.get("Retry-After", "")
    words = " ".join(status.message.split()) or f"the API server answered {code}"
    seconds = min(float(wait), RETRY_AFTER_SECONDS_MAX) if wait.isdecimal() else 0.0
    return ApiError(words, code, status.reason, seconds)


def _connection_error(error: Exception) -> ApiError:
    """Has the text of the first error: the errors wrapped around it only repeat it."""
    first: BaseException = error
    while inner := first.__cause__ or first.__context__:
        first = inner
    if isinstance(first, OSError) and first.strerror and not isinstance(first, ssl.SSLError):
        words = first.strerror
    else:
        words = " ".join(str(first).split()) or type(first).__name__
    return ApiError(f"no answer from the API server: {words}")
