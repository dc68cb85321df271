"""Traces become jobs, and errors in a trace name the file and the line."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.traces.behaviour import MeasuredTruth, SlicedTruth
from simulator.traces.loader import FORMATS, TraceError, TraceJob, load

DATA = Path(__file__).parents[1] / "data"
Reader = Callable[..., list[TraceJob]]

SIA = "name,time,application,num_replicas,batch_size\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ALIBABA = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
GAVEL = (
    "ResNet-18 (batch size 64)\tpython3 main.py\tcifar10\t--num_steps\t1\t32000\t2\t1\t-1.0\t40\n"
    "CycleGAN\tpython3 cyclegan.py\tcyclegan\t--n_steps\t1\t200\t1\t1\t-1.0\t0.5\n"
)
SHOCKWAVE = (
    "ResNet-18 (batch size 64)\tpython3 main.py\tcifar10\t--num_steps\t1\t32000\t2\tgns\t1\t-1.0"
    "\t3338\t55\n"
)
OWN = "submit_at,name,gpus_min,gpus_max,memory_mib,epochs,epoch_seconds"


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Loads a trace with this text."""

    def read(
        text: str,
        seed: int = 1,
        format: str | None = None,
        elastic: bool | None = None,
        gpu_mib: int = 16_384,
        memory_noise: float = 0.0,
        adaptive: bool = False,
    ) -> list[TraceJob]:
        path = tmp_path / "some.trace"
        path.write_text(text)
        return load(
            path,
            data=DATA,
            seed=seed,
            format=format,
            elastic=elastic,
            gpu_mib=gpu_mib,
            memory_noise=memory_noise,
            adaptive=adaptive,
        )

    return read


# --- each format --------------------------------------------------------------------------------


def test_a_job_of_sia_is_elastic_and_keeps_its_global_batch(read: Reader) -> None:
    (job,) = read(SIA + "cifar10-0,107,cifar10,6,400\n")
    assert (job.submit_at, job.spec.name, job.spec.project) == (107.0, "cifar10-0", "cifar10")
    assert (job.spec.gpus_min, job.spec.gpus_max) == (1, 6)
    assert (job.spec.max_epochs, job.spec.batch_size) == (100, 400)
    assert job.spec.training_set_size == 50_000
    steps = 50_000 / 400
    assert job.truth.epoch_seconds("t4", 1, 1) == pytest.approx(steps * 0.36)
    assert job.truth.epoch_seconds("t4", 4, 2) == pytest.approx(steps * 0.25)


def test_a_job_of_sia_may_be_held_to_the_gpus_it_asked_for(read: Reader) -> None:
    (job,) = read(SIA + "cifar10-0,107,cifar10,6,400\n", elastic=False)
    assert (job.spec.gpus_min, job.spec.gpus_max) == (6, 6)


def test_a_job_of_philly_takes_its_time_on_the_gpus_it_asked_for(read: Reader) -> None:
    jobs = read(
        PHILLY + "2017-10-09 00:10:00,600.0,2,1200.0,vc1\n2017-10-09 00:00:30,17,1,17,vc2\n"
    )
    short, long = jobs
    assert (short.submit_at, long.submit_at) == (0.0, 570.0)
    assert (short.spec.user, long.spec.user) == ("vc2", "vc1")
    assert short.spec.max_epochs == 1
    assert short.truth.epoch_seconds("t4", 1, 1) == 17.0
    assert (long.spec.gpus_min, long.spec.gpus_max, long.spec.max_epochs) == (2, 2, 10)
    assert long.truth.epoch_seconds("a100", 2, 1) == 60.0
    assert long.truth.epoch_seconds("a100", 1, 1) == pytest.approx(60.0 * 0.8 / 0.5)


@pytest.mark.parametrize(
    ("seconds", "epochs"), [(60, 1), (1200, 20), (12_000, 20), (36_000, 20), (360_000, 200)]
)
def test_an_epoch_of_philly_lasts_from_a_minute_to_half_an_hour(
    read: Reader, seconds: int, epochs: int
) -> None:
    (job,) = read(PHILLY + f"2017-10-09 00:10:00,{seconds},1,0,vc1\n")
    assert job.spec.max_epochs == epochs
    assert job.truth.epoch_seconds("t4", 1, 1) == pytest.approx(seconds / epochs)


