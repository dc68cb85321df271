from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, RunPhase
from scheduler.planning.placement import Unit, place_units
from scheduler.planning.postponing import count_late, postpone_moves
from tests.builders import RULES, job, share, view, with_run
from tests.planning.test_placement import nodes, settled, unit


def first_and_then(units: Sequence[Unit], *others: Job) -> tuple[list[int], list[int]]:
    """How many units are late, and how many GPUs each unit is to have, by the first placement; and
    after some moves are postponed."""
    seen = view(*(job for unit in units for job in unit.jobs), *others, nodes=nodes())
    done = place_units(units, seen, RULES)
    staying = postpone_moves(units, done, usable_gpus(seen.nodes), seen) or units
    after = place_units(staying, seen, RULES)
    return (
        [count_late(units, done, seen), *(each.count for each in units)],
        [count_late(staying, after, seen), *(each.count for each in staying)],
    )


def grows() -> Job:
    return settled(job("grows", gpus=(1, 4)), ("n2", 0), ("n2", 1))


def test_idle_gpus_are_for_the_run_that_stops_for_them_not_for_another_that_must_stop() -> None:
    stops = with_run(job("stops", gpus=(1, 4)), share(gpu=3, node="n2"), phase=RunPhase.STOPPING)
    stays = settled(job("stays"), ("n2", 2))
    units = [unit(grows(), count=4), unit(stops, count=3), unit(stays)]
    assert first_and_then(units) == ([1, 4, 3, 1], [0, 2, 3, 1])


def test_a_job_that_waits_has_idle_gpus_before_a_run_moves_onto_them() -> None:
    others = [settled(job(f"o{gpu}"), ("n2", gpu)) for gpu in (2, 3)]
    units = [unit(grows(), count=4), unit(job("waits", gpus=2), count=2), *map(unit, others)]
    assert first_and_then(units) == ([1, 4, 2, 1, 1], [0, 2, 2, 1, 1])


def test_a_run_moves_onto_idle_gpus_that_are_too_few_for_the_job_that_waits() -> None:
    others = [settled(job(f"o{n}"), at) for n, at in enumerate([("n1", 0), ("n1", 1), ("n2", 1)])]
    moves = settled(job("moves", gpus=(1, 2)), ("n2", 0))
    units = [unit(job("waits", gpus=3), count=3), unit(moves, count=2), *map(unit, others)]
    assert first_and_then(units) == ([1, 3, 2, 1, 1, 1], [1, 3, 2, 1, 1, 1])


def test_a_run_moves_if_it_gains_more_gpus_than_the_job_that_waits_would_use() -> None:
    others = [settled(job(f"o{gpu}"), ("n2", gpu)) for gpu in (1, 2, 3)]
    moves = settled(job("moves", gpus=(1, 4)), ("n2", 0))
    units = [unit(moves, count=4), unit(job("waits"), count=1), *map(unit, others)]
    assert first_and_then(units) == ([1, 4, 1, 1, 1, 1], [1, 4, 1, 1, 1, 1])


def test_a_run_moves_if_no_job_waits() -> None:
    assert first_and_then([unit(grows(), count=4)]) == ([0, 4], [0, 4])
