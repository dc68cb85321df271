"""Repeats a daemon's decisions from its journal, and reports the first difference.

`decide` is pure, so there is no difference as long as the code, the policy and the rules are the
same. A difference is either a bug, at the first step where it matters, or the effect of a change of
code.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from scheduler.core.decide import Decision, decide
from scheduler.core.errors import ConfigError
from scheduler.core.facts import derive_facts
from scheduler.core.model import Action, Event, Fact, JobId, JobSpec, Observed, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.planning.policies import POLICIES
from scheduler.store import database, journal, rows
from simulator.trials.policy_files import find_policy

_MAGIC = b"SQLite format 3\0"
_EXPECTED = "--replay needs scheduler.db from the state folder of a daemon"
_STARTS = f"select {', '.join(journal.START)} from starts where start >= ? order by start"
_STEPS = f"select {', '.join(journal.STEP)} from steps where start = ? order by number"
_SUBMISSION = f"select {', '.join(rows.JOB_FIXED)} from jobs where id = ?"
_FACTS = f"select {', '.join(rows.FACT)} from facts where at = ? order by seq"


@dataclass(frozen=True, slots=True)
class RecordedStart:
    """A view that a replay may begin with, and the decider from there on."""

    start: int
    at: Time
    decider: journal.Decider
    view: View


@dataclass(frozen=True, slots=True)
class RecordedStep:
    number: int
    at: Time
    events: Sequence[Event]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step that is decided differently."""

    start: int
    number: int
    at: Time
    recorded: tuple[Fact, ...]  # the facts of that moment
    decided: tuple[Fact, ...]  # the facts of today's decision
    jobs: tuple[JobId, ...]  # the jobs that it touches
    actions: tuple[Action, ...]  # the actions that it asks for


@dataclass(frozen=True, slots=True)
class ReplayResult:
    starts: int
    steps: int
    difference: Difference | None = None


def replay(
    path: Path,
    policy: Policy | str | None = None,
    rules: Rules | None = None,
    from_start: int | None = None,
) -> ReplayResult:
    """Replays until the first difference. ConfigError: there is nothing to replay.

    policy, rules  instead of the recorded ones; a policy may be given by name or file
    from_start     the first start to begin with; None: the newest
    """
    with open_journal(path) as db:
        count = steps = 0
        for start in read_starts(db, from_start):
            count += 1
            by_rules = rules or start.decider.rules
            by_policy = policy or _recorded_policy(start.decider.policy, by_rules)
            if isinstance(by_policy, str):
                by_policy = find_policy(by_policy)(by_rules)
            view = start.view
            for step in read_steps(db, start):
                made = decide(view, step.events, step.at, by_policy, by_rules)
                if _digest(view, made, start.decider) != step.digest:
                    return ReplayResult(count, steps, _difference(db, start, step, view, made))
                view, steps = made.view, steps + 1
        return ReplayResult(count, steps)


def _recorded_policy(name: str, rules: Rules) -> Policy:
    if name not in POLICIES:
        raise ConfigError(f"the recorded policy {name!r} is not one of {', '.join(POLICIES)}")
    return POLICIES[name](rules)


def _digest(before: View, made: Decision, decider: journal.Decider) -> bytes:
    changed = rows.changed_jobs(before, made.view, made.touched)
    return journal.digest(made.view, changed, made.actions, decider)


def _difference(
    db: sqlite3.Connection, start: RecordedStart, step: RecordedStep, before: View, made: Decision
) -> Difference:
    return Difference(
        start.start,
        step.number,
        step.at,
        recorded=tuple(map(rows.fact, db.execute(_FACTS, (step.at,)))),
        decided=derive_facts(before, made.view, made.touched, step.events, step.at),
        jobs=made.touched,
        actions=made.actions,
    )


# --- the journal --------------------------------------------------------------------------------


