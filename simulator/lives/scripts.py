"""What a script does with its checkpoints, and what its library can see of that: the truth about
weights, with which the scheduler's words are compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.core.model import JobId
from simulator.lives.workload import ClientKind, TrueJob


class Habit(StrEnum):
    CAREFUL = "careful"  # loads its newest checkpoint, and saves an epoch before it reports it
    SAVES_AFTER = "saves after"  # reports an epoch before it saves it
    SAVES_LATE = "saves late"  # saves every second epoch only
    NEVER_SAVES = "never saves"
    FORGETS = "forgets"  # saves, and never loads
    LOADS_FIRST = "loads first"  # loads its oldest checkpoint, and tells the library which it is


WEIGHTS = (3, 2, 2, 1, 2, 2)
AFFECTED = 0.3  # of all lives; in the others the library tells nothing, as before it could


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint."""

    epoch: int  # with which the next run may go on
    trained: int  # how many epochs are in it, in truth
    counted: int | None  # the same as the library counted; None: it does not know


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a run begins."""

    epoch: int
    trained: int
    lacks: int | None  # how many of the epochs done are missing, as the library sees it


class Folders:
    """The checkpoints of all jobs, and what is in the weights of their newest runs."""

    def __init__(self) -> None:
        self.trained: dict[JobId, tuple[int, int]] = {}  # epochs that count as done, and trained
        self._attempts: dict[JobId, int] = {}  # the newest that has begun,
        self._trainers: dict[JobId, int] = {}  # and the newest that has trained an epoch
        self._saved: dict[JobId, list[Saved]] = {}

    def begin(self, truth: TrueJob, attempt: int, done: int, alone: bool) -> Beginning:
        """A run begins after `done` epochs. `alone`: no other node could begin elsewhere."""
        if truth.habit is None:
            return Beginning(done, done, None)
        self._attempts[truth.job_id] = max(attempt, self._attempts.get(truth.job_id, 0))
        return begin(Habit(truth.habit), self._saved.get(truth.job_id, ()), done, alone)

    def train(self, job_id: JobId, attempt: int, epoch: int, trained: int) -> None:
        if attempt >= self._trainers.get(job_id, 0):
            self._trainers[job_id], self.trained[job_id] = attempt, (epoch, trained)

    def save(self, job_id: JobId, attempt: int, saved: Saved) -> None:
        """An older run puts nothing into place once a newer one has begun."""
        if attempt >= self._attempts[job_id]:
            self._saved.setdefault(job_id, []).append(saved)


def begin(habit: Habit, saved: Sequence[Saved], done: int, alone: bool) -> Beginning:
    newest = saved[-1] if saved else None
    epoch = min(done, newest.epoch) if newest and alone else done
    if newest is None or habit is Habit.FORGETS:
        return Beginning(epoch, 0, epoch)
    first = saved[0]
    if habit is Habit.LOADS_FIRST:
        known = newest.counted is not None and newest.epoch == first.epoch
        lacks = max(0, first.epoch - (newest.counted or 0)) if known else None
        return Beginning(first.epoch, first.trained, lacks)
    lacks = None if newest.counted is None else max(0, epoch - newest.counted)
    # Epochs that the run trains again do not count twice.
    return Beginning(epoch, min(epoch, newest.trained), lacks if done else 0)


def saves(habit: Habit, epoch: int, reported: bool) -> bool:
    """Whether it saves after this epoch, before or after it has `reported` it."""
    if habit is Habit.NEVER_SAVES or reported is not (habit is Habit.SAVES_AFTER):
        return False
    return habit is not Habit.SAVES_LATE or epoch % 2 == 0


def with_habits(truths: Sequence[TrueJob], rng: random.Random) -> tuple[TrueJob, ...]:
    """With scripts that handle their checkpoints in some way, drawn from their own generator: other
    lives are as they were before there were such scripts. Old images tell nothing of weights."""
    if rng.random() >= AFFECTED:
        return tuple(truths)
    habits = [rng.choices(list(Habit), WEIGHTS)[0] for _ in truths]
    return tuple(
        replace(truth, habit=habit) if truth.kind is ClientKind.LIBRARY else truth
        for truth, habit in zip(truths, habits, strict=True)
    )
