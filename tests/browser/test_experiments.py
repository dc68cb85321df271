"""The page Experiments, and the metrics on the page of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scheduler.core.model import JobId
from tests.browser.conftest import Site
from tests.browser.sweeps import Sweep, make_grid
from tests.browser.visitor import NARROW, Visitor
from tests.gateway.serving_http import Served
from tests.support import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Request

HOSTILE = '<img src=x onerror="alert(1)">{{1+1}}'


@pytest.fixture(scope="module")
def sweep(served: Served) -> Sweep:
    return Sweep(served.daemon, served.gateway)


@pytest.fixture(scope="module")
def grid(sweep: Sweep) -> list[str]:
    return make_grid(sweep, steps=100)


def names(person: Visitor) -> list[str]:
    return person.page.locator("tr.job:not(.group) td:nth-child(2) a").all_inner_texts()


def column(person: Visitor, title: str) -> list[str]:
    """What stands in the column of this title."""
    titles = [each.get_attribute("title") for each in person.page.locator("thead th").all()]
    if title not in titles:  # not yet
        return []
    place = titles.index(title) + 1
    return person.page.locator(f"tr.job td:nth-child({place})").all_inner_texts()


def open_table(site: Site, query: str = "", **given: object) -> Visitor:
    person = site.visit(**given)
    person.go(f"/experiments?experiment=sweep{query}")
    person.page.locator("tr.job").first.wait_for()
    return person


def test_the_table_shows_what_differs_and_what_was_measured(site: Site, grid: list[str]) -> None:
    person = open_table(site)
    person.sees(f"{len(grid)} jobs")
    assert column(person, "param.lr")[:3] == ["0.01"] * 3
    assert set(column(person, "param.optimizer")) == {"adam", "sgd"}
    assert "NaN" in column(person, "last.loss")
    assert person.barriers() == []


def test_what_is_shown_is_in_the_address(site: Site, grid: list[str]) -> None:
    person = open_table(site)
    person.page.get_by_label("Search").fill("lr<=0.03 resnet18")
    eventually(lambda: names(person) == ["resnet18-lr0.01", "resnet18-lr0.03"])
    person.page.get_by_role("button", name="param lr").click()
    eventually(lambda: names(person) == ["resnet18-lr0.01", "resnet18-lr0.03"])
    person.page.get_by_role("button", name="param lr").click()
    eventually(lambda: names(person) == ["resnet18-lr0.03", "resnet18-lr0.01"])
    person.page.get_by_role("button", name=re.compile("^Columns: ")).click()
    dialog = person.page.get_by_role("dialog")
    dialog.get_by_label("Find").fill("min.loss")
    dialog.get_by_label("min.loss").check()
    dialog.get_by_role("button", name="Done").click()
    eventually(lambda: len(column(person, "min.loss")) == 2)
    person.page.get_by_label("Group by").select_option("param.lr")
    person.page.locator("tr.group").nth(1).wait_for()
    address = person.page.url
    colleague = site.visit("bob")
    colleague.page.goto(address.replace("experiment=sweep", "experiment=sweep&all_users=true"))
    colleague.page.locator("tr.group").nth(1).wait_for()
    assert names(colleague) == ["resnet18-lr0.03", "resnet18-lr0.01"]
    assert column(colleague, "min.loss") == column(person, "min.loss")


def test_a_group_says_what_its_jobs_have_in_common_and_their_mean(
    site: Site, grid: list[str]
) -> None:
    person = open_table(site, "&group=param.net.depth&column=param.seed&column=last.lr")
    groups = person.page.locator("tr.group")
    groups.nth(2).wait_for()
    assert [
        each.split(" (")[0] for each in groups.locator("td:nth-child(2)").all_inner_texts()
    ] == [
        "net.depth 18",
        "net.depth 34",
        "net.depth 50",
    ]
    groups.first.get_by_role("checkbox").check()
    person.sees("4 chosen")


def test_chosen_jobs_are_compared(site: Site, grid: list[str]) -> None:
    person = open_table(site)
    compare = person.page.get_by_role("button", name="Compare")
    assert compare.is_disabled()
    for name in ("resnet18-lr0.1", "resnet34-lr0.1"):
        person.row(name).first.get_by_role("checkbox").check()
    compare.click()
    person.page.wait_for_url("**/compare?job=*&job=*")


def test_a_search_that_means_nothing_is_told_and_the_table_stays(
    site: Site, grid: list[str]
) -> None:
    person = open_table(site)
    person.page.get_by_label("Search").fill("depht<3")
    person.page.get_by_role("alert").get_by_text("no job has a column 'depht'").wait_for()
    assert person.page.locator("tr.job").count() > 0


def test_names_that_are_html_are_text(site: Site, sweep: Sweep) -> None:
    sweep.submit(HOSTILE, {"lr": HOSTILE, HOSTILE: 1}, experiment="hostile")
    sweep.submit("harmless", {"lr": 1, HOSTILE: 2}, experiment="hostile")
    person = site.visit()
    person.go("/experiments?experiment=hostile")
    person.page.locator("tr.job td").get_by_text(HOSTILE).first.wait_for()
    person.page.get_by_label("Group by").select_option(f"param.{HOSTILE}")
    person.page.locator("tr.group").first.wait_for()
    assert person.page.locator("img[src=x]").count() == 0


def test_stars_are_given_seen_and_searched(site: Site, sweep: Sweep) -> None:
    jobs = [sweep.submit(name, experiment="stars") for name in ("good", "bad")]
    person = site.visit()
    person.go("/experiments?experiment=stars")
    star = person.page.get_by_role("button", name="star of good")
    star.focus()
    person.page.keyboard.press("Enter")
    eventually(lambda: site.daemon.annotations.of(JobId(jobs[0])) == {"star": "yes"})
    person.page.get_by_label("Search").fill("star=yes")
    eventually(lambda: names(person) == ["good"])
    person.go(f"/jobs/{jobs[0]}")
    star = person.page.get_by_role("button", name="star of good")
    assert star.get_attribute("aria-pressed") == "true"
    star.click()
    eventually(lambda: not site.daemon.annotations.of(JobId(jobs[0])))
    stranger = site.visit("bob")
    stranger.go(f"/jobs/{jobs[0]}")
    stranger.page.get_by_role("button", name="star of good").click()
    stranger.page.get_by_role("alert").get_by_text("belongs to ada, and you are bob").wait_for()


def test_a_note_is_written_changed_and_found(site: Site, sweep: Sweep) -> None:
    job = sweep.submit("noted", experiment="notes")
    person = site.visit()
    person.go(f"/jobs/{job}")
    person.page.get_by_role("button", name="Write", exact=True).click()
    person.page.get_by_label("Text").fill(f"diverges\n{HOSTILE}")
    assert person.barriers() == []
    person.page.get_by_role("button", name="Write it").click()
    person.page.locator("dialog .done").get_by_text("annotated note").wait_for()
    person.page.get_by_role("button", name="Close").click()
    person.page.locator("dd").get_by_text(HOSTILE).first.wait_for()
    assert person.page.locator("img[src=x]").count() == 0
    person.go("/experiments?experiment=notes&search=diverges&column=annotation.note")
    person.page.locator("tr.job td").get_by_text("diverges").wait_for()
    person.go(f"/jobs/{job}")
    person.page.get_by_role("button", name="change note").click()
    person.page.get_by_label("Text").fill("")
    person.page.get_by_role("button", name="Write it").click()
    person.page.locator("dialog .done").get_by_text("without note").wait_for()


def test_it_can_be_used_on_a_phone(site: Site, grid: list[str]) -> None:
    person = open_table(site, "&group=param.optimizer", size=NARROW, dark=True)
    assert person.barriers() == []
    assert not person.overflows()


# --- the page of a job ----------------------------------------------------------------------------


def test_a_job_shows_what_it_logs_while_it_logs_it(site: Site, sweep: Sweep) -> None:
    job = sweep.submit("live")
    person = site.visit()
    asked = list[str]()

    def listen(request: Request) -> None:
        if "/points?" in request.url:
            asked.append(request.url)

    person.page.on("request", listen)
    person.go(f"/jobs/{job}")
    person.sees("It has logged nothing yet.")
    sweep.log(job, range(100), {"loss": [1 / (step + 1) for step in range(100)]})
    person.page.get_by_label(re.compile("^loss: last 0.01, least 0.01, greatest 1$")).wait_for()
    sweep.log(job, range(100, 120), {"loss": [0.004] * 20})
    person.page.get_by_label(re.compile("^loss: last 0.004")).wait_for()
    assert "from=" not in asked[0]
    assert "from=" in asked[-1], "what is there is not asked for again"
    assert person.barriers() == []


def test_a_curve_is_read_with_the_keyboard(site: Site, sweep: Sweep) -> None:
    job = sweep.submit("read")
    sweep.log(job, range(11), {"loss": [10.0 - step for step in range(11)]})
    person = site.visit()
    person.go(f"/jobs/{job}")
    plot = person.page.get_by_label(re.compile("^loss: last 0"))
    plot.focus()
    person.page.keyboard.press("ArrowRight")
    plot.get_by_text("loss: 5 at step 5").wait_for()
    for _ in range(60):
        person.page.keyboard.press("ArrowRight")
    plot.get_by_text("loss: 0 at step 10").wait_for()


def test_without_series_a_job_has_no_metrics(site: Site, sweep: Sweep) -> None:
    job = sweep.submit("plain")
    person = site.visit()
    person.page.route(
        "**/series",
        lambda route: route.fulfill(status=503, json={"error": {"code": "", "message": "none"}}),
    )
    person.go(f"/jobs/{job}")
    person.sees("Attempts")
    assert person.page.get_by_role("heading", name="Metrics").count() == 0
