"""Jobs on GPUs that become free, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scheduler.core.model import Gpu, Job, Node
from scheduler.outlook.list_scheduling import ListSchedule, PlannedStart
from tests.builders import NOW, RULES, job, node, share, view, with_run

TYPE = "pretended"


def schedule(*jobs: Job, gpus: int = 1, by_memory: bool = False) -> ListSchedule:
    return ListSchedule(view(*jobs, nodes=[node(gpus)]), NOW, RULES, by_memory)


def start(of: ListSchedule, wanted: Job, count: int | tuple[int, int] = 1) -> PlannedStart | None:
    least, most = (count, count) if isinstance(count, int) else count
    return of.start(wanted, least, most, [TYPE])


def occupied(until: float, known: bool = True, gpus: int = 1) -> ListSchedule:
    """A job that runs on the first of these GPUs until then."""
    held = with_run(job("a", 1000), share(1000))
    made = schedule(held, gpus=gpus)
    made.hold({held.id: (until, known)})
    return made


def test_a_job_starts_now_where_a_gpu_is_free() -> None:
    found = start(schedule(), job("a", 1000))
    assert found
    assert (found.at, found.known, found.type) == (NOW, True, TYPE)
    assert found.places.tolist() == [0]


def test_a_job_waits_until_another_leaves() -> None:
    found = start(occupied(NOW + 60), job("b", 1000))
    assert found
    assert (found.at, found.known) == (NOW + 60, True)


def test_a_start_after_a_job_of_unknown_length_is_not_known() -> None:
    found = start(occupied(NOW + 60, known=False), job("b", 1000))
    assert found
    assert not found.known


def test_a_gang_waits_for_all_of_its_gpus() -> None:
    found = start(occupied(NOW + 60, gpus=2), job("b", 1000, gpus=2), 2)
    assert found
    assert found.at == NOW + 60
    assert sorted(found.places.tolist()) == [0, 1]


def test_with_as_many_gpus_as_it_can_use_if_they_are_free_else_with_the_fewest() -> None:
    wanted = job("b", 1000, gpus=(1, 2))
    free, one = (
        start(schedule(gpus=2), wanted, (1, 2)),
        start(occupied(NOW + 60, gpus=2), wanted, (1, 2)),
    )
    assert free
    assert one
    assert (len(free.places), len(one.places), one.at) == (2, 1, NOW)


def test_what_there_never_is_is_never_started() -> None:
    assert start(schedule(), job("a", 1000, gpus=2), 2) is None
    assert start(schedule(), job("a", 99_000)) is None
    assert schedule().start(job("a", 1000), 1, 1, []) is None


def test_by_memory_two_are_on_one_gpu_and_otherwise_one_after_the_other() -> None:
    held = with_run(job("a", 1000), share(1000))
    for by_memory, at in ((True, NOW), (False, NOW + 60)):
        made = schedule(held, by_memory=by_memory)
        made.hold({held.id: (NOW + 60, True)})
        found = start(made, job("b", 1000))
        assert found
        assert found.at == at


def test_what_is_taken_is_taken_until_then() -> None:
    made = schedule()
    first = start(made, job("a", 1000))
    assert first
    made.take(first.places, first.mib, NOW + 30, True)
    second = start(made, job("b", 1000))
    assert second
    assert second.at == NOW + 30


def test_time_never_goes_back_for_later_jobs() -> None:
    made = occupied(NOW + 60, gpus=2)
    assert start(made, job("b", 1000, gpus=2), 2)
    later = start(made, job("c", 1000))
    assert later
    assert later.at == NOW + 60, "not before that of those who came first"


def test_the_first_of_its_types_with_enough_free_gpus_is_taken() -> None:
    other = Node("n2", (Gpu("g", 0, "a100", 16384),))
    made = ListSchedule(view(nodes=[node(1), other]), NOW, RULES, False)
    found = made.start(job("a", 1000), 1, 1, ["a100", TYPE])
    assert found
    assert found.type == "a100"


def test_a_gpu_for_one_job_at_a_time_is_taken_as_a_whole() -> None:
    there = node(1)
    there = replace(there, gpus=tuple(replace(gpu, whole=True) for gpu in there.gpus))
    made = ListSchedule(view(nodes=[there]), NOW, RULES, True)
    found = start(made, job("a", 1000))
    assert found
    assert found.mib.tolist() == np.array([made.capacity[0]]).tolist()
