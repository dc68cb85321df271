"""What old images send, word by word: what is meant, what counts as not said, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import Run, RunPhase, Share
from scheduler.legacy import messages
from scheduler.legacy.messages import OldReport

HEARTBEAT = {
    "jobid": "123e4567-e89b-12d3-a456-426614174000",
    "timestamp": "2026-11-18T06:12:28.288290",
    "iternum": 3,
    "nodelist": "westworld",
    "numgpu": 2,
    "rank": 0,
    "meandur": 0.011686,
    "gpumem": 250,
}
EPOCH = {**HEARTBEAT, "iternum": 4, "meandur": 0.01198975, "epochDur": 0.069517}
RUN = Run(1, (Share("n", "gpu0", 1000),), RunPhase.RUNNING, 0.0, 0.0, max_epochs=9)
TWO_CARDS = replace(RUN, shares=(Share("n", "gpu0", 1000), Share("n", "gpu1", 1000)))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def report(**changes: Any) -> OldReport:
    return messages.parse_report(json.dumps({**EPOCH, **changes}).encode())


def test_what_was_captured_is_understood() -> None:
    assert messages.parse_report(json.dumps(HEARTBEAT).encode()) == OldReport(
        steps=3, memory_mib=250, step_seconds=0.011686
    )
    assert report() == OldReport(True, 0, 4, 250, 0.01198975, 0.069517)
    assert messages.parse_done(b'{"done": 1}') == 1


@pytest.mark.parametrize("seconds", [-1.5, 0, math.nan, math.inf, 1e9, "long", None, True, [1]])
def test_an_epoch_whose_seconds_cannot_be_has_ended_all_the_same(seconds: Any) -> None:
    told = report(epochDur=seconds)
    assert told.ended
    assert told.epoch_seconds == 0.0


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("gpumem", 0, ("memory_mib", 0)),
        ("gpumem", -5, ("memory_mib", 0)),
        ("gpumem", 2**40, ("memory_mib", 0)),
        ("gpumem", "N/A", ("memory_mib", 0)),
        ("gpumem", 250.7, ("memory_mib", 250)),
        ("rank", None, ("rank", 0)),
        ("rank", 3, ("rank", 3)),
        ("rank", -1, ("rank", 0)),
        ("iternum", 10**400, ("steps", 0)),
        ("meandur", None, ("step_seconds", 0.0)),
    ],
)
def test_a_field_that_cannot_be_counts_as_not_said(
    field: str, value: Any, read: tuple[str, float]
) -> None:
    assert getattr(report(**{field: value}), read[0]) == read[1]


@given(st.dictionaries(st.sampled_from([*EPOCH, "done", "other"]), ANYTHING))
def test_whatever_an_object_holds_a_report_is_of_what_can_be(told: dict[str, Any]) -> None:
    made = messages.parse_report(json.dumps(told).encode())
    assert made.ended is ("epochDur" in told)
    assert 0 <= made.rank <= 2**16
    assert 0 <= made.steps <= messages.STEPS_MAX
    assert 0 <= made.memory_mib <= admission.MEMORY_MIB_MAX
    for seconds in (made.step_seconds, made.epoch_seconds):
        assert 0.0 <= seconds < messages.SECONDS_MAX


@given(st.binary())
def test_whatever_bytes_come_they_are_read_or_refused_in_one_line(body: bytes) -> None:
    for read in (
        messages.parse_report,
        messages.parse_done,
        messages.parse_profiling_end,
        messages.parse_submission,
    ):
        words = ""
        try:
            read(body)
        except Rejected as error:
            words = str(error)
        assert "\n" not in words


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'"done"', b"\xff\xfe{}", b"[" * 60_000, b'{"a":' * 10_000],
)
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected, match="the body is not a JSON object"):
        messages.parse_report(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "expected {"),
        (b'{"done": true}', "expected {"),
        (b'{"done": 1.5}', "expected {"),
        (b'{"done": "1"}', "expected {"),
        (b'{"done": -1}', "done -1: must be at least 0"),
        (b'{"done": 2147483648}', "done 2147483648: must be at most"),
    ],
)
def test_a_count_of_epochs_that_is_none_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        messages.parse_done(body)


def test_of_the_oldest_images_two_fields_are_swapped() -> None:
    form = b"meanIterDuration=0.25&endTime=2022-10-01T00%3A00&gpuUsage=3000&gpuMemUsage=45"
    assert messages.parse_profiling_end(form) == OldReport(memory_mib=3000, step_seconds=0.25)
    assert messages.parse_profiling_end(b"meanIterDuration=nan&gpuUsage=N%2FA") == OldReport()
    with pytest.raises(Rejected, match="not a form of at most 16 fields"):
        messages.parse_profiling_end(b"a=1&" * 100)


# --- which epoch it is ----------------------------------------------------------------------------


def heard(run: Run, *reports: OldReport, now: float = 100.0) -> Run:
    """As evolve.py has it."""
    for told in reports:
        epoch = messages.next_epoch(told, run, now)
        if epoch is not None:
            steps = (*run.steps_heard, *([told.steps] if told.steps else []))[-8:]
            run = replace(run, epoch_measured=epoch, steps_heard=steps, epoch_at=now)
    return run


def ended(steps: int, seconds: float = 1.0) -> OldReport:
    return OldReport(ended=True, steps=steps, epoch_seconds=seconds)


def test_epochs_are_counted_from_those_done_when_the_run_began() -> None:
    assert heard(RUN, ended(4), ended(9), ended(14)).epoch_measured == 3
    again = replace(RUN, attempt=2, epochs_before=3)
    assert heard(again, ended(4), ended(9)).epoch_measured == 5


def test_a_report_that_comes_again_or_late_counts_once() -> None:
    assert heard(RUN, ended(4), ended(4), ended(9), ended(4), ended(9)).epoch_measured == 2


def test_reports_in_another_order_are_counted_all() -> None:
    assert heard(RUN, ended(9), ended(4), ended(19), ended(14)).epoch_measured == 4


def test_processes_that_have_one_rank_and_lose_some_steps_end_one_epoch() -> None:
    told = [ended(99), ended(97), ended(98), ended(199), ended(195), ended(299), ended(296)]
    assert heard(TWO_CARDS, *told).epoch_measured == 3
    assert heard(RUN, *told).epoch_measured == 7, "alone, a process loses no steps"


@given(
    st.integers(4, 1000),
    st.integers(1, 12),
    st.integers(1, 4),
    st.data(),
)
def test_whatever_is_repeated_within_an_epoch_each_counts_once(
    steps: int, epochs: int, processes: int, data: st.DataObject
) -> None:
    run = TWO_CARDS
    for epoch in range(1, epochs + 1):
        for _ in range(processes):
            lost = data.draw(st.integers(0, steps // 5))
            run = heard(run, ended(epoch * steps - lost))
        assert run.epoch_measured == epoch


def test_reports_without_steps_are_told_apart_by_time() -> None:
    run = heard(RUN, ended(0, 10.0), now=100.0)
    assert heard(run, ended(0, 10.0), now=101.0).epoch_measured == 1
    assert heard(run, ended(0, 10.0), now=110.0).epoch_measured == 2
    assert heard(run, ended(0, 0.0), now=100.5).epoch_measured == 2, "nothing says it is the same"


@pytest.mark.parametrize(
    ("seconds", "since", "taken"),
    [(10.0, None, 10.0), (10.0, 90.0, 10.0), (0.9, 90.0, 0.0), (16.0, 90.0, 0.0), (9.0, 90.0, 9.0)],
)
def test_seconds_far_from_the_time_that_has_passed_are_not_believed(
    seconds: float, since: float | None, taken: float
) -> None:
    run = replace(RUN, epoch_at=since)
    assert messages.credible_seconds(ended(4, seconds), run, 100.0) == taken


# --- what was submitted ---------------------------------------------------------------------------

SUBMISSION = {
    "jobName": "cifar",
    "dockerImage": "resnet:1.0",
    "scriptPath": "/custom/train.py",
    "directoryToMount": "/home/ada/cifar",
    "batchSize": 32,
    "trainingSetSize": 50000,
    "maxEpochs": 10,
    "isSingleGPU": True,
    "disableGPUSharing": False,
    "estimatedMemory": 4000,
    "username": "ada",
}


def test_each_field_has_its_name_of_today() -> None:
    fields, user = messages.parse_submission(json.dumps(SUBMISSION).encode())
    assert user == "ada"
    assert fields == {
        "name": "cifar",
        "image": "resnet:1.0",
        "script_path": "/custom/train.py",
        "custom_dir": "/home/ada/cifar",
        "batch_size": 32,
        "training_set_size": 50000,
        "max_epochs": 10,
        "is_single_gpu": True,
        "disable_gpu_sharing": False,
        "memory_mib": 4000,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"jobName": None}, "jobName is missing"),
        ({"scriptPath": ""}, "scriptPath is missing"),
        ({"maxEpochs": 0}, "maxEpochs 0: must be at least 1"),
        ({"maxEpochs": "10"}, "maxEpochs: expected a whole number, not"),
        ({"maxEpochs": True}, "maxEpochs: expected a whole number, not 'True'"),
        ({"batchSize": 2**31}, "batchSize 2147483648: must be at most"),
        ({"isSingleGPU": 1}, "isSingleGPU: expected true or false, not '1'"),
        ({"jobName": ["a"] * 1000}, "jobName: expected text, not"),
        ({"maxEpoch": 10}, "'maxEpoch': there is no such field"),
    ],
)
def test_a_submission_that_cannot_be_is_refused_by_field(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Rejected, match=words) as refused:
        messages.parse_submission(json.dumps({**SUBMISSION, **changes}).encode())
    assert len(str(refused.value)) < 200
