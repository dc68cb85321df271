"""Bugs planted in what is learned, each caught by a test of the rule that it breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.estimates import baseline, scaling, trials
from scheduler.planning.optimizer import exploring, growth
from tests.estimates import test_poison, test_trials
from tests.planning.optimizer import test_exploring, test_growth


@pytest.mark.parametrize(
    ("module", "name", "bug", "catches"),
    [
        pytest.param(
            scaling,
            "FAR",
            1e9,
            test_poison.test_one_job_that_was_slow_on_60_gpus_does_not_make_two_nodes_slow_for_all,
            id="a kind that is far off pulls with all its weight",
        ),
        pytest.param(
            scaling,
            "GUESS_KINDS",
            1e9,
            test_poison.test_kinds_that_agree_do_teach_it,
            id="kinds teach each other nothing",
        ),
        pytest.param(
            baseline,
            "FAR",
            1e9,
            test_poison.test_whatever_one_kind_shows_the_others_move_by_no_more_than_their_doubt,
            id="one kind tells all others how two types of GPU compare",
        ),
        pytest.param(
            growth,
            "STEP",
            64.0,
            test_growth.test_a_job_gets_at_most_twice_what_it_was_measured_on,
            id="a job grows without a limit",
        ),
        pytest.param(
            trials,
            "LAST_EPOCHS",
            0,
            test_trials.test_nothing_is_tried_in_the_last_epochs_or_before_the_present_speed_is_known,
            id="a job tries something in its last epochs",
        ),
        pytest.param(
            trials,
            "DOUBT_MAX",
            1e-6,
            test_trials.test_what_is_more_doubtful_is_more_worth_a_try,
            id="doubt makes nothing worth a try",
        ),
        pytest.param(
            exploring,
            "_first_of_each_kind",
            lambda kinds, jobs, work: jobs,
            test_exploring.test_one_of_a_kind_tries_and_that_is_the_one_with_the_most_work_left,
            id="all jobs of a kind try at once",
        ),
        pytest.param(
            exploring,
            "_perfect",
            lambda seconds, at, choices: seconds,
            test_exploring.test_a_job_may_try_what_it_was_never_measured_on,
            id="no GPUs are thought faster than the present ones",
        ),
    ],
)
def test_a_bug_is_noticed(
    module: object,
    name: str,
    bug: object,
    catches: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catches()
    monkeypatch.setattr(module, name, bug)
    with pytest.raises(AssertionError):
        catches()
