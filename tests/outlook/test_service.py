"""What is computed on demand, and cached until there is a new view."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scheduler.core.model import Job, JobId, Measured, Outcome, Plan, Time, View
from scheduler.estimates.next_try import Trying
from scheduler.outlook.service import Outlook
from scheduler.planning.policies import explain_tries
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests import builders

POLICY = fifo_sharing(builders.RULES)
KEY = "pretendedx1"


def runs(name: str) -> Job:
    job = replace(builders.job(name, epochs_done=5), measured=(Measured(KEY, (), 60.0, 3),))
    return builders.with_run(job, builders.share(), placement=KEY, epoch_at=builders.NOW)


def outlook() -> Outlook:
    return Outlook(POLICY, builders.RULES, lambda _: None, by_memory=True)


def test_a_waiting_job_starts_when_the_one_that_is_named_ends() -> None:
    view = builders.view(runs("a"), builders.job("b"))
    asked = outlook()
    waits = asked.of(view.jobs[JobId("b")], view, builders.NOW)
    other = asked.of(view.jobs[JobId("a")], view, builders.NOW)
    assert waits.remedy.until == ("a",)
    assert waits.forecast is not None
    assert other.forecast is not None
    assert waits.forecast.starts_at == other.forecast.ends_at


def test_what_is_tried_next_is_told_under_a_policy_that_tries() -> None:
    view = builders.view(runs("a"))
    told = []
    for name in ("gpu_sharing", "fifo_sharing"):
        tries = explain_tries(name, builders.RULES)
        asked = Outlook(POLICY, builders.RULES, lambda _: None, next_try=tries)
        told.append(asked.of(view.jobs[JobId("a")], view, builders.NOW).next_try)
    assert told[0] is not None
    assert (told[0].trying, told[1]) == (Trying.KNOWN, None)


def test_the_same_view_is_looked_at_once() -> None:
    plans = 0

    def counted(view: View, now: Time) -> Plan:
        nonlocal plans
        plans += 1
        return POLICY(view, now)

    view = builders.view(runs("a"), builders.job("b"))
    asked = Outlook(counted, builders.RULES, lambda _: None)
    first = asked.of(view.jobs[JobId("b")], view, builders.NOW)
    assert plans > 0
    plans = 0
    assert asked.of(view.jobs[JobId("b")], view, builders.NOW + 5) is first
    assert plans == 0
    asked.of(view.jobs[JobId("b")], replace(view, number=view.number + 1), builders.NOW + 5)
    assert plans > 0


def test_where_very_many_live_the_policy_is_not_asked_again() -> None:
    view = builders.view(runs("a"), *(builders.job(f"b{n:04}") for n in range(1000)))
    told = outlook().of(view.jobs[JobId("b0999")], view, builders.NOW)
    assert (told.remedy.until, told.remedy.ahead) == ((), ())
    assert told.forecast is not None


def test_an_ended_job_has_no_future() -> None:
    told = outlook().of(builders.job("gone"), builders.view(), builders.NOW)
    assert told.forecast is None


def test_what_came_is_compared_with_what_was_guessed() -> None:
    asked = outlook()
    ended = [replace(builders.job(f"a{n}"), ended_at=builders.NOW + 3000.0) for n in range(100)]
    for number, job in enumerate(ended):
        view = builders.view(replace(runs("a"), id=job.id))
        asked.look(replace(view, number=2 * number), builders.NOW)
        over = replace(job, outcome=Outcome.SUCCEEDED)
        asked.look(
            replace(builders.view(over, builders.job("b")), number=2 * number + 1), builders.NOW
        )
    view = replace(builders.view(runs("z")), number=1000)
    told = asked.of(view.jobs[JobId("z")], view, builders.NOW).forecast
    assert told is not None
    assert told.ends_at is not None
    assert told.ends_at.middle > builders.NOW + 2000, "they have always taken ten times as long"


def test_what_was_learned_of_guesses_outlives_the_daemon(tmp_path: Path) -> None:
    def begun() -> Outlook:
        return Outlook(POLICY, builders.RULES, lambda _: None, kept=tmp_path / "kept.json")

    def high(asked: Outlook) -> Time:
        view = replace(builders.view(runs("z")), number=1000)
        told = asked.of(view.jobs[JobId("z")], view, builders.NOW).forecast
        assert told is not None
        assert told.ends_at is not None
        return told.ends_at.high

    before = begun()
    for number in range(0, 20, 2):
        before.look(replace(builders.view(runs("a")), number=number), builders.NOW)
        late = replace(builders.job("a"), ended_at=builders.NOW + 3000.0, outcome=Outcome.SUCCEEDED)
        before.look(replace(builders.view(late), number=number + 1), builders.NOW)
    assert high(begun()) == high(before) > high(outlook())


def test_a_daemon_starts_without_scipy() -> None:
    program = "import sys, scheduler.daemon.command as _; "
    program += "sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
