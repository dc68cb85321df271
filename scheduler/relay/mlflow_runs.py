"""The runs of one job as MLflow sees them: what its client may ask back of what it has told.

A job has one run, with the id of the job, whatever its script does: `start_run()` continues it, the
first `create_run()` gets it. The runs that a script creates beside it are `JOB-2`, `JOB-3`, … in
the order of their creation, so that after a preemption they are the same again.

Kept in a file, because the next run of the job may ask. What counts is not here but in the spool.
"""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

HISTORY_MAX = 1000  # points of a metric that can be asked back: the last ones
HISTORIES_MAX = 200  # metrics of all runs that have a history
KNOWN_MAX = 10_000
RUNS_MAX = 1000
PAIRS_MAX = 5000  # of params, tags, or metrics of a run


@dataclass(slots=True)
class LoggedMetric:
    """As MLflow has it: milliseconds, and a step."""

    value: float
    timestamp: int
    step: int


@dataclass(slots=True)
class LoggedRun:
    id: str
    experiment_id: str
    name: str
    started_at_ms: int
    user: str = ""
    status: str = "RUNNING"
    ended_at_ms: int | None = None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, LoggedMetric] = field(default_factory=dict)  # the newest of each

    def keep(self, pairs: dict[str, str], kind: str) -> None:
        kept = self.params if kind == "params" else self.tags
        for key, value in pairs.items():
            if key in kept or len(kept) < PAIRS_MAX:
                kept[key] = value


class MetricHistory:
    """The last values of a metric. Of a step that an attempt repeats, the newer one counts."""

    def __init__(self, numbers: Iterable[float] = ()) -> None:
        self._numbers = array("d", numbers)  # value, timestamp and step of each
        self._is_of_this_attempt = not self._numbers

    def add(self, value: float, timestamp: int, step: int) -> None:
        numbers = self._numbers
        if not self._is_of_this_attempt:
            while numbers and numbers[-1] >= step:
                del numbers[-3:]
            self._is_of_this_attempt = True
        numbers.extend((value, timestamp, step))
        if len(numbers) > 4 * HISTORY_MAX:
            del numbers[: -3 * HISTORY_MAX]

    def numbers(self) -> list[float]:
        return self._numbers[-3 * HISTORY_MAX :].tolist()

    def points(self) -> list[LoggedMetric]:
        each = iter(self.numbers())
        return [
            LoggedMetric(value, int(at), int(step))
            for value, at, step in zip(each, each, each, strict=True)
        ]


class KnownMetric:
    """Of a run: what is asked for with each value."""

    __slots__ = ("_history", "_last", "_last_ns")

    def __init__(self, last: LoggedMetric | None, history: MetricHistory | None) -> None:
        self._last, self._history, self._last_ns = last, history, 0

    def add(self, value: float, timestamp: int, step: int) -> int:
        """Returns its moment in nanoseconds: several steps within a millisecond stay several
        points."""
        last = self._last
        if last is not None and (step, timestamp) >= (last.step, last.timestamp):
            last.value, last.timestamp, last.step = value, timestamp, step
        if self._history is not None:
            self._history.add(value, timestamp, step)
        at_ns = timestamp * 1_000_000
        if at_ns <= self._last_ns < at_ns + 999_999:
            at_ns = self._last_ns + 1
        self._last_ns = at_ns
        return at_ns


