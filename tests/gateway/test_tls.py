"""Other machines are served encrypted, and the daemon's certificate is the gateway's, too."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from scheduler.access.identity import user_token
from tests.gateway.serving_http import Served, gateway, trusting
from tests.kube.certificates import Authority
from tests.kube.processes import free_port
from tests.serving import SECRET
from tests.support import BIN, Daemon, eventually

HERE = "127.0.0.1"


def test_a_cookie_of_an_encrypted_page_is_sent_nowhere_else(
    served: Served, authority: Authority
) -> None:
    certificate, key = authority.issue("pages", "localhost", HERE)
    server = f"{HERE}:{served.daemon.server.port}"
    flags = ("--certificate", str(certificate), "--key", str(key), "--host", "localhost")
    with gateway(server, *flags, listen="0.0.0.0:0") as encrypted:
        port = encrypted.url.rpartition(":")[2]
        url = f"https://localhost:{port}"
        with httpx.Client(base_url=url, verify=trusting(authority), trust_env=False) as browser:
            answer = browser.get(f"/login?code={served.code()}")
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-scheduler_session=")
            assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
            assert "Domain" not in cookie
            assert answer.headers["strict-transport-security"]
            assert browser.get("/api/v1/session").json()["user"] == "ada"
        with (
            httpx.Client(base_url=f"http://localhost:{port}", trust_env=False) as plain,
            pytest.raises(httpx.HTTPError),
        ):
            plain.get("/api/v1/jobs", headers={"authorization": user_token(SECRET, "ada")})


def test_a_certificate_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, authority: Authority
) -> None:
    certificate, _ = authority.issue("one", HERE)
    _, other_key = authority.issue("two", HERE)
    (tmp_path / "empty").write_text("")
    for file in (certificate, tmp_path / "empty", tmp_path / "none"):
        done = subprocess.run(
            [
                *(BIN / "scheduler-gateway", "--listen", "127.0.0.1:0"),
                *("--certificate", file, "--key", other_key),
            ],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_a_certificate_that_has_expired_is_refused_by_who_asks(
    served: Served, authority: Authority
) -> None:
    certificate, key = authority.issue_expired("yesterday", HERE)
    flags = ("--certificate", str(certificate), "--key", str(key))
    with gateway(f"{HERE}:{served.daemon.server.port}", *flags) as late:
        with (
            httpx.Client(base_url=late.url, verify=trusting(authority), trust_env=False) as browser,
            pytest.raises(httpx.ConnectError, match="certificate has expired"),
        ):
            browser.get("/healthz")
        with httpx.Client(base_url=late.url, verify=False, trust_env=False) as careless:
            assert careless.get("/healthz").text == "ok\n"


def test_a_daemon_with_an_expired_certificate_is_away_until_it_has_another(
    tmp_path: Path, authority: Authority
) -> None:
    files = tmp_path / "daemon.crt", tmp_path / "daemon.key"

    def use(made: tuple[Path, Path]) -> None:
        for each, file in zip(made, files, strict=True):
            each.replace(file)

    use(authority.issue_expired("of-yesterday", HERE))
    server = f"{HERE}:{free_port()}"
    daemon = Daemon(tmp_path / "state", "0")
    daemon.environment = {
        "SCHEDULER_TLS__LISTEN": server,
        "SCHEDULER_TLS__CERTIFICATE": str(files[0]),
        "SCHEDULER_TLS__KEY": str(files[1]),
    }
    try:
        daemon.start()
        with (
            gateway(server, "--ca", str(authority.certificate)) as made,
            made.client(daemon.token("ada")) as client,
        ):
            answer = client.get("/api/v1/jobs")
            assert (answer.status_code, answer.json()["error"]["message"]) == (
                503,
                f"cannot reach scheduler at {server}: its certificate has expired",
            )
            use(authority.issue("of-today", HERE))
            eventually(lambda: client.get("/api/v1/jobs").status_code == 200)
    finally:
        daemon.end()


def test_a_new_certificate_is_served_by_a_gateway_that_starts_again(
    tmp_path: Path, authority: Authority
) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"

    def use(name: str) -> None:
        for made, file in zip(authority.issue(name, "localhost", HERE), files, strict=True):
            made.rename(file)

    def served_name() -> str:
        try:
            pem = ssl.get_server_certificate((HERE, port))
        except OSError:
            return ""
        shown = subprocess.run(
            ["openssl", "x509", "-noout", "-subject"], input=pem, capture_output=True, text=True
        )
        return shown.stdout

    use("first")
    daemon = Daemon(tmp_path / "state", "0")
    daemon.environment = {
        "SCHEDULER_GATEWAY__LISTEN": "0.0.0.0:0",
        "SCHEDULER_TLS__LISTEN": f"{HERE}:{free_port()}",
        "SCHEDULER_TLS__CERTIFICATE": str(files[0]),
        "SCHEDULER_TLS__KEY": str(files[1]),
    }
    try:
        daemon.start()
        eventually(lambda: "gateway_ready" in daemon.said())
        port = int((daemon.state / "port_gateway").read_text())
        eventually(lambda: "first" in served_name())
        use("second")
        eventually(lambda: "second" in served_name())
    finally:
        daemon.end()
