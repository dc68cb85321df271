"""What is found out when somebody asks, and kept until there is news."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scheduler.core.model import Job, JobId, Measured, Outcome, Plan, Time, View
from scheduler.outlook.service import Outlook
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests import builders as core

POLICY = fifo_sharing(core.RULES)
KEY = "pretendedx1"


def runs(name: str) -> Job:
    job = replace(core.job(name, epochs_done=5), measured=(Measured(KEY, (), 60.0, 3),))
    return core.on(job, core.share(), placement=KEY, epoch_at=core.NOW)


def outlook() -> Outlook:
    return Outlook(POLICY, core.RULES, lambda _: None, by_memory=True)


def test_a_waiting_job_starts_when_the_one_that_is_named_ends() -> None:
    view = core.view(runs("a"), core.job("b"))
    asked = outlook()
    waits = asked.of(view.jobs[JobId("b")], view, core.NOW)
    other = asked.of(view.jobs[JobId("a")], view, core.NOW)
    assert waits.remedy.until == ("a",)
    assert waits.forecast is not None
    assert other.forecast is not None
    assert waits.forecast.starts_at == other.forecast.ends_at


def test_the_same_view_is_looked_at_once() -> None:
    plans = 0

    def counted(view: View, now: Time) -> Plan:
        nonlocal plans
        plans += 1
        return POLICY(view, now)

    view = core.view(runs("a"), core.job("b"))
    asked = Outlook(counted, core.RULES, lambda _: None)
    first = asked.of(view.jobs[JobId("b")], view, core.NOW)
    assert plans > 0
    plans = 0
    assert asked.of(view.jobs[JobId("b")], view, core.NOW + 5) is first
    assert plans == 0
    asked.of(view.jobs[JobId("b")], replace(view, number=view.number + 1), core.NOW + 5)
    assert plans > 0


def test_where_very_many_live_the_policy_is_not_asked_again() -> None:
    view = core.view(runs("a"), *(core.job(f"b{n:04}") for n in range(1000)))
    told = outlook().of(view.jobs[JobId("b0999")], view, core.NOW)
    assert (told.remedy.until, told.remedy.ahead) == ((), ())
    assert told.forecast is not None


def test_an_ended_job_has_no_future() -> None:
    told = outlook().of(core.job("gone"), core.view(), core.NOW)
    assert told.forecast is None


def test_what_came_is_compared_with_what_was_guessed() -> None:
    asked = outlook()
    ended = [replace(core.job(f"a{n}"), ended_at=core.NOW + 3000.0) for n in range(100)]
    for number, job in enumerate(ended):
        view = core.view(replace(runs("a"), id=job.id))
        asked.look(replace(view, number=2 * number), core.NOW)
        over = replace(job, outcome=Outcome.SUCCEEDED)
        asked.look(replace(core.view(over, core.job("b")), number=2 * number + 1), core.NOW)
    view = replace(core.view(runs("z")), number=1000)
    told = asked.of(view.jobs[JobId("z")], view, core.NOW).forecast
    assert told is not None
    assert told.ends_at is not None
    assert told.ends_at.middle > core.NOW + 2000, "they have always taken ten times as long"


def test_what_was_learned_of_guesses_outlives_the_daemon(tmp_path: Path) -> None:
    def begun() -> Outlook:
        return Outlook(POLICY, core.RULES, lambda _: None, kept=tmp_path / "kept.json")

    def high(asked: Outlook) -> Time:
        view = replace(core.view(runs("z")), number=1000)
        told = asked.of(view.jobs[JobId("z")], view, core.NOW).forecast
        assert told is not None
        assert told.ends_at is not None
        return told.ends_at.high

    before = begun()
    for number in range(0, 20, 2):
        before.look(replace(core.view(runs("a")), number=number), core.NOW)
        late = replace(core.job("a"), ended_at=core.NOW + 3000.0, outcome=Outcome.SUCCEEDED)
        before.look(replace(core.view(late), number=number + 1), core.NOW)
    assert high(begun()) == high(before) > high(outlook())


def test_a_daemon_starts_without_what_only_askers_need() -> None:
    program = "import sys, scheduler.daemon.command as _; "
    program += "sys.exit('scheduler.outlook.forecast' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
