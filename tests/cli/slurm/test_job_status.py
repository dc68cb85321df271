from __future__ import annotations

import json

import pytest

from cli.slurm.job_folder import JobFolder, StoryLine, read_folders
from cli.slurm.job_status import adopted, facts, message, over_line
from cli.slurm.slurm_queue import AccountedJob, QueuedJob
from scheduler.presentation.story import sentence
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"
NOW = 2000.0


def folder(*story: str, epochs: int = 0) -> JobFolder:
    """`story`: such as `1 started 7 0 2 n0`; each a second after the one before."""
    found = JobFolder(ID, pb.JobSpec(name="demo", max_epochs=4), 1000.0, epochs_done=epochs)
    found.story.append(StoryLine(0, 1001.0, "submitted", "7"))
    for at, line in enumerate(story, 1002):
        attempt, kind, *words = line.split(" ", 2)
        found.story.append(StoryLine(int(attempt), float(at), kind, "".join(words)))
    return found


def row(state: str, reason: str = "None", starts_at: float = 0.0) -> QueuedJob:
    return QueuedJob("7", state, reason, starts_at, 0, 1001, "ada", "n0", "gpu:2", ID, "demo")


def account(state: str) -> AccountedJob:
    return AccountedJob("7", state, 0, 0, 1002.0, 1500.0, "n0", "None")


def told(
    of: JobFolder,
    queued: QueuedJob | None = None,
    accounted: AccountedJob | None = None,
    seen_at: float = NOW,
    unknown: str = "",
    now: float = NOW,
) -> pb.Job:
    return message(of, queued, accounted, "ada", now, seen_at, unknown)


STARTED = "1 started 7 0 2 n0"


@pytest.mark.parametrize(
    ("of", "queued", "state", "reason"),
    [
        (folder(), row("PENDING", "Resources"), "QUEUED", "waits for free resources (Resources)"),
        (folder(), row("PENDING", "JobHeldUser"), "HELD", "until it is released (JobHeldUser)"),
        (folder(), row("CONFIGURING"), "STARTING", "its nodes are being prepared"),
        (folder(), row("RUNNING"), "STARTING", ""),
        (folder(STARTED), row("RUNNING"), "RUNNING", ""),
        (folder(STARTED), row("SUSPENDED"), "RUNNING", "suspended by Slurm"),
        (folder(STARTED), row("COMPLETING"), "STOPPING", ""),
        (
            folder(STARTED, "1 warned"),
            row("RUNNING"),
            "STOPPING",
            "at the end of its epoch: Slurm wants its place",
        ),
        (
            folder(STARTED, "1 stopping ada"),
            row("RUNNING"),
            "STOPPING",
            "at the end of its epoch: canceled",
        ),
        (folder(STARTED, "1 warned", "2 started 7 1 2 n0"), row("RUNNING"), "RUNNING", ""),
    ],
)
def test_what_slurm_runs_or_keeps_waiting_is_live(
    of: JobFolder, queued: QueuedJob, state: str, reason: str
) -> None:
    job = told(of, queued)
    assert (job.state, job.reason) == (state, reason)
    assert not job.HasField("ended_at")


@pytest.mark.parametrize(
    ("state", "story", "outcome"),
    [
        ("COMPLETED", "1 ended 0 4", ("FINISHED", "")),
        ("FAILED", "1 ended 3 1", ("FAILED", "exit code 3")),
        ("FAILED", "1 ended 137 1", ("FAILED", "killed by SIGKILL")),
        (
            "FAILED",
            "1 refused no such job",
            ("FAILED", "Slurm did not start it again: no such job"),
        ),
        ("FAILED", "1 started 7 0 2 n0", ("FAILED", "its script failed")),
        ("CANCELLED", "1 terminated", ("CANCELED", "cancelled with scancel")),
        ("CANCELLED", "1 canceled ada", ("CANCELED", "canceled by ada")),
        ("FAILED", "1 stopping ada", ("CANCELED", "canceled by ada")),
        ("PREEMPTED", "1 terminated", ("FAILED", "preempted, and not started again by Slurm")),
        ("TIMEOUT", "1 warned", ("FAILED", "its time was over (TIMEOUT), before the epoch was")),
        ("NODE_FAIL", STARTED, ("FAILED", "its node failed")),
        ("BOOT_FAIL", STARTED, ("FAILED", "its node did not boot")),
        ("DEADLINE", STARTED, ("FAILED", "its deadline passed (DEADLINE)")),
        (
            "OUT_OF_MEMORY",
            STARTED,
            ("FAILED", "its memory was not enough (mem=): killed by Slurm (OUT_OF_MEMORY)"),
        ),
    ],
)
def test_each_end_has_its_words_from_the_queue_and_from_the_accounts(
    state: str, story: str, outcome: tuple[str, str]
) -> None:
    of = folder(STARTED, story)
    for job in (told(of, row(state)), told(of, None, account(state))):
        assert (job.state, job.reason) == outcome
        assert job.HasField("ended_at")


