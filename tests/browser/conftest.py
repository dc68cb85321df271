"""Debian's Chromium, without a window. Tests that need it are skipped where it is not installed."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.access.identity import user_token
from scheduler.v1 import scheduler_pb2 as pb
from tests.browser.visitor import Visitor, visitor
from tests.gateway.serving_http import Gateway, Served, served_for
from tests.serving import SECRET, Serving, by, of
from tests.support import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STATIC = Path(__file__).parents[2] / "scheduler" / "gateway" / "static"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One for each module: while it is there, its thread cannot run another event loop."""
    playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs Chromium: apt install chromium")
    with playwright.sync_playwright() as running:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = running.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def blank(chromium: Browser) -> Iterator[Page]:
    """A page with nothing on it, that can import the pages' modules."""
    serve = functools.partial(_Silent, directory=str(STATIC.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, name="static").start()
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/static/favicon.svg")
        yield page
        page.close()
        server.shutdown()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Whatever this machine takes the names of files for."""
        return "text/javascript" if str(path).endswith(".js") else super().guess_type(path)

    def log_message(self, format: str, *words: object) -> None:
        pass


# --- a site to visit ------------------------------------------------------------------------------


@dataclass
class Site:
    url: str
    daemon: Serving
    visit: Callable[..., Visitor]
    gateway: Gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_for(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def place(served: Served) -> tuple[Serving, str]:
    return served.daemon, served.gateway.url


@pytest.fixture
def site(served: Served, chromium: Browser) -> Iterator[Site]:
    """Each visitor is logged in; at the end, no page may have made a mistake."""
    daemon, url = served.daemon, served.gateway.url
    visitors = []

    def visit(user: str = "ada", **given: object) -> Visitor:
        made = visitor(chromium, url, **given)  # type: ignore[arg-type]  # passed on as they are
        visitors.append(made)
        made.log_in(user_token(SECRET, user))
        return made

    yield Site(url, daemon, visit, served.gateway)
    for each in visitors:
        each.page.context.close()
        assert each.mistakes == []
    for job in list(daemon.scheduler.view.jobs.values()):
        if not job.outcome:
            daemon.people.CancelJob(pb.CancelJobRequest(job=job.id), metadata=by("root"))
    eventually(lambda: all(job.outcome for job in daemon.scheduler.view.jobs.values()))


def epoch(site: Site, job_id: str, number: int = 1) -> None:
    """The training reports that it has done an epoch."""
    job = site.daemon.job(job_id)
    profile = pb.Profile(job_id=job_id, attempt=job.attempts, epoch=number, epoch_seconds=3.0)
    site.daemon.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=of(job))
