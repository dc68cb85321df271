"""Jobs of our own: drawn alike from one seed, and written so that they can be read again."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import pytest

from simulator.generate import generate, main
from simulator.traces import own_format
from simulator.traces.behaviour import MeasuredTruth, Pairs, TraceJob
from simulator.traces.measured_tables import StepTimes
from simulator.traces.own_format import DEFAULTS, NEEDED, read, write

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ROOT / "tests" / "traces" / "philly_200.csv"


def test_the_same_seed_draws_the_same_jobs() -> None:
    assert generate(50, seed=3) == generate(50, seed=3)
    assert generate(50, seed=3) != generate(50, seed=4)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    jobs = generate(200, seed=5)
    write(tmp_path / "own.csv", jobs)
    assert read(tmp_path / "own.csv") == jobs


@pytest.mark.parametrize("load", [0.5, 1.2])
def test_jobs_ask_for_as_much_as_the_load_says(load: float) -> None:
    jobs = generate(3000, seed=1, load=load, gpus=32)
    wanted = sum(
        job.spec.max_epochs * job.truth.epoch_seconds("", gpus, 1) * gpus
        for job in jobs
        for gpus in [job.spec.gpus_max]
    )
    assert wanted / (32 * jobs[-1].submit_at) == pytest.approx(load, rel=0.1)


def test_every_job_fits_the_gpu_and_its_project_names_its_kind() -> None:
    jobs = generate(500, seed=2, gpu_mib=8192)
    assert max(job.spec.memory_mib for job in jobs) <= 8192 * 0.97
    truths = {job.spec.project: job.truth for job in jobs}
    assert all(job.truth == truths[job.spec.project] for job in jobs)
    assert {job.spec.gpus_max for job in jobs} == {1, 2, 4, 8}


def test_how_many_jobs_are_elastic_can_be_set() -> None:
    assert all(job.spec.gpus_min == job.spec.gpus_max for job in generate(99, seed=1, elastic=0))
    assert all(job.spec.gpus_min == 1 for job in generate(99, seed=1, elastic=1))


def test_a_job_whose_scaling_was_measured_cannot_be_written(tmp_path: Path) -> None:
    (job,) = generate(1, seed=1)
    times = StepTimes(tmp_path, "cifar10", 200, 1.0)
    measured = TraceJob(0.0, job.spec, MeasuredTruth("cifar10", 1000, 1.0, times, Pairs({})))
    with pytest.raises(ValueError, match="job-0: its scaling is a measured table"):
        write(tmp_path / "own.csv", [measured])


def test_jobs_in_the_shape_of_philly_are_short_or_very_long_and_come_in_bursts() -> None:
    jobs = generate(3000, seed=4, gpus=4, shape="philly")
    seconds = sorted(
        job.spec.max_epochs * job.truth.epoch_seconds("", job.spec.gpus_max, 1) for job in jobs
    )
    assert seconds[2970] > 40 * seconds[1500], "one in a hundred"
    gaps = [after.submit_at - before.submit_at for before, after in pairwise(jobs)]
    assert 2.5 < stdev(gaps) / mean(gaps) < 3.5
    assert {job.spec.gpus_max for job in jobs} == {1, 2, 4}


def test_the_trace_that_is_shipped_is_made_by_the_command_that_is_documented(
    tmp_path: Path,
) -> None:
    document = (ROOT / "docs" / "simulator.md").read_text()
    command = "python -m simulator.generate tests/traces/philly_200.csv"
    (flags,) = re.findall(rf"{re.escape(command)} ([^`\n]*)", document)
    main([str(tmp_path / "made.csv"), *flags.split()])
    assert (tmp_path / "made.csv").read_bytes() == SHIPPED.read_bytes()


def test_every_column_is_explained() -> None:
    assert own_format.__doc__ is not None
    explained = {
        line.split()[0] for line in own_format.__doc__.splitlines() if line.startswith("    ")
    }
    assert explained >= {*NEEDED, *DEFAULTS}
