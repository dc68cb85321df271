"""When silence means something. (How jobs are found and listed: test_jobs.py.)"""

from __future__ import annotations

from pathlib import Path

from scheduler.api.lookup import Lookup
from scheduler.api.status import State
from scheduler.core.model import View
from scheduler.outlook.service import Outlook
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from scheduler.store.reader import Reader
from tests import builders

RUNNING = builders.with_run(builders.job("demo"), builders.share(), heard_at=1000.0)


def _state(folder: Path, now: float, since: float) -> State:
    outlook = Outlook(fifo_sharing(builders.RULES), builders.RULES, lambda _: None)
    lookup = Lookup(View, Reader(folder / "scheduler.db"), lambda: now, 30.0, outlook, since)
    return lookup.state(RUNNING)


def test_one_missed_heartbeat_is_no_cause_for_alarm_two_are(tmp_path: Path) -> None:
    assert _state(tmp_path, now=1060.0, since=0.0) is State.RUNNING
    assert _state(tmp_path, now=1061.0, since=0.0) is State.UNRESPONSIVE


def test_while_the_daemon_was_down_no_job_could_be_heard(tmp_path: Path) -> None:
    assert _state(tmp_path, now=5010.0, since=5000.0) is State.RUNNING
    assert _state(tmp_path, now=5060.0, since=5000.0) is State.RUNNING
    assert _state(tmp_path, now=5061.0, since=5000.0) is State.UNRESPONSIVE
