"""Log lines: how they look, and that nothing is told before it is on disk."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import CapturingLogger

from scheduler.core.errors import Unavailable
from scheduler.core.model import Fact, JobId, View
from scheduler.core.ports import Step
from scheduler.daemon.log import LoggingStore
from scheduler.store.writer import SqliteStore

TELLS = """
import logging, sys
from scheduler.daemon.config import LogSettings
from scheduler.daemon.log import configure
log = configure(LogSettings(level=sys.argv[1], format=sys.argv[2]))
log.debug("seen", job_id="a")
log.info("begun", job_id="a", attempt=2)
logging.getLogger("urllib3").error("a library's own line")
try:
    raise ValueError("broken")
except ValueError:
    log.exception("failed")
"""


def lines(level: str, format: str) -> list[str]:
    words = [sys.executable, "-c", TELLS, level, format]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "", "stdout is for people"
    return done.stderr.splitlines()


@pytest.mark.parametrize("format", ["json", "auto"])
def test_what_is_no_terminal_gets_one_json_value_a_line(format: str) -> None:
    told = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines("info", format)]
    assert [line["event"] for line in told] == ["begun", "a library's own line", "failed"]
    assert (told[0]["job_id"], told[0]["attempt"], told[0]["level"]) == ("a", 2, "info")
    assert told[0]["timestamp"].endswith("Z")
    assert "ValueError: broken" in told[2]["exception"]


def test_a_person_may_ask_for_words() -> None:
    (line, *_) = lines("info", "text")
    assert "begun" in line
    assert "job_id=a" in line
    assert "\x1b" not in line, "no colours where there is no terminal"


def test_what_was_asked_to_be_told_is_told() -> None:
    assert any("seen" in line for line in lines("debug", "json"))
    assert not any("begun" in line for line in lines("warning", "json"))


def committed(store: SqliteStore) -> list[tuple[str, dict[str, Any]]]:
    """What is logged of a step with one fact."""
    lines = CapturingLogger()
    fact = Fact(5.0, "run_started", JobId("a"), 2, {"gpus": 1, "at": "overridden"})
    logging = LoggingStore(store, structlog.wrap_logger(lines, processors=[returned]))
    with contextlib.suppress(Unavailable):
        logging.commit(Step(View(), View(), [], [fact], [], 5.0))
    return [(call.kwargs.pop("event"), call.kwargs) for call in lines.calls]


def returned(_logger: Any, _method: str, event: Any) -> Any:
    return event


def test_each_fact_is_a_line_with_its_job_attempt_and_moment(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "scheduler.db")) as store:
        store.load()
        told = committed(store)
    assert told == [("run_started", {"gpus": 1, "job_id": "a", "attempt": 2, "at": 5.0})]


def test_what_was_not_committed_is_not_told(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "scheduler.db")
    store.close()
    assert committed(store) == []
