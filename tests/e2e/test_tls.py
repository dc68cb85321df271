"""Users on other machines are served encrypted, with a certificate from files; local jobs need
none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.e2e.conftest import Train
from tests.kube.certificates import Authority
from tests.kube.processes import free_port
from tests.support import Daemon

HERE = "127.0.0.1"


class Secured(Daemon):
    """A daemon with a second, encrypted port."""

    def __init__(self, folder: Path, authority: Authority, host: str = HERE) -> None:
        self.authority = authority
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.serve_with(authority.issue("daemon", "localhost", HERE))
        self.port = free_port()
        settings = folder / "scheduler.toml"
        settings.write_text(
            f'[tls]\nlisten = "{host}:{self.port}"\n'
            f'certificate = "{self.certificate}"\nkey = "{self.key}"\n'
        )
        super().__init__(folder / "state", "1x16384", "--config", str(settings))
        self.address = f"{host}:0"

    def serve_with(self, pair: tuple[Path, Path]) -> None:
        for made, file in zip(pair, (self.certificate, self.key), strict=True):
            made.rename(file)

    def says(self, ca: Path | str, host: str = HERE, port: int = 0) -> tuple[int, str]:
        """The exit code and the error of scheduler-state."""
        server = f"{host}:{port or self.port}"
        words = ["--output", "json", "--server", server, *(["--ca", str(ca)] if ca else [])]
        done = self.run("scheduler-state", *words, user="ada")
        assert len(done.stderr.splitlines()) == (done.returncode != 0), done.stderr
        told = done.stderr.removeprefix("scheduler-state: ").strip()
        return done.returncode, told.removeprefix(f"cannot reach scheduler at {server}: ")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"))


Secure = Callable[..., Secured]


@pytest.fixture
def secure(tmp_path: Path, authority: Authority) -> Iterator[Secure]:
    made: list[Secured] = []

    def make(host: str = HERE) -> Secured:
        made.append(Secured(tmp_path, authority, host))
        made[-1].start()
        return made[-1]

    yield make
    for daemon in made:
        daemon.end()


def test_a_job_is_submitted_encrypted_and_reports_as_usual(
    secure: Secure, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = secure()
    monkeypatch.setenv("SCHEDULER_CA", str(daemon.authority.certificate))
    words = ("--server", f"localhost:{daemon.port}", "--max_epochs", "2")
    done = daemon.run("run-scheduler", *words, *train(), "--wait", "far", user="root")
    assert done.returncode == 0, done.stderr
    monkeypatch.delenv("SCHEDULER_CA")
    assert daemon.job_of(done.stdout.strip())["epochs_done"] == 2


def test_a_local_user_needs_no_token_on_the_encrypted_port_either(secure: Secure) -> None:
    daemon = secure()
    ca = str(daemon.authority.certificate)
    done = daemon.run("scheduler-state", "--server", f"{HERE}:{daemon.port}", "--ca", ca)
    assert done.returncode == 0, done.stderr


def test_each_problem_with_the_certificate_is_reported_in_one_line(
    secure: Secure, foreign: Authority, tmp_path: Path
) -> None:
    daemon = secure()
    ca = daemon.authority.certificate
    other = foreign.certificate
    assert daemon.says(ca) == (0, "")
    assert daemon.says(other) == (3, f"its certificate is not signed by an authority in {other}")
    daemon.serve_with(daemon.authority.issue("elsewhere", "gpu.lab"))
    assert daemon.says(ca) == (3, f"its certificate is not valid for {HERE}")
    daemon.serve_with(daemon.authority.issue_expired("late", HERE))
    assert daemon.says(ca) == (3, "its certificate has expired")
    daemon.serve_with(daemon.authority.issue("daemon", HERE))
    assert daemon.says(ca) == (0, "")


def test_the_wrong_port_is_reported_in_one_line(secure: Secure) -> None:
    daemon = secure()
    plain = int(daemon.address.rpartition(":")[2])
    code, told = daemon.says(daemon.authority.certificate, port=plain)
    assert (code, told.split(":")[0]) == (3, "it does not speak TLS on this port")
    code, told = daemon.says("")
    assert (code, told) == (3, "Socket closed; if it speaks TLS on this port, give --ca")


def test_an_authority_that_cannot_be_read_is_named(secure: Secure, tmp_path: Path) -> None:
    daemon = secure()
    missing, garbage = tmp_path / "missing.crt", tmp_path / "garbage.crt"
    garbage.write_bytes(os.urandom(500))
    assert daemon.says(missing) == (2, f"--ca {missing}: No such file or directory")
    for file in (garbage, daemon.key):
        assert daemon.says(file) == (2, f"--ca {file}: contains no PEM certificate")


def test_a_new_certificate_is_served_and_no_connection_is_lost(
    secure: Secure, foreign: Authority
) -> None:
    daemon = secure()
    before, after = daemon.authority.certificate, foreign.certificate
    trusted = grpc.ssl_channel_credentials(before.read_bytes())
    bearer = (("authorization", f"Bearer {daemon.token('root')}"),)
    with grpc.secure_channel(f"{HERE}:{daemon.port}", trusted) as channel:
        jobs = scheduler_pb2_grpc.SchedulerStub(channel)
        watched = jobs.WatchJobs(
            scheduler_pb2.ListJobsRequest(all_users=True), metadata=bearer, timeout=60
        )
        assert next(watched).total == 0
        daemon.serve_with(foreign.issue("daemon", HERE))
        assert daemon.says(after) == (0, "")
        assert daemon.says(before)[0] == 3
        daemon.submit("--num_gpus", "0", "new", "--", "true", user="root")
        assert next(watched).total == 1, "the existing stream continues"
        watched.cancel()


def test_a_new_certificate_without_its_key_changes_nothing(
    secure: Secure, foreign: Authority
) -> None:
    daemon = secure()
    certificate, key = foreign.issue("daemon", HERE)
    certificate.rename(daemon.certificate)
    assert daemon.says(daemon.authority.certificate) == (0, "")
    assert f"{daemon.key}: is not the key of {daemon.certificate}" in daemon.said()
    key.rename(daemon.key)
    assert daemon.says(foreign.certificate) == (0, "")


def test_users_on_other_machines_are_not_served_unencrypted(secure: Secure) -> None:
    """Uses an address of this machine other than the loopback's, which counts as elsewhere."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    if not found:
        pytest.skip("this machine has no address but the loopback's")
    daemon = secure("0.0.0.0")
    daemon.serve_with(daemon.authority.issue("daemon", found[0]))
    plain = int(daemon.address.rpartition(":")[2])
    code, told = daemon.says("", found[0], plain)
    assert (code, told) == (
        4,
        f"remote users need the encrypted port: use --server HOST:{daemon.port} and --ca FILE",
    )
    with grpc.insecure_channel(f"{found[0]}:{plain}") as channel:
        exchange = scheduler_pb2_grpc.GatewayStub(channel).ExchangeLogin
        with pytest.raises(grpc.RpcError) as refusal:
            exchange(scheduler_pb2.ExchangeLoginRequest(code="x"), timeout=10)
        assert "remote users need the encrypted port" in (refusal.value.details() or "")
    assert daemon.says(daemon.authority.certificate, found[0]) == (0, "")
    assert daemon.says("", HERE, plain) == (0, "")


