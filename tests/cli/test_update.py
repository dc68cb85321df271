from __future__ import annotations

import json

import pytest

from scheduler.core.model import RunPhase
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import Serving, of
from tests.support import eventually


def test_a_held_job_is_released_and_starts(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-update-job", "demo", "--release")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == f"demo ({job[-8:]}): released\n"
    eventually(lambda: (run := server.job(job).run) and run.phase is RunPhase.RUNNING)


def test_a_waiting_job_is_held(server: Serving, command: Command) -> None:
    server.submit("first", memory_mib=15872, gpus_min=2, gpus_max=2)
    job = server.submit("demo", memory_mib=15872, gpus_min=2, gpus_max=2)
    done = command("scheduler-update-job", "demo", "--hold")
    assert done.out == f"demo ({job[-8:]}): held\n"
    assert server.job(job).held


def test_a_running_job_that_is_held_leaves_at_the_end_of_its_epoch(
    server: Serving, command: Command
) -> None:
    running = server.running("demo", max_epochs=30)
    job = running.id
    epoch = pb.StartEpochRequest(job_id=job, attempt=1)
    server.jobs.StartEpoch(epoch, metadata=of(running), timeout=10)
    done = command("scheduler-update-job", "demo", "--hold")
    assert done.out == f"demo ({job[-8:]}): held from the end of its epoch\n"
    eventually(lambda: (run := server.job(job).run) and run.phase is RunPhase.STOPPING)


def test_a_run_that_reports_no_epochs_is_not_interrupted_by_a_hold(
    server: Serving, command: Command
) -> None:
    job = server.running("demo").id
    done = command("scheduler-update-job", "demo", "--hold")
    told = "held from the end of its run, which has reported no epoch yet"
    assert done.out == f"demo ({job[-8:]}): {told}\n"


def test_several_changes_of_several_jobs_at_once(server: Serving, command: Command) -> None:
    jobs = [server.submit(name, held=True) for name in ("a", "b")]
    flags = ("--priority", "-3", "--max-epochs", "1200")
    done = command("scheduler-update-job", *flags, *jobs)
    assert done.out.splitlines() == [
        f"{name} ({job[-8:]}): priority -3, 1,200 epochs"
        for name, job in zip("ab", jobs, strict=True)
    ]
    assert [(server.job(job).priority, server.job(job).max_epochs) for job in jobs] == [
        (-3, 1200)
    ] * 2


def test_the_others_are_updated_despite_one_bad_id(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-update-job", "nope", job, "--priority", "5")
    assert done.exit_code == 1
    assert done.err == "scheduler-update-job: no job matches 'nope'\n"
    assert server.job(job).priority == 5


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (["demo"], 2, "nothing to change: give --hold, --release, --priority, --max_epochs or"),
        (["--hold"], 2, "JOB is missing"),
        (["demo", "--hold", "--release"], 2, "--hold and --release exclude each other"),
        (["demo", "--priority", "9999"], 2, "--priority 9999: must be at most 1000"),
        (["demo", "--max_epochs", "0"], 2, "--max_epochs: 0 must be at least 1"),
        (["nope", "--hold"], 2, "no job matches 'nope'"),
        (["theirs", "--hold"], 4, "belongs to eve, and you are ada"),
    ],
)
def test_what_cannot_be_changed_is_refused_in_one_line(
    words: list[str], exit_code: int, told: str, server: Serving, command: Command
) -> None:
    server.submit("demo", held=True)
    server.submit("theirs", user="eve")
    done = command("scheduler-update-job", *words)
    assert (done.exit_code, done.out) == (exit_code, "")
    assert done.err.splitlines()[-1].startswith("scheduler-update-job: ")
    assert told in done.err


def test_an_ended_job_is_not_changed(server: Serving, command: Command) -> None:
    job = server.running("demo").id
    server.cluster.end(job, 1)
    eventually(lambda: server.job(job).outcome)
    done = command("scheduler-update-job", job, "--priority", "2")
    assert (done.exit_code, done.out) == (4, "")
    assert "has ended: it is FINISHED; scheduler-resubmit-job submits it again" in done.err


def test_json_contains_each_job_as_it_is_now(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-update-job", job, "--priority", "7", "--output", "json")
    (record,) = json.loads(done.out)["jobs"]
    assert (record["id"], record["priority"], record["state"]) == (job, 7, "HELD")


def test_a_job_is_annotated_also_after_it_has_ended(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-update-job", "demo", "--annotate", "star=yes", "--hold")
    assert done.out == f"demo ({job[-8:]}): held, annotated star\n"
    assert command("scheduler-cancel-job", job).exit_code == 0
    eventually(lambda: server.job(job).outcome)
    done = command(
        "scheduler-update-job", job, "--annotate", "note=good = best", "--annotate=star="
    )
    assert done.out == f"demo ({job[-8:]}): annotated note, without star\n"
    shown = command("scheduler-state", job)
    assert "annotated  note=good = best" in shown.out
    told = json.loads(command("scheduler-state", job, "--output", "json").out)
    assert told["jobs"][0]["annotations"] == {"note": "good = best"}


def test_an_ended_job_is_annotated_or_changed_and_not_half_of_both(
    server: Serving, command: Command
) -> None:
    job = server.submit("demo", held=True)
    command("scheduler-cancel-job", job)
    eventually(lambda: server.job(job).outcome)
    done = command("scheduler-update-job", job, "--annotate", "star=yes", "--priority", "3")
    assert (done.exit_code, "has ended" in done.err) == (4, True)
    assert "annotated" not in command("scheduler-state", job).out


def test_annotations_are_for_the_owner_and_admins(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    words = ("scheduler-update-job", job, "--annotate", "star=yes")
    assert command(*words, user="bob").exit_code == 4
    assert command(*words, user="root").exit_code == 0
    for wrong in ("star", "=yes", f"note={'x' * 1001}"):
        done = command("scheduler-update-job", job, "--annotate", wrong)
        assert (done.exit_code, done.err.count("\n")) == (2, 1), done.err