def test_what_slurm_has_forgotten_without_accounts_is_told_as_far_as_it_is_known() -> None:
    finished = told(folder(STARTED, "1 ended 0 4", epochs=4))
    assert (finished.state, finished.epochs_done, finished.ended_at) == ("FINISHED", 4, 1003.0)
    failed = told(folder(STARTED, "1 ended 3 1"))
    assert (failed.state, failed.reason, failed.exit_code) == ("FAILED", "exit code 3", 3)
    assert told(folder(STARTED), now=1100.0).state == "RUNNING", (
        "squeue may be older than the start"
    )
    assert told(folder(), now=1100.0).state == "QUEUED"
    lost = told(folder(STARTED))
    assert lost.state == "FAILED"
    assert "no longer in Slurm's queue" in lost.reason
    assert told(folder(STARTED, "1 canceled ada")).state == "CANCELED"


def test_a_job_that_slurm_never_had_fails_after_a_while() -> None:
    of = JobFolder(ID, pb.JobSpec(name="demo"), NOW - 10)
    assert (told(of).state, told(of).reason) == ("QUEUED", "not yet known to Slurm")
    of.submitted_at = NOW - 1000
    assert (told(of).state, told(of).reason) == ("FAILED", "Slurm has not accepted it")


def test_while_slurm_does_not_answer_nothing_has_failed() -> None:
    unknown = "unknown since 12:00: no answer"
    for of, state in ((folder(), "QUEUED"), (folder(STARTED), "RUNNING")):
        job = told(of, None, None, unknown=unknown)
        assert (job.state, job.reason) == (state, unknown)
        assert not job.HasField("ended_at")
    running = told(folder(STARTED), row("RUNNING"), unknown=unknown)
    assert (running.state, running.reason) == ("RUNNING", unknown)
    assert told(folder(STARTED, "1 ended 0 4"), unknown=unknown).state == "FINISHED"


def test_what_was_seen_before_a_run_began_does_not_make_it_wait() -> None:
    of = folder(STARTED)  # at 1002
    assert told(of, row("PENDING"), seen_at=1001.5).state == "RUNNING"
    again = told(of, row("PENDING", "BeginTime"), seen_at=1100.0)
    assert (again.state, again.preempted) == ("QUEUED", True)
    assert again.last_run == "ended by Slurm: preempted, or its node failed"
    stopped = told(folder(STARTED, "1 again stopped"), row("PENDING"), seen_at=1100.0)
    assert (stopped.preempted, stopped.last_run.partition(",")[0]) == (
        False,
        "stopped at the end of its epoch",
    )


def test_a_waiting_job_is_told_when_it_starts() -> None:
    job = told(folder(), row("PENDING", "Priority", starts_at=5000.0))
    assert job.eta.starts_at == 5000.0


def test_an_end_that_was_found_out_once_is_not_asked_again() -> None:
    of = folder(STARTED)
    job = told(of, None, account("NODE_FAIL"))
    (read,) = read_folders(
        json.dumps({"id": ID, "submitted_at": 1000.0, "spec": {}}) + "\n" + over_line(job, 1)
    ).values()
    again = told(read)
    assert (again.state, again.reason, again.ended_at) == ("FAILED", "its node failed", 1500.0)


def test_a_job_whose_folder_was_lost_is_adopted() -> None:
    job = told(adopted(row("RUNNING")), row("RUNNING"))
    assert (job.id, job.spec.name, job.spec.user, job.state) == (ID, "demo", "ada", "STARTING")


def test_its_story_is_told() -> None:
    of = folder(STARTED, "1 warned", "1 ended 85 2", "1 again stopped", "2 started 7 2 0 n1")
    of.story.append(StoryLine(2, 1100.0, "ended", "0 4"))
    told_facts = [sentence(fact) for fact in facts(of, told(of, row("COMPLETED")))]
    assert told_facts == [
        "submitted by ada",
        "attempt 1 started on 2 GPUs of n0",
        "attempt 1 was asked to stop: Slurm wants its place",
        "attempt 1 ended after 2.0 s, 2 epochs done: stopped at the end of its epoch",
        "attempt 2 started without a GPU, continues after epoch 2",
        "attempt 2 ended after 2 min, 4 epochs done",
        "FINISHED",
    ]
