from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import open as opening
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import Serving

URL = "http://127.0.0.1:7071"


def code_in(url: str) -> str:
    return url.partition("code=")[2].partition("&")[0].strip()


def test_it_prints_an_address_that_logs_its_user_in(server: Serving, command: Command) -> None:
    server.url = URL
    done = command("scheduler-open")
    assert done.exit_code == 0, done.err
    assert done.out.startswith(f"{URL}/login?code=")
    request = pb.ExchangeLoginRequest(code=code_in(done.out))
    assert server.gateway.ExchangeLogin(request).user == "ada"


def test_it_leads_to_the_page_of_a_job(server: Serving, command: Command) -> None:
    server.url = URL
    job = server.submit("demo")
    for done in (command("scheduler-open", "demo"), command("scheduler-state", "demo", "--web")):
        assert done.out.endswith(f"&next=/jobs/{job}\n")
    told = json.loads(command("scheduler-open", "--output", "json").out)
    assert told["url"].startswith(f"{URL}/login?code=")
    assert command("scheduler-state", "--web").out.startswith(f"{URL}/login?code=")


def test_without_pages_it_says_so(server: Serving, command: Command) -> None:
    done = command("scheduler-open")
    assert (done.exit_code, done.out) == (4, "")
    assert "serves no pages" in done.err
    server.url = URL
    assert command("scheduler-open", "no-such-job").exit_code == 2
    assert command("scheduler-state", "a", "b", "--web").exit_code == 2


@pytest.mark.parametrize(
    ("server", "url", "told"),
    [
        ("gpu1:7443", URL, "`ssh -N -L 7071:127.0.0.1:7071 gpu1`"),
        ("gpu1:7443", "https://gpu1:7071", ""),
        ("127.0.0.1:7070", URL, ""),
        ("localhost:7070", URL, ""),
    ],
)
def test_from_another_machine_it_says_how_to_reach_the_page(
    server: str, url: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    opening._note_tunnel(server, url)
    said = capsys.readouterr().err
    assert told in said
    assert bool(said) == bool(told)


def test_a_page_is_written_that_needs_nothing_else(
    command: Command, server: Serving, tmp_path: Path
) -> None:
    server.submit("demo", held=True)
    file = tmp_path / "demo.html"
    done = command("scheduler-state", "demo", "--web", "--output", str(file))
    assert (done.exit_code, done.out) == (0, f"{file}\n")
    assert "pending: held (until it is released)" in file.read_text()

    for words in (["demo"], ["--web"]):
        refused = command("scheduler-state", *words, "--output", str(file))
        assert (refused.exit_code, "is for --web with a JOB" in refused.err) == (2, True)
    nowhere = command("scheduler-state", "demo", "--web", "--output", "/nowhere/demo.html")
    assert (nowhere.exit_code, "cannot write /nowhere/demo.html" in nowhere.err) == (1, True)
