"""The text of forecasts. (Their layout: test_views.py.)"""

from __future__ import annotations

import pytest

from scheduler.presentation import outlook
from scheduler.v1 import scheduler_pb2 as pb

NOW = 1000.0  # 00:16:40 UTC
ETA = pb.Eta(starts_low=NOW + 1800, starts_at=NOW + 2460, starts_high=NOW + 3300)


pytestmark = pytest.mark.usefixtures("in_utc")
STOPS = pb.JobName(name="c", stopping=True)


def names(*given: str) -> list[pb.JobName]:
    return [pb.JobName(name=name) for name in given]


@pytest.mark.parametrize(
    ("why", "eta", "words"),
    [
        (pb.Why(), pb.Eta(), ""),
        (pb.Why(until=names("a")), pb.Eta(), "when a ends"),
        (pb.Why(until=names("a", "b")), pb.Eta(), "when a and b end"),
        (pb.Why(until=names(*"abcdef")), pb.Eta(), "when a, b and 4 others end"),
        (pb.Why(until=[STOPS]), pb.Eta(), "when c releases its GPUs"),
        (pb.Why(until=[*names("a"), STOPS]), pb.Eta(), "when a and c release their GPUs"),
        (
            pb.Why(until=[pb.JobName(name="c", silent=True)]),
            pb.Eta(),
            "when c ends, but c does not report, without a deadline",
        ),
        (
            pb.Why(until=[pb.JobName(name="c", stopping=True, silent=True, deadline=NOW + 60)]),
            pb.Eta(),
            "when c releases its GPUs, at the latest at 00:17:40 (c does not report)",
        ),
        (pb.Why(ahead=names("a")), pb.Eta(), "after a"),
        (pb.Why(until=names("a"), ahead=names("b")), pb.Eta(), "when a ends, after b"),
        (pb.Why(instead="with --num_gpus 1"), pb.Eta(), "now with --num_gpus 1"),
        (pb.Why(), ETA, "in about 41 min (80 %: 30 to 55 min)"),
        (
            pb.Why(until=names("grid-3"), instead="with --num_gpus 1"),
            ETA,
            "when grid-3 ends, in about 41 min (80 %: 30 to 55 min), or now with --num_gpus 1",
        ),
    ],
)
def test_a_start_reads_as_a_sentence(why: pb.Why, eta: pb.Eta, words: str) -> None:
    assert outlook.start_forecast(pb.Job(why=why, eta=eta), NOW) == words


def test_the_end_of_a_silent_job_is_a_deadline() -> None:
    job = pb.Job(eta=pb.Eta(deadline=NOW + 60))
    told = "at the latest at 00:17:40, unless it reports again"
    assert outlook.end_forecast(job, NOW) == told


def test_a_start_that_is_due_is_not_announced() -> None:
    eta = pb.Eta(starts_low=NOW - 9, starts_at=NOW - 5, starts_high=NOW + 5)
    assert outlook.start_forecast(pb.Job(eta=eta), NOW) == ""


def test_a_unit_is_printed_once_if_both_bounds_have_it() -> None:
    def told(low: float, high: float) -> str:
        eta = pb.Eta(ends_low=NOW + low, ends_at=NOW + low, ends_high=NOW + high)
        return outlook.end_forecast(pb.Job(eta=eta), NOW).partition("%: ")[2].partition(")")[0]

    assert told(1800, 3300) == "30 to 55 min"
    assert told(30, 3300) == "30 s to 55 min"
    assert told(7200, 40_000) == "2 to 11 h"
    assert told(9000, 40_000) == "2 h 30 min to 11 h"
    assert told(-5, 8) == "0 to 8.0 s"
    assert told(0.01, 100) == "0 s to 2 min"


def test_an_unknown_job_is_named_by_its_id() -> None:
    why = pb.Why(until=[pb.JobName(id="0f3c0e8e-56d5-4a6a-9a3e-00000000beef")])
    assert outlook.start_forecast(pb.Job(why=why), NOW) == "when 0000beef ends"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            pb.NextTry(kind="next", gpus="t4x8/2", than="t4x4", speed=1.306, doubt=0.2),
            "t4x8/2, expected 31% (± 20%) faster than t4x4",
        ),
        (
            pb.NextTry(kind="next", gpus="a", than="b", speed=0.95, doubt=0.5, waits_for=1),
            "a, expected 5% (± 50%) slower than b; waits for 1 idle GPU",
        ),
        (
            pb.NextTry(kind="now", gpus="t4x8/2"),
            "t4x8/2, where it is now: no job of its kind was measured there",
        ),
        (
            pb.NextTry(kind="another", job=pb.JobName(name="grid-2")),
            "none now: grid-2 tries first, and this job learns from it",
        ),
        (pb.NextTry(kind="last_epochs"), "none in a job's last epochs"),
        (pb.NextTry(kind="unmeasured"), "none before an epoch of this job was measured"),
        (
            pb.NextTry(kind="known"),
            "none: its kind was measured on all GPUs that it may have",
        ),
        (
            pb.NextTry(kind="unpromising", gpus="t4x8/2", than="t4x4", speed=0.88),
            "none: no other GPUs are worth a restart (t4x8/2, measured 12% slower than t4x4)",
        ),
    ],
)
def test_what_is_tried_next_reads_as_a_sentence(found: pb.NextTry, words: str) -> None:
    assert outlook.next_try(found) == words
