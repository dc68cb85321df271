"""Compares what is drawn with drawings that a person has checked: see samples.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler.presentation import views
from scheduler.presentation.render import Screen, width
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.samples import CLUSTER, GOLDEN, JOBS, NOW, WIDTHS, drawn, job

pytestmark = pytest.mark.usefixtures("in_utc")


@pytest.mark.parametrize("columns", WIDTHS)
def test_everything_is_drawn_like_the_golden_files(columns: int) -> None:
    golden = (GOLDEN / f"{columns}.txt").read_text().splitlines()
    assert list(drawn(columns)) == golden


@pytest.mark.parametrize("columns", range(60, 200, 7))
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(width(line) for line in drawn(columns)) <= columns


@pytest.mark.parametrize("columns", [20, 60, 80, 140, None])
def test_ids_and_states_are_never_cut(columns: int | None) -> None:
    lines = views.jobs(JOBS, NOW, Screen(columns), users=True)
    for shown, line in zip(JOBS, lines[1:], strict=True):
        assert line.startswith(shown.id[-8:])
        assert shown.state in line


def test_a_pipe_gets_names_and_reasons_whole() -> None:
    lines = "\n".join(views.jobs(JOBS, NOW, Screen(None), users=True))
    assert "resnet50-imagenet-lr0.1-seed7" in lines
    assert "preempted; turn (what is free is reserved for urgent)" in lines


def test_without_colours_there_is_no_escape() -> None:
    assert "\x1b" not in "\n".join(drawn(80))


def test_colours_do_not_move_anything() -> None:
    def coloured(columns: int) -> list[str]:
        screen = Screen(columns, colour=True)
        lines = views.jobs(JOBS, NOW, screen, users=True) + views.cluster(CLUSTER, screen)
        assert any("\x1b[32m" in line for line in lines)
        return [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in lines]

    plain = Screen(80)
    assert coloured(80) == views.jobs(JOBS, NOW, plain, users=True) + views.cluster(CLUSTER, plain)


def test_a_name_cannot_control_the_terminal() -> None:
    evil = job("00000bad", "\x1b]0;owned\x07", "FAILED", reason="line\nbreak\x1b[2J", attempt=1)
    story = [pb.Fact(at=NOW, kind="job_failed", data_json='{"reason": "\\u001b[2J"}')]
    lines = [
        *views.jobs([evil], NOW, Screen(80), users=True),
        *views.record(pb.GetJobReply(job=evil, story=story), NOW, Screen(80), extended=True),
    ]
    assert not [line for line in lines if not line.isprintable()]


def test_a_waiting_job_says_why_in_full() -> None:
    lines = views.record(pb.GetJobReply(job=JOBS[1]), NOW, Screen(None), extended=False)
    assert (
        "  why         pending: memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
        in lines
    )


def test_gpus_of_several_nodes_are_told_apart() -> None:
    cluster = pb.Cluster(gpus=[*CLUSTER.gpus, pb.GpuState(node="n2", index=0, type="T4")])
    lines = views.cluster(cluster, Screen(None))
    assert [line.split()[0] for line in lines[1:]] == [
        *("westworld/gpu0", "westworld/gpu1", "westworld/gpu2", "n2/gpu0")
    ]
    assert "node not ready" in lines[4]


def test_memory_of_a_pod_that_is_ending_fills_the_bar_too() -> None:
    gpu = pb.GpuState(index=0, capacity_mib=1000, reserved_mib=1000, ready=True)
    gpu.jobs.add(name="demo", memory_mib=500)
    assert "[██████████▓▓▓▓▓▓▓▓▓▓]" in views.cluster(pb.Cluster(gpus=[gpu]), Screen(80))[1]


def test_a_cluster_that_was_never_observed_says_so() -> None:
    assert views.cluster(pb.Cluster(), Screen(80)) == ["no GPU has been seen yet"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (pb.JobSpec(gpus_min=0, gpus_max=0), "no GPU"),
        (pb.JobSpec(gpus_min=1, gpus_max=1, memory_mib=400), "1 GPU, 400 MiB"),
        (
            pb.JobSpec(gpus_min=1, gpus_max=4, disable_gpu_sharing=True),
            "1 to 4 GPUs, whole until its memory use is measured, alone",
        ),
    ],
)
def test_the_requested_gpus_as_text(asked: pb.JobSpec, told: str) -> None:
    assert views.gpu_request(asked) == told


def test_a_job_whose_weights_lack_epochs_is_not_shown_as_if_it_were_complete() -> None:
    said = "finished, but its weights have only 6 of 8 epochs"
    lacking = job(
        *("0000fee1", "lossy", "FINISHED"),
        epochs_done=8,
        max_epochs=8,
        epochs_trained=6,
        reason=said,
        started_at=NOW - 9,
        ended_at=NOW - 5,
    )
    assert said in " ".join(views.jobs([lacking], NOW, Screen(None), users=False))
    record = views.record(pb.GetJobReply(job=lacking), NOW, Screen(None), extended=False)
    assert any("have only 6 of these 8 epochs" in line for line in record)
    assert said in views.progress(lacking)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("", "took 4.0 s"),
        ("finished", "took 4.0 s"),
        *(
            (reason, reason)
            for reason in (
                "finished, but reported none of its 6 epochs",
                "finished, but it is not known how many of 6 epochs are in its weights",
                "finished by itself after 3 of 6 epochs",
                "all epochs done, although its last run ended with exit code 1",
            )
        ),
    ],
)
def test_what_is_to_be_known_of_a_finished_job_is_in_the_list(reason: str, shown: str) -> None:
    times: dict[str, Any] = {"started_at": NOW - 9, "ended_at": NOW - 5}
    ended = job("0000fee1", "demo", "FINISHED", max_epochs=6, reason=reason, **times)
    assert views.jobs([ended], NOW, Screen(None), users=False)[-1].endswith(f"  {shown}")


def test_a_finished_job_of_one_epoch_says_how_to_train_more() -> None:
    given: dict[str, Any] = {"epochs_done": 1, "max_epochs": 1, "submitted_at": NOW}
    trained = job("1", "demo", "FINISHED", epoch_seconds=5, **given)
    shown = "\n".join(views.record(pb.GetJobReply(job=trained), NOW, Screen(), extended=False))
    assert "1 of 1, 5.0 s each; --max_epochs N trains more than 1" in shown
    program = job("2", "demo", "FINISHED", **given)
    shown = "\n".join(views.record(pb.GetJobReply(job=program), NOW, Screen(), extended=False))
    assert "--max_epochs" not in shown


def test_what_waiting_costs_is_told_where_sharing_would_cost_more() -> None:
    reason = "gpus (9872 MiB are free beside a on gpu0; sharing with it is expected to cost more "
    waits = job("1", "b", "QUEUED", reason=f"{reason}than waiting)", submitted_at=NOW)
    shown = views.record(pb.GetJobReply(job=waits), NOW, Screen(), extended=False)
    assert any(line.endswith("more than waiting)") for line in shown)
    waits.eta.CopyFrom(pb.Eta(starts_at=NOW + 40, starts_low=NOW + 30, starts_high=NOW + 50))
    (why,) = (
        line
        for line in views.record(pb.GetJobReply(job=waits), NOW, Screen(), False)
        if "pending" in line
    )
    assert why.endswith(
        "pending: gpus (9,872 MiB are free beside a on gpu0; "
        "sharing with it is expected to cost more than waiting (about 40 s))"
    )