class LoggedRuns:
    def __init__(self, path: Path, job_id: str, attempt: int, experiment: str, now_ms: int) -> None:
        self._path, self._attempt, self._now_ms = path, attempt, now_ms
        self.experiments = {"0": experiment or "Default"}
        self.own = LoggedRun(job_id, "0", "", now_ms)
        self.all = {job_id: self.own}
        self._created = 0  # in this attempt
        self._histories: dict[tuple[str, str], MetricHistory] = {}
        self._known: dict[tuple[str, str], KnownMetric] = {}
        self._changed = False
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            self._load()

    def experiment_id(self, name: str) -> str | None:
        """The own run belongs to the experiment that was asked for last: MLflow refuses to continue
        a run of another experiment than the script's."""
        found = next((id for id, known in self.experiments.items() if known == name), None)
        if found is not None:
            self._move(found)
        return found

    def create_experiment(self, name: str) -> str:
        found = self.experiment_id(name)
        if found is None:
            found = str(len(self.experiments))
            self.experiments[found] = name
            self._move(found)
        return found

    def continue_own(self) -> LoggedRun:
        """What `start_run()` with the id of the job does."""
        self._created = max(1, self._created)
        return self.own

    def create(self, experiment_id: str, name: str, user: str, now_ms: int) -> LoggedRun | None:
        """None: there are too many."""
        if len(self.all) >= RUNS_MAX:
            return None
        self._created += 1
        id = self.own.id if self._created == 1 else f"{self.own.id}-{self._created}"
        run = self.all.get(id)
        if run is None:
            run = self.all[id] = LoggedRun(id, experiment_id, name, now_ms)
        run.experiment_id, run.status, run.ended_at_ms = experiment_id, "RUNNING", None
        run.name, run.user = name or run.name or f"run {self._created}", user or run.user
        self._changed = True
        return run

    def metric(self, run: LoggedRun, key: str) -> KnownMetric:
        """Of more metrics than can be kept, nothing can be asked back."""
        known = self._known.get((run.id, key))
        if known is None:
            last = run.metrics.get(key)
            if last is None and len(run.metrics) < PAIRS_MAX:
                last = run.metrics[key] = LoggedMetric(0.0, -1, -1)
            history = self._histories.get((run.id, key))
            if history is None and len(self._histories) < HISTORIES_MAX:
                history = self._histories[run.id, key] = MetricHistory()
            known = KnownMetric(last, history)
            if len(self._known) < KNOWN_MAX:
                self._known[run.id, key] = known
        self._changed = True
        return known

    def history(self, run: LoggedRun, key: str) -> list[LoggedMetric]:
        if history := self._histories.get((run.id, key)):
            return history.points()
        last = run.metrics.get(key)
        return [last] if last else []

    def changed(self) -> None:
        self._changed = True

    def save(self) -> None:
        """Nothing is lost that counts if this fails."""
        if self._changed:
            self._write({})
            self._changed = False

    def save_all(self) -> None:
        """Also what is too much to be written each second."""
        if self._changed or self._histories:
            self._write(
                {
                    "histories": [
                        [run, key, history.numbers()]
                        for (run, key), history in self._histories.items()
                    ]
                }
            )

    def _write(self, more: dict[str, object]) -> None:
        kept = {
            "attempt": self._attempt,
            "created": self._created,
            "experiments": self.experiments,
            "runs": [asdict(run) for run in self.all.values()],
            **more,
        }
        half = self._path.with_name(f".{self._path.name}")
        with contextlib.suppress(OSError):
            file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(file, "w") as writing:  # noqa: PTH123  # a descriptor
                json.dump(kept, writing)
            half.rename(self._path)

    def _load(self) -> None:
        kept = json.loads(self._path.read_text())
        runs = {run.id: run for run in map(_run, kept["runs"])}
        own = runs[self.own.id]
        own.status, own.ended_at_ms = "RUNNING", None
        self.experiments = {str(id): str(name) for id, name in kept["experiments"].items()}
        self.all, self.own = runs, own
        if kept["attempt"] == self._attempt:
            self._created = int(kept["created"])
        for id, key, numbers in kept.get("histories", ())[:HISTORIES_MAX]:
            if len(numbers) % 3 == 0:
                self._histories[str(id), str(key)] = MetricHistory(numbers)

    def _move(self, experiment_id: str) -> None:
        self.own.experiment_id = experiment_id
        self._changed = True

    def __iter__(self) -> Iterator[LoggedRun]:
        return iter(self.all.values())


def _run(kept: dict[str, object]) -> LoggedRun:
    run = LoggedRun(**kept)  # type: ignore[arg-type]  # our own file; else this raises
    run.metrics = {key: LoggedMetric(**last) for key, last in run.metrics.items()}  # type: ignore[arg-type]
    return run
