from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import gateway as asking
from cli.client import Client
from cli.command import CommandError
from cli.gateway import GatewayClient
from scheduler.access.identity import user_token
from tests.gateway.serving_http import gateway
from tests.kube.certificates import Authority
from tests.serving import SECRET, Serving


@pytest.fixture
def client(server: Serving, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("SCHEDULER_TOKEN", user_token(SECRET, "ada"))
    return Client(f"127.0.0.1:{server.server.port}")


@pytest.fixture
def nobody_listens() -> Iterator[int]:
    with socket.socket() as wire:
        wire.bind(("127.0.0.1", 0))
        yield wire.getsockname()[1]


def test_it_asks_as_the_user_of_the_command(server: Serving, client: Client) -> None:
    with gateway(f"127.0.0.1:{server.server.port}") as made:
        server.url = made.url
        assert GatewayClient(client).get("/session")["user"] == "ada"
        with pytest.raises(CommandError, match="no job matches 'x y'") as refused:
            GatewayClient(client).get("/jobs/x y")
        assert refused.value.exit_code == 2


def test_it_trusts_an_encrypted_gateway_by_the_authority_of_the_command(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("pages", "127.0.0.1")
    flags = ("--certificate", str(certificate), "--key", str(key))
    with gateway(f"127.0.0.1:{server.server.port}", *flags) as made:
        server.url = made.url
        with pytest.raises(CommandError, match="certificate verify failed") as refused:
            GatewayClient(client).get("/session")
        assert refused.value.exit_code == 3
        client.ca = str(authority.certificate)
        assert GatewayClient(client).get("/session")["user"] == "ada"


def test_a_gateway_that_cannot_be_reached_is_named(
    server: Serving, client: Client, nobody_listens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.url = f"http://127.0.0.1:{nobody_listens}"
    with pytest.raises(CommandError, match=f"{server.url}: Connection refused") as refused:
        GatewayClient(client).get("/session")
    assert (refused.value.exit_code, "ssh" in str(refused.value)) == (3, False)
    monkeypatch.setattr(client, "server", "gpu1:7443")
    with pytest.raises(CommandError, match="first run `ssh -N -L "):
        GatewayClient(client).get("/session")


def test_a_token_that_the_kernel_vouched_for_is_not_sent_to_another_user(
    server: Serving, client: Client, nobody_listens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.url = f"http://127.0.0.1:{nobody_listens}"
    asked = []
    monkeypatch.setattr(asking, "check_listener", lambda *where: asked.append(where))
    GatewayClient(client)
    assert asked == []
    monkeypatch.setattr(client, "is_token_local", True)
    GatewayClient(client)
    assert asked == [("127.0.0.1", nobody_listens)]
