"""A job as one page: complete, harmless, and in need of nothing else."""

from __future__ import annotations

import re
from html import escape

from scheduler.presentation import outlook, views
from scheduler.presentation.job_page import job_page
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.samples import JOBS, NOW

EVIL = '<script>alert("x")</script>\u202egnp'


def page(job: pb.Job, *log: str, **given: object) -> str:
    reply = pb.GetJobReply(job=job, **given)  # type: ignore[arg-type]  # passed on as they are
    return job_page(reply, log, NOW, "gpu1:7070")


def test_it_has_all_that_the_command_shows() -> None:
    fact = pb.Fact(at=NOW - 60, kind="job_submitted", data_json='{"user": "ada"}')
    learned = pb.Learned(memory_asked_mib=4000, memory_mib=4100, gpu_util=0.9)
    for job in JOBS:
        made = page(job, "epoch 1: loss 0.5", story=[fact], learned=learned)
        fields = [*views.about(job, NOW), *views.options(job.spec)]
        for _, text in [*fields, *outlook.learned_fields(learned)]:
            assert escape(text) in made
        assert "submitted by ada" in made
        assert "epoch 1: loss 0.5" in made
        assert "gpu1:7070" in made


def test_what_users_wrote_is_text() -> None:
    job = pb.Job(id="1", state="FAILED", reason=EVIL, spec=pb.JobSpec(name=EVIL, user=EVIL))
    made = page(job, EVIL)
    assert "<script" not in made
    assert "\u202e" not in made
    assert made.count("&lt;script&gt;") >= 4


def test_it_loads_nothing() -> None:
    made = page(JOBS[1])
    assert not re.search(r"src=|href=|url\(|@import|https?:", made)


def test_what_is_not_known_is_left_out() -> None:
    made = page(pb.Job(id="1", state="QUEUED", spec=pb.JobSpec(name="new", user="ada")))
    assert "<h2>Story" not in made
    assert "<h2>Log" not in made
