"""A server of tokens for Debian's docker-registry, as its documents describe one (`auth: token`):
who knows the password gets what they ask for, all others may not even read."""

from __future__ import annotations

import base64
import http.server
import json
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SERVICE, ISSUER = "lab-registry", "lab-tokens"
CONFIG = """\
auth:
  token:
    realm: {realm}
    service: lab-registry
    issuer: lab-tokens
    rootcertbundle: {folder}/tokens.pem
"""
SECONDS = 300


@dataclass
class TokenServer:
    realm: str
    asked: list[tuple[str, bool]] = field(default_factory=list)  # the scope, and whether known


@contextmanager
def token_server(folder: Path, login: str) -> Iterator[TokenServer]:
    """`login`: USER:PASSWORD in base64. Writes the certificate of its tokens into the folder."""
    key, certificate = folder / "tokens.key", folder / "tokens.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=lab-tokens", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    lines = certificate.read_text().splitlines()
    chain = "".join(line for line in lines if not line.startswith("-----"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {
                name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()
            }
            is_known = self.headers.get("Authorization") == f"Basic {login}"
            server.asked.append((query.get("scope", ""), is_known))
            if self.headers.get("Authorization") and not is_known:
                self.send_error(401)
                return
            told = {"token": _token(key, chain, query.get("scope", "") if is_known else "")}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = TokenServer(f"http://127.0.0.1:{listening.server_port}/token")
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


def _token(key: Path, chain: str, scope: str) -> str:
    """For everything in the scope, such as `repository:train:pull,push`."""
    now = int(time.time())
    access = []
    for each in scope.split():
        kind, _, rest = each.partition(":")
        name, _, actions = rest.rpartition(":")
        access.append({"type": kind, "name": name, "actions": actions.split(",")})
    head = {"alg": "RS256", "typ": "JWT", "x5c": [chain]}
    claims = {
        **{"iss": ISSUER, "aud": SERVICE, "sub": "ada", "jti": secrets.token_hex(8)},
        **{"iat": now, "nbf": now - 10, "exp": now + SECONDS, "access": access},
    }
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
    signature = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", key, "-binary"],
        input=signed.encode(),
        check=True,
        capture_output=True,
    ).stdout
    return f"{signed}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
