from __future__ import annotations

import io
import json

import pytest

from scheduler.core.model import JobId
from tests.cli.conftest import Command
from tests.serving import Serving
from tests.support import eventually


def state(server: Serving, job_id: str) -> str:
    job = server.scheduler.view.jobs[JobId(job_id)]
    return str(job.outcome or ("cancelled" if job.cancelled else "live"))


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_waiting_job_is_cancelled_at_once(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-cancel-job", "demo")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == f"demo ({job[-8:]}): canceled\n"
    assert state(server, job) == "cancelled"


def test_a_running_job_is_stopped_now(server: Serving, command: Command) -> None:
    job = server.running("demo").id
    done = command("scheduler-cancel-job", job[-8:])
    assert done.exit_code == 0
    assert done.out.startswith(f"demo ({job[-8:]}): ")
    eventually(lambda: server.job(job).outcome)
    assert state(server, job) == "cancelled"


def test_graceful_stops_at_the_end_of_the_epoch(server: Serving, command: Command) -> None:
    job = server.running("demo", memory_mib=100).id
    done = command("scheduler-cancel-job", "--graceful", "demo")
    assert done.out == f"demo ({job[-8:]}): stopping at the end of its epoch\n"
    assert server.job(job).run is not None


def test_an_ended_job_keeps_its_outcome(server: Serving, command: Command) -> None:
    job = server.running("demo").id
    server.cluster.end(job, 1)
    eventually(lambda: server.job(job).outcome)
    done = command("scheduler-cancel-job", job)
    assert (done.exit_code, done.out) == (0, f"demo ({job[-8:]}): already finished\n")


def test_the_job_of_another_user_cannot_be_cancelled(server: Serving, command: Command) -> None:
    job = server.submit("demo", user="eve", held=True)
    done = command("scheduler-cancel-job", job)
    assert (done.exit_code, done.out) == (4, "")
    assert done.err == f"scheduler-cancel-job: job {job} belongs to eve, and you are ada\n"
    assert state(server, job) == "live"
    assert command("scheduler-cancel-job", job, user="root").exit_code == 0


def test_the_others_are_cancelled_despite_one_bad_id(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    done = command("scheduler-cancel-job", "nope", job)
    assert done.exit_code == 1
    assert done.err == "scheduler-cancel-job: no job matches 'nope'\n"
    assert state(server, job) == "cancelled"


def test_one_bad_id_alone_is_wrong_usage(server: Serving, command: Command) -> None:
    assert command("scheduler-cancel-job", "nope").exit_code == 2


@pytest.mark.parametrize(
    ("typed", "exit_code", "outcome"),
    [
        ("\n", 1, "live"),
        ("", 1, "live"),
        ("n\n", 1, "live"),
        ("x\n", 1, "live"),
        ("y\n", 0, "cancelled"),
        (" YES \n", 0, "cancelled"),
    ],
)
def test_filters_list_and_ask(
    typed: str,
    exit_code: int,
    outcome: str,
    server: Serving,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = [server.submit(f"grid-{i}", held=True, experiment="sweep") for i in range(2)]
    theirs = server.submit("theirs", user="eve", held=True, experiment="sweep")
    unasked = server.submit("other", held=True)
    answer(monkeypatch, typed)
    done = command("scheduler-cancel-job", "--experiment", "sweep", "--status", "HELD")
    assert done.exit_code == exit_code
    assert "grid-0" in done.err
    assert "cancel these 2 jobs? [y/N] " in done.err
    assert [state(server, job) for job in ours] == [outcome] * 2
    assert [state(server, job) for job in (theirs, unasked)] == ["live"] * 2


def test_yes_confirms_in_advance(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True, experiment="sweep")
    done = command("scheduler-cancel-job", "--experiment", "sweep", "--yes")
    assert (done.exit_code, done.err) == (0, "")
    assert state(server, job) == "cancelled"


@pytest.mark.parametrize("flags", [["--experiment", "nope"], ["--status", "FINISHED"]])
def test_if_nothing_matches_nothing_is_cancelled(
    flags: list[str], server: Serving, command: Command
) -> None:
    done = command("scheduler-cancel-job", *flags)
    assert (done.exit_code, done.out) == (0, "")
    assert "nothing to cancel" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [([], "name jobs or give filters"), (["x", "--experiment", "e"], "not both")],
)
def test_jobs_or_filters(words: list[str], told: str, command: Command) -> None:
    done = command("scheduler-cancel-job", *words)
    assert done.exit_code == 2
    assert told in done.err


def test_json_contains_each_job(server: Serving, command: Command) -> None:
    job = server.submit("demo", held=True)
    first = json.loads(command("scheduler-cancel-job", "--output", "json", job).out)
    again = json.loads(command("scheduler-cancel-job", "--output", "json", job).out)
    assert [(each["id"], each["state"], each["already_ended"]) for each in first["jobs"]] == [
        (job, "CANCELED", False)
    ]
    assert again["jobs"][0]["already_ended"] is True


def test_an_unreachable_scheduler_is_reported_once(command: Command) -> None:
    done = command("scheduler-cancel-job", "--server", "127.0.0.1:1", "a", "b")
    assert done.exit_code == 3
    assert done.err.count("\n") == 1