@contextmanager
def open_journal(path: Path) -> Iterator[sqlite3.Connection]:
    """A snapshot of the database as it is now; a daemon may continue to write to it."""
    _require_database(path)
    with database.translate_errors(path), closing(database.connect_readonly(path)) as db:
        db.execute("begin")
        if not db.execute("select 1 from sqlite_schema where name = 'starts'").fetchone():
            raise ConfigError(f"{path}: a database without a journal; {_EXPECTED}")
        yield db


def _require_database(path: Path) -> None:
    if not path.is_file():
        what = "is not a file" if path.exists() else "the file does not exist"
        raise ConfigError(f"{path}: {what}; {_EXPECTED}")
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if begins != _MAGIC:
        raise ConfigError(f"{path}: not a database; {_EXPECTED}")


def read_starts(db: sqlite3.Connection, first: int | None = None) -> Iterator[RecordedStart]:
    """Yields the starts from `first` on; None: the newest only."""
    (newest,) = db.execute("select max(start) from starts").fetchone()
    wanted = newest if first is None else first
    if newest is None or wanted > newest:
        known = f"the newest start is {newest}" if newest else "the journal is empty"
        raise ConfigError(f"no start {wanted}: {known}" if newest else known)
    for start, _, at, decider, began in db.execute(_STARTS, (wanted,)).fetchall():
        view = journal.decode_view(began, _reader_of_rows(db))
        yield RecordedStart(start, at, journal.decode_decider(decider), view)


def read_steps(db: sqlite3.Connection, start: RecordedStart) -> Iterator[RecordedStep]:
    looked: Observed | None = None
    read_row = _reader_of_rows(db)
    expected = start.view.number
    for _, number, at, heard, digest in db.execute(_STEPS, (start.start,)):
        expected += 1
        if number != expected:
            raise ConfigError(f"start {start.start}: step {expected} is missing")
        events, looked = journal.decode_events(heard, looked, read_row)
        yield RecordedStep(number, at, events, digest)


def _reader_of_rows(db: sqlite3.Connection) -> journal.ReadRow:
    def read_row(job_id: JobId) -> tuple[JobSpec, str]:
        found = db.execute(_SUBMISSION, (job_id,)).fetchone()
        if found is None:
            raise ConfigError(f"the journal names job {job_id}, which the database does not know")
        return rows.submission(found)

    return read_row


# --- reports ------------------------------------------------------------------------------------


def as_text(done: ReplayResult) -> str:
    difference = done.difference
    if difference is None:
        return f"{done.steps} steps from {done.starts} start(s): no difference\n"
    moment = datetime.fromtimestamp(difference.at, UTC).isoformat(timespec="milliseconds")
    lines = [
        f"{done.steps} steps without a difference; decided differently: step {difference.number}"
        f" of start {difference.start}, {moment}",
        "recorded:",
        *_fact_lines(difference.recorded),
        "decided now:",
        *_fact_lines(difference.decided),
        f"jobs touched now: {', '.join(difference.jobs) or 'none'}",
        f"asked for now: {', '.join(map(_action_text, difference.actions)) or 'nothing'}",
    ]
    return "\n".join(lines) + "\n"


def as_json(done: ReplayResult) -> str:
    said: dict[str, Any] = {"starts": done.starts, "steps": done.steps, "difference": None}
    if (difference := done.difference) is not None:
        said["difference"] = {
            "start": difference.start,
            "number": difference.number,
            "at": difference.at,
            "recorded": msgspec.to_builtins(difference.recorded),
            "decided": msgspec.to_builtins(difference.decided),
            "jobs": list(difference.jobs),
            "actions": [_action_text(action) for action in difference.actions],
        }
    return json.dumps(said) + "\n"


def _fact_lines(told: Sequence[Fact]) -> list[str]:
    return [
        " ".join(["  " + fact.kind, fact.job_id or "", *(f"{k}={v}" for k, v in fact.data.items())])
        for fact in told
    ] or ["  no fact"]


def _action_text(action: Action) -> str:
    return f"{type(action).__name__} {action.job_id} {action.attempt}"
