"""What a finished epoch teaches, and what it must not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from scheduler.core.learning import (
    KIND_SITUATIONS_MAX,
    SITUATIONS_MAX,
    kind_of,
    update_kind,
    usage_now,
)
from scheduler.core.memory import known_mib
from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Job,
    JobFamily,
    JobId,
    Measured,
    PodState,
    Profile,
    Reported,
    Used,
    View,
)
from tests.builders import (
    NOW,
    ScriptedCluster,
    after,
    epoch_ended,
    job,
    node,
    observation,
    pod,
    share,
    spec,
    view,
    with_run,
)

A, B = JobId("a"), JobId("b")
PLACE = "pretendedx1"


def running(name: str = "a", memory_mib: int = 4000, max_epochs: int = 10) -> Job:
    waiting = job(name, memory_mib, max_epochs=max_epochs)
    return with_run(waiting, share(memory_mib), placement=PLACE, epoch_started=-1)


def epochs(before: View, *seconds: float, of: JobId = A, first: int = 1) -> View:
    """One after the other, each started when the previous one ended; `first`: the number of the
    first."""
    now, seen = before.at or NOW, before
    seen = after(seen, EpochStarted(of, 1, first - 1), now=now)
    for number, took in enumerate(seconds, first):
        now += max(took, 1.0) if math.isfinite(took) else 1.0
        news: Sequence[Event] = (
            EpochEnded(Profile(of, 1, number, epoch_seconds=took, gpu_util=0.5)),
            EpochStarted(of, 1, number),
        )
        seen = after(seen, *news, now=now)
    return seen


def means(job: Job) -> tuple[Measured, ...]:
    """What it has shown, rounded, without the newest epochs themselves."""
    return tuple(
        replace(measured, seconds=round(measured.seconds, 6), newest=())
        for measured in anywhere(job.measured)
    )


def anywhere(measured: Sequence[Measured]) -> tuple[Measured, ...]:
    """Without where and when it was measured."""
    return tuple(replace(one, where=(), at=0.0) for one in measured)


def test_the_first_epoch_counts_only_until_there_is_a_second() -> None:
    once = epochs(view(running()), 90.0)
    assert anywhere(once.jobs[A].measured) == (Measured(PLACE, (), 90.0, 0),)
    twice = epochs(view(running()), 90.0, 60.0)
    assert anywhere(twice.jobs[A].measured) == (Measured(PLACE, (), 60.0, 1, newest=(60.0,)),)


@pytest.mark.parametrize("first", [4, 5], ids=["as it was told", "from a newer checkpoint"])
def test_the_first_epoch_of_a_restarted_run_is_not_a_normal_one(first: int) -> None:
    """Its checkpoint may have an epoch whose report was lost when the run before it died."""
    known = Measured(PLACE, (), 60.0, 2)
    waits = job("a", 4000, max_epochs=10, epochs_done=3, measured=(known,))
    again = view(with_run(waits, share(4000), placement=PLACE, epoch_started=2))
    assert epochs(again, 90.0, first=first).jobs[A].measured == (known,)
    then = epochs(again, 90.0, 60.0, first=first).jobs[A]
    assert means(then) == (replace(known, epochs=3),)


def test_few_epochs_count_by_their_middle() -> None:
    two = epochs(view(running()), 90.0, 60.0, 80.0).jobs[A]
    assert means(two) == (Measured(PLACE, (), round(math.sqrt(60.0 * 80.0), 6), 2),)
    assert two.gpu_util == 0.5
    three = epochs(view(running()), 90.0, 60.0, 80.0, 66.0).jobs[A]
    assert means(three) == (Measured(PLACE, (), 66.0, 3),)


def test_a_mean_of_many_epochs_forgets_slowly() -> None:
    seen = epochs(view(running(max_epochs=99)), 90.0, *(60.0, 62.0) * 10)
    before = seen.jobs[A].measured[0].seconds
    assert before == pytest.approx(61.0, rel=0.01)
    seen = epochs(seen, *(63.0,) * 4, first=22)
    assert 61.3 < seen.jobs[A].measured[0].seconds < 62.7


def test_one_epoch_that_was_slow_is_hardly_seen() -> None:
    known = epochs(view(running()), 90.0, *(60.0,) * 4)
    slow = epochs(known, 600.0, 60.0, first=6).jobs[A]
    assert means(slow) == (Measured(PLACE, (), 60.0, 6),)


@pytest.mark.parametrize("times", [6.0, 1 / 3])
def test_a_lasting_change_is_followed_within_four_epochs(times: float) -> None:
    known = epochs(view(running(max_epochs=99)), 90.0, *(60.0,) * 20)
    changed = epochs(known, *(60.0 * times,) * 3, first=22).jobs[A]
    assert changed.measured[0].seconds == pytest.approx(60.0 * times)


def test_a_row_from_before_newest_epochs_were_kept_counts_as_they_would() -> None:
    old = replace(running(), measured=(Measured(PLACE, (), 60.0, 8),))
    seen = epochs(view(old), 90.0, 600.0).jobs[A]
    assert means(seen) == (Measured(PLACE, (), 60.0, 9),)


def test_an_epoch_reported_as_much_shorter_than_we_measured_took_what_we_measured() -> None:
    known = epochs(view(running()), 90.0, 60.0)
    told = EpochEnded(Profile(A, 1, 3, epoch_seconds=6.0))
    assert after(known, told, now=known.at + 60.0).jobs[A].measured[0].newest == (60.0, 60.0)
    short = EpochEnded(Profile(A, 1, 3, epoch_seconds=1.0))
    soon = after(known, short, now=known.at + 6.0)
    assert soon.jobs[A].measured[0].newest == (60.0, 1.0), "the message may have taken as long"


ELSEWHERE = Measured("pretendedx2", (), 40.0, 5)


def drifted(times: float, shown: int = 4, age: float = 0.0) -> Job:
    """It ran for `age` seconds, then `shown` epochs of 60 s, and then epochs this many times as
    long."""
    old = replace(running(max_epochs=99), measured=(ELSEWHERE,))
    assert old.run
    begun = replace(old, run=replace(old.run, started_at=NOW - age))
    seen = epochs(view(begun), 90.0, *(60.0,) * shown)
    return epochs(seen, *(60.0 * times,) * 3, first=shown + 2).jobs[A]


@pytest.mark.parametrize("times", [3.0, 1 / 3])
def test_what_was_measured_elsewhere_follows_the_level_of_the_job(times: float) -> None:
    elsewhere, here = means(drifted(times, age=1000.0))
    assert elsewhere == replace(ELSEWHERE, seconds=round(40.0 * times, 6))
    assert here.seconds == pytest.approx(60.0 * times)


def test_what_changes_in_the_first_minutes_of_a_run_is_no_drift() -> None:
    assert means(drifted(1 / 6))[0] == ELSEWHERE


def warming(slow: int, times: float = 6.0, first: Job | None = None) -> View:
    """The view after a run whose first epochs were slow, and four that were not."""
    start = first or running(max_epochs=99)
    assert start.run
    start = replace(start, run=replace(start.run, started_at=NOW - 20.0))
    return epochs(view(start), *(60.0 * times,) * slow, *(60.0,) * 4)


def warm_up_seconds(seen: View) -> float:
    return sum(kind.warm_up_seconds for kind in seen.kinds.values())


@pytest.mark.parametrize(("slow", "times"), [(1, 1.5), (1, 6.0), (4, 2.0), (3, 2.5)])
def test_a_run_that_becomes_faster_in_its_first_minutes_was_warming_up(
    slow: int, times: float
) -> None:
    seen = warming(slow, times)
    slow_until = 20.0 + slow * 60.0 * times
    assert slow_until <= warm_up_seconds(seen) <= slow_until + 120.0
    assert seen.jobs[A].measured[0].seconds == pytest.approx(60.0)


def test_a_warm_up_is_no_longer_than_ten_minutes() -> None:
    assert warm_up_seconds(warming(4)) == 0.0, "that was drift"
    assert warm_up_seconds(warming(1, 30.0)) == 600.0, "a first epoch is slow for both reasons"


def test_a_run_that_is_as_fast_at_first_has_no_warm_up() -> None:
    assert warm_up_seconds(warming(4, 1.1)) == 0.0


def test_a_run_that_is_faster_than_the_one_before_it_has_not_warmed_up() -> None:
    slow_node = Measured(PLACE, (), 300.0, 9)
    start = replace(running(max_epochs=99), measured=(slow_node,))
    assert warm_up_seconds(warming(1, 1.0, start)) == 0.0


def test_nothing_is_learned_from_the_warm_up_of_a_kind_that_has_one() -> None:
    known = warming(1, 6.0)
    shown = replace(known.jobs[A], attempts=0)
    again = with_run(shown, share(4000), placement="pretendedx4", epoch_started=4)
    assert again.run
    again = replace(again, run=replace(again.run, started_at=known.at))
    slow = epochs(replace(known, jobs={A: again}), *(90.0,) * 5, first=6)
    assert {m.placement for m in slow.jobs[A].measured} == {PLACE}
    later = epochs(slow, 15.0, 15.0, first=11)
    assert means(later.jobs[A])[-1] == Measured("pretendedx4", (), 15.0, 2)
    stranger = epochs(replace(known, jobs={A: running(max_epochs=99)}), 90.0)
    assert means(stranger.jobs[A]) == (Measured(PLACE, (), 90.0, 0),), "better than nothing"


def test_a_level_that_few_epochs_have_shown_has_not_drifted() -> None:
    assert means(drifted(1 / 3, shown=1, age=1000.0))[0].seconds > 0.9 * ELSEWHERE.seconds


def test_a_run_that_is_slower_than_the_one_before_it_has_not_drifted() -> None:
    """Its node may be slow."""
    here = Measured(PLACE, (), 60.0, 9, newest=(60.0,) * 4)
    old = replace(running(max_epochs=99), measured=(ELSEWHERE, here))
    assert old.run
    old = replace(old, run=replace(old.run, started_at=NOW - 1000.0))
    seen = epochs(view(old), *(300.0,) * 6).jobs[A]
    assert means(seen)[0] == ELSEWHERE
    assert seen.measured[1].seconds == pytest.approx(300.0)


@pytest.mark.parametrize("seconds", [0.0, -5.0, math.nan, math.inf, 1e6])
def test_an_epoch_that_cannot_have_taken_so_long_teaches_nothing(seconds: float) -> None:
    before = epochs(view(running()), 90.0, 60.0)
    told = EpochEnded(Profile(A, 1, 3, epoch_seconds=seconds))
    seen = after(before, told, now=before.at + 60.0)
    assert seen.jobs[A].measured == before.jobs[A].measured
    assert seen.jobs[A].epochs_done == 3, "the epoch itself counts"
    assert seen.jobs[A].profiles_ignored == 1
    again = after(seen, told, now=before.at + 61.0)
    assert again.jobs[A].profiles_ignored == 1, "nor is it counted twice"


def test_memory_is_known_by_how_many_gpus_there_are() -> None:
    four = with_run(job("a", 2000, gpus=(1, 4)), *(share(6000, gpu) for gpu in range(4)))
    seen = after(view(four, nodes=[node(4)]), epoch_ended(four, 1, 3000))
    seen = after(seen, Reported(A, 1, 3500), Reported(A, 1, 0), Reported(A, 1, 3200))
    assert (seen.jobs[A].peaks, seen.jobs[A].memory_mib) == (((4, 3500),), 3500)
    one = with_run(replace(seen.jobs[A], run=None), share(6000))
    seen = after(view(one, nodes=[node(4)]), epoch_ended(one, 2, 9000), epoch_ended(one, 1, 9500))
    assert (seen.jobs[A].peaks, seen.jobs[A].memory_mib) == (((1, 9500), (4, 3500)), 9500)


def test_a_job_that_ran_out_of_memory_needs_more_whatever_was_measured() -> None:
    two = with_run(job("a", 2000, gpus=2), share(4000), share(4000, 1), phase_at=NOW - 9)
    died = pod(two, PodState.FAILED, exit_code=1, reason="out_of_memory")
    seen = after(view(two, nodes=[node(2)]), observation(died, nodes=[node(2)])).jobs[A]
    assert (seen.peaks, seen.memory_mib) == ((), 6000)
    again = with_run(seen, share(6000), share(6000, 1))
    seen = after(view(again, nodes=[node(2)]), epoch_ended(again, 1, 5000)).jobs[A]
    assert (seen.peaks, known_mib(seen, 2)) == (((2, 5000),), 6000)


def test_what_an_older_run_reports_is_not_known_of_as_many_gpus() -> None:
    one = with_run(replace(job("a", 2000), attempts=1), share(6000))
    seen = after(view(one), epoch_ended(one, 1, 9000, attempt=1))
    assert (seen.jobs[A].peaks, seen.jobs[A].memory_mib) == ((), 9000)


def test_an_epoch_across_a_change_of_neighbours_teaches_nothing() -> None:
    alone = epochs(view(running()), 90.0, 60.0)
    together = view(alone.jobs[A], replace(running("b")))
    together = replace(together, disturbed=alone.disturbed, at=alone.at)
    entered = after(together, EpochStarted(B, 1, 0), now=alone.at + 30.0)
    crossed = after(entered, EpochEnded(Profile(A, 1, 3, epoch_seconds=75.0)), now=alone.at + 75.0)
    assert crossed.jobs[A].measured == alone.jobs[A].measured
    beside = after(crossed, EpochStarted(A, 1, 3), now=alone.at + 76.0)
    beside = after(beside, EpochEnded(Profile(A, 1, 4, epoch_seconds=85.0)), now=alone.at + 161.0)
    assert means(beside.jobs[A])[-1] == Measured(PLACE, (B,), 85.0, 1)


def test_a_first_epoch_beside_another_job_calls_for_a_plan_and_so_does_a_second() -> None:
    seen = view(running(), running("b"))
    stale = []
    for number in (1, 2, 3):
        seen = epochs(replace(seen, stale=False), 85.0, first=number)
        stale.append(seen.stale)
    assert seen.jobs[A].measured[-1].beside == (B,)
    assert stale == [True, True, False]


def test_a_report_that_comes_after_the_next_epoch_began_still_teaches() -> None:
    before = epochs(view(running()), 90.0, 60.0)
    began = after(before, EpochStarted(A, 1, 3), now=before.at + 60.0)
    told = EpochEnded(Profile(A, 1, 3, epoch_seconds=58.0))
    assert after(began, told, now=before.at + 61.0).jobs[A].measured[0].epochs == 2


def test_a_report_heard_twice_counts_once() -> None:
    before = epochs(view(running()), 90.0, 60.0)
    told = EpochEnded(Profile(A, 1, 2, epoch_seconds=60.0))
    assert after(before, told, now=before.at + 1.0).jobs[A].measured == before.jobs[A].measured


def test_only_one_rank_is_measured_whichever_reports_first() -> None:
    before = epochs(view(running()), 90.0, 60.0)
    ended = [EpochEnded(Profile(A, 1, 3, rank=rank, epoch_seconds=60.0)) for rank in (0, 1)]
    other = after(before, ended[1], now=before.at + 60.0)
    assert other.jobs[A].measured == before.jobs[A].measured
    assert other.jobs[A].epochs_done == 3
    learned = after(other, ended[0], now=before.at + 61.0).jobs[A]
    assert means(learned) == (Measured(PLACE, (), 60.0, 2),)
    assert means(after(before, *ended, now=before.at + 60.0).jobs[A]) == means(learned)


def test_an_image_that_does_not_ask_is_measured_from_its_second_epoch() -> None:
    seen = view(running())
    for number in (1, 2, 3):
        told = EpochEnded(Profile(A, 1, number, epoch_seconds=50.0))
        seen = after(seen, told, now=NOW + 50.0 * number)
    assert means(seen.jobs[A]) == (Measured(PLACE, (), 50.0, 2),)


def test_a_restart_takes_from_the_launch_to_the_first_epoch() -> None:
    launched = with_run(job("a", 4000), share(4000), epoch_started=-1, started_at=NOW)
    seen = after(view(launched), EpochStarted(A, 1, 0), now=NOW + 25.0)
    assert seen.jobs[A].restart_seconds == 25.0


def test_situations_longest_not_met_are_forgotten() -> None:
    many = tuple(Measured(f"t4x{n}", (), 60.0, 1) for n in range(1, SITUATIONS_MAX + 1))
    seen = epochs(view(replace(running(), measured=many)), 90.0)
    assert len(seen.jobs[A].measured) == SITUATIONS_MAX
    assert seen.jobs[A].measured[-1].placement == PLACE
    assert seen.jobs[A].measured[0].placement == "t4x2"


def test_what_a_job_has_shown_outlives_it_as_its_kinds() -> None:
    town = ScriptedCluster(node(1))
    town.look()
    town.submit("a", max_epochs=3, project="mnist", training_set_size=10)
    for _ in range(3):
        town.now += 59.0
        run = town.run("a")
        number = town.view.jobs[A].epochs_done + 1
        town.step(EpochEnded(Profile(A, run.attempt, number, epoch_seconds=50.0)))
        if number < 3:
            town.step(EpochStarted(A, run.attempt, number))
    town.exit("a")
    (kind,) = town.view.kinds.values()
    assert (kind.jobs, kind.epochs) == (1, 3.0)
    assert anywhere(kind.measured) == (Measured(PLACE, (), 5.0, 2),), "for each sample"
    (used,) = town.view.used.values()
    assert used.gpu_seconds > 100.0


def test_a_kind_is_project_image_script_and_batch_size() -> None:
    one = replace(spec("a"), project="p", image="i", command=("python", "train.py"), batch_size=8)
    assert kind_of(one) == "p/i/train.py/8"
    assert kind_of(replace(one, script_path="/custom/other.py")) == "p/i//custom/other.py/8"


def test_a_kind_forgets_too_and_knows_neighbours_by_their_kind() -> None:
    kind = JobFamily()
    for number in range(KIND_SITUATIONS_MAX + 5):
        shown = replace(job("a"), measured=(Measured(f"t4x{number}", (B,), 60.0, 2),))
        kind = update_kind(kind, shown, {B: "other"})
    assert len(kind.measured) == KIND_SITUATIONS_MAX
    assert kind.measured[-1].beside == ("other",)
    stranger = replace(job("a"), measured=(Measured("t4x1", (JobId("gone"),), 60.0, 2),))
    assert update_kind(JobFamily(), stranger, {}).measured == ()


def test_gpu_time_that_was_used_counts_half_after_a_half_life() -> None:
    assert usage_now(Used(100.0, NOW), NOW + 3600.0, 3600.0) == pytest.approx(50.0)
