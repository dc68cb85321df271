"""How many jobs of a sweep run at once, and which are pruned."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.evolve import evolve
from scheduler.core.fast_replace import replace
from scheduler.core.model import EpochEnded, Job, JobId, JobSpec, Outcome, Profile, Rules, View
from scheduler.core.sweeps import FACTOR, KEPT, record, sweep_of, why_pruned

SPEC = JobSpec("grid", "ada", labels=(("sweep", "s"),), metric="val_loss", prune="asha")
MEDIAN = replace(SPEC, prune="median", max_epochs=9)
MINE = JobId("mine")


def rung(*scores: float, mine: float) -> dict[JobId, float]:
    return {MINE: mine, **{JobId(f"j{place}"): score for place, score in enumerate(scores)}}


def test_a_sweep_is_a_label_of_a_user() -> None:
    assert sweep_of(SPEC) == "ada/s"
    assert sweep_of(replace(SPEC, labels=(("k", "v"),))) == ""
    assert sweep_of(replace(SPEC, user="bob")) != sweep_of(SPEC)


# --- asha ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "mine", "pruned"),
    [
        ([], 1.0, False),  # nobody to compare with
        ([0.5], 1.0, True),  # of fewer than three, the best goes on
        ([2.0], 1.0, False),
        ([1.0], 1.0, False),  # as good
        ([0.1, 0.2, 5, 6, 7], 1.0, True),  # the third of six
        ([0.1, 2.0, 5, 6, 7], 1.0, False),  # the second of six
    ],
)
def test_asha_lets_the_best_third_go_on(others: list[float], mine: float, pruned: bool) -> None:
    assert bool(why_pruned(SPEC, MINE, 3, {3: rung(*others, mine=mine)})) is pruned


@pytest.mark.parametrize(
    ("after", "rungs"), [(0, [1, 3, 9, 27]), (1, [1, 3, 9, 27]), (2, [2, 6, 18]), (10, [10, 30])]
)
def test_asha_looks_after_so_many_epochs_and_three_times_as_many(
    after: int, rungs: list[int]
) -> None:
    spec = replace(SPEC, prune_after=after)
    bad = rung(0.0, 0.0, 0.0, mine=1.0)
    assert [n for n in range(1, 31) if why_pruned(spec, MINE, n, {n: bad})] == rungs


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.booleans())
def test_asha_lets_the_best_of_all_go_on_and_at_least_a_third_wherever_all_came(
    scores: list[float], maximize: bool
) -> None:
    spec = replace(SPEC, maximize=maximize)
    all_of = {JobId(str(place)): score for place, score in enumerate(scores)}
    gone_on = [job for job in all_of if not why_pruned(spec, job, 1, {1: all_of})]
    best = max(all_of.values()) if maximize else min(all_of.values())
    assert best in [all_of[job] for job in gone_on]
    assert len(gone_on) >= len(scores) // FACTOR
    assert len(set(scores)) < len(scores) or len(gone_on) == max(1, len(scores) // FACTOR)


# --- median -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "mine", "pruned"),
    [
        ([0.1, 0.1, 0.1, 0.1], 9.0, False),  # too few
        ([1, 2, 3, 4, 5], 3.0, False),
        ([1, 2, 3, 4, 5], 3.1, True),
        ([1, 2, 3, 4, 5, 6], 3.5, False),
        ([1, 2, 3, 4, 5, 6], 3.6, True),
        ([math.inf] * 3 + [1, 1], 5.0, False),  # the median is no number
        ([math.inf] * 3 + [1, 1, 1], 5.0, False),
    ],
)
def test_median_compares_with_those_that_came_to_the_end(
    others: list[float], mine: float, pruned: bool
) -> None:
    reached, ended = rung(*others, mine=mine), {JobId(f"j{n}"): 0.0 for n in range(len(others))}
    assert bool(why_pruned(MEDIAN, MINE, 2, {2: reached, 9: ended})) is pruned
    beyond = {JobId(f"pruned{n}"): 0.0 for n in range(20)}  # better, but they did not
    assert bool(why_pruned(MEDIAN, MINE, 2, {2: reached | beyond, 9: ended})) is pruned
    assert not why_pruned(MEDIAN, MINE, 2, {2: reached})


def test_median_takes_the_best_score_so_far_and_waits() -> None:
    ended = {JobId(f"j{n}"): 0.0 for n in range(5)}
    scores = {1: rung(mine=0.5), 2: rung(1, 1, 1, 1, 1, mine=9.0), 9: ended}
    assert not why_pruned(MEDIAN, MINE, 2, scores)
    why = why_pruned(MEDIAN, MINE, 2, {2: scores[2], 9: ended})
    assert why == "pruned after epoch 2: val_loss 9 is not as good as the median of 5 finished jobs"
    assert not why_pruned(replace(MEDIAN, prune_after=3), MINE, 2, {2: scores[2], 9: ended})


# --- both ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SPEC, MEDIAN, replace(SPEC, maximize=True)])
def test_a_score_that_is_no_number_ends_the_job_at_once(spec: JobSpec) -> None:
    why = why_pruned(spec, MINE, 2, {2: rung(mine=math.inf)})
    assert why == "pruned after epoch 2: val_loss is not a finite number"


def test_the_reason_names_the_score_and_the_others() -> None:
    why = why_pruned(SPEC, MINE, 3, {3: rung(1, 2, mine=4.25)})
    assert why == "pruned after epoch 3: val_loss 4.25 is not among the best third of 3 jobs"


def test_a_job_without_a_rule_is_never_pruned() -> None:
    assert not why_pruned(replace(SPEC, prune=""), MINE, 1, {1: rung(0, 0, 0, mine=math.inf)})


def profile(job: str, epoch: int, score: float | None, rank: int = 0) -> Profile:
    return Profile(JobId(job), 1, epoch, rank, score=score)


def test_a_score_is_recorded_once() -> None:
    known = record({}, SPEC, profile("a", 1, 0.5))
    assert known == {"ada/s": {1: {"a": 0.5}}}
    assert record(known, SPEC, profile("a", 1, 0.7)) is known
    assert record(known, SPEC, profile("b", 1, None)) is known
    assert record(known, SPEC, profile("b", 1, 0.1, rank=1)) is known
    assert record(known, replace(SPEC, metric=""), profile("b", 1, 0.1)) is known


def test_the_sweep_that_was_silent_for_longest_is_forgotten() -> None:
    known: dict[str, object] = {}
    for number in [*range(KEPT), 0, KEPT]:
        spec = replace(SPEC, labels=(("sweep", str(number)),))
        known = dict(record(known, spec, profile(f"a{number}{len(known)}", 1, 0.5)))  # type: ignore[arg-type]
    assert len(known) == KEPT
    assert "ada/1" not in known
    assert "ada/0" in known


def test_a_late_report_ends_a_waiting_job_that_is_hopeless() -> None:
    job = Job.submitted(MINE, replace(SPEC, max_epochs=5), 1.0)
    view = View(jobs={MINE: job}, scores={"ada/s": {1: {JobId("best"): 0.1}}})
    after = evolve(view, [EpochEnded(profile("mine", 1, 0.9))], 2.0, Rules()).view.jobs[MINE]
    assert after.outcome is Outcome.CANCELLED
    assert after.reason.startswith("pruned after epoch 1")


def test_a_job_at_its_end_is_not_pruned() -> None:
    job = Job.submitted(MINE, replace(SPEC, max_epochs=1), 1.0)
    view = View(jobs={MINE: job}, scores={"ada/s": {1: {JobId("best"): 0.1}}})
    after = evolve(view, [EpochEnded(profile("mine", 1, 0.9))], 2.0, Rules()).view.jobs[MINE]
    assert after.outcome is Outcome.SUCCEEDED
