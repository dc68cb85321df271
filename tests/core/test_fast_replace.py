from __future__ import annotations

import dataclasses
import pickle

import pytest

from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, JobId, JobSpec

JOB = Job(JobId("a"), JobSpec("a", "ann"), 0.0)


def test_it_does_what_that_of_dataclasses_does() -> None:
    mine, theirs = (
        each(JOB, epochs_done=2, reason="so") for each in (replace, dataclasses.replace)
    )
    assert mine == theirs
    assert (type(mine), hash(mine), repr(mine)) == (Job, hash(theirs), repr(theirs))
    assert pickle.loads(pickle.dumps(mine)) == theirs
    assert JOB.epochs_done == 0


def test_a_copy_is_frozen_too() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(JOB, epochs_done=2).epochs_done = 3  # type: ignore[misc]  # that is the test


def test_only_fields_can_be_changed() -> None:
    with pytest.raises(AttributeError):
        replace(JOB, colour="red")  # type: ignore[call-arg]  # that is the test
