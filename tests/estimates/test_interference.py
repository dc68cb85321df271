"""How much jobs slow each other down: expected, learned, measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.learning import kind_of
from scheduler.core.model import Job, JobFamily, JobId, JobSpec, Measured
from scheduler.estimates import interference
from scheduler.estimates.arrays import Floats
from scheduler.estimates.interference import SPEED_LEAST, Interference
from scheduler.estimates.measurements import Memo
from scheduler.estimates.speed import Speeds

ALONE = Measured("t4x1", (), 100.0, 5)


def job(name: str, *measured: Measured, kind: str = "", util: float = 0.0) -> Job:
    spec = JobSpec(name=name, user="ann", project=kind or name, training_set_size=1000)
    return Job(JobId(name), spec, 0.0, measured=measured, gpu_util=util)


def beside(name: str, speed: float, epochs: int = 3, on: str = "t4x1") -> Measured:
    """An epoch of a job that takes 100 s alone."""
    return Measured(on, (JobId(name),), 100.0 / speed, epochs)


def table(
    *jobs: Job,
    kinds: Mapping[str, JobFamily] | None = None,
    type: str = "t4",
    memo: Memo | None = None,
) -> Floats:
    """[job, job] all speeds."""
    everyone = np.arange(len(jobs))
    known = Speeds(jobs, kinds or {}, memo)
    return Interference(jobs, kinds or {}, type, known).speeds(everyone, everyone)


def test_before_anything_is_measured_utilisation_says_it() -> None:
    found = table(job("a", util=0.5), job("b", util=0.8), job("c"))
    assert found[0, 1] == found[1, 0] == pytest.approx(1 / (1 + 0.38 * 0.5 * 0.8))
    assert found[0, 2] == pytest.approx(1 / (1 + 0.38 * 0.5 * 0.75))


def test_a_job_without_a_utilisation_has_that_of_its_kind() -> None:
    new, past = job("new", kind="k"), job("past", kind="k", util=0.2)
    other = job("other", util=1.0)
    expected = pytest.approx(1 / (1 + 0.38 * 0.2))
    assert table(new, past, other)[0, 2] == expected
    assert (
        table(new, other, kinds={kind_of(new.spec): JobFamily(1, gpu_util=0.2)})[0, 1] == expected
    )


def test_a_pair_that_was_measured_is_as_it_was_measured() -> None:
    a, b = job("a", ALONE, beside("b", 0.35), util=0.9), job("b", ALONE, beside("a", 0.9), util=0.9)
    found = table(a, b)
    assert found[0, 1] == pytest.approx(0.35, abs=0.01)
    assert found[1, 0] == pytest.approx(0.9, abs=0.01)


def test_one_bad_neighbour_makes_others_expect_less_of_it_and_it_of_others() -> None:
    a, b = job("a", ALONE, beside("b", 0.3), util=0.5), job("b", util=0.5)
    c, before = job("c", util=0.5), 1 / (1 + 0.38 * 0.25)
    found = table(a, b, c)
    assert found[0, 1] < found[0, 2] < before  # a is sensitive
    assert found[2, 1] < before  # b presses
    assert found[2, 1] < found[2, 0]


def test_what_was_measured_on_one_type_says_nothing_of_another() -> None:
    a, b = job("a", ALONE, beside("b", 0.3), util=0.5), job("b", util=0.5)
    found = table(a, b, type="a100")
    assert found[0, 1] == pytest.approx(1 / (1 + 0.38 * 0.25))


def test_a_slowdown_is_seen_without_having_been_alone_on_that_very_gpu() -> None:
    elsewhere = [Measured("t4x2", (), 50.0, 5), Measured("t4x4", (), 25.0, 5)]
    a, b = job("a", *elsewhere, beside("b", 0.4), util=0.5), job("b", util=0.5)
    assert table(a, b)[0, 1] < 0.6


def test_a_slowdown_is_seen_by_what_its_kind_takes_alone() -> None:
    a, b = job("a", beside("b", 0.4), kind="k", util=0.5), job("b", util=0.5)
    past = [job(f"k{number}", ALONE, kind="k", util=0.5) for number in range(3)]
    assert table(a, b)[0, 1] == pytest.approx(1 / (1 + 0.38 * 0.25))  # unknown, so it may be slow
    assert table(a, b, *past)[0, 1] < 0.75


def test_kinds_teach_those_that_come_after_them() -> None:
    known = [job("a", ALONE, beside("b", 0.4), kind="x"), job("b", ALONE, kind="y")]
    new = [job("c", kind="x"), job("d", kind="y"), job("e"), job("f")]
    found = table(*known, *new)
    assert found[2, 3] < 0.6
    assert found[2, 3] < found[2, 5] < found[4, 5]
    assert found[2, 3] < found[4, 3] < found[4, 5]


def test_kinds_that_are_over_teach_too() -> None:
    a, b = job("a", kind="x"), job("b", kind="y")
    name, other = kind_of(a.spec), kind_of(b.spec)
    shown = Measured("t4x1", (), 0.1, 5), Measured("t4x1", (JobId(other),), 0.25, 5)
    kinds = {name: JobFamily(1, shown), other: JobFamily(1)}
    assert table(a, b, kinds=kinds)[0, 1] == pytest.approx(0.4, abs=0.1)


def test_a_first_epoch_says_less_than_a_second() -> None:
    b = job("b", util=0.5)
    found = [
        table(job("a", ALONE, beside("b", 0.4, epochs), util=0.5), b)[0, 1] for epochs in (0, 1, 9)
    ]
    assert found[0] > found[1] >= found[2] > 0.35


def test_only_two_are_a_pair() -> None:
    three = Measured("t4x1", (JobId("b"), JobId("c")), 900.0, 5)
    jobs = job("a", ALONE, three), job("b"), job("c")
    assert table(*jobs)[0, 1] == pytest.approx(1 / (1 + 0.38 * 0.75**2))


def test_two_gangs_on_the_same_gpus_are_a_pair() -> None:
    alone, slowed = Measured("t4x2", (), 60.0, 5), Measured("t4x2", (JobId("b"),), 120.0, 5)
    jobs = job("a", ALONE, alone, slowed), job("b")
    assert table(*jobs)[0, 1] == pytest.approx(0.5, abs=0.03)


def test_neighbours_long_gone_still_show_which_jobs_are_sensitive() -> None:
    tender = job("a", ALONE, *(beside(f"gone-{n}", 0.4) for n in range(4)), util=0.5)
    found = table(tender, job("b", util=0.5))
    assert found[0, 1] < 0.65


@pytest.mark.parametrize("few", [interference.FEW, 0], ids=["few_kinds", "many_kinds"])
def test_a_block_is_the_same_as_the_whole(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(f"{n}", ALONE, beside(f"{(n + 1) % 6}", 0.5), kind="xy"[n % 2]) for n in range(6)]
    whole = table(*jobs)
    monkeypatch.setattr(interference, "FEW", few)
    a, b = np.array([4, 1, 2]), np.array([5, 2, 0, 3])
    assert (Interference(jobs, {}, "t4").speeds(a, b) == whole[np.ix_(a, b)]).all()
    assert Interference([], {}, "t4").speeds(a[:0], b[:0]).shape == (0, 0)


@pytest.mark.parametrize("few", [interference.FEW, 0], ids=["few_kinds", "many_kinds"])
def test_pairs_apart_are_the_same_as_in_the_whole(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(f"{n}", ALONE, beside(f"{(n + 1) % 6}", 0.5), kind="xy"[n % 2]) for n in range(6)]
    whole = table(*jobs)
    monkeypatch.setattr(interference, "FEW", few)
    a, b = np.divmod(np.arange(36), 6)
    assert (Interference(jobs, {}, "t4").each(a, b) == whole[a, b]).all()
    assert Interference([], {}, "t4").each(a[:0], b[:0]).shape == (0,)


def test_a_memo_changes_nothing() -> None:
    jobs = [job(f"{n}", ALONE, beside(f"{(n + 1) % 6}", 0.5), kind="xy"[n % 2]) for n in range(6)]
    memo = Memo()
    Speeds([*jobs, job("gone", beside("x", 0.5, on="p100x1"))], {}, memo)
    shuffled = [jobs[n] for n in (3, 1, 0, 5)]
    assert (table(*shuffled, memo=memo) == table(*shuffled)).all()


def additive(count: int, seed: int) -> tuple[list[float], Floats]:
    """Utilisations, and true speeds that are not wholly explained by these or by a and b."""
    draw = np.random.default_rng(seed)
    util = draw.uniform(0.2, 1.0, count)
    effects = draw.normal(0, 0.06, (2, count))
    speeds = 1 / (1 + 0.38 * np.outer(util, util)) + effects[0][:, None] + effects[1]
    return util.tolist(), np.clip(speeds + draw.normal(0, 0.02, speeds.shape), 0.1, 1.0)


def test_each_partner_makes_the_rest_better_known() -> None:
    util, true = additive(40, 5)
    errors = []
    for partners in (0, 1, 3, 8):
        met = [[(n + 7 * k + 1) % 40 for k in range(partners)] for n in range(40)]
        jobs = [
            job(f"{n}", ALONE, *(beside(f"{k}", true[n, k]) for k in met[n]), util=util[n])
            for n in range(40)
        ]
        unseen = np.ones(true.shape, dtype=bool)
        for n, those in enumerate(met):
            unseen[n, those] = False
        errors.append(np.abs(table(*jobs) - true)[unseen].mean())
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.75 * errors[0]
    assert errors[3] < 0.5 * errors[0]


def test_pairs_chosen_by_it_lose_little_to_those_that_an_oracle_would_choose() -> None:
    util, true = additive(24, 7)
    met = [[(n + 5 * k + 1) % 24 for k in range(3)] for n in range(24)]
    jobs = [
        job(f"{n}", ALONE, *(beside(f"{k}", true[n, k]) for k in met[n]), util=util[n])
        for n in range(24)
    ]

    def paired(speeds: Floats) -> float:
        """The true speed of all jobs, paired greedily by these speeds."""
        both, total = speeds + speeds.T, 0.0
        np.fill_diagonal(both, -1.0)
        for _ in range(12):
            a, b = np.unravel_index(both.argmax(), both.shape)
            total += true[a, b] + true[b, a]
            both[[a, b]] = both[:, [a, b]] = -1.0
        return total

    assert paired(table(*jobs)) > 0.95 * paired(true)


MEASURED = st.builds(
    Measured,
    placement=st.sampled_from(["t4x1", "t4x2", "a100x1", "cpu", ""]),
    beside=st.lists(st.sampled_from([JobId("0"), JobId("1"), JobId("gone")]), max_size=3).map(
        tuple
    ),
    seconds=st.floats() | st.floats(1.0, 100.0),
    epochs=st.integers(min_value=-1, max_value=10**9),
)
UTIL = st.floats()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.lists(MEASURED, max_size=6), st.sampled_from("xy"), UTIL), max_size=5),
    st.dictionaries(st.sampled_from(["0", "1", "x"]), st.lists(MEASURED, max_size=3), max_size=2),
)
def test_whatever_was_measured_speeds_are_between_the_least_and_1(
    shown: list[tuple[list[Measured], str, float]], past: dict[str, list[Measured]]
) -> None:
    jobs = [
        job(str(number), *found, kind=kind, util=util)
        for number, (found, kind, util) in enumerate(shown)
    ]
    kinds = {name: JobFamily(1, tuple(found)) for name, found in past.items()}
    found = table(*jobs, kinds=kinds)
    assert ((found >= SPEED_LEAST) & (found <= 1.0)).all()
    assert (table(*jobs, kinds=kinds) == found).all()
