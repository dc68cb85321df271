"""`make screens`: pictures of every page, with the data of the demo, in build/screens/.

Each page at 1280 and at 390 pixels, light and dark. With an argument, a picture of the page Now is
also written there, for README.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from demo.__main__ import FIRST, TRAIN, URGENT
from scheduler.access.identity import user_token
from tests.browser.sweeps import Sweep, make_grid
from tests.browser.visitor import NARROW, WIDE, Visitor, visitor
from tests.gateway.serving_http import gateway
from tests.serving import SECRET, serving
from tests.support import Daemon, Jobs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

FOLDER = Path("build/screens")
PICTURE_BYTES_MAX = 150_000
LONGER = 40  # times as many epochs as in the demo: so that all is still there for the last picture
PICTURE = (1100, 600)
FACETS = [
    *(("metric", "loss"), ("cols", "param.net.depth"), ("hue", "param.lr"), ("logy", "true")),
    *(("pattern", "param.optimizer"), ("smooth", "0.6"), ("sx", "param.lr"), ("sy", "max.val_acc")),
]
WORKFLOW = """\
metadata: {name: crisp}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: pretrain, template: short}
      - {name: train-fine, template: broken, depends: pretrain}
      - {name: baseline, template: long, depends: pretrain}
      - {name: prune, template: short, depends: train-fine}
      - {name: tidy, template: short, depends: train-fine.Failed}
      - {name: test, template: short, depends: prune}
      - {name: compare, template: short, depends: baseline}
      - {name: report, template: short, depends: compare.Succeeded || compare.Failed}
  - {name: short, container: {image: x, command: ["true"]}}
  - {name: broken, container: {image: x, command: ["false"]}}
  - {name: long, container: {image: x, command: [sleep, "1000"]}}
"""
VIEWS = [(size, dark) for dark in (False, True) for size in (WIDE, NARROW)]


def main(readme: Path | None) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        daemon = Daemon(Path(folder) / "state", "2x16384").start()
        try:
            with gateway(daemon.address) as served:
                jobs = _begin(daemon, Path(folder))
                people = [_person(browser, served.url, daemon, *view) for view in VIEWS]
                if readme:
                    _draw_for_readme(_person(browser, served.url, daemon, PICTURE, False), readme)
                _draw_all(people, jobs)
            _draw_sweep(browser, Path(folder))
        finally:
            daemon.end()
            browser.close()


def _begin(daemon: Daemon, folder: Path) -> Jobs:
    """The demo, until the urgent job runs."""
    flags = ["--script_path", str(TRAIN), "--snapshots_dir", str(folder / "snapshots")]
    flags += ["--env", "OPENBLAS_NUM_THREADS=1", "--project", "demo"]
    for words in FIRST:
        daemon.submit(*flags, *_longer(words))
    daemon.wait(lambda jobs: jobs["grid-2"].epochs_done >= 2)
    daemon.submit(*flags, *_longer(URGENT))
    workflow = folder / "crisp.yaml"
    workflow.write_text(WORKFLOW)
    assert daemon.run("scheduler-run-workflow", workflow, user="root").returncode == 0
    return daemon.wait(lambda jobs: jobs["urgent"].epochs_done >= 2)


def _draw_sweep(browser: Browser, folder: Path) -> None:
    """What is shown of jobs that have logged."""
    (folder / "api").mkdir()
    (folder / "series").mkdir()
    with (
        serving(folder / "api", version=version("epoch-scheduler")) as daemon,
        gateway(f"127.0.0.1:{daemon.server.port}", "--folder", str(folder / "series")) as served,
    ):
        jobs = make_grid(Sweep(daemon, served))
        pages = {
            "experiments": "/experiments",
            "groups": "/experiments?group=param.net.depth&order=min.loss&ascending=true",
            "metrics": f"/jobs/{jobs[0]}",
            "compare": f"/compare?{urlencode([('job', job) for job in jobs[:6]])}",
            "facets": f"/compare?{urlencode([*(('job', job) for job in jobs), *FACETS])}",
        }
        for size, dark in VIEWS:
            person = visitor(browser, served.url, size, dark)
            person.log_in(user_token(SECRET, "ada"))
            for name, path in pages.items():
                person.go(path)
                _settle(person)
                person.page.locator("tr.job, .plot canvas").first.wait_for()
                shot = FOLDER / f"{name}-{size[0]}-{'dark' if dark else 'light'}.png"
                person.page.screenshot(path=shot, full_page=True)
            assert person.mistakes == []
            person.page.context.close()


def _longer(words: str) -> list[str]:
    return re.sub(r"(?<=--max_epochs )\d+", lambda n: str(int(n[0]) * LONGER), words).split()


def _person(
    browser: Browser, url: str, daemon: Daemon, size: tuple[int, int], dark: bool
) -> Visitor:
    made = visitor(browser, url, size, dark)
    made.log_in(daemon.token("root"))
    return made


def _draw_for_readme(person: Visitor, picture: Path) -> None:
    person.go("/")
    _settle(person)
    person.sees("attempt 2 started")
    person.page.screenshot(path=picture)
    assert picture.stat().st_size < PICTURE_BYTES_MAX, f"{picture} is too large"


def _draw_all(people: list[Visitor], jobs: Jobs) -> None:
    left = max(jobs.values(), key=lambda job: job.attempt)
    pages = {
        "now": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{left.id}",
        "log": f"/jobs/{left.id}/log",
        "people": "/people",
        "cluster": "/cluster",
        "help": "/help",
        "workflow": f"/workflows/{jobs['pretrain'].id}",
        "workflows": "/workflows",
    }
    for person in people:
        person.page.route("**/api/v1/cluster/history*", _hours_ago)
    for name, path in pages.items():
        for person, (size, dark) in zip(people, VIEWS, strict=True):
            person.go(path)
            _settle(person)
            shot = FOLDER / f"{name}-{size[0]}-{'dark' if dark else 'light'}.png"
            person.page.screenshot(path=shot, full_page=True)
    for person, (size, dark) in zip(people, VIEWS, strict=True):
        person.go(f"/jobs/{left.id}")
        person.page.get_by_role("button", name="Cancel").click()
        _settle(person)
        name = f"cancel-{size[0]}-{'dark' if dark else 'light'}.png"
        person.page.screenshot(path=FOLDER / name)
        person.page.keyboard.press("Escape")
        person.page.get_by_role("button", name="Log out").click()
        person.page.get_by_label("Or paste your token").wait_for()
        person.page.screenshot(path=FOLDER / name.replace("cancel", "login"))
        assert person.mistakes == []
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")


def _hours_ago(route: Route) -> None:
    """As if pages had been open in five of the last six hours, beside an agent."""
    answer = route.fetch()
    told = answer.json()
    minutes = [minute for minute in range(360) if not 200 <= minute < 260]
    granted = [16384 * (0.4 + 0.3 * (minute // 45 % 3)) for minute in minutes]
    told |= {
        "at": [told["at"][-1] - 60 * (359 - minute) for minute in minutes],
        "memory_mib": [32768 for _ in minutes],
        "granted_mib": granted,
        "used_mib": [0.8 * each for each in granted],
        "busy": [0.55 + 0.4 * math.sin(minute / 17) for minute in minutes],
    }
    route.fulfill(response=answer, json=told)


def _settle(person: Visitor) -> None:
    person.page.get_by_role("heading", level=1).wait_for()
    person.page.wait_for_function("() => !document.body.innerText.includes('loading …')")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
