"""What is counted of a step."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core import counts, facts
from scheduler.core.counts import SUM, count
from scheduler.core.model import Fact, Failure, Job, Profile, View
from scheduler.core.ports import Step
from tests.builders import NOW, job, share, with_run

JOB = job("a", 4000, submitted_at=NOW - 50)


def step(before: Job | None, after: Job, *told: Fact) -> Step:
    first = View(jobs={before.id: before} if before else {})
    return Step(first, View(jobs={after.id: after}), [after.id], told, (), NOW)


def told(kind: str, **data: str | float) -> Fact:
    return Fact(NOW, kind, JOB.id, 1, data)


def test_every_kind_of_fact_is_known() -> None:
    source = Path(facts.__file__).read_text()
    about = "job|run|node|gpu|epochs?|checkpoint|report|profiles|memory"
    kinds = re.findall(rf'"((?:{about})_\w+)"', source)
    data = {"epochs_done", "epochs_loaded", "epochs_trained"}
    assert set(kinds) - data - {"gpu_util"} == set(counts.KINDS)


def test_each_fact_is_counted() -> None:
    made = count(step(JOB, JOB, told("run_running"), told("run_running"), told("node_lost")), ())
    assert made == {("facts", "run_running"): 2, ("facts", "node_lost"): 1}


@pytest.mark.parametrize(
    ("fact", "key", "value"),
    [
        (told("run_asked_to_stop", reason="preempted for b"), ("preemptions", "preempted"), 1),
        (told("run_asked_to_stop", reason="made room on gpu1"), ("preemptions", "made room"), 1),
        (told("run_asked_to_stop", reason="cancelled by ann"), None, 0),
        (told("run_ended", lost_work_seconds=12.5), ("lost_work_seconds", ""), 12.5),
        (told("run_ended", reason="exit code 1"), None, 0),
        (told("epochs_missing", epochs_done=9, epochs_trained=6), ("epochs_missing", ""), 3),
        (told("run_over_share", used_mib=1), ("drift", "over share"), 1),
        (told("gpu_strangers", from_mib=0, to_mib=64), ("drift", "foreign"), 1),
        (told("gpu_strangers", from_mib=64, to_mib=0), None, 0),
    ],
)
def test_what_facts_say_is_summed(fact: Fact, key: tuple[str, str] | None, value: float) -> None:
    made = dict(count(step(JOB, JOB, fact), ()))
    assert made.pop(("facts", fact.kind)) == 1
    assert made == ({key: value} if key else {})


def test_the_wait_of_a_job_ends_with_its_first_run() -> None:
    first = replace(with_run(JOB, share(4000)), started_at=NOW)
    assert count(step(JOB, first), ()) == {("wait_seconds", "60"): 1, ("wait_seconds", SUM): 50}
    assert count(step(first, replace(first, run=None)), ()) == {}


def test_failures_count_when_they_happen_and_not_when_they_are_forgiven() -> None:
    failed = replace(JOB, failures=((Failure.ERROR, 1), (Failure.LOST, 2)))
    expected = {("failures", "error"): 1, ("failures", "lost"): 2, ("drift", "lost"): 2}
    assert count(step(JOB, failed), ()) == expected
    assert count(step(failed, replace(failed, failures=((Failure.ERROR, 1),))), ()) == {}


def test_an_epoch_is_counted_once_for_all_ranks() -> None:
    epochs = [Profile(JOB.id, 1, 1, rank=rank, epoch_seconds=20.0) for rank in range(3)]
    expected = {("epoch_seconds", "60"): 1, ("epoch_seconds", SUM): 20}
    assert count(step(JOB, JOB), epochs) == expected


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_impossible_times_are_not_counted(seconds: float) -> None:
    assert count(step(JOB, JOB), [Profile(JOB.id, 1, 1, epoch_seconds=seconds)]) == {}