def test_jobs_of_philly_may_be_made_elastic(read: Reader) -> None:
    (job,) = read(PHILLY + "2017-10-09 00:10:00,600.0,2,1200.0,vc1\n", elastic=True)
    assert (job.spec.gpus_min, job.spec.gpus_max) == (1, 2)


def test_models_for_philly_are_those_that_fit_the_gpu(read: Reader) -> None:
    text = PHILLY + "2017-10-09 00:10:00,600.0,1,600.0,vc1\n" * 50

    def models(gpu_mib: int) -> set[str]:
        return {job.spec.project for job in read(text, gpu_mib=gpu_mib)}

    assert models(4096) == {"Small-Digits"}
    assert models(16_384) == {"Small-Digits", "Large-Faces-amp"}
    assert models(24_576) == {"Small-Digits", "Large-Faces-amp", "Huge-Books"}


def test_jobs_of_one_model_are_as_fast_per_sample_whatever_their_length(read: Reader) -> None:
    text = PHILLY + "2017-10-09 00:10:00,600,1,0,vc1\n2017-10-09 00:10:00,7777,2,0,vc1\n"
    per_sample = [
        job.truth.epoch_seconds("t4", 1, 1) / job.spec.training_set_size
        for job in read(text, gpu_mib=4096)
    ]
    assert per_sample == pytest.approx([0.01, 0.01], rel=1e-3)


def test_a_job_of_gavel_has_a_number_of_steps(read: Reader) -> None:
    other, job = read(GAVEL)
    assert (other.spec.project, other.submit_at, job.submit_at) == ("CycleGAN", 0.5, 40.0)
    assert (job.spec.gpus_min, job.spec.gpus_max, job.spec.batch_size) == (2, 2, 64)
    epochs = job.spec.max_epochs
    assert epochs == 20
    assert epochs * job.truth.epoch_seconds("p100", 2, 1) == pytest.approx(32_000 / 16)
    assert epochs * job.truth.epoch_seconds("k80", 1, 1) == pytest.approx(32_000 / 5)
    assert job.truth.epoch_seconds("v100", 2, 1) == math.inf


def test_pairs_of_gavel_share_a_gpu_as_they_did(read: Reader) -> None:
    cyclegan, resnet = read(GAVEL)
    assert cyclegan.truth.speed_beside(resnet.truth, "p100") == 0.5
    assert resnet.truth.speed_beside(cyclegan.truth, "k80") == 0.3
    assert resnet.truth.gpu_util == pytest.approx(0.5 / 0.8)
    assert cyclegan.truth.gpu_util == 1.0  # beside its twin it did not fit


def test_a_job_of_shockwave_is_one_of_gavels(read: Reader) -> None:
    (job,) = read(SHOCKWAVE)
    assert job.submit_at == 55.0
    total = job.spec.max_epochs * job.truth.epoch_seconds("p100", 2, 1)
    assert total == pytest.approx(2000.0)


def test_a_pod_of_alibaba_takes_its_part_of_a_gpu(read: Reader) -> None:
    jobs = read(
        ALIBABA
        + "pod-0,8000,30517,0,0,,BE,Running,900,2000,900\n"
        + "pod-1,8000,30517,1,250,,LS,Running,1000,2300,1100\n"
        + "pod-2,8000,30517,2,1000,,LS,Failed,1050,1650,\n"
    )
    quarter, whole = jobs
    assert (quarter.spec.name, quarter.submit_at, whole.submit_at) == ("pod-1", 0.0, 50.0)
    assert quarter.spec.memory_mib == quarter.truth.memory_mib == 3584
    assert 4 * quarter.spec.memory_mib <= 15_893  # the memory of a 16 GiB GPU that jobs can share
    assert (quarter.spec.shareable, whole.spec.shareable) == (True, False)
    assert quarter.truth.gpu_util == 0.25
    assert quarter.spec.max_epochs * quarter.truth.epoch_seconds("t4", 1, 1) == 1200.0
    assert (whole.spec.gpus_min, whole.spec.gpus_max) == (2, 2)
    assert whole.spec.max_epochs * whole.truth.epoch_seconds("t4", 2, 1) == 600.0
    assert isinstance(whole.truth, SlicedTruth)


