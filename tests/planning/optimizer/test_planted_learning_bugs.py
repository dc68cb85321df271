"""Bugs planted in what is learned and planned, each caught by a test of the rule that it breaks."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from scheduler.core import learning
from scheduler.estimates import baseline, grid, measurements, scaling, slow_gpus, trials
from scheduler.planning.optimizer import exploring, growth, offer, slow_stocks
from tests.core import test_learning, test_wrong_reports
from tests.estimates import test_poison, test_slow_gpus, test_trials
from tests.planning.optimizer import (
    test_exploring,
    test_fair_share,
    test_growth,
    test_slow_stocks,
)


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
            learning,
            "_credible_seconds",
            lambda profile, measured: profile.epoch_seconds,
            test_wrong_reports.test_nothings_tenfolds_and_tenths_in_any_order,
            id="a report may say any time that is short enough",
        ),
        pytest.param(
            learning,
            "CREDIBLE",
            0.0,
            test_wrong_reports.test_clocks_that_jump_within_each_epoch,
            id="a clock that went back is believed",
        ),
        pytest.param(
            learning,
            "SLACK_SECONDS",
            1e9,
            test_wrong_reports.test_clocks_that_jump_within_each_epoch,
            id="a clock that went forward is believed",
        ),
        pytest.param(
            learning,
            "NEWEST",
            1,
            test_wrong_reports.test_clocks_that_jump_within_one_of_four_epochs,
            id="the newest epoch is believed alone",
        ),
        pytest.param(
            learning,
            "_middle",
            statistics.fmean,
            test_wrong_reports.test_one_of_four_epochs_may_have_any_length,
            id="one slow epoch counts as much as three others",
        ),
        pytest.param(
            learning,
            "_middle",
            statistics.median,
            test_wrong_reports.test_tenfolds_and_tenths_in_turn_without_any_true_epoch,
            id="ten times as long counts for more than a tenth",
        ),
        pytest.param(
            learning,
            "FAR",
            1e9,
            test_wrong_reports.test_a_lasting_change_is_followed_within_four_epochs,
            id="a lasting change is followed slowly",
        ),
        pytest.param(
            learning,
            "_scaled",
            lambda measured, drift: measured,
            partial(
                test_learning.test_what_was_measured_elsewhere_follows_the_level_of_the_job, 3.0
            ),
            id="what was measured elsewhere stays as it was",
        ),
        pytest.param(
            learning,
            "WARM_UP_SECONDS_MAX",
            0.0,
            test_learning.test_what_changes_in_the_first_minutes_of_a_run_is_no_drift,
            id="a run that has warmed up was drifting",
        ),
        pytest.param(
            learning,
            "warm_up_shown",
            lambda before, after, run, now: 0.0,
            test_learning.test_nothing_is_learned_from_the_warm_up_of_a_kind_that_has_one,
            id="the first minutes of all runs are believed",
        ),
        pytest.param(
            baseline,
            "SD_USUAL",
            baseline.SD_OF_KIND,
            test_poison.test_what_a_kind_of_two_programs_makes_expect_is_as_doubtful_as_they_differ,
            id="the jobs of a kind are thought alike, whatever they show",
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
        pytest.param(
            measurements,
            "_script",
            lambda kind, memo: memo.scripts.setdefault(kind, len(memo.scripts)),
            test_growth.test_or_what_another_batch_size_of_its_script_was_measured_on,
            id="each batch size climbs all steps by itself",
        ),
        pytest.param(
            offer,
            "lacking",
            lambda age, done, seconds, part: np.zeros(len(age)),
            test_fair_share.test_the_longest_job_weighs_more_the_further_it_is_behind_fair_sharing,
            id="a job behind fair sharing weighs no more",
        ),
        pytest.param(
            offer,
            "fair_parts",
            lambda wants, gpus: np.ones(len(wants)),
            test_fair_share.test_the_longest_job_weighs_more_the_further_it_is_behind_fair_sharing,
            id="fair sharing gives each job all that it wants",
        ),
        pytest.param(
            slow_gpus,
            "ALONE_MAX",
            9.0,
            test_slow_gpus.test_a_job_that_lies_about_one_gpu_moves_no_factor_by_more_than_a_bound,
            id="one job makes a GPU slow for all",
        ),
        pytest.param(
            slow_gpus,
            "HALF_LIFE_SECONDS",
            1e12,
            test_slow_gpus.test_a_factor_fades_so_that_the_gpu_is_measured_again,
            id="a slow GPU is never tried again",
        ),
        pytest.param(
            slow_gpus,
            "_ROUNDS",
            1,
            test_slow_gpus.test_a_slow_gpu_explains_its_gangs_and_not_the_other_way,
            id="all members of a slow gang are slow",
        ),
        pytest.param(
            slow_gpus,
            "UNLIKE_MAX",
            1.0,
            test_slow_gpus.test_a_family_whose_jobs_are_not_alike_says_nothing_of_gpus,
            id="a family of several programs makes GPUs slow",
        ),
        pytest.param(
            slow_gpus,
            "WARM_UP_SECONDS_MAX",
            0.0,
            test_slow_gpus.test_what_was_measured_for_a_few_minutes_says_nothing_of_gpus,
            id="a warm-up makes GPUs slow",
        ),
        pytest.param(
            grid,
            "FASTEST",
            0,
            test_slow_gpus.test_before_a_gpu_is_known_to_be_slow_what_was_faster_elsewhere_counts,
            id="one slow place poisons what a job is expected to do everywhere",
        ),
        pytest.param(
            slow_stocks,
            "_starves",
            lambda jobs, view, apart: False,
            test_slow_stocks.test_a_type_is_not_taken_apart_if_a_job_could_then_never_start,
            id="a gang waits for ever because some GPUs are slow",
        ),
        pytest.param(
            slow_stocks,
            "DIFFER",
            1.0,
            test_slow_stocks.test_a_gang_that_runs_is_not_taken_apart_because_of_a_little,
            id="a gang is moved because one GPU is a little slower",
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
