"""Ten thousand jobs on a page: only what can be seen is loaded and drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.browser.conftest import Site
from tests.support import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Route

JOBS = 10_000
SAMPLE = """async () =>
    (await (await fetch("/api/v1/jobs?all_users=true&state=HELD")).json()).jobs[0]"""


def test_the_list_of_ten_thousand_jobs_is_drawn_and_loaded_in_parts(site: Site) -> None:
    site.daemon.submit("sample", held=True)
    person = site.visit()
    sample = person.page.evaluate(SAMPLE)
    asked = []

    def answer(route: Route) -> None:
        """As the gateway would, with jobs that nobody has submitted."""
        query = parse_qs(urlsplit(route.request.url).query)
        first, limit = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        asked.append(first)
        last = min(JOBS, first + limit)
        jobs = [_job(sample, number) for number in range(first, last)]
        cursor = str(last) if last < JOBS else ""
        body = {"jobs": jobs, "total": JOBS, "next_cursor": cursor, "remarks": []}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    person.page.route("**/api/v1/jobs?*", answer)
    person.go("/jobs")
    person.row("job-00000").wait_for()
    assert asked == [0]
    assert person.sees("10,000 jobs")
    assert person.page.locator("tr.job").count() < 80
    box = person.page.locator(".rows")
    box.evaluate("(box) => { box.scrollTop = 3000 * 38; }")
    person.row("job-03005").wait_for()
    assert person.page.locator("tr.job").count() < 80
    assert max(asked) < 4000
    index = person.row("job-03005").get_attribute("aria-rowindex")
    assert index == str(3005 + 2)
    box.evaluate("(box) => { box.scrollTop = 0; }")
    person.row("job-00000").wait_for()


def _job(sample: dict[str, Any], number: int) -> dict[str, Any]:
    job_id = f"{number:08d}-0000-4000-8000-{number:012d}"
    return {**sample, "id": job_id, "name": f"job-{number:05d}"}


def test_jobs_that_come_and_go_while_the_list_is_open_are_on_it(site: Site) -> None:
    person = site.visit()
    person.go("/jobs?state=HELD")
    names = [f"job-{number}" for number in range(250)]
    for name in names:
        site.daemon.submit(name, held=True)
    eventually(lambda: "250 jobs" in person.page.locator(".head").inner_text())
    person.row(names[-1]).wait_for()
