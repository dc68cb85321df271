"""The simulated scripts begin as the real library lets real scripts begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubernetesdlprofile import manifest
from kubernetesdlprofile.resume import Resume
from simulator.lives.scripts import Beginning, Folders, Habit, Saved, begin, saves
from tests.simulator.calm import JOB, TRUTH

ASKED = {Habit.FORGETS: frozenset[str]()}  # what the others ask for is not of interest
ROOT = frozenset({"_root_dir"})
COUNTS = [(1, 1), (1, 0), (2, 2), (3, 1), (3, 3), (5, 5)]  # of a checkpoint: epochs done, trained


def save(root: Path, name: str, epoch: int, counted: int | None) -> None:
    (root / name).write_text(f"{epoch} {counted}")
    numbers = [epoch, -1 if counted is None else counted]
    manifest.add(str(root), "0-0", root / name, numbers, None)


def really(root: Path, habit: Habit, first: Saved | None, done: int, alone: bool) -> Beginning:
    """As the library says; what is in the weights is not asked here."""
    resume = Resume(str(root), done)
    epoch = resume.first_epoch(alone)
    told = habit is Habit.LOADS_FIRST and first is not None and first.epoch <= done
    if told and first:
        epoch = first.epoch
    lacks = 0
    if done:
        lacks, _ = resume.lacks(epoch, ASKED.get(habit, ROOT), told)
    return Beginning(epoch, 0, None if lacks < 0 else lacks)


@pytest.mark.parametrize("habit", Habit)
@pytest.mark.parametrize(("done", "alone"), [(1, True), (1, False), (3, True), (3, False)])
def test_a_simulated_script_begins_as_a_real_one(
    tmp_path: Path, habit: Habit, done: int, alone: bool
) -> None:
    assert replace(begin(habit, (), done, alone), trained=0) == really(
        tmp_path, habit, None, done, alone
    )
    kept: list[Saved] = []
    for epoch, trained in COUNTS:
        kept.append(Saved(epoch, trained, trained))
        save(tmp_path, "last.npy", epoch, trained)
        made = replace(begin(habit, kept, done, alone), trained=0)
        assert made == really(tmp_path, habit, kept[0], done, alone), kept


def test_what_the_library_does_not_know_stays_unknown(tmp_path: Path) -> None:
    save(tmp_path, "last.npy", 3, None)
    made = begin(Habit.CAREFUL, [Saved(3, 3, None)], 3, alone=True)
    assert made == Beginning(3, 3, None)
    assert replace(made, trained=0) == really(tmp_path, Habit.CAREFUL, None, 3, alone=True)


def test_who_saves_when() -> None:
    before = {habit for habit in Habit if saves(habit, 1, reported=False)}
    assert before == {Habit.CAREFUL, Habit.FORGETS, Habit.LOADS_FIRST}
    assert {habit for habit in Habit if saves(habit, 1, reported=True)} == {Habit.SAVES_AFTER}
    assert saves(Habit.SAVES_LATE, 2, reported=False)


def test_an_older_run_saves_nothing_once_a_newer_one_has_begun() -> None:
    folders, truth = Folders(), replace(TRUTH, habit=Habit.CAREFUL)
    folders.begin(truth, 1, 0, alone=True)
    folders.save(JOB, 1, Saved(1, 1, 1))
    assert folders.begin(truth, 2, 1, alone=True) == Beginning(1, 1, 0)
    folders.save(JOB, 1, Saved(2, 2, 2))
    assert folders.begin(truth, 3, 1, alone=True) == Beginning(1, 1, 0)


def test_a_script_without_a_habit_is_not_simulated() -> None:
    assert Folders().begin(TRUTH, 2, 3, alone=True) == Beginning(3, 3, None)
