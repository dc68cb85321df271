from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from scheduler.access.identity import user_token
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import SECRET, Serving, by, of
from tests.support import BIN, eventually

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/state.json").read_text())


def names(table: str) -> list[str]:
    header, *rows = [line.split() for line in table.splitlines()]
    return [row[header.index("NAME")] for row in rows]


@pytest.fixture
def jobs(server: Serving) -> dict[str, str]:
    """Ids by name: a job that runs, one that waits for memory, a held one, and one of eve's."""
    ids: dict[str, str] = {"big": server.running("big", memory_mib=15000, project="vision").id}
    ids["other"] = server.running("other", memory_mib=15000, user="eve").id
    labels = [pb.KeyValue(key="sweep", value="7")]
    ids["small"] = server.submit("small", memory_mib=4000, labels=labels)
    ids["held"] = server.submit("held", held=True, experiment="e1")
    eventually(lambda: ids["small"] in server.scheduler.view.why)
    return ids


# --- the list -----------------------------------------------------------------------------------


def test_the_callers_own_jobs_are_listed_newest_first(
    jobs: dict[str, str], command: Command
) -> None:
    done = command("scheduler-state")
    assert (done.exit_code, done.err) == (0, "")
    assert names(done.out) == ["held", "small", "big"]


@pytest.mark.parametrize(
    ("flags", "listed"),
    [
        (["--all_users"], ["held", "small", "other", "big"]),
        (["--all-users", "--user", "eve"], ["other"]),
        (["--user", "eve"], ["other"]),
        (["--nlast", "2"], ["held", "small"]),
        (["--nlast"], ["held", "small", "big"]),
        (["--status", "running"], ["big"]),
        (["--status", "QUEUE"], ["small", "big"]),
        (["--status", "QUEUED", "--status", "HELD"], ["held", "small"]),
        (["--project", "vision"], ["big"]),
        (["--experiment", "e1"], ["held"]),
        (["--label", "sweep=7"], ["small"]),
    ],
)
def test_filters(
    flags: list[str], listed: list[str], jobs: dict[str, str], command: Command
) -> None:
    assert names(command("scheduler-state", *flags).out) == listed


def test_users_have_a_column_when_there_may_be_several(
    jobs: dict[str, str], command: Command
) -> None:
    assert "USER" not in command("scheduler-state").out
    assert "USER" in command("scheduler-state", "--all_users").out


def test_a_list_that_is_cut_says_so_beside_it(jobs: dict[str, str], command: Command) -> None:
    done = command("scheduler-state", "--nlast", "1")
    assert names(done.out) == ["held"]
    assert done.err == "1 of 3 jobs; --nlast N shows the newest N\n"


def test_an_empty_list_is_no_error(server: Serving, command: Command) -> None:
    done = command("scheduler-state")
    assert (done.exit_code, done.out) == (0, "")
    assert done.err == "no jobs of yours; --all_users lists those of all users\n"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--status", "FOO"], "--status 'FOO': is none of HELD"),
        (["--nlast", "1001"], "--nlast 1001: must be at most 1000"),
        (["x", "--status", "QUEUED"], "jobs and filters exclude each other: leave out 'x' or"),
    ],
)
def test_wrong_filters_are_named(
    flags: list[str], told: str, server: Serving, command: Command
) -> None:
    done = command("scheduler-state", *flags)
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith(f"scheduler-state: {told}")


def test_extended_shows_every_option_of_each(jobs: dict[str, str], command: Command) -> None:
    done = command("scheduler-state", "--extended")
    assert done.out.count("--script_path") == 3
    assert "--estimated_memory   4000" in done.out


# --- one job ------------------------------------------------------------------------------------


def test_a_waiting_job_says_why(jobs: dict[str, str], command: Command) -> None:
    done = command("scheduler-state", "small")
    assert done.exit_code == 0
    assert "pending: memory (needs 4,000 MiB; gpu0 has the most free: 872 MiB)" in done.out
    assert "submitted by ada" in done.out


@pytest.mark.parametrize("length", [8, 12, 36])
def test_the_end_of_an_id_is_enough(length: int, jobs: dict[str, str], command: Command) -> None:
    done = command("scheduler-state", jobs["small"][-length:])
    assert done.exit_code == 0
    assert jobs["small"] in done.out


def test_a_name_of_several_lists_them(jobs: dict[str, str], command: Command) -> None:
    command("run-scheduler", "--hold", "small", "--", "ls", user="eve")
    done = command("scheduler-state", "small")
    assert (done.exit_code, done.out) == (2, "")
    first, *candidates = done.err.splitlines()
    assert first == "scheduler-state: 'small' is the name of several jobs:"
    assert [line.split()[1:3] for line in candidates] == [["small", "ada"], ["small", "eve"]]


def test_of_several_jobs_the_existing_ones_are_shown(
    jobs: dict[str, str], command: Command
) -> None:
    done = command("scheduler-state", "small", "nope", "big")
    assert done.exit_code == 2
    assert done.err == "scheduler-state: no job matches 'nope'\n"
    assert [line for line in done.out.splitlines() if line and line[0] != " "] == [
        "small  QUEUED",
        "big  RUNNING",
    ]


def test_extended_shows_the_end_of_the_log(
    jobs: dict[str, str], server: Serving, command: Command
) -> None:
    log = server.logs / jobs["big"] / "attempt-1" / "rank0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(150)))
    done = command("scheduler-state", jobs["big"], "--extended")
    assert "\nline 50\n" in done.out
    assert "\nline 49\n" not in done.out


