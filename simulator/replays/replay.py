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
from scheduler.core.model import Action, Event, Fact, JobId, Observed, Rules, Time, View
from scheduler.core.ports import Policy
from scheduler.planning.policies import POLICIES
from scheduler.store import database, journal, rows

_STARTS = f"select {', '.join(journal.START)} from starts where start >= ? order by start"
_STEPS = f"select {', '.join(journal.STEP)} from steps where start = ? order by number"
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

    policy, rules  instead of the recorded ones; a policy may be given by name
    from_start     the first start to begin with; None: the newest
    """
    with open_journal(path) as db:
        count = steps = 0
        for start in read_starts(db, from_start):
            count += 1
            by_rules = rules or start.decider.rules
            by = policy or start.decider.policy
            by_policy = _policy(by, by_rules) if isinstance(by, str) else by
            view = start.view
            for step in read_steps(db, start):
                made = decide(view, step.events, step.at, by_policy, by_rules)
                if _digest(view, made, start.decider) != step.digest:
                    return ReplayResult(count, steps, _difference(db, start, step, view, made))
                view, steps = made.view, steps + 1
        return ReplayResult(count, steps)


def _policy(name: str, rules: Rules) -> Policy:
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
    if not path.is_file():
        raise ConfigError(f"{path}: the file does not exist")
    with database.translate_errors(path), closing(database.connect_readonly(path)) as db:
        db.execute("begin")
        if not db.execute("select 1 from sqlite_schema where name = 'starts'").fetchone():
            raise ConfigError(f"{path}: not the database of a scheduler that keeps a journal")
        yield db


def read_starts(db: sqlite3.Connection, first: int | None = None) -> Iterator[RecordedStart]:
    """Yields the starts from `first` on; None: the newest only."""
    (newest,) = db.execute("select max(start) from starts").fetchone()
    wanted = newest if first is None else first
    if newest is None or wanted > newest:
        known = f"the newest start is {newest}" if newest else "the journal is empty"
        raise ConfigError(f"no start {wanted}: {known}" if newest else known)
    for start, _, at, decider, view in db.execute(_STARTS, (wanted,)).fetchall():
        yield RecordedStart(start, at, journal.decode_decider(decider), journal.decode_view(view))


def read_steps(db: sqlite3.Connection, start: RecordedStart) -> Iterator[RecordedStep]:
    looked: Observed | None = None
    expected = start.view.number
    for _, number, at, heard, digest in db.execute(_STEPS, (start.start,)):
        expected += 1
        if number != expected:
            raise ConfigError(f"start {start.start}: step {expected} is missing")
        events, looked = journal.decode_events(heard, looked)
        yield RecordedStep(number, at, events, digest)


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
