from __future__ import annotations

import pytest

from cli.slurm.job_folder import JobFolder, job_document, read_folders
from cli.slurm.pilot_folder import PilotCall, call_document, record_document
from cli.slurm.pilot_status import NO_PILOT, message, read_pilots
from cli.slurm.slurm_queue import QueuedJob
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"
SPEC = pb.JobSpec(name="demo", max_epochs=4)
RUNNING = pb.Job(
    id=ID, spec=SPEC, state="RUNNING", epochs_done=2, attempt=1, shares=[pb.Share(gpu="g")]
)
ENDED = pb.Job(id=ID, spec=SPEC, state="FINISHED", ended_at=9.0)


def folder(record: pb.Job | None = None) -> JobFolder:
    text = job_document(ID, SPEC, 1000.0, "lab")
    if record is not None:
        text = record_document(record, "7.0") + text
    return read_folders(text)[ID]


def row(state: str, reason: str = "None", number: str = "7") -> QueuedJob:
    return QueuedJob(number, state, reason, 0, 0, 1001, "ada", "n0", "gpu:2", "", "pilot-lab")


@pytest.mark.parametrize(
    ("of", "queued", "state", "reason"),
    [
        (folder(), row("RUNNING"), "QUEUED", "its pilot takes it in a moment"),
        (folder(RUNNING), row("RUNNING"), "RUNNING", ""),
        (
            folder(RUNNING),
            row("PENDING", "Resources"),
            "QUEUED",
            "its pilot, 7: waits for free resources (Resources)",
        ),
        (folder(RUNNING), row("COMPLETING"), "QUEUED", "its pilot, 7, begins or ends"),
        (folder(RUNNING), row("CANCELLED"), "QUEUED", NO_PILOT),
        (folder(RUNNING), row("RUNNING", number="8"), "QUEUED", NO_PILOT),
        (folder(ENDED), row("RUNNING"), "FINISHED", ""),
        (folder(ENDED), row("FAILED"), "FINISHED", ""),
    ],
)
def test_a_job_waits_unless_a_pilot_has_it(
    of: JobFolder, queued: QueuedJob, state: str, reason: str
) -> None:
    pilot = read_pilots("pilot lab 7.0 7 \n")["lab"]
    job = message(of, pilot, {queued.number: queued}, "ada")
    assert (job.state, job.reason) == (state, reason)
    assert bool(job.shares) == (state == "RUNNING")


def test_what_was_asked_while_no_pilot_has_it_shows_already() -> None:
    cancel = call_document(PilotCall("", "cancel", ID, 5.0, "ada"))
    update = pb.UpdateJobRequest(held=True, priority=3)
    change = call_document(PilotCall("", "update", ID, 4.0, "ada", update=update))
    pilot = read_pilots(f"pilot lab 7.0 7 \n{change}")["lab"]
    job = message(folder(RUNNING), pilot, {}, "ada")
    assert (job.state, job.priority) == ("HELD", 3)
    pilot = read_pilots(f"pilot other 3.0 3\npilot lab 7.0 7 \n{change}{cancel}half a li")["lab"]
    job = message(folder(RUNNING), pilot, {}, "ada")
    assert (job.state, job.reason, job.ended_at) == ("CANCELED", "canceled by ada", 5.0)
    job = message(folder(ENDED), pilot, {}, "ada")
    assert job.state == "FINISHED"


def test_why_a_pilot_did_not_start_is_told() -> None:
    pilot = read_pilots("pilot lab - 7 gpus: nvml:7: NVML shows no such GPU\n")["lab"]
    job = message(folder(), pilot, {}, "ada")
    assert job.reason == "its pilot could not start: gpus: nvml:7: NVML shows no such GPU"


def test_while_slurm_does_not_answer_a_job_is_as_it_was() -> None:
    pilot = read_pilots("pilot lab 7.0 7 \n")["lab"]
    job = message(folder(RUNNING), pilot, {}, "ada", "unknown since 12:00")
    assert (job.state, job.reason) == ("RUNNING", "unknown since 12:00")
