"""The page Compare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from tests.browser.conftest import Site
from tests.browser.sweeps import DEPTHS, RATES, Sweep, make_grid
from tests.browser.visitor import NARROW, Visitor
from tests.gateway.serving_http import Served
from tests.support import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Route

HOSTILE = '<img src=x onerror="alert(1)">{{1+1}}'


@pytest.fixture(scope="module")
def sweep(served: Served) -> Sweep:
    return Sweep(served.daemon, served.gateway)


@pytest.fixture(scope="module")
def grid(sweep: Sweep) -> list[str]:
    return make_grid(sweep, steps=100)


def address(jobs: list[str], **choices: str) -> str:
    return f"/compare?{urlencode([*(('job', job) for job in jobs), *choices.items()])}"


def compare(site: Site, jobs: list[str], choices: dict[str, str], **given: object) -> Visitor:
    person = site.visit(**given)
    person.go(address(jobs, **choices))
    person.page.locator(".plot canvas").first.wait_for()
    return person


def plot(person: Visitor, name: str) -> Locator:
    return person.page.get_by_label(re.compile(f"^{re.escape(name)} of "))


def told(person: Visitor, name: str) -> str:
    return plot(person, name).first.get_attribute("aria-label") or ""


def read(person: Visitor, name: str, *keys: str) -> str:
    """What is told of a curve after these keys."""
    of = plot(person, name).first
    of.focus()
    for key in keys:
        person.page.keyboard.press(key)
    return of.locator("output").inner_text()


# --- curves ---------------------------------------------------------------------------------------


def test_curves_of_all_jobs_are_on_one_page(site: Site, grid: list[str]) -> None:
    person = compare(site, grid, {})
    for name in ("loss", "val_acc", "grad_norm"):
        plot(person, name).wait_for()
        assert f"of {len(grid)} jobs or attempts along the step" in told(person, name)
    assert plot(person, "epoch").count() == 0, "how it was steered is no result"
    assert read(person, "loss", "ArrowLeft").startswith("resnet18-lr0.3: ")
    assert read(person, "loss", "ArrowDown").startswith("resnet34-lr0.3: ")
    assert person.barriers() == []


def test_each_choice_is_in_the_address(site: Site, grid: list[str]) -> None:
    person = compare(site, grid, {})
    for label, value, key in (
        ("Colour by", "param.lr", "hue"),
        ("Dashes by", "param.optimizer", "pattern"),
        ("A plot for each", "param.net.depth", "cols"),
        ("Along", "epoch", "x"),
    ):
        person.page.get_by_role("combobox", name=label).first.select_option(value)
        person.page.wait_for_url(re.compile(f"{key}={value}"))
    person.page.get_by_label("log y").check()
    person.page.get_by_label("Smoothing").fill("0.8")
    person.page.wait_for_url(lambda url: "smooth=0.8" in url)
    assert plot(person, "loss").count() == len(DEPTHS)
    assert "of 4 jobs or attempts along the epoch" in told(person, "grad_norm")
    colours = person.page.locator(".legend").first.get_by_text(re.compile(r"^0\.\d+$"))
    assert colours.all_inner_texts() == [str(rate) for rate in sorted(RATES)]
    colleague = site.visit("bob")
    colleague.page.goto(person.page.url)
    plot(colleague, "loss").nth(len(DEPTHS) - 1).wait_for()
    assert colleague.page.get_by_label("log y").is_checked()
    assert colleague.page.get_by_role("combobox", name="Colour by").input_value() == "param.lr"
    assert person.barriers() == []


def test_a_part_is_shown_by_the_mouse_and_by_keys(site: Site, grid: list[str]) -> None:
    person = compare(site, grid[:2], {"metric": "loss"})
    canvas = plot(person, "loss").locator("canvas").last
    box = canvas.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    person.page.mouse.move(box["x"] + box["width"] / 2, middle)
    person.page.mouse.down()
    person.page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    person.page.mouse.up()
    person.page.wait_for_url(lambda url: "from=" in url)
    begin = float(re.findall(r"from=([\d.]+)", person.page.url)[0])
    assert 40 < begin < 55
    assert int(read(person, "loss", *["ArrowLeft"] * 60).rpartition(" ")[2]) >= begin
    person.page.keyboard.press("Escape")
    person.page.wait_for_url(lambda url: "from=" not in url)
    read(person, "loss", "ArrowRight", "+")
    person.page.wait_for_url(lambda url: "from=" in url)
    canvas.dblclick()
    person.page.wait_for_url(lambda url: "from=" not in url)


def test_what_the_pointer_is_near_is_told(site: Site, grid: list[str]) -> None:
    person = compare(site, grid[:1], {"metric": "epoch"})
    canvas = plot(person, "epoch").locator("canvas").last
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    plot(person, "epoch").get_by_text(re.compile("resnet18-lr0.3: .* at step")).wait_for()


def test_a_resumed_run_has_no_doubled_step_and_older_attempts_are_shown_on_request(
    site: Site, sweep: Sweep
) -> None:
    job = sweep.submit("resumed")
    sweep.log(job, range(11), {"loss": [1.0] * 11}, attempt=1)
    sweep.log(job, range(5, 21), {"loss": [2.0] * 16}, attempt=2)
    person = compare(site, [job], {})
    assert "of 1 job or" in told(person, "loss")
    assert read(person, "loss", *["ArrowLeft"] * 10) == "resumed: 2 at step 8"
    assert read(person, "loss", *["ArrowLeft"] * 20) == "resumed: 1 at step 4"
    person.page.get_by_label("older attempts").check()
    eventually(lambda: "of 2 jobs or" in told(person, "loss"))
    assert "resumed, attempt 1: 1 at" in read(person, "loss", "ArrowDown")


def test_curves_grow_while_a_job_logs(site: Site, sweep: Sweep) -> None:
    job = sweep.submit("grows")
    sweep.log(job, range(10), {"loss": [1.0] * 10})
    person = compare(site, [job], {})
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url))
    sweep.log(job, range(10, 20), {"loss": [0.5] * 10})
    eventually(lambda: read(person, "loss", "ArrowRight") and "at step 1" in last(person))
    assert all("from=" in url for url in asked if "/points?" in url)


def last(person: Visitor) -> str:
    return read(person, "loss", *["ArrowRight"] * 60)


# --- tables ---------------------------------------------------------------------------------------


def test_only_what_differs_is_shown_unless_all_is_asked_for(site: Site, grid: list[str]) -> None:
    person = compare(site, grid[:3], {})
    table = person.page.get_by_label("what was set")
    rows = table.locator("tbody tr")
    assert [each.split("\t")[0] for each in rows.all_inner_texts()] == [
        "param.net.depth",
        "param.optimizer",
        "param.seed",
    ]
    assert rows.first.inner_text().split("\t")[1:] == ["18", "34", "50"]
    person.page.get_by_label("also what is the same").check()
    table.get_by_text("option.batch_size").wait_for()
    figures = person.page.get_by_label("metrics", exact=True)
    assert figures.get_by_text("NaN").count() > 0


def test_jobs_are_hidden_and_taken_out(site: Site, grid: list[str]) -> None:
    person = compare(site, grid[:3], {"metric": "loss"})
    person.page.get_by_role("button", name="curves of resnet34-lr0.3").click()
    eventually(lambda: "of 2 jobs or" in told(person, "loss"))
    person.page.get_by_role("button", name="without resnet18-lr0.3").click()
    person.sees("2 jobs")
    assert grid[0] not in person.page.url


def test_values_are_lines_and_dots_that_lead_to_their_jobs(site: Site, grid: list[str]) -> None:
    person = compare(site, grid, {"sx": "param.lr", "sy": "max.val_acc"})
    lines = person.page.get_by_label("a line for each job").get_by_role("link")
    assert lines.count() == len(grid)
    assert "lr 0.3" in (lines.first.get_attribute("aria-label") or "")
    dots = person.page.get_by_label("max.val_acc by param.lr").get_by_role("link")
    assert dots.count() == len(grid)
    dots.first.focus()
    person.page.keyboard.press("Enter")
    person.sees_title("resnet18-lr0.3")


def test_it_is_saved_as_one_file_that_shows_the_same(
    site: Site, grid: list[str], chromium: Browser, tmp_path: Path
) -> None:
    choices = {"metric": "loss", "cols": "param.net.depth", "hue": "param.lr", "smooth": "0.5"}
    person = compare(site, grid, choices)
    with person.page.expect_download() as started:
        person.page.get_by_role("link", name="Save as a file").click()
    file = tmp_path / "compared.html"
    started.value.save_as(file)
    elsewhere = chromium.new_page()
    asked = list[str]()
    elsewhere.on("request", lambda request: asked.append(request.url))
    elsewhere.goto(file.as_uri())
    assert elsewhere.locator("svg").count() == len(DEPTHS)
    assert elsewhere.get_by_role("img", name="loss param.net.depth 34").count() == 1
    assert asked == [file.as_uri()]
    elsewhere.close()


# --- what everybody can use -----------------------------------------------------------------------


def test_names_that_are_html_are_text(site: Site, sweep: Sweep) -> None:
    jobs = [sweep.submit(HOSTILE, {"lr": number, HOSTILE: HOSTILE * number}) for number in (1, 2)]
    for job in jobs:
        sweep.tell(job, {"points": [["metrics", {}, HOSTILE, 1_700_000_000_000_000_000, 1, 0.5]]})
    person = compare(site, jobs, {"hue": f"param.{HOSTILE}", "cols": f"param.{HOSTILE}"})
    person.page.get_by_label("what was set").get_by_text(HOSTILE).first.wait_for()
    assert person.page.locator("img[src=x]").count() == 0


def test_it_can_be_used_on_a_phone_and_in_the_dark(site: Site, grid: list[str]) -> None:
    person = compare(site, grid[:4], {"hue": "param.net.depth"}, size=NARROW, dark=True)
    assert person.barriers() == []
    assert not person.overflows()


def test_jobs_are_chosen_and_compared_with_the_keyboard_alone(site: Site, grid: list[str]) -> None:
    person = site.visit()
    person.go("/experiments?experiment=sweep")
    person.page.locator("tr.job").first.wait_for()
    keys = person.page.keyboard
    focused = """() => {
        const { ariaLabel, labels, innerText } = document.activeElement;
        return ariaLabel ?? labels?.[0]?.innerText ?? innerText ?? "";
    }"""

    def walk_to(name: str, key: str = "Tab") -> None:
        for _ in range(120):
            keys.press(key)
            if str(person.page.evaluate(focused)).strip().startswith(name):
                return
        raise AssertionError(f"{key} does not lead to {name}")

    for job in ("resnet50-lr0.01", "resnet34-lr0.01"):
        walk_to(f"choose {job}")
        keys.press("Space")
    walk_to("Compare", "Shift+Tab")
    keys.press("Enter")
    person.sees_title("Compare")
    plot(person, "loss").wait_for()
    walk_to("log y")
    keys.press("Space")
    person.page.wait_for_url(lambda url: "logy=true" in url)
    walk_to("curves of resnet34-lr0.01")
    keys.press("Enter")
    person.page.wait_for_url(lambda url: "hide=" in url)
    walk_to("loss of 1 job")
    keys.press("ArrowRight")
    plot(person, "loss").get_by_text("resnet50-lr0.01: ").wait_for()


@pytest.mark.parametrize(
    "choices",
    [
        {"x": "foo", "smooth": "abc", "from": "zzz", "to": "1", "opacity": "x", "metric": "none"},
        {"logx": "true", "logy": "true", "x": "epoch"},
        {"hue": "param.lr", "cols": "param.list", "sx": "param.list", "sy": "last.phase"},
        {"smooth": "5", "opacity": "9", "from": "10", "to": "2", "axis": "param.list"},
        {"metric": "phase", "older": "true", "all": "maybe"},
    ],
)
def test_strange_values_and_strange_choices_break_nothing(
    site: Site, sweep: Sweep, choices: dict[str, str]
) -> None:
    nan = float("nan")
    strange = sweep.submit("strange", {"lr": "NaN", "none": None, "list": [1, 2], "big": 10**30})
    single = sweep.submit("single", {"lr": "-Infinity"})
    words = sweep.submit("words")
    sweep.log(strange, range(5), {"loss": [nan] * 5, "below": [-1.0] * 5, "same": [3.0] * 5})
    sweep.log(single, range(1), {"loss": [1.0], "below": [-2.0], "same": [3.0]})
    for job in (strange, words):
        sweep.tell(
            job, {"points": [["metrics", {}, "phase", 1_700_000_000_000_000_000, 1, "warm"]]}
        )
    sweep.tell(
        words, {"points": [["metrics", {}, "loss", 1_700_000_000_000_000_000, None, "text"]]}
    )
    person = site.visit()
    person.go(address([strange, single, words], **choices))
    if choices.get("all") == "maybe":
        person.page.get_by_role("alert").get_by_text("is neither true nor false").wait_for()
        return
    person.sees("What was set")
    person.page.wait_for_function("() => !document.body.innerText.includes('loading …')")
    person.page.get_by_label("log y").click()
    assert person.page.get_by_text("This page has a mistake").count() == 0


def test_without_jobs_it_says_where_to_choose_them(site: Site) -> None:
    person = site.visit()
    person.go("/compare")
    person.sees("Choose two jobs or more")
    assert person.barriers() == []


def test_jobs_that_are_not_there_are_told(site: Site) -> None:
    person = site.visit()
    person.go("/compare?job=nothing&job=neither")
    person.page.get_by_role("alert").get_by_text("no job matches").wait_for()


def test_a_gateway_that_is_away_for_a_while_is_told_and_curves_stay(
    site: Site, sweep: Sweep
) -> None:
    job = sweep.submit("alive")
    sweep.log(job, range(10), {"loss": [1.0] * 10})
    person = compare(site, [job], {})

    def away(route: Route) -> None:
        route.fulfill(status=503, json={"error": {"code": "", "message": "too busy"}})

    person.page.route("**/api/v1/points*", away)
    person.page.get_by_role("alert").get_by_text("too busy").wait_for()
    assert plot(person, "loss").locator("canvas").count() == 2
    person.page.unroute("**/api/v1/points*")
    person.page.get_by_role("alert").wait_for(state="detached")
