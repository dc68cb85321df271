"""Which GPUs are slow: what the measurements of all jobs say of each."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.core.model import GpuKey, Job, Measured, Placement, Time
from scheduler.estimates import slow_gpus
from scheduler.estimates.measurements import Memo, read
from scheduler.estimates.slow_gpus import SlowGpus, find_slow, split_type
from scheduler.estimates.speed import Speeds
from tests.estimates.plain_slow_gpus import find_plainly
from tests.estimates.test_speed import job, law

DAY = 86_400.0
GOOD, BAD, OTHER = ("n1", "a"), ("n2", "a"), ("n3", "a")


def at(
    seconds: float, *gpus: GpuKey, epochs: int = 10, ended: Time = DAY, placement: str = ""
) -> Measured:
    nodes = len({node for node, _ in gpus})
    text = placement or str(Placement("t4", len(gpus), nodes))
    return Measured(text, (), seconds, epochs, where=gpus, at=ended)


def moved(name: str, times: float = 5.0, slow: GpuKey = BAD, ended: Time = DAY) -> Job:
    """A job that was measured on this GPU, where it was so many times slower, and on a good one."""
    return job(name, at(100.0, GOOD, ended=ended), at(100.0 * times, slow, ended=ended))


def slow_of(*jobs: Job) -> SlowGpus:
    return find_slow(read(jobs, {}))


def times(found: SlowGpus, key: GpuKey = BAD) -> float:
    gpu = found.of(key)
    return gpu.times if gpu else 1.0


def test_two_jobs_that_were_slow_there_and_not_elsewhere_show_a_slow_gpu() -> None:
    found = slow_of(moved("a"), moved("b"))
    assert found.known.keys() == {BAD}
    gpu = found.known[BAD]
    assert gpu.times == pytest.approx(5.0)
    assert (gpu.epochs, gpu.jobs) == (20, 2)
    assert gpu.doubt < 0.2


def test_one_job_moves_the_factor_a_little() -> None:
    assert 1.0 < times(slow_of(moved("a", 50.0))) <= 1.3001


def test_a_gpu_that_is_a_fifth_slower_is_found_and_noise_is_not() -> None:
    found = slow_of(*(moved(f"j{n}", 1.2) for n in range(3)))
    assert times(found) == pytest.approx(1.2)
    assert not slow_of(*(moved(f"j{n}", 1.06) for n in range(9))).known


def test_a_majority_decides() -> None:
    normal = [moved(f"fine-{n}", 1.0) for n in range(3)]
    assert times(slow_of(moved("a"), moved("b"), *normal)) == 1.0
    assert times(slow_of(*(moved(f"j{n}") for n in range(5)), *normal)) == pytest.approx(5.0)


def test_jobs_that_never_moved_are_compared_with_their_family() -> None:
    family = [
        job(f"j{n}", at(100.0, ("n1", f"g{n}")), kind=kind) for kind in "xyz" for n in range(3)
    ]
    there = [job(f"slow-{kind}", at(500.0, BAD), kind=kind) for kind in "xyz"]
    assert times(slow_of(*family, *there)) == pytest.approx(5.0)
    assert times(slow_of(*family, there[0])) == 1.0


def test_a_family_whose_jobs_are_not_alike_says_nothing_of_gpus() -> None:
    jobs = [
        job(f"j{n}{kind}", at((100.0, 400.0)[n % 2], ("n1", f"g{n % 2}")), kind=kind)
        for kind in "xyz"
        for n in range(6)
    ]
    assert not slow_of(*jobs).known


def test_a_slow_gpu_explains_its_gangs_and_not_the_other_way() -> None:
    gang = [job(f"g{n}", at(100.0, GOOD, ("n4", "a")), at(500.0, BAD, OTHER)) for n in range(3)]
    found = slow_of(moved("a"), *gang)
    assert times(found) == pytest.approx(5.0)
    assert times(found, OTHER) == times(found, GOOD) == 1.0


def test_where_all_known_gpus_of_a_node_are_slow_so_are_the_others() -> None:
    pair = [
        job(f"j{n}", at(100.0, ("n1", "a"), ("n1", "b")), at(300.0, ("n2", "a"), ("n2", "b")))
        for n in range(2)
    ]
    assert times(slow_of(*pair), ("n2", "c")) == pytest.approx(3.0)
    assert times(slow_of(moved("a"), moved("b")), ("n2", "c")) == 1.0, "one says little of others"


def test_of_a_large_gang_only_its_nodes_are_known() -> None:
    big = [
        job(
            f"j{n}",
            at(100.0, ("n1", ""), ("n3", ""), placement="t4x16/2"),
            at(300.0, ("n1", ""), ("n2", ""), placement="t4x16/2"),
        )
        for n in range(2)
    ]
    found = slow_of(*big)
    assert times(found, ("n2", "c")) == pytest.approx(3.0)
    assert times(found, ("n1", "c")) == 1.0


def test_a_factor_fades_so_that_the_gpu_is_measured_again() -> None:
    def known(days: float) -> float:
        now = job("now", at(100.0, OTHER, ended=(1.0 + days) * DAY), at(100.0, GOOD, ended=DAY))
        return times(slow_of(moved("a"), moved("b"), now))

    assert known(0.5) == pytest.approx(5.0)
    assert known(1.5) <= 1.3001
    assert known(3.0) == 1.0


def test_a_repaired_gpu_is_normal_when_later_jobs_say_so() -> None:
    later = [moved(f"later-{n}", 1.0, ended=2 * DAY) for n in range(2)]
    assert times(slow_of(moved("a"), moved("b"), *later)) == 1.0


def test_measurements_are_corrected_so_that_no_job_and_no_family_is_thought_slow() -> None:
    poisoned = job("c", at(500.0, BAD), kind="new")
    jobs = [moved("a"), moved("b"), poisoned, job("d", kind="new")]
    found = Speeds(jobs, {}).estimate([Placement("t4", 1)])[:, 0]
    assert found == pytest.approx([100.0, 100.0, 100.0, 100.0], rel=0.05)
    there = Speeds(jobs, {}).estimate([Placement(slow_gpus.slow_type("t4", 5.0), 1)])[:, 0]
    assert there == pytest.approx(5.0 * found)


def test_before_a_gpu_is_known_to_be_slow_what_was_faster_elsewhere_counts() -> None:
    one = job("a", *(at(law(100.0, 0.1, n), *_gpus("n1", n)) for n in (1, 2)))
    hurt = replace(one, measured=(*one.measured, at(500.0, BAD)))
    wanted = [Placement("t4", count) for count in (1, 2, 4)]
    clean, seen = (Speeds([each], {}).estimate(wanted)[0] for each in (one, hurt))
    assert seen == pytest.approx(clean, rel=0.05)


def _gpus(node: str, count: int) -> tuple[GpuKey, ...]:
    return tuple((node, f"g{number}") for number in range(count))


def test_what_was_measured_for_a_few_minutes_says_nothing_of_gpus() -> None:
    warming = [
        job(f"j{n}", at(30.0, GOOD), at(150.0, BAD, epochs=2), kind=f"k{n}") for n in range(9)
    ]
    assert not slow_of(*warming).known


def test_measurements_of_today_may_all_be_too_young_to_vote() -> None:
    today = 20_000 * DAY
    unknown = replace(at(10.0, GOOD, epochs=1, ended=today), where=())
    slow = (at(90.0, gpu, epochs=1, ended=today) for gpu in (BAD, OTHER))
    assert not slow_of(*(job(f"j{n}", unknown, one) for n, one in enumerate(slow))).known


def test_the_name_of_a_slow_type_is_read_again() -> None:
    assert split_type(slow_gpus.slow_type("NVIDIA A100-80GB", 4.757)) == ("NVIDIA A100-80GB", 4.76)
    assert split_type("t4") == ("t4", 1.0)
    assert split_type("odd~name") == ("odd~name", 1.0)


KEYS = [(f"n{node}", f"g{gpu}") for node in range(2) for gpu in range(3)]
placed = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True).map(
    lambda keys: tuple(sorted(keys))
)
reports = st.lists(
    st.tuples(placed, st.floats(1e-3, 1e6), st.integers(0, 20), st.floats(0.0, 10 * DAY)),
    min_size=1,
    max_size=8,
    unique_by=lambda report: report[0],
)


def jobs_of(told: Sequence[Sequence[tuple[tuple[GpuKey, ...], float, int, Time]]]) -> list[Job]:
    return [
        job(f"j{n}", *(at(s, *keys, epochs=e, ended=t) for keys, s, e, t in own), kind="xy"[n % 2])
        for n, own in enumerate(told)
    ]


def honest() -> list[Job]:
    """Jobs that were as fast on all GPUs."""
    return [
        job(
            f"fair-{n}",
            *(at(100.0, key) for key in KEYS),
            *(at(60.0, *KEYS[k : k + 2]) for k in (0, 3)),
        )
        for n in range(2)
    ]


def one_job_moves_no_factor_far(
    told: Sequence[tuple[tuple[GpuKey, ...], float, int, Time]],
) -> None:
    """Whatever one job reports, with others or alone."""
    (liar,) = jobs_of([told])
    for others in ([], honest()):
        found = slow_of(*others, liar)
        assert all(gpu.times <= 1.3 + 1e-9 for gpu in found.known.values())


@settings(max_examples=200)
@given(reports)
def test_one_job_moves_no_factor_by_more_than_a_bound(
    told: Sequence[tuple[tuple[GpuKey, ...], float, int, Time]],
) -> None:
    one_job_moves_no_factor_far(told)


def test_a_job_that_lies_about_one_gpu_moves_no_factor_by_more_than_a_bound() -> None:
    one_job_moves_no_factor_far(
        [((key,), 100.0 if key != KEYS[0] else 1e5, 9, DAY) for key in KEYS]
    )


@settings(max_examples=100)
@given(st.lists(reports, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_is_found_is_sane_and_depends_on_no_order(
    told: list[list[tuple[tuple[GpuKey, ...], float, int, Time]]], chance: random.Random
) -> None:
    jobs = jobs_of(told)
    found, memo = slow_of(*jobs), Memo()
    for gpu in found.known.values():
        assert 1.0 < gpu.times < math.inf
        assert 0.0 < gpu.doubt < math.inf
        assert gpu.jobs <= len(jobs)
    read(jobs[::-1], {}, memo)
    assert find_slow(read(jobs, {}, memo)) == found
    chance.shuffle(jobs)
    again = slow_of(*jobs)
    assert again.known.keys() == found.known.keys()
    for key, gpu in again.known.items():
        assert gpu.times == pytest.approx(found.known[key].times)


def drawn_jobs(seed: int) -> list[Job]:
    """Jobs of a few families on a small cluster with some slow GPUs, and perhaps a slow node."""
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randint(2, 4))]
    keys = [(node, f"g{gpu}") for node in nodes for gpu in range(chance.randint(1, 3))]
    slow = {key: chance.choice((1.0, 1.0, 1.0, 1.2, 1.6, 3.0)) for key in keys}
    slow |= {(node, ""): chance.choice((1.0, 1.0, 1.0, 1.0, 2.0)) for node in nodes}
    noise = chance.choice((0.0, 0.03, 0.1))
    own = {kind: chance.choice((0.0, 0.1, 0.8)) for kind in "xyz"}
    return [
        job(
            f"j{n}",
            *_drawn(chance, keys, slow, noise, math.exp(chance.gauss(7.0, own[kind]))),
            kind=kind,
        )
        for n in range(chance.randint(2, 14))
        for kind in [chance.choice("xyz")]
    ]


def _drawn(
    chance: random.Random,
    keys: Sequence[GpuKey],
    slow: Mapping[GpuKey, float],
    noise: float,
    seconds: float,
) -> Iterator[Measured]:
    sets = {
        tuple(sorted(chance.sample(keys, min(len(keys), chance.choice((1, 1, 1, 2, 3))))))
        for _ in range(chance.randint(0, 4))
    }
    for where in sorted(sets):
        times = max(max(slow[key], slow[key[0], ""]) for key in where)
        shown = seconds * times / len(where) * math.exp(chance.gauss(0.0, noise))
        ended = DAY * (1.0 + chance.choice((0.0, 0.0, chance.random() * 2.0)))
        epochs = chance.choice((0, 1, 5, 9))
        if len(where) == 3:  # as if it were many
            gang = tuple(sorted({(node, "") for node, _ in where}))
            placement = str(Placement("t4", 16, len(gang)))
            yield at(shown, *gang, epochs=epochs, ended=ended, placement=placement)
        else:
            yield at(shown, *where, epochs=epochs, ended=ended)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
@example(3)  # more votes by one half, but for the rounding of their sum
def test_it_finds_what_plain_loops_find(seed: int) -> None:
    jobs = drawn_jobs(seed)
    measured = read(jobs, {})
    found, plain = find_slow(measured).known, find_plainly(measured)
    assert found.keys() == plain.keys()
    for key, gpu in found.items():
        wanted = plain[key]
        assert (gpu.epochs, gpu.jobs) == (wanted.epochs, wanted.jobs)
        assert (gpu.times, gpu.doubt) == pytest.approx((wanted.times, wanted.doubt))
