"""What jobs have measured, read into arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.learning import kind_of
from scheduler.core.model import Job, JobFamily, JobId, Measured
from scheduler.estimates.measurements import (
    SECONDS_MAX,
    SMALL_MIB,
    UTIL_UNKNOWN,
    Memo,
    read,
)
from tests import builders


def job(name: str, *measured: Measured, **fields: Any) -> Job:
    made = builders.job(name, int(fields.pop("memory_mib", 0)), **fields)
    return replace(made, measured=measured, spec=replace(made.spec, project=name))


def alone(placement: str, seconds: float = 10.0, epochs: int = 3) -> Measured:
    return Measured(placement, (), seconds, epochs)


def test_each_measurement_is_one_row_of_its_owner() -> None:
    found = read([job("a", alone("t4x1"), alone("a100x2", 4.0)), job("b", alone("t4x8/2"))], {})
    assert found.types == ("a100", "t4")
    rows = found.alone
    types = [found.types[type] for type in rows.type]
    told = list(zip(rows.owner, types, rows.count, rows.nodes, rows.seconds, strict=True))
    assert told == [(0, "t4", 1, 1, 10.0), (0, "a100", 2, 1, 4.0), (1, "t4", 8, 2, 10.0)]
    assert not len(found.beside.owner)


def test_a_broken_clock_and_an_unknown_placement_tell_nothing() -> None:
    broken = [alone("t4x1", 0.0), alone("t4x1", SECONDS_MAX), alone("nonsense"), alone("t4x1", 5.0)]
    assert read([job("a", *broken)], {}).alone.seconds.tolist() == [5.0]


def test_a_neighbour_is_a_job_or_a_number_for_one_that_is_gone() -> None:
    beside = Measured("t4x1", (JobId("b"), JobId("gone")), 15.0, 2)
    found = read([job("a", beside), job("b")], {})
    assert found.beside.owner.tolist() == [0]
    assert found.neighbour_row.tolist() == [0, 0]
    assert found.neighbour.tolist() == [1, 2]


def test_jobs_come_before_families_and_know_which_is_theirs() -> None:
    one = job("a", alone("t4x1"))
    found = read(
        [one], {kind_of(one.spec): JobFamily(measured=(alone("t4x1", 0.01),)), "other": JobFamily()}
    )
    assert found.jobs == 1
    assert found.kind.tolist() == [0, 0, 1]
    assert found.kinds == 2
    assert found.alone.owner.tolist() == [0, 1]


def test_how_busy_a_job_keeps_a_gpu_is_its_own_its_familys_or_guessed_by_its_memory() -> None:
    own, unknown = job("a", gpu_util=0.3), job("b")
    small = job("c", memory_mib=SMALL_MIB // 3)
    kind = {kind_of(unknown.spec): JobFamily(gpu_util=0.6)}
    util = read([own, unknown, small], kind).util
    assert util[:3].tolist() == pytest.approx([0.3, 0.6, UTIL_UNKNOWN / 3])


def test_what_was_read_before_makes_no_difference() -> None:
    memo = Memo()
    first = [job("a", alone("t4x1")), job("b", Measured("t4x1", (JobId("a"),), 12.0, 2))]
    read(first, {}, memo)
    then = [job("c", alone("a100x1")), first[1], replace(first[0], measured=(alone("t4x2"),))]
    again, fresh = read(then, {}, memo), read(then, {})
    assert again.types == fresh.types
    for name in ("alone", "beside"):
        old, new = getattr(again, name), getattr(fresh, name)
        for column in ("owner", "type", "count", "nodes", "seconds", "epochs"):
            assert getattr(old, column).tolist() == getattr(new, column).tolist()
    assert again.neighbour.tolist() == fresh.neighbour.tolist()
    assert again.util.tolist() == fresh.util.tolist()


def test_without_jobs_nothing_is_read() -> None:
    found = read([], {})
    assert (found.jobs, found.types, found.kinds) == (0, (), 0)
