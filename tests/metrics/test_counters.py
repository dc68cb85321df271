"""Counts under the names of Prometheus."""

from __future__ import annotations

from scheduler.core import counts
from scheduler.core.counts import BOUNDS, EPOCH_SECONDS, SUM
from scheduler.metrics.counters import COUNTERS, HISTOGRAMS, buckets, of_counter


def test_what_has_never_happened_is_shown_as_zero() -> None:
    assert of_counter(counts.PREEMPTIONS, {}) == dict.fromkeys(counts.STOPPED_FOR, 0)
    assert of_counter(counts.LOST_WORK_SECONDS, {}) == {"": 0}


def test_a_kind_of_an_older_version_is_still_shown() -> None:
    shown = of_counter(counts.FACTS, {(counts.FACTS, "job_dreamt"): 3, (counts.DRIFT, "x"): 1})
    assert (shown["job_dreamt"], shown["run_ended"]) == (3, 0)
    assert "x" not in shown


def test_buckets_are_cumulated_and_the_sum_is_apart() -> None:
    counted = {(EPOCH_SECONDS, label): 1.0 for label in ("1", "7", "300", "inf")}
    found, total = buckets(EPOCH_SECONDS, {**counted, (EPOCH_SECONDS, SUM): 9e9})
    assert total == 9e9
    assert len(found) == len(BOUNDS[EPOCH_SECONDS]) + 1
    told = dict(found)
    bounds = ("1.0", "5.0", "15.0", "300.0", "86400.0", "+Inf")
    assert [told[bound] for bound in bounds] == [1, 1, 2, 3, 3, 4]


def test_every_count_has_a_name() -> None:
    assert {*COUNTERS, *HISTOGRAMS} >= {*BOUNDS, counts.FACTS, counts.FAILURES, counts.DRIFT}
