"""The log of a job on its page: as it grows, at any place, whatever it contains."""

from __future__ import annotations

from pathlib import Path

from scheduler.core.model import Job
from tests.browser.conftest import Site
from tests.browser.visitor import Visitor
from tests.support import eventually

GIGABYTE = 10**9


def log_file(site: Site, job: Job, rank: int = 0) -> Path:
    path = site.daemon.logs / job.id / f"attempt-{job.attempts}" / f"rank{rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def rows(person: Visitor) -> list[str]:
    return person.page.locator(".log .row").all_inner_texts()


def scroll_up_to(person: Visitor, words: str) -> bool:
    """More is loaded when what is loaded comes to its beginning. Only rows near the visible ones
    are drawn, so a row is not there only because the one below it is."""
    person.page.locator(".log").evaluate("(box) => { box.scrollTop -= 5000; }")
    return any(words in row for row in rows(person))


def test_a_log_is_followed_and_no_line_is_lost_or_doubled(site: Site) -> None:
    job = site.daemon.running("talks", user="ada")
    path = log_file(site, job)
    path.write_text("".join(f"line {n}\n" for n in range(10)))
    person = site.visit()
    person.go(f"/jobs/{job.id}/log")
    person.sees("line 9")
    for part in range(1, 6):
        with path.open("a") as log:
            log.write(f"line {10 * part}\nhalf of")
        person.sees("half of")
        with path.open("a") as log:
            log.write(f" {part}\n" + "".join(f"line {10 * part + n}\n" for n in range(1, 10)))
        person.sees(f"line {10 * part + 9}")
    shown = rows(person)
    assert shown == path.read_text().splitlines()[-len(shown) :]
    assert len(shown) == len(set(shown)) >= 40


def test_a_log_shows_colours_and_obeys_nothing_else(site: Site) -> None:
    job = site.daemon.running("colours", user="ada")
    log_file(site, job).write_text(
        "\x1b[31mred\x1b[0m\n\x1b]0;title\x07<b>bold</b>\n 10%\r100%\nturned \u202etxet\n"
    )
    person = site.visit()
    person.go(f"/jobs/{job.id}/log")
    assert person.sees("red").get_attribute("class") == "a-31"
    person.sees("^[]0;title^G<b>bold</b>")
    person.sees("100%")
    person.sees("turned \\u202etxet")
    assert person.page.title() == "Log · epoch-scheduler"


def test_a_gigabyte_is_shown_from_its_end_from_its_beginning_and_found_in(site: Site) -> None:
    job = site.daemon.running("huge", user="ada")
    path = log_file(site, job)
    with path.open("wb") as log:
        log.write(b"".join(b"early %d\n" % n for n in range(20_000)))
        log.truncate(GIGABYTE)  # a hole of zeros
        log.seek(GIGABYTE)
        log.write(b"\n" + b"".join(b"late %d\n" % n for n in range(20_000)) + b"last\n")
    person = site.visit()
    person.go(f"/jobs/{job.id}/log")
    person.sees("late 19999")
    person.page.get_by_role("button", name="Beginning").click()
    person.sees("early 0")
    person.page.get_by_role("searchbox").fill("early 1\\d{4}$")
    person.page.keyboard.press("Enter")
    person.sees("early 10000")
    person.page.get_by_role("button", name="End", exact=True).click()
    person.sees("late 19999")
    eventually(lambda: scroll_up_to(person, "bytes were not kept"))
    numbers = [int(row.removeprefix("late ")) for row in rows(person) if row.startswith("late ")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_each_attempt_and_rank_has_its_own_log(site: Site) -> None:
    job = site.daemon.running("ranks", user="ada")
    for rank in (0, 1):
        log_file(site, job, rank).write_text(f"this is rank {rank}\n")
    person = site.visit()
    person.go(f"/jobs/{job.id}/log")
    person.sees("this is rank 0")
    person.page.get_by_role("combobox", name="Rank").select_option("1")
    person.sees("this is rank 1")


def test_a_job_without_output_says_why(site: Site) -> None:
    waiting = site.daemon.submit("silent", held=True)
    person = site.visit()
    person.go(f"/jobs/{waiting}/log")
    person.sees("no output yet")