# --- for programs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags", [[], ["--cluster"], ["small", "big"], ["--extended"], ["--status", "FAILED"]]
)
def test_json_conforms_to_the_schema(
    flags: list[str], jobs: dict[str, str], command: Command
) -> None:
    done = command("scheduler-state", "--all_users", "--output", "json", *flags)
    assert done.exit_code == 0
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(done.out))


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_json_contains_what_a_program_needs(
    jobs: dict[str, str], server: Serving, command: Command
) -> None:
    job = server.job(jobs["big"])
    profile = pb.Profile(job_id=job.id, attempt=1, epoch=2, epoch_seconds=10, memory_mib=15000)
    server.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=of(job), timeout=10)
    done = command("scheduler-state", "--output", "json", "--cluster", "big")
    answer = json.loads(done.out)
    assert answer["total"] == 1
    (told,) = answer["jobs"]
    assert (told["state"], told["epochs_done"], told["max_epochs"]) == ("RUNNING", 2, 5)
    assert (told["epoch_seconds"], told["eta_seconds"]) == (10, 30)
    assert told["shares"] == [{"node": "westworld", "gpu": "gpu0", "memory_mib": 15000}]
    assert told["spec"]["script_path"] == "/custom/train.py"
    assert [fact["kind"] for fact in told["story"]][:2] == ["job_submitted", "run_started"]
    assert isinstance(told["submitted_at"], float)
    assert [gpu["reserved_mib"] for gpu in answer["gpus"]] == [15000, 15000]
    assert answer["gpus"][0]["jobs"][0]["id"] == jobs["big"]
    assert {total["user"]: total["waiting"] for total in answer["users"]} == {"ada": 2, "eve": 0}


def test_variables_of_others_are_hidden(jobs: dict[str, str], command: Command) -> None:
    command("run-scheduler", "--hold", "--env", "KEY=secret", "mine", "--", "ls", user="eve")

    def told(user: str) -> dict[str, Any]:
        done = command("scheduler-state", "mine", "--output", "json", user=user)
        environment: dict[str, Any] = json.loads(done.out)["jobs"][0]["spec"]["env"]
        return environment

    assert told("eve") == {"KEY": "secret"}
    assert told("ada") == {"KEY": "(hidden)"}


# --- the cluster --------------------------------------------------------------------------------


def test_the_cluster_shows_the_jobs_on_each_gpu(jobs: dict[str, str], command: Command) -> None:
    done = command("scheduler-state", "--cluster")
    gpu0 = next(line for line in done.out.splitlines() if line.startswith("gpu0"))
    assert "15,000/15,872" in gpu0
    assert gpu0.endswith("big 15,000")
    assert [line.split()[:3] for line in done.out.splitlines() if line.startswith("ada")] == [
        ["ada", "1", "2"]
    ]


# --- watching -----------------------------------------------------------------------------------


@contextmanager
def started(server: Serving, *words: str | Path, **given: Any) -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        "SCHEDULER_SERVER": f"127.0.0.1:{server.server.port}",
        "SCHEDULER_TOKEN": user_token(SECRET, "ada"),
        "TERM": "xterm",
    }
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [BIN / words[0], *words[1:]],
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def test_a_watch_in_a_pipe_prints_when_something_changed(
    jobs: dict[str, str], server: Serving
) -> None:
    words = ("scheduler-state", "--watch", "--output", "json", "small")
    with started(server, *words) as watch:
        assert watch.stdout is not None
        (job,) = json.loads(watch.stdout.readline())["jobs"]
        assert job["state"] == "QUEUED"
        request = pb.CancelJobRequest(job=jobs["small"])
        server.people.CancelJob(request, metadata=by("ada"), timeout=10)
        while job["state"] != "CANCELED":
            (job,) = json.loads(watch.stdout.readline())["jobs"]
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 130
        assert watch.stderr is not None
        assert watch.stderr.read() == ""


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and the other end, for a process."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def read_until(ours: int, text: str) -> str:
    seen = b""
    until = time.monotonic() + 30  # a redrawn page produces output for ever
    while text.encode() not in seen:
        left = max(0.0, until - time.monotonic())
        assert select.select([ours], [], [], left)[0], f"{text!r} never came: {seen!r}"
        seen += os.read(ours, 4096)
    return seen.decode(errors="replace")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_on_a_terminal_redraws_a_page_of_its_own(
    how: signal.Signals, jobs: dict[str, str], server: Serving
) -> None:
    words = ("scheduler-state", "--watch", "--cluster")
    with terminal() as (ours, theirs), started(server, *words, stdout=theirs) as watch:
        seen = read_until(ours, "held (until")
        assert seen.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
        assert "\x1b[33mQUEUED\x1b[0m" in seen
        request = pb.CancelJobRequest(job=jobs["small"])
        server.people.CancelJob(request, metadata=by("ada"), timeout=10)
        assert "\x1b[H" in read_until(ours, "\x1b[90mCANCELED\x1b[0m")
        watch.send_signal(how)
        assert read_until(ours, "\x1b[?1049l").endswith("\x1b[?25h\x1b[?1049l")
        assert watch.wait(30) == 130


def test_waiting_on_a_terminal_shows_how_far_it_is(server: Serving) -> None:
    words = ("run-scheduler", "--wait", "demo", "--", "ls")
    with terminal() as (ours, theirs), started(server, *words, stderr=theirs) as wait:
        read_until(ours, "demo: RUNNING, epoch 0/1")
        (job_id,) = server.scheduler.view.jobs
        server.cluster.end(job_id, 1)
        assert wait.wait(30) == 0
