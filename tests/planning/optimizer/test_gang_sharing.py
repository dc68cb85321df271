"""Gangs that share all of their GPUs with another gang."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, RunPhase
from scheduler.estimates.measurements import Memo
from scheduler.planning.optimizer.gang_sharing import guests, join_gangs
from scheduler.planning.optimizer.inventory import stocks
from scheduler.planning.optimizer.offer import LearnedSpeeds, Offer, build_offer
from tests.builders import RULES, job, node, share, with_run


def gang(name: str, memory_mib: int = 1000, gpus: int = 2, util: float = 0.1) -> Job:
    return job(name, memory_mib, gpus=gpus, gpu_util=util, max_epochs=1000)


def runs(made: Job, *gpus: int, phase: RunPhase = RunPhase.RUNNING) -> Job:
    return with_run(made, *(share(1000, gpu) for gpu in gpus), phase=phase)


def offer(*jobs: Job, gpus: int = 2) -> Offer:
    known = usable_gpus([node(gpus)])
    there = stocks(known)
    learned = LearnedSpeeds(jobs, {}, there, Memo())
    return build_offer(jobs, there, known, learned, lambda user: 1.0, RULES, at=0.0, gpus=gpus)


def shared(*jobs: Job, having: int = 1) -> list[tuple[int, ...]]:
    """The first `having` jobs have two GPUs, and the others nothing."""
    made = offer(*jobs)
    column = [config.gpus for config in made.configs].index(2)
    choice = np.where(np.arange(len(jobs)) < having, column, -1)
    return join_gangs(made, made.neighbours(RULES), choice)


def test_a_job_that_would_have_nothing_joins_a_gang_with_as_many_gpus() -> None:
    assert shared(gang("a"), gang("b")) == [(0, 1)]


def test_several_may_join_one_after_the_other() -> None:
    assert shared(gang("a"), gang("b"), gang("c")) == [(0, 1, 2)]


def test_a_job_that_needs_another_number_of_gpus_does_not_join() -> None:
    assert shared(gang("a"), gang("b", gpus=3)) == []


def test_what_does_not_fit_in_memory_does_not() -> None:
    assert shared(gang("a", 9000), gang("b", 9000)) == []


def test_a_job_that_does_not_share_does_not_join() -> None:
    alone = gang("b")
    alone = replace(alone, spec=replace(alone.spec, shareable=False))
    assert shared(gang("a"), alone) == []


def test_on_the_same_gpus_the_later_one_is_a_guest() -> None:
    assert guests([runs(gang("a"), 0, 1), runs(gang("b"), 0, 1), runs(gang("c"), 2, 3)]) == [1]


def test_a_job_that_cannot_be_asked_to_stop_is_the_host() -> None:
    starts = runs(gang("b"), 0, 1, phase=RunPhase.STARTING)
    assert guests([runs(gang("a"), 0, 1), starts]) == [0]


def test_a_job_that_has_one_gpu_or_waits_is_no_guest() -> None:
    one = job("c", 1000)
    assert guests([runs(one, 0), runs(replace(one, id=gang("d").id), 0), gang("e")]) == []
