"""`run-scheduler --search`: what is chosen, and what is refused. (tests/e2e/test_s24_search.py runs
searches; with Optuna: tests/clients/test_search.py.)"""

from __future__ import annotations

import re

import pytest

from cli import search
from cli.search import SearchedJob, choose, trial_id
from cli.search_space import space_of
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.cli.test_run import UUID4
from tests.serving import Serving

AXES = [("lr", ["1e-5..1e-1:log"]), ("layers", ["1..8"]), ("opt", ["sgd", "adam"])]


def test_random_values_depend_on_the_label_and_the_number_alone() -> None:
    space = space_of(AXES)
    drawn = [choose("random", space, number, "s", [], False) for number in range(200)]
    assert drawn == [choose("random", space, number, "s", [], True) for number in range(200)]
    assert drawn != [choose("random", space, number, "t", [], False) for number in range(200)]
    assert {each["layers"] for each in drawn} == set(range(1, 9))
    assert {each["opt"] for each in drawn} == {"sgd", "adam"}
    rates = sorted(float(each["lr"]) for each in drawn)
    assert 1e-5 <= rates[0] < 1e-4 < 5e-4 < rates[100] < 5e-3 < 1e-2 < rates[-1] <= 1e-1


def test_a_grid_is_walked_in_order() -> None:
    space = space_of([("a", ["1", "2"]), ("b", ["x", "y", "z"])])
    found = [choose("grid", space, number, "s", [], False) for number in range(6)]
    assert found[:4] == [
        {"a": "1", "b": "x"},
        {"a": "1", "b": "y"},
        {"a": "1", "b": "z"},
        {"a": "2", "b": "x"},
    ]


def test_the_nth_trial_of_a_search_has_always_the_same_id() -> None:
    ids = [trial_id("s", number) for number in range(100)] + [trial_id("t", 0)]
    assert len(set(ids)) == 101
    assert all(re.fullmatch(UUID4.removesuffix(r"\n"), each) for each in ids)
    assert ids[0] == trial_id("s", 0) == "dc26c3ab-1a5f-4de3-9dd3-3e97f3fd5d02"


def test_the_best_epoch_of_the_best_trial_counts() -> None:
    def trial(number: int, *values: float, maximize: bool = False) -> SearchedJob:
        scores = [pb.Score(epoch=epoch, value=value) for epoch, value in enumerate(values, 1)]
        return SearchedJob(number, pb.Job(scores=scores, spec=pb.JobSpec(maximize=maximize)))

    best = search.best_of([trial(0, 3, 2, 9), trial(1, 5, float("inf")), trial(2)])
    assert best is not None
    assert (best.number, best.best) == (0, 2)
    best = search.best_of([trial(0, 3, 2, 9, maximize=True), trial(1, 5, maximize=True)])
    assert best is not None
    assert (best.number, best.best) == (0, 9)
    assert search.best_of([trial(2)]) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--search", "random", "x", "--", "ls"], "--search: give --sweep KEY=LOW..HIGH"),
        (["--search", "random", "--sweep", "a=1..2", "x", "--", "{a}"], "needs --metric"),
        (
            ["--search", "random", "--metric", "m", "--sweep", "a=1..2", "x", "--", "{a}"],
            "--trials N",
        ),
        (
            ["--search", "grid", "--metric", "m", "--sweep", "a=1..2", "x", "--", "{a}"],
            "a must be a list",
        ),
        (["--trials", "3", "x", "--", "ls"], "give --search"),
        (["--sweep", "a=1e-3..1:log", "x", "--", "{a}"], "a range needs --search"),
        (
            [
                *("--search", "random", "--metric", "m", "--trials", "1001"),
                "--sweep",
                "a=1..2",
                "x",
                "--",
                "{a}",
            ],
            "--trials 1001: must be at most 1000",
        ),
        (
            [
                *("--search", "random", "--metric", "m", "--trials", "9", "--repeat", "2"),
                "--sweep",
                "a=1..2",
                "x",
                "--",
                "{a}",
            ],
            "--search: leave out --repeat",
        ),
    ],
)
def test_what_makes_no_search_is_refused_in_one_line(
    words: list[str], told: str, server: Serving, command: Command
) -> None:
    done = command("run-scheduler", *words)
    assert (done.exit_code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err
    assert not server.scheduler.view.jobs


def test_a_rehearsal_checks_the_first_job(server: Serving, command: Command) -> None:
    flags = ("--search", "random", "--metric", "m", "--trials", "9", "--sweep", "a=1..2")
    done = command("run-scheduler", *flags, "--dry_run", "x", "--", "train", "{a}")
    assert done.exit_code == 0, done.err
    assert re.fullmatch(r"x-0  train [12]\n", done.out)
    assert "would submit 9 jobs" in done.err
    assert not server.scheduler.view.jobs