def test_our_own_format_needs_few_columns(read: Reader) -> None:
    (job,) = read(f"{OWN}\n5,train,1,4,5000,10,80\n")
    assert (job.submit_at, job.spec.name, job.spec.user) == (5.0, "train", "trace")
    assert (job.spec.gpus_min, job.spec.gpus_max, job.spec.max_epochs) == (1, 4, 10)
    assert (job.truth.memory_mib, job.spec.memory_mib) == (5000, 5120)
    assert job.truth.epoch_seconds("any", 4, 1) == 20.0
    assert job.spec.shareable


def test_our_own_format_can_say_much_more(read: Reader) -> None:
    columns = "user,project,scaling,gpu_util,priority,shareable,hours_estimate,estimate_mib"
    (job,) = read(f"{OWN},{columns}\n5,train,1,4,5000,10,80,ada,bert,0.5,0.9,3,0,2.5,0\n")
    assert (job.spec.user, job.spec.project, job.spec.priority) == ("ada", "bert", 3)
    assert (job.spec.shareable, job.spec.hours_estimate, job.spec.memory_mib) == (False, 2.5, 0)
    assert job.truth.epoch_seconds("any", 4, 1) == 50.0
    assert job.truth.gpu_util == 0.9


# --- chance -------------------------------------------------------------------------------------

MANY = PHILLY + "2017-10-09 00:10:00,600.0,1,600.0,vc1\n" * 40


def test_the_same_seed_gives_the_same_jobs(read: Reader) -> None:
    assert read(MANY, seed=7) == read(MANY, seed=7)
    assert read(MANY, seed=7) != read(MANY, seed=8)


def test_people_round_up_what_their_jobs_take(read: Reader) -> None:
    for job in read(MANY):
        assert job.spec.memory_mib % 512 == 0
        assert 0 <= job.spec.memory_mib - job.truth.memory_mib < 512


def test_noise_changes_the_estimates_and_nothing_else(read: Reader) -> None:
    calm, noisy = read(MANY), read(MANY, memory_noise=0.5)
    assert [job.truth for job in calm] == [job.truth for job in noisy]
    assert any(job.spec.memory_mib < job.truth.memory_mib for job in noisy)
    assert any(job.spec.memory_mib > job.truth.memory_mib + 512 for job in noisy)
    assert max(job.spec.memory_mib for job in noisy) <= 15_893