def test_a_daemon_that_cannot_serve_encrypted_does_not_start(
    tmp_path: Path, authority: Authority, foreign: Authority
) -> None:
    certificate, key = authority.issue("good", HERE)
    other = foreign.issue("other", HERE)[1]
    missing = tmp_path / "missing"
    settings = tmp_path / "scheduler.toml"
    pair = f'certificate = "{certificate}"\nkey = "{key}"'
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        for tls, code, complaint in (
            (f'certificate = "{certificate}"', 2, "tls: listen is missing; it needs listen, cert"),
            ('listen = "127.0.0.1:1"', 2, "tls: certificate is missing; it needs listen, cert"),
            (f'listen = "here"\n{pair}', 2, "tls.listen: 'here' is not HOST:PORT"),
            (f'listen = "{HERE}:0"\n{pair}', 2, "tls.listen: port 0 is not possible"),
            (f'listen = "{HERE}:{port}"\n{pair}', 1, "the port is in use"),
            (
                f'listen = "{HERE}:{free_port()}"\ncertificate = "{missing}"\nkey = "{key}"',
                2,
                f"cannot read {missing}: No such file or directory",
            ),
            (
                f'listen = "{HERE}:{free_port()}"\ncertificate = "{certificate}"\nkey = "{other}"',
                2,
                f"{other}: is not the key of {certificate}",
            ),
        ):
            settings.write_text(f"[tls]\n{tls}\n")
            daemon = Daemon(tmp_path / "state", "0", "--config", str(settings))
            daemon.spawn()
            assert daemon.process
            assert daemon.process.wait(60) == code, daemon.said()
            told = daemon.said().splitlines()[-1]
            assert told.startswith("scheduler-daemon: "), told
            assert complaint in told
            daemon.end()
