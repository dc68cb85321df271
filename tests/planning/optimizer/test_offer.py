"""What each configuration of GPUs is worth to each job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Job, Measured, Rules, RunPhase
from scheduler.estimates.measurements import Memo
from scheduler.planning.optimizer.inventory import stocks
from scheduler.planning.optimizer.offer import (
    ENTITLED,
    MOVE_SPEED,
    NEVER,
    STAYS,
    LearnedSpeeds,
    Offer,
    build_offer,
)
from tests.builders import RULES, job, node, share, with_run

COUNTS = (1, 2, 4)


def scaling(
    name: str, seconds: float = 100.0, gpus: tuple[int, int] = (1, 4), **fields: Any
) -> Job:
    """Measured on one to four GPUs, with almost perfect scaling."""
    shown = [Measured(f"pretendedx{n}", (), seconds * (0.02 + 0.98 / n), 3) for n in COUNTS]
    made = job(name, 1000, gpus=gpus, max_epochs=int(fields.pop("epochs", 1000)), **fields)
    return replace(made, measured=tuple(shown), spec=replace(made.spec, project=name))


def of(name: str, user: str) -> Job:
    made = scaling(name)
    return replace(made, spec=replace(made.spec, user=user))


def runs(made: Job, *gpus: int, memory_mib: int = 1000, **fields: Any) -> Job:
    """A run that has lasted long, and may be asked to stop."""
    begun = {"epoch_started": 1, "epochs_before": 0, **fields}
    return with_run(
        replace(made, epochs_done=1), *(share(memory_mib, gpu) for gpu in gpus), **begun
    )


def made(
    *jobs: Job,
    gpus: int = 4,
    had: Callable[[str], float] = lambda user: 1.0,
    rules: Rules = RULES,
    at: float = 0.0,
) -> Offer:
    known = usable_gpus([node(gpus)])
    there = stocks(known)
    learned = LearnedSpeeds(jobs, {}, there, Memo())
    return build_offer(jobs, there, known, learned, had, rules, at=at, gpus=gpus)


def counts(offer: Offer, row: int) -> list[int]:
    """The numbers of GPUs that it may have."""
    return [offer.configs[at].gpus for at in np.flatnonzero(offer.possible[row])]


def test_more_gpus_are_worth_more_but_less_than_in_proportion() -> None:
    menu = made(scaling("a")).menu({})
    one, two, four = (menu.worth[0, list(menu.count).index(n)] for n in COUNTS)
    own = made(scaling("a")).bonus[0]
    assert one < two < four
    assert (two - own) < 2 * (one - own)
    assert (four - own) < 2 * (two - own)


def test_a_job_is_offered_no_fewer_and_no_more_than_it_can_use() -> None:
    assert counts(made(scaling("a", gpus=(2, 3))), 0) == [2, 3]
    assert counts(made(scaling("a", gpus=(8, 8))), 0) == []


def test_a_job_with_unknown_scaling_begins_near_the_fewest_gpus() -> None:
    new = job("new", 1000, gpus=(1, 4))
    assert counts(made(new), 0) == [1, 2]
    assert counts(made(scaling("a")), 0) == [1, 2, 3, 4]


def test_the_job_with_the_least_work_left_weighs_most() -> None:
    offer = made(*(scaling(f"j{n}", epochs=epochs) for n, epochs in enumerate((10, 100, 1000))))
    assert offer.weight[0] > offer.weight[1] > offer.weight[2]


def test_among_a_few_similar_jobs_none_is_far_above_another() -> None:
    offer = made(scaling("a", epochs=100), scaling("b", epochs=101))
    assert offer.weight[0] == offer.weight[1]


def test_a_job_of_a_user_with_more_gpu_time_weighs_less() -> None:
    had = {"ada": 1.0, "bob": 4.0}
    offer = made(of("a", "ada"), of("b", "bob"), had=had.__getitem__)
    assert offer.weight[0] == pytest.approx(4 * offer.weight[1])


def test_one_job_of_each_user_is_entitled_before_any_second_one() -> None:
    offer = made(of("a", "ada"), of("a2", "ada"), of("b", "bob"))
    assert sorted(offer.bonus.tolist()) == [0.0, ENTITLED, ENTITLED]
    assert offer.bonus[2] == ENTITLED
    running = made(of("a", "ada"), runs(of("a2", "ada"), 0))
    assert running.bonus[1] >= ENTITLED, "the one that runs"
    assert running.bonus[0] == 0.0


def test_a_run_that_may_not_move_is_worth_more_than_anything_where_it_is() -> None:
    still = runs(scaling("a"), 0, phase=RunPhase.STARTING)
    offer = made(still, scaling("b"))
    assert offer.fixed[0]
    assert counts(offer, 0) == [1]
    assert offer.bonus[0] >= STAYS


def test_a_run_is_offered_more_only_if_that_saves_more_than_the_restart_takes() -> None:
    long, short = runs(scaling("a", epochs=1000), 0), runs(scaling("b", epochs=2), 1)
    patient = replace(long, restart_seconds=1e9)
    assert 4 in counts(made(long), 0)
    assert counts(made(patient), 0) == [1]
    hasty = replace(short, restart_seconds=500.0)
    assert counts(made(hasty), 0) == [1]


def test_a_run_whose_epoch_would_not_end_within_the_notice_moves_only_if_that_pays_for_it() -> None:
    shown = [Measured(f"pretendedx{n}", (), seconds, 3) for n, seconds in ((1, 1e4), (2, 8e3))]

    def begun(epochs: int) -> Job:
        slow = replace(scaling("a", gpus=(1, 2), epochs=epochs), measured=tuple(shown))
        return runs(slow, 0, epoch_at=0.0)

    asked = begun(4)
    notice = replace(RULES, stop_grace_seconds=3600.0)
    assert counts(made(asked, rules=notice, at=6500.0), 0) == [1, 2], "it ends within the notice"
    lost = made(asked, rules=notice, at=6200.0)
    assert lost.restart[0] == pytest.approx(9800.0 + RULES.restart_seconds)
    assert counts(lost, 0) == [1], "two GPUs save 6,000 s"
    assert counts(made(begun(10), rules=notice, at=6200.0), 0) == [1, 2], "or 18,000 s"


def test_what_a_run_has_is_worth_more_to_it_than_to_a_waiting_job() -> None:
    running, waiting = runs(scaling("a"), 0), scaling("b")
    offer = made(running, waiting)
    column = [config.gpus for config in offer.configs].index(1)
    worth = offer.worth([0, 1], [column, column], 1.0) - offer.bonus
    assert worth[0] > worth[1]


def test_a_neighbour_takes_from_what_a_configuration_is_worth() -> None:
    offer = made(scaling("a"))
    whole, half = offer.worth([0, 0], [0, 0], [1.0, 0.5])
    assert offer.bonus[0] < half < whole
    assert offer.worth([0], [0], NEVER)[0] < ENTITLED / 2, "who cannot be there is not served by it"


def test_gpus_that_others_have_are_not_on_the_menu() -> None:
    menu = made(scaling("a")).menu({"pretended": 3})
    assert menu.capacity.tolist() == [1]
    assert made(scaling("a")).menu({"pretended": 9}).capacity.tolist() == [0]


def test_two_jobs_that_cannot_both_stay_are_worth_next_to_nothing_together() -> None:
    a = runs(scaling("a"), 0, phase=RunPhase.STARTING)
    b = runs(scaling("b"), 1, phase=RunPhase.STARTING)
    near = made(a, b).neighbours(RULES)
    pair = np.array([0]), np.array([1])
    assert near.each(*pair, 0)[0] <= NEVER


def test_a_move_to_the_other_costs_a_pair_some_of_its_speed() -> None:
    apart = made(runs(scaling("a"), 0), runs(scaling("b"), 1)).neighbours(RULES)
    waiting = made(scaling("a"), scaling("b")).neighbours(RULES)
    pair = np.array([0]), np.array([1]), 0
    assert apart.each(*pair)[0] == pytest.approx(MOVE_SPEED * waiting.each(*pair)[0])


def test_a_job_that_does_not_share_is_no_neighbour() -> None:
    alone = replace(scaling("a"), spec=replace(scaling("a").spec, shareable=False))
    assert made(alone, scaling("b")).neighbours(RULES).shareable.tolist() == [False, True]
