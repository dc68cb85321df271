"""Seconds per epoch: measured, fitted, and expected of a job that has shown nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.learning import kind_of
from scheduler.core.memory import placement
from scheduler.core.model import Job, JobFamily, JobId, JobSpec, Measured, Placement
from scheduler.estimates.measurements import GONE_MAX, Memo, read
from scheduler.estimates.speed import MARGIN, Speeds, estimate, uncertainty

COUNTS = (1, 2, 4, 8)
T4 = [Placement("t4", count) for count in COUNTS]
Shown = tuple[str, float]  # a placement, and the seconds of an epoch there


def job(
    name: str,
    *measured: Measured | Shown,
    kind: str = "",
    size: int = 1000,
    max_epochs: int = 10,
    gpu_util: float = 0.0,
    **fields: float,
) -> Job:
    spec = JobSpec(
        name=name,
        user="ann",
        project=kind or name,
        training_set_size=size,
        hours_estimate=fields.get("hours", 0.0),
        gpus_min=int(fields.get("gpus_min", 1)),
    )
    shown = (m if isinstance(m, Measured) else Measured(m[0], (), m[1], 3) for m in measured)
    found = tuple(shown)
    return Job(JobId(name), spec, 0.0, max_epochs=max_epochs, measured=found, gpu_util=gpu_util)


def law(seconds: float, serial: float, count: int) -> float:
    return seconds * (1 / count + serial * (count - 1) / count)


def history(serials: Sequence[float], kind: str = "", type: str = "t4") -> list[Job]:
    """Jobs that have run on all counts, each with its own law."""
    return [
        job(
            f"past-{kind}-{number}",
            *((f"{type}x{n}", law(50.0 * (number + 1), serial, n)) for n in COUNTS),
            kind=kind,
        )
        for number, serial in enumerate(serials)
    ]


def test_a_configuration_is_named_as_a_placement_is() -> None:
    assert str(Placement("t4", 2)) == "t4x2"
    assert str(Placement("t4", 8, 2)) == "t4x8/2"
    assert str(Placement("cpu", 0)) == placement((), {}) == "cpu"


def test_what_was_measured_alone_is_kept_as_it_is() -> None:
    shown = job("a", ("t4x1", 100.0), ("t4x4", 90.0), ("t4x8/2", 55.0), ("a100x2", 7.0))
    configs = [Placement("t4", 1), Placement("t4", 4), Placement("t4", 8, 2), Placement("a100", 2)]
    assert estimate([shown], {}, configs)[0].tolist() == [100.0, 90.0, 55.0, 7.0]


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 1.0])
def test_a_job_that_was_measured_on_1_and_4_gpus_is_known_on_2_and_8(serial: float) -> None:
    shown = job("a", *((f"t4x{n}", law(100.0, serial, n)) for n in (1, 4)))
    found = estimate([shown], {}, T4)[0]
    assert found == pytest.approx([law(100.0, serial, n) for n in COUNTS], rel=0.05)


def test_1_and_4_gpus_tell_more_than_1_and_2() -> None:
    noise = np.random.default_rng(1)

    def error(*counts: int) -> float:
        jobs = [
            job(
                f"{counts}-{number}",
                *((f"t4x{n}", law(100.0, 0.3, n) * noise.lognormal(0, 0.05)) for n in counts),
            )
            for number in range(60)
        ]
        alone = [estimate([one], {}, [Placement("t4", 8)])[0, 0] for one in jobs]
        return float(np.abs(np.array(alone) / law(100.0, 0.3, 8) - 1).mean())

    assert error(1, 4) < 0.7 * error(1, 2)


def test_its_kind_comes_before_the_others_and_they_before_the_guess() -> None:
    one = job("new", ("t4x1", 100.0), kind="k")
    alike, others = history([0.8] * 4, "k"), history([0.05] * 8)
    guess = estimate([one], {}, T4)[0, 3]
    among_others = estimate([one, *others], {}, T4)[0, 3]
    among_both = estimate([one, *others, *alike], {}, T4)[0, 3]
    assert among_others < 0.7 * guess
    assert among_others == pytest.approx(law(100.0, 0.05, 8), rel=0.2)
    assert among_both == pytest.approx(law(100.0, 0.8, 8), rel=0.2)


def test_the_others_on_one_type_of_gpu_say_nothing_of_another() -> None:
    one = job("new", ("a100x1", 100.0))
    a100 = [Placement("a100", count) for count in COUNTS]
    among = estimate([one, *history([0.05] * 8)], {}, a100)
    assert among[0] == pytest.approx(estimate([one], {}, a100)[0])


def test_what_a_job_shows_itself_outweighs_its_kind() -> None:
    one = job("new", *((f"t4x{n}", law(100.0, 0.1, n)) for n in (1, 4)), kind="k")
    found = estimate([one, *history([0.8] * 8, "k")], {}, T4)[0, 3]
    own, alike = law(100.0, 0.1, 8), law(100.0, 0.8, 8)
    assert found - own < 0.1 * (alike - own)


def test_a_job_that_was_not_measured_takes_as_long_as_its_kind_per_sample() -> None:
    waiting = job("new", kind="k", size=3000)
    past = job("past", ("t4x1", 100.0), ("t4x4", 40.0), kind="k", size=1000)
    assert estimate([waiting, past], {}, T4)[0, 0] == pytest.approx(300.0, rel=0.01)


def test_kinds_that_are_over_count_like_live_ones() -> None:
    waiting = job("new", kind="k", size=3000)
    shown = tuple(Measured(f"t4x{n}", (), law(0.1, 0.6, n), 3) for n in (1, 4))
    found = estimate([waiting], {kind_of(waiting.spec): JobFamily(1, shown)}, T4)[0]
    assert found == pytest.approx([law(300.0, 0.6, n) for n in COUNTS], rel=0.05)


def test_the_ratio_between_two_types_is_learned_from_jobs_measured_on_both() -> None:
    both = [job(f"b{n}", ("t4x1", 100.0 * n), ("a100x1", 20.0 * n)) for n in range(1, 6)]
    one = job("one", ("t4x1", 60.0))
    assert estimate([one, *both], {}, [Placement("a100", 1)])[0, 0] == pytest.approx(12.0, rel=0.05)
    assert estimate([one], {}, [Placement("a100", 1)])[0, 0] == pytest.approx(60.0, rel=0.05)


def test_a_kind_may_have_a_ratio_of_its_own() -> None:
    both = [job(f"b{n}", ("t4x1", 100.0 * n), ("a100x1", 20.0 * n)) for n in range(1, 6)]
    alike = [job(f"k{n}", ("t4x1", 100.0), ("a100x1", 100.0), kind="k") for n in range(3)]
    one = job("one", ("t4x1", 60.0), kind="k")
    found = estimate([one, *both, *alike], {}, [Placement("a100", 1)])[0, 0]
    assert found == pytest.approx(60.0, rel=0.2)


def test_before_anything_is_measured_the_estimate_counts_and_else_what_is_usual() -> None:
    said = job("said", hours=5.0, max_epochs=10)
    on_four = job("four", hours=5.0, max_epochs=10, gpus_min=4)
    unknown, known = job("unknown"), [job(f"k{n}", ("t4x1", 70.0 + n)) for n in range(3)]
    found = estimate([said, on_four, unknown], {}, T4)
    assert found[0, 0] == pytest.approx(1800.0, rel=0.01)
    assert found[1, 2] == pytest.approx(1800.0, rel=0.01)
    assert found[2, 0] == pytest.approx(600.0, rel=0.01)
    assert estimate([unknown, *known], {}, T4)[0, 0] == pytest.approx(71.0, rel=0.01)


def test_epochs_beside_others_count_only_as_long_as_nothing_else_is_known() -> None:
    slowed = Measured("t4x1", (JobId("b"),), 130.0, 5)
    busy = job("b", gpu_util=1.0)
    only = job("a", slowed, gpu_util=1.0)
    assert estimate([only, busy], {}, T4)[0, 0] == pytest.approx(130.0 / 1.38, rel=0.01)
    alone = job("a", slowed, ("t4x1", 100.0), gpu_util=1.0)
    assert estimate([alone, busy], {}, T4)[0, 0] == 100.0


def test_a_first_epoch_gives_way_to_what_its_kind_has_shown() -> None:
    warm_up = job("a", Measured("t4x1", (), 200.0, 0), kind="k")
    alike = [job(f"k{n}", ("t4x1", 100.0), kind="k") for n in range(5)]
    assert estimate([warm_up], {}, T4)[0, 0] == pytest.approx(200.0, rel=0.05)
    assert 100.0 < estimate([warm_up, *alike], {}, T4)[0, 0] < 150.0


def test_doubt_falls_with_what_is_known() -> None:
    measured = job("m", ("t4x1", 100.0), ("t4x4", 40.0), kind="k")
    once, kin, none = job("o", ("t4x1", 100.0)), job("n", kind="k"), job("z")
    doubt = uncertainty([measured, once, kin, none], {}, T4)
    assert doubt[0, 0] < doubt[0, 1] < doubt[1, 1] < doubt[3, 1]
    assert doubt[0, 0] < doubt[2, 0] < doubt[3, 0]
    assert (np.diff(doubt[1]) > 0).all()


def test_eight_in_ten_lie_within_what_the_doubt_allows() -> None:
    draw = np.random.default_rng(3)
    serials = draw.uniform(0.05, 0.6, 200)
    jobs = [
        job(
            f"{number}",
            *((f"t4x{n}", law(100.0, serial, n) * draw.lognormal(0, 0.03)) for n in (1, 4)),
        )
        for number, serial in enumerate(serials)
    ]
    found = estimate(jobs, {}, [Placement("t4", 8)])[:, 0]
    doubt = uncertainty(jobs, {}, [Placement("t4", 8)])[:, 0]
    true = np.array([law(100.0, serial, 8) for serial in serials])
    assert (np.abs(np.log(true / found)) < 1.28 * doubt).mean() > 0.75


def test_a_memo_changes_nothing_but_the_time_it_takes() -> None:
    memo, jobs = Memo(), [*history([0.1, 0.4], "k"), *history([0.3, 0.2], "", "a100")]
    configs = [*T4, Placement("a100", 2)]
    beside = Measured("v100x1", (jobs[1].id, JobId("gone")), 30.0, 2)
    met = job("met", beside)
    Speeds([met, *jobs], {"x": JobFamily(1, (Measured("zx1", (JobId("y"),), 1.0, 2),))}, memo)
    changed = [replace(jobs[0], measured=jobs[1].measured), *reversed(jobs[1:])]
    with_memo, without = Speeds(changed, {}, memo), Speeds(changed, {})
    assert (with_memo.estimate(configs) == without.estimate(configs)).all()
    assert (with_memo.uncertainty(configs) == without.uncertainty(configs)).all()


def test_a_memo_forgets_jobs_that_are_long_gone() -> None:
    memo, jobs = Memo(), history([0.1, 0.4])
    for number in range(2 * GONE_MAX):
        passing = job(f"passing-{number}", ("t4x1", 5.0))
        read([passing, *jobs], {}, memo)
    assert len(memo.jobs) < 1.5 * GONE_MAX
    found = Speeds([passing, *jobs], {}, memo).estimate(T4)
    assert (found == estimate([passing, *jobs], {}, T4)).all()


def test_placements_of_several_types_and_nonsense_teach_nothing() -> None:
    odd = ["a100x1+t4x2", "t4x0", "t4", "", "x", "t4x2/3", "t4x99999999999"]
    shown = job("a", *((name, 5.0) for name in odd))
    assert (estimate([shown], {}, T4) == estimate([job("a")], {}, T4)).all()


PLACEMENTS = st.sampled_from(["t4x1", "t4x2", "t4x4", "t4x8/2", "a100x1", "a100x16/4", "cpu", "?"])
MEASURED = st.builds(
    Measured,
    placement=PLACEMENTS | st.text(max_size=5),
    beside=st.lists(st.sampled_from([JobId("0"), JobId("1"), JobId("gone")]), max_size=2).map(
        tuple
    ),
    seconds=st.floats(),
    epochs=st.integers(min_value=-1, max_value=10**9),
)
JOBS = st.lists(st.tuples(st.lists(MEASURED, max_size=5), st.sampled_from("ab")), max_size=5)
KINDS = st.dictionaries(st.sampled_from("xy"), st.lists(MEASURED, max_size=3), max_size=2)


@settings(max_examples=100)
@given(JOBS, KINDS)
def test_whatever_was_measured_all_speeds_are_positive_and_finite(
    shown: list[tuple[list[Measured], str]], past: dict[str, list[Measured]]
) -> None:
    jobs = [job(str(number), *found, kind=kind) for number, (found, kind) in enumerate(shown)]
    kinds = {name: JobFamily(1, tuple(found)) for name, found in past.items()}
    configs = [
        *T4,
        Placement("t4", 8, 2),
        Placement("a100", 16, 4),
        Placement("new", 3),
        Placement("cpu", 0),
    ]
    speeds = Speeds(jobs, kinds)
    for values in (speeds.estimate(configs), speeds.uncertainty(configs)):
        assert np.isfinite(values).all()
        assert (values > 0).all()
    assert (Speeds(jobs, kinds).estimate(configs) == speeds.estimate(configs)).all()


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([1, 2, 4]), st.floats(1.0, 1e4), min_size=1))
def test_nothing_is_predicted_to_scale_better_than_perfectly(shown: dict[int, float]) -> None:
    found = estimate([job("a", *((f"t4x{n}", s) for n, s in shown.items()))], {}, T4)[0]
    for count, seconds in zip(COUNTS, found, strict=True):
        for fewer, measured in shown.items():
            if fewer < count and count not in shown:
                assert seconds * count * (1 + MARGIN) >= measured * fewer * 0.999
