from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.gateway.serving_http import Served, gateway
from tests.serving import serving
from tests.support import BIN


def complaint(*flags: str) -> tuple[int, str]:
    done = subprocess.run(
        [BIN / "scheduler-gateway", *flags], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--listen", "0.0.0.0:0"), "others could read tokens on the way"),
        (("--listen", "7071"), "'7071' is not HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--listen", "no.such.host.invalid:0", "--plain_http"), "cannot listen on no.such.host"),
        (("--certificate", "x.pem"), "belong together"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags: tuple[str, ...], words: str) -> None:
    code, told = complaint(*flags)
    assert code == 2
    assert words in told
    assert told.count("\n") == 1


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, told = complaint("--listen", f"127.0.0.1:{port}")
    assert (code, told) == (
        1,
        f"scheduler-gateway: cannot listen on 127.0.0.1:{port}: the port is in use\n",
    )


def test_without_a_daemon_it_serves_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with gateway(f"127.0.0.1:{port}") as served, served.client("token") as client:
        assert client.get("/healthz").text == "ok\n"
        answer = client.get("/api/v1/jobs")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        message = answer.json()["error"]["message"]
        page = client.get("/")  # it asks until it gets an answer
        assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")
    assert message.startswith(f"cannot reach scheduler at 127.0.0.1:{port}: ")


def test_it_ends_when_asked() -> None:
    with gateway("127.0.0.1:1") as served:
        served.process.terminate()
        assert served.process.wait(60) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_the_rights_of_root_it_needs_no_module_that_is_out_of_reach(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as daemon,
        gateway(f"127.0.0.1:{daemon.server.port}", "--user", "nobody") as made,
        Served(daemon, made).by() as client,
    ):
        job = daemon.submit("demo", held=True)
        answer = client.get("/api/v1/compare", params={"job": job})
        assert answer.status_code == 200, answer.text