def test_jobs_of_one_model_share_their_tables(read: Reader) -> None:
    first, second = read(SIA + "a,1,cifar10,6,400\nb,2,cifar10,4,400\n")
    assert isinstance(first.truth, MeasuredTruth)
    assert isinstance(second.truth, MeasuredTruth)
    assert first.truth.times is second.truth.times
    assert first.truth.pairs is second.truth.pairs


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SIA + "a,1,cifar10,6,400\nb,x,cifar10,6,400\n", "3: time: 'x' is not a number"),
        (SIA + "a,1,chess,6,400\n", "2: application: unknown 'chess'; known: cifar10, imagenet"),
        (SIA + "a,1,cifar10,0,400\n", "2: num_replicas: 0 is not 1 to 1024"),
        (SIA + "a,1,cifar10,1.5,400\n", "2: num_replicas: 1.5 is not a whole number"),
        (SIA + "a,1,cifar10,6\n", "2: 4 columns, expected 5"),
        (SIA + "a,1,cifar10,6,400,7\n", "2: 6 columns, expected 5"),
        (SIA + ",1,cifar10,6,400\n", "2: name: is empty"),
        (PHILLY + "yesterday,600,1,600,vc1\n", "2: timestamp: 'yesterday' is not a date and time"),
        (PHILLY + "2017-10-09 00:10:00,nan,1,6,vc1\n", "2: duration: 'nan' is not a finite number"),
        (PHILLY + "2017-10-09 00:10:00,0,1,6,vc1\n", "2: duration: must be more than 0"),
        (PHILLY + "2017-10-09 00:10:00,1e12,1,6,vc1\n", "2: duration: 1e12 is not 0 to"),
        (GAVEL.replace("\t200\t", "\t\t"), "2: steps: '' is not a number"),
        (GAVEL.replace("\t200\t1\t", "\t200\t2\t"), "2: model: 'CycleGAN' was not measured on 2"),
        (GAVEL.replace("CycleGAN", "GPT"), "2: model: 'GPT' was not measured on 1"),
        (GAVEL + "CycleGAN\tshort\n", "3: 2 columns, expected 10"),
        (
            ALIBABA + "pod-1,8,3,1,250,,LS,Running,1000,900,1100\n",
            "2: deletion_time: is before scheduled_time",
        ),
        (ALIBABA + "p,8,3,1,2000,,LS,Running,1,2,1\n", "2: gpu_milli: 2000 is not 1 to 1000"),
        (f"{OWN}\n5,train,2,1,5000,10,80\n", "2: gpus_max: 1 is not 2 to 1024"),
        (f"{OWN},scaling\n5,train,1,1,5000,10,80,1.5\n", "2: scaling: 1.5 is not 0 to 1"),
        (f"{OWN},shareable\n5,train,1,1,5000,10,80,yes\n", "2: shareable: 'yes' is not a number"),
        ("when,who\n1,2\n", "1: not a trace: this line is not a header with submit_at"),
        ("", "1: not a trace: this line is not a header with submit_at"),
        (SIA, " the trace has no jobs"),
    ],
)
def test_a_malformed_trace_is_told_by_file_and_line(
    read: Reader, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(TraceError) as told:
        read(text)
    assert str(told.value).startswith(f"{tmp_path / 'some.trace'}:{complaint}")
    assert "\n" not in str(told.value)


def test_a_format_may_be_forced_and_then_misses_its_columns(read: Reader) -> None:
    with pytest.raises(
        TraceError, match=r"some\.trace:1: missing column timestamp, duration, num_gpus"
    ):
        read(SIA + "a,1,cifar10,6,400\n", format="philly")


def test_an_unknown_format_is_answered_with_the_known_ones(read: Reader) -> None:
    with pytest.raises(TraceError, match="'csv'; known: " + ", ".join(FORMATS)):
        read(SIA, format="csv")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: No such file"):
        load(tmp_path / "none.csv", data=DATA, seed=1)
    path = tmp_path / "picture.csv"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(TraceError, match=r"picture\.csv: the file is not UTF-8 text"):
        load(path, data=DATA, seed=1)


def test_a_spreadsheets_mark_blank_lines_and_windows_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{OWN}\r\n\r\n5,train,1,1,5000,10,80\r\n".encode())
    (job,) = load(path, data=DATA, seed=1)
    assert job.spec.name == "train"


def test_an_adaptive_job_can_have_any_number_of_gpus_and_shares_none(read: Reader) -> None:
    line = f"{SIA}a,5,cifar10,2,512\n"
    (fixed,), (adaptive,) = read(line), read(line, adaptive=True)
    assert (fixed.spec.gpus_max, adaptive.spec.gpus_max) == (2, 1024)
    assert adaptive.spec.gpus_min == 1
    assert fixed.spec.shareable
    assert not adaptive.spec.shareable
    assert adaptive.submit_at == fixed.submit_at
    assert (adaptive.spec.project, adaptive.spec.max_epochs) == ("cifar10", 100)


def test_jobs_of_other_traces_cannot_be_adaptive(read: Reader) -> None:
    with pytest.raises(TraceError, match="only the jobs of Sia's traces can be adaptive"):
        read(GAVEL, adaptive=True)
