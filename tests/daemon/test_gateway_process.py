"""The child that serves pages, with a real daemon."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from scheduler.core.errors import ConfigError
from scheduler.daemon.gateway_process import make_folder
from tests.support import Daemon, eventually


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "0")
    made.environment = {"SCHEDULER_GATEWAY__LISTEN": "127.0.0.1:0", "SECRET": "x"}
    try:
        yield made
    finally:
        made.end()


def children(daemon: Daemon) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(daemon.pid).children()
        if "scheduler.gateway.command" in child.cmdline()
    ]


def url_of(daemon: Daemon) -> str:
    """Where it serves, as the daemon tells the command."""

    found: list[str] = []

    def opened() -> bool:
        done = daemon.run("scheduler-open", user="ada")
        found[:] = [done.stdout.partition("/login")[0]]
        return done.returncode == 0

    eventually(opened)
    return found[0]


def serves(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).text == "ok\n"
    except httpx.HTTPError:
        return False


def test_a_daemon_starts_one_and_a_browser_can_log_in(daemon: Daemon) -> None:
    url = url_of(daemon.start())
    assert len(children(daemon)) == 1
    address = daemon.run("scheduler-open", user="ada").stdout.strip()
    with httpx.Client(trust_env=False, follow_redirects=True) as browser:
        assert browser.get(address).status_code == 200
        assert browser.get(f"{url}/api/v1/session").json()["user"] == "ada"
    (child,) = children(daemon)
    assert not {name for name in child.environ() if name.startswith(("SCHEDULER", "SECRET"))}
    assert "code=" not in daemon.said()


def test_it_is_started_again_whenever_it_ends(daemon: Daemon) -> None:
    url = url_of(daemon.start())
    for _ in range(2):
        (child,) = children(daemon)
        child.kill()
        child.wait()
        eventually(lambda: serves(url))
        assert len(children(daemon)) == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_it_ends_with_the_daemon(how: str, daemon: Daemon) -> None:
    url = url_of(daemon.start())
    (child,) = children(daemon)
    getattr(daemon, how)()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert not serves(url)
    assert url_of(daemon.start()) == url, "a page that is open finds the next one"


def test_a_port_that_is_taken_is_told_in_one_line(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon.environment = {"SCHEDULER_GATEWAY__LISTEN": listen}
        daemon.start()
        eventually(lambda: "no_gateway" in daemon.said())
        assert daemon.submit(
            "--num_gpus", "0", "goes-on", "--", "true", user="ada" if os.geteuid() else None
        )
        done = daemon.run("scheduler-open")
        assert (done.returncode, "serves no pages" in done.stderr) == (4, True)
    eventually(lambda: serves(f"http://{listen}"))
    assert daemon.said().count("no_gateway") == 1
    assert f"cannot listen on {listen}: the port is in use" in daemon.said()


def test_a_daemon_of_root_lets_it_be_nobody(daemon: Daemon) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    url = url_of(daemon.start())
    (child,) = children(daemon)
    nobody = pwd.getpwnam("nobody")
    assert set(child.uids()) == {nobody.pw_uid}
    assert set(child.gids()) == {nobody.pw_gid}
    status = Path(f"/proc/{child.pid}/status").read_text()
    assert "Groups:\t \n" in status
    folder = daemon.state / "gateway"
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (nobody.pw_uid, 0o700)
    with httpx.Client(base_url=url, trust_env=False) as client:
        client.headers["authorization"] = f"Bearer {daemon.token('ada')}"
        assert client.get("/api/v1/jobs").status_code == 200
    daemon.stop()
    assert url_of(daemon.start()) == url, "that folder is no reason to refuse the state"


def test_a_user_who_does_not_exist_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with pytest.raises(ConfigError, match=r"gateway.user: there is no user 'no-such-user'"):
        make_folder(tmp_path, "no-such-user")


def test_it_keeps_what_trainings_log_in_a_folder_of_its_own(daemon: Daemon) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name  # nobody may not pass the folders of tests
    daemon.environment = {**daemon.environment, "SCHEDULER_GATEWAY__USER": user}
    url_of(daemon.start())
    assert (daemon.state / "gateway" / "series.db").exists()
    assert "no_series" not in daemon.said()


def test_pages_are_served_where_series_cannot_be_kept(daemon: Daemon) -> None:
    (daemon.state / "gateway" / "series.db").mkdir(parents=True)
    daemon.state.chmod(0o700)
    assert serves(url_of(daemon.start()))
    eventually(lambda: "no_series" in daemon.said())


def test_the_user_of_the_gateway_may_pass_the_folder_of_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    made = make_folder(state, "nobody")
    nobody = pwd.getpwnam("nobody")
    assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (nobody.pw_uid, 0o700)
    assert (state.stat().st_gid, state.stat().st_mode & 0o777) == (nobody.pw_gid, 0o710)
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_folder(shared, "nobody")
    assert shared.stat().st_mode & 0o777 == 0o755, "an admin has decided otherwise"


def test_it_is_told_where_points_are_sent_on(daemon: Daemon, tmp_path: Path) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("me:secret\n")
    daemon.environment = {
        **daemon.environment,
        "SCHEDULER_GATEWAY__FORWARD": "http://127.0.0.1:1/write?db=training",
        "SCHEDULER_GATEWAY__FORWARD_CREDENTIALS": str(secret),
        "SCHEDULER_GATEWAY__USER": pwd.getpwuid(os.geteuid()).pw_name,
    }
    assert serves(url_of(daemon.start()))
    (gateway,) = children(daemon)
    words = gateway.cmdline()
    assert words[words.index("--forward") + 1] == "http://127.0.0.1:1/write?db=training"
    assert words[words.index("--forward_credentials") + 1] == str(secret)
    assert "no_gateway" not in daemon.said()
