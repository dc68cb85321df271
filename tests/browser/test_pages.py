"""The pages, in a real browser, on a real API: what people see, and what they can do."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.access.identity import user_token
from scheduler.v1 import scheduler_pb2 as pb
from tests.browser.conftest import Site, epoch
from tests.browser.visitor import NARROW, PLACES, visitor
from tests.gateway.other_version import other_version
from tests.gateway.serving_http import gateway
from tests.serving import SECRET, Serving, by
from tests.support import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

HOSTILE = '<img src=x onerror="alert(1)">{{1+1}}'
TURNED = "turned \u202egnp.\x1b[31mexe"  # refused today, but rows may be older


# --- logging in ---------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_and_a_right_one_shows_the_page_that_was_asked_for(
    chromium: Browser, place: tuple[Serving, str]
) -> None:
    person = visitor(chromium, place[1])
    person.go("/jobs")
    token = person.page.get_by_label("Or paste your token")
    token.fill("nonsense")
    token.press("Enter")
    person.page.get_by_role("alert").wait_for()
    assert person.barriers() == []
    token.fill(user_token(SECRET, "ada"))
    token.press("Enter")
    person.page.get_by_role("navigation").wait_for()
    assert person.page.evaluate("() => document.cookie") == "", "no script can read the cookie"
    person.page.get_by_role("button", name="Log out").click()
    token.wait_for()
    person.go("/jobs")
    token.wait_for()
    assert person.mistakes == []


def told(reply: bytes, version: str) -> bytes:
    known = pb.IdentifyReply.FromString(reply)
    known.version = version
    return known.SerializeToString()


@pytest.mark.parametrize(
    ("unknown", "words"),
    [([], "some of this may be missing"), (["Gateway/WatchEvents"], "it tells no events")],
)
def test_a_daemon_of_another_version_is_told_with_both_versions(
    unknown: list[str], words: str, chromium: Browser, place: tuple[Serving, str]
) -> None:
    def change(method: str, reply: bytes) -> bytes:
        return told(reply, "0.0.1") if method == "Gateway/Identify" else reply

    with other_version(place[0], unknown, change) as (server, _), gateway(server) as made:
        person = visitor(chromium, made.url)
        person.log_in(user_token(SECRET, "ada"))
        banner = person.page.locator(".banner")
        banner.get_by_text("The daemon has version 0.0.1, the gateway ").wait_for()
        assert version("epoch-scheduler") in banner.inner_text()
        banner.get_by_text(words).wait_for()
        assert "answer" not in banner.inner_text()
        assert person.barriers() == []
        person.page.context.close()
        assert person.mistakes == []


# --- what everybody can use ---------------------------------------------------------------------


@pytest.mark.parametrize(("size", "dark"), [("wide", False), ("narrow", True)])
def test_no_page_has_a_barrier_or_is_wider_than_the_window(
    site: Site, size: str, dark: bool
) -> None:
    job = site.daemon.running("grid-1", memory_mib=6000, user="ada")
    epoch(site, job.id)
    site.daemon.submit("waiting", memory_mib=16000 - 512, disable_gpu_sharing=True)
    site.daemon.submit("waiting too", memory_mib=15000, user="bob")
    site.daemon.submit("x" * 60, memory_mib=15000, project="vision")
    person = site.visit(dark=dark, **({"size": NARROW} if size == "narrow" else {}))
    for path in (*PLACES, f"/jobs/{job.id}", f"/jobs/{job.id}/log", "/nothing"):
        person.go(path)
        person.page.get_by_role("heading", level=1).wait_for()
        person.page.wait_for_load_state("load")
        assert person.barriers() == [], path
        assert not person.overflows(), path


def test_the_page_is_dark_if_the_person_wants_it_dark(site: Site) -> None:
    colour = "() => getComputedStyle(document.documentElement).backgroundColor"
    light, dark = (site.visit(dark=dark).page.evaluate(colour) for dark in (False, True))
    brightness = [sum(map(int, re.findall(r"\d+", each)[:3])) for each in (light, dark)]
    assert brightness[0] > 600
    assert brightness[1] < 150


def test_submit_watch_and_cancel_with_the_keyboard_alone(site: Site) -> None:
    old = site.daemon.running("again", user="ada")
    person = site.visit()
    keys = person.page.keyboard

    def walk_to(name: str) -> None:
        """Presses Tab until this has the focus."""
        for _ in range(80):
            keys.press("Tab")
            focused = "() => document.activeElement.innerText ?? ''"
            if person.page.evaluate(focused).strip() == name:
                return
        raise AssertionError(f"Tab does not lead to {name}")

    walk_to("again")
    keys.press("Enter")
    person.sees_title("again")
    walk_to("Resubmit")
    keys.press("Enter")
    walk_to("Submit")
    keys.press("Enter")
    person.sees(": submitted")
    walk_to(
        "again ("
        + max(site.daemon.scheduler.view.jobs.values(), key=lambda j: j.submitted_at).id[-8:]
        + ")"
    )
    keys.press("Enter")
    eventually(lambda: old.id not in person.page.url)
    person.page.locator(".head .state").wait_for()
    walk_to("Cancel")
    keys.press("Enter")
    walk_to("Cancel the job")
    keys.press("Enter")
    person.page.locator("dialog .done").wait_for()
    keys.press("Escape")
    person.page.locator(".head").get_by_text(re.compile("STOPPING|CANCELED")).wait_for()


# --- what is shown is what there is -------------------------------------------------------------


def test_a_name_that_is_html_is_shown_as_text(site: Site) -> None:
    job = site.daemon.running(HOSTILE, user="ada", project=HOSTILE)
    person = site.visit()
    for path in ("/", "/jobs", f"/jobs/{job.id}", "/cluster", "/people?by=project"):
        person.go(path)
        person.page.get_by_role("heading", level=1).wait_for()
        if not path.startswith("/people"):
            person.sees(HOSTILE)
        assert person.page.locator("img[src=x]").count() == 0


def test_a_name_that_turns_the_text_turns_nothing(site: Site) -> None:
    site.daemon.submit("harmless", held=True)
    person = site.visit()

    def renamed(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=_renamed(answer.json()))

    person.page.route("**/api/v1/jobs?*", renamed)
    person.go("/jobs")
    link = person.row("turned \ufffdgnp.\ufffd[31mexe").get_by_role("link").first
    assert link.inner_html() == "<bdi>turned \ufffdgnp.\ufffd[31mexe</bdi>"


def _renamed(answer: Any) -> Any:
    for job in answer["jobs"]:
        job["name"] = TURNED
    return answer


def test_a_job_is_watched_from_the_queue_to_its_end(site: Site) -> None:
    first = site.daemon.running("first", memory_mib=15000, gpus_min=2, gpus_max=2, user="ada")
    waiting = site.daemon.submit("second", memory_mib=15000, max_epochs=1)
    person = site.visit()
    person.go("/jobs")
    row = person.row("second")
    row.get_by_text("QUEUED").wait_for()
    assert "memory" in row.inner_text()
    site.daemon.cluster.end(first.id, first.attempts)
    row.get_by_text("RUNNING").wait_for()
    epoch(site, waiting)
    row.get_by_text("1/1").wait_for()
    site.daemon.cluster.end(waiting, 1)
    row.get_by_text("FINISHED").wait_for()


def test_a_job_page_has_the_very_text_of_the_command(site: Site) -> None:
    blocker = site.daemon.running("blocker", gpus_min=2, gpus_max=2, disable_gpu_sharing=True)
    waiting = site.daemon.submit("patient", memory_mib=4000)
    person = site.visit()
    person.go(f"/jobs/{waiting}")
    person.sees_title("patient")
    told = site.daemon.people.GetJob(
        pb.GetJobRequest(job=waiting, outlook=True), metadata=by("ada")
    ).job
    person.sees(f"pending: {told.reason}")
    person.sees("when blocker ends")
    person.sees("submitted by ada")
    assert blocker.run


# --- what can be done ---------------------------------------------------------------------------


def test_several_jobs_are_chosen_and_cancelled_after_one_question(site: Site) -> None:
    for name in ("one", "two", "three"):
        site.daemon.submit(name, held=True)
    person = site.visit()
    person.go("/jobs?state=HELD")
    for name in ("one", "three"):
        person.row(name).get_by_role("checkbox").check()
    person.page.get_by_role("button", name="Cancel …").click()
    person.sees("2 waiting jobs leave the queue at once.")
    person.page.get_by_role("button", name="Cancel 2 jobs").click()
    person.page.locator("dialog .done").wait_for()
    assert "canceled" in person.page.locator("dialog .done").inner_text()
    person.page.get_by_role("button", name="Close").click()
    person.row("one").wait_for(state="detached")
    assert person.page.locator("tr.job").count() == 1


def test_several_jobs_are_chosen_and_compared(site: Site) -> None:
    for name in ("one", "two", "three"):
        site.daemon.submit(name, held=True)
    person = site.visit()
    person.go("/jobs?state=HELD")
    for name in ("one", "three"):
        person.row(name).get_by_role("checkbox").check()
    person.page.get_by_role("button", name="Compare").click()
    person.sees_title("Compare")
    person.sees("no differences")


def test_the_list_is_filtered_searched_and_sorted_by_its_address(site: Site) -> None:
    for name, project in (("beta", "vision"), ("alpha", "vision"), ("gamma", "speech")):
        site.daemon.submit(name, held=True, project=project)
    person = site.visit()

    def names() -> list[str]:
        return person.page.locator("tr.job .c-name").all_inner_texts()

    person.go("/jobs?state=HELD")
    eventually(lambda: names() == ["gamma", "alpha", "beta"])
    person.page.get_by_role("button", name="Name").click()
    eventually(lambda: names() == ["alpha", "beta", "gamma"])
    person.page.get_by_label("Search").fill("a")
    person.page.get_by_label("Project").fill("vision")
    eventually(lambda: names() == ["alpha", "beta"])
    assert "project=vision" in person.page.url
    person.page.reload()
    eventually(lambda: names() == ["alpha", "beta"])


def test_nobody_cancels_the_job_of_another_but_an_admin_does(site: Site) -> None:
    job = site.daemon.running("hers", user="ada")
    for user, refused in (("bob", True), ("root", False)):
        person = site.visit(user)
        person.go(f"/jobs/{job.id}")
        person.page.get_by_role("button", name="Cancel").click()
        person.page.get_by_label("Now").check()
        person.page.get_by_role("button", name="Cancel the job").click()
        told = person.page.locator("dialog .error" if refused else "dialog .done")
        told.wait_for()
        if refused:
            assert "belongs to ada, and you are bob" in told.inner_text()
            assert not site.daemon.job(job.id).outcome
    eventually(lambda: site.daemon.job(job.id).outcome or site.daemon.job(job.id).cancelled)


def test_a_job_is_held_released_and_made_more_urgent(site: Site) -> None:
    waiting = site.daemon.submit("patient", held=True)
    person = site.visit()
    person.go(f"/jobs/{waiting}")
    for button, verb, told in (
        ("Change", "Change it", "priority 7"),
        ("Release", "Release it", "released"),
        ("Hold", "Hold it", "held"),
    ):
        person.page.get_by_role("button", name=button, exact=True).click()
        if button == "Change":
            person.page.get_by_label("Priority").fill("7")
        person.page.get_by_role("button", name=verb).click()
        person.page.locator("dialog .done").get_by_text(told).wait_for()
        person.page.get_by_role("button", name="Close").click()
    job = site.daemon.job(waiting)
    assert (job.priority, job.held) == (7, True)


def test_the_queue_has_urgent_jobs_first_and_then_the_oldest(site: Site) -> None:
    site.daemon.running("blocker", gpus_min=2, gpus_max=2, disable_gpu_sharing=True)
    for name, priority in (("old", 1), ("urgent", 9), ("young", 1)):
        site.daemon.submit(name, memory_mib=9000, priority=priority)
    person = site.visit()
    person.go("/")

    def queue() -> list[str]:
        return person.page.locator("ol.list .line a").all_inner_texts()

    eventually(lambda: queue() == ["urgent", "old", "young"])
    site.daemon.submit("younger but urgent", memory_mib=9000, priority=5)
    eventually(lambda: queue() == ["urgent", "younger but urgent", "old", "young"])


def test_a_browser_whose_clock_is_a_day_ahead_tells_the_same_ages(site: Site) -> None:
    site.daemon.submit("young", held=True)
    person = site.visit()
    person.page.add_init_script("const now = Date.now; Date.now = () => now() + 86400e3;")
    person.go("/jobs?state=HELD")
    age = person.row("young").locator(".c-time").inner_text()
    assert age == "just now" or age.endswith((" s ago", " min ago"))


def test_a_gpu_that_nobody_watches_and_one_that_is_lost_are_shown_as_such(site: Site) -> None:
    person = site.visit()

    def watched(route: Route) -> None:
        answer = route.fetch()
        cluster = answer.json()
        first, second = cluster["gpus"]
        first.update(used_mib=9000, busy=0.5, strange_mib=3000)
        first["processes"] = [
            {"pid": 42, "name": HOSTILE, "memory_mib": 3000, "job": "", "attempt": 0}
        ]
        second.update(fault="ECC error", lost=True, used_mib=None, busy=None)
        route.fulfill(response=answer, json=cluster)

    person.page.route("**/api/v1/cluster", watched)
    person.go("/cluster")
    person.sees("used 9,000, busy 50%")
    person.sees("3,000 MiB used by processes that are not of this scheduler")
    person.sees(f"{HOSTILE} (42)")
    person.sees("lost: ECC error")
    person.sees("used \N{EN DASH}, busy \N{EN DASH}")
    assert person.barriers() == []


def test_the_cluster_is_shown_over_time_with_what_is_not_known(site: Site) -> None:
    site.daemon.running("fills", memory_mib=6000, user="ada")

    def past(route: Route) -> None:
        """Three hours, of which one was not seen."""
        answer = route.fetch()
        told = answer.json()
        minutes = [minute for minute in range(180) if not 60 <= minute < 120]
        known = [minute % 100 if minute < 60 else None for minute in minutes]
        told |= {
            "at": [told["at"][-1] - 60 * (180 - minute) for minute in minutes],
            "memory_mib": [32768 for _ in minutes],
            "granted_mib": [8192 for _ in minutes],
            "used_mib": known,
            "busy": [None if each is None else each / 100 for each in known],
        }
        route.fulfill(response=answer, json=told)

    person = site.visit()
    person.go("/cluster")
    person.sees("no agent sees these GPUs")
    person.page.get_by_label(re.compile("memory: granted .* of 32.0 GiB")).wait_for()
    person.page.get_by_label("of which GPUs").select_option(label="gpu1")
    person.page.get_by_label(re.compile("memory: granted .* of 16.0 GiB")).wait_for()
    person.sees("GiB free, where the daemon keeps its state")

    person.page.route("**/api/v1/cluster/history*", past)
    person.go("/cluster")
    lines = person.page.locator("path.line")
    lines.nth(2).wait_for()
    drawn = [line.get_attribute("d") or "" for line in lines.all()]
    assert [line.count("M") for line in drawn] == [2, 1, 1], "granted has a gap, the others an end"
    assert person.barriers() == []
