"""The gateway's JSON as the commands use it: found through the daemon, asked with the same token.

The daemon has what a job is; the gateway has what trainings log.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from cli.client import address, authority, check_listener
from cli.command import CommandError
from cli.connection import Connection

PREFIX = "/api/v1"
DEADLINE_SECONDS = 60.0  # many points take a while
_EXIT_CODES = {400: 2, 404: 2, 413: 2, 502: 3, 504: 3}
_LOCAL = ("localhost", "::1")


class GatewayClient:
    """Raises CommandError for whatever goes wrong. Uses no proxy."""

    def __init__(self, client: Connection, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._seconds = deadline_seconds
        url = client.create_login().url
        if not url:
            raise CommandError(
                f"the scheduler at {client.server} has no gateway, which keeps what trainings log:"
                " its log says why; if one runs elsewhere, an admin can name it in gateway.url",
                4,
            )
        self.url = url
        self._parts = urlsplit(url)
        self._client = client
        self._is_tunnel = is_local(self._host) and not is_local(address(client.server)[0])
        if client.is_token_local or self._is_tunnel:
            check_listener(self._host, self._port)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """The JSON at this path below /api/v1. Lists in `query` are repeated parameters."""
        return json.loads(self.content(path, query))

    def content(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        """As `get`, but not parsed: what an endpoint has that answers something else."""
        given = {name: value for name, value in (query or {}).items() if value not in ("", None)}
        return self._asked("GET", path, f"?{urlencode(given, doseq=True)}" if given else "")

    def post(self, path: str, content: bytes, kind: str) -> Any:
        """The JSON that is answered. `content` is sent compressed; `kind`: its type."""
        import zlib

        headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
        return json.loads(self._asked("POST", path, "", zlib.compress(content, wbits=31), headers))

    def _asked(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        connection = self._connection()
        target = f"{self._parts.path.rstrip('/')}{PREFIX}{quote(path)}{query}"
        try:
            own = {"Authorization": f"Bearer {self._client.token}"}
            connection.request(method, target, body, {**own, **(headers or {})})
            answer = connection.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(self._unreachable(error), 3) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise CommandError(_refusal(answer.status, found), _EXIT_CODES.get(answer.status, 4))
        return found

    @property
    def _host(self) -> str:
        return self._parts.hostname or ""

    @property
    def _port(self) -> int:
        return self._parts.port or (443 if self._parts.scheme == "https" else 80)

    def _connection(self) -> http.client.HTTPConnection:
        if self._parts.scheme != "https":
            return http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
        import ssl  # slow, and used only here

        trusted = ssl.create_default_context()
        if self._client.ca:
            trusted.load_verify_locations(
                cadata=authority(self._client.ca).decode("ascii", "ignore")
            )
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._seconds, context=trusted
        )

    def _unreachable(self, error: Exception) -> str:
        told = f"cannot reach the gateway at {self.url}: "
        told += getattr(error, "strerror", None) or str(error) or type(error).__name__
        if not self._is_tunnel:
            return told
        server, port = address(self._client.server)[0], self._port
        return f"{told}; first run `ssh -N -L {port}:127.0.0.1:{port} {server}` on this machine"


def is_local(host: str) -> bool:
    bare = host.strip("[]")
    return bare in _LOCAL or bare.startswith("127.")


def _refusal(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the gateway answered {status}"
