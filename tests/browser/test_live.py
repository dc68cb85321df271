"""The pages beside a real daemon with real trainings: preempted, killed, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.visitor import Visitor, visitor
from tests.e2e.conftest import TRAIN
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon, Gate

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def served(daemon: Daemon) -> Iterator[Gateway]:
    with gateway(daemon.address) as made:
        yield made


@pytest.fixture
def person(chromium: Browser, daemon: Daemon, served: Gateway) -> Iterator[Visitor]:
    made = visitor(chromium, served.url)
    made.log_in(daemon.token("root"))
    yield made
    made.page.context.close()
    assert made.mistakes == []


def submit(daemon: Daemon, tmp_path: Path, name: str, gate: Gate, *flags: str) -> str:
    words = ["--script_path", str(TRAIN), "--snapshots_dir", str(tmp_path / "snapshots")]
    words += ["--estimated_memory", "9000", "--env", f"GATE={gate.path}"]
    return daemon.submit(*words, *flags, name)


def test_a_preemption_is_seen_as_it_happens(
    daemon: Daemon, person: Visitor, tmp_path: Path
) -> None:
    long, short = Gate(tmp_path / "long"), Gate(tmp_path / "short")
    job_id = submit(daemon, tmp_path, "long", long, "--max_epochs", "5")
    person.go("/")
    person.page.locator(".bar").get_by_text("long").wait_for()
    person.page.locator("tr", has_text="long").get_by_text("RUNNING").wait_for()
    long.open()
    person.page.locator("tr", has_text="long").get_by_text("1/5").wait_for()

    submit(daemon, tmp_path, "urgent", short, "--max_epochs", "1", "--priority", "10")
    person.page.locator("tr", has_text="long").get_by_text("STOPPING").wait_for()
    person.page.locator("li", has_text="urgent").get_by_text("stopping").first.wait_for()
    long.open()
    person.page.locator(".bar").get_by_text("urgent").wait_for()
    person.page.locator("li", has_text="long").get_by_text("preempted;").wait_for()
    person.sees("preempted for urgent")

    short.open()
    person.page.locator(".bar").get_by_text("long").wait_for()
    person.go(f"/jobs/{job_id}")
    person.page.locator(".drawn").get_by_text("attempt 2", exact=True).wait_for()
    person.page.locator(".drawn").get_by_text("epochs 1\N{EN DASH}2", exact=True).wait_for()
    for gate in (long, short):
        gate.close()


def test_nothing_is_said_to_run_while_the_daemon_is_away(
    daemon: Daemon, person: Visitor, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    submit(daemon, tmp_path, "trains", gate, "--max_epochs", "2")
    person.go("/")
    row = person.page.locator("tr", has_text="trains")
    row.get_by_text("RUNNING", exact=True).wait_for()

    daemon.kill()
    person.page.locator(".banner").get_by_text("The daemon does not answer").wait_for()
    row.get_by_text("was RUNNING").wait_for()
    assert person.page.get_by_text("RUNNING", exact=True).count() == 0
    assert person.page.get_by_role("heading", name="Was running").count() == 1
    assert person.barriers() == []

    daemon.start()
    row.get_by_text("RUNNING", exact=True).wait_for()
    person.page.locator(".banner").wait_for(state="detached")
    gate.open(2)
    row.wait_for(state="detached")
    gate.close()


def test_a_gateway_that_comes_back_needs_no_new_log_in(
    chromium: Browser, daemon: Daemon, tmp_path: Path
) -> None:
    with gateway(daemon.address) as first:
        person = visitor(chromium, first.url)
        person.log_in(daemon.token("root"))
        person.page.get_by_role("status").get_by_text("live").wait_for()
    person.page.locator(".banner").get_by_text("The gateway does not answer").wait_for()
    with gateway(daemon.address, listen=first.url.removeprefix("http://")):
        person.page.locator(".banner").wait_for(state="detached")
        daemon.submit("--hold", "--num_gpus", "0", "afterwards", "--", "true")
        person.go("/jobs")
        person.row("afterwards").wait_for()
    person.page.context.close()
    assert person.mistakes == []
