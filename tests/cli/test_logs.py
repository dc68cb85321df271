from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from cli.command import CommandError
from cli.logs import safe_path
from scheduler import run_logs
from scheduler.core.model import JobId
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import Serving, by
from tests.support import eventually


def write(server: Serving, job: str, attempt: int, text: str) -> None:
    path = server.logs / job / f"attempt-{attempt}" / "rank0.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text.encode())


@pytest.fixture
def job(server: Serving) -> str:
    """A job with the output of two attempts."""
    job = server.running("demo", retries=1).id
    write(server, job, 1, "".join(f"line {number}\n" for number in range(10)))
    write(server, job, 2, "second\n")
    return job


@pytest.fixture
def attempts(server: Serving, job: str) -> str:
    request = pb.CancelJobRequest(job=job)
    server.people.CancelJob(request, metadata=by("ada"), timeout=10)
    eventually(lambda: server.job(job).outcome)
    return job


def test_everything_is_printed_as_it_was_written(
    server: Serving, job: str, command: Command
) -> None:
    done = command("scheduler-get-logs", job, "--attempt", "1")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out.splitlines() == [f"line {number}" for number in range(10)]


def test_attempts_are_separated_by_headings(attempts: str, command: Command) -> None:
    done = command("scheduler-get-logs", attempts, "--attempt", "all")
    assert done.out.startswith("==> attempt 1 (rank 0) <==\nline 0\n")
    assert done.out.endswith("==> attempt 2 (rank 0) <==\nsecond\n")


def test_the_tail(job: str, command: Command) -> None:
    done = command("scheduler-get-logs", job, "--attempt", "1", "--tail", "3")
    assert done.out == "line 7\nline 8\nline 9\n"


def test_a_job_that_waits_has_no_output_yet(server: Serving, command: Command) -> None:
    server.submit("demo", held=True)
    done = command("scheduler-get-logs", "demo")
    assert (done.exit_code, done.out) == (0, "")
    assert done.err.startswith("pending since ")
    assert done.err.endswith("no output yet\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope"], "no job matches 'nope'"),
        ([], "JOB is missing"),
        (["--download", "demo"], "JOB is missing ('demo' was read as the DIR of --download)"),
        (["--download"], "JOB is missing"),
        (["demo", "--download", "--tail", "3"], "--download transfers whole files"),
        (["demo", "--attempt", "0"], "--attempt: 0 must be at least 1"),
    ],
)
def test_an_error_is_reported_in_one_line(
    words: list[str], told: str, server: Serving, command: Command
) -> None:
    done = command("scheduler-get-logs", *words)
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.splitlines()[0].startswith(f"scheduler-get-logs: {told}")


def test_following_ends_with_the_job(server: Serving, command: Command) -> None:
    job = server.running("demo").id
    write(server, job, 1, "one\n")

    def go_on() -> None:
        write(server, job, 1, "two\n")
        server.cluster.end(job, 1)

    later = threading.Thread(target=go_on)
    later.start()
    done = command("scheduler-get-logs", job, "--follow")
    later.join()
    assert (done.exit_code, done.out) == (0, "one\ntwo\n")


def test_json_has_the_text_in_records(job: str, command: Command) -> None:
    done = command("scheduler-get-logs", job, "--attempt", "1", "--output", "json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert "".join(record["text"] for record in records).startswith("line 0\nline 1\n")
    assert {record["file"] for record in records} == {"attempt-1/rank0.log"}


# --- what was cut out ---------------------------------------------------------------------------

HOLE = 2**30


def cut_out(server: Serving, job: str, attempt: int) -> Path:
    """Lets the output go on after a hole, as CappedLog leaves it. Returns the file."""
    path = server.logs / job / f"attempt-{attempt}" / "rank0.log"
    with path.open("r+b") as file:
        begin = file.seek(0, os.SEEK_END)
        file.truncate(begin + HOLE)
    write(server, job, attempt, "the end\n")
    return path


def test_where_output_was_cut_out_the_log_says_so(
    server: Serving, job: str, command: Command
) -> None:
    write(server, job, 2, "not a whole line")
    path = cut_out(server, job, 2)
    done = command("scheduler-get-logs", job, "--raw")
    first, mark, last = done.out.splitlines()[-3:]
    assert first == "not a whole line" + "\0" * (len(first) - 16), "a file's block, zeros"
    gone = int(mark.removeprefix("[epoch-scheduler] ").split()[0])
    assert mark == f"[epoch-scheduler] {gone} bytes of the output are not kept"
    assert len(first) + gone + len(last.strip("\0")) <= path.stat().st_size
    assert gone > HOLE * 0.99
    assert last.strip("\0") == "the end"


def test_a_download_has_a_hole_where_output_was_cut_out(
    server: Serving, job: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command("scheduler-get-logs", job, "--download")
    path = cut_out(server, job, 2)
    done = command("scheduler-get-logs", job, "--download")
    copy = Path("assets", job, "attempt-2", "rank0.log")
    assert copy.stat().st_size == path.stat().st_size
    assert copy.stat().st_blocks * 512 < 2**20, "the hole takes no room here either"
    assert int(done.err.split()[0]) < 2**20, "and was not transferred"
    with copy.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        assert file.read() == b"the end\n"
    again = command("scheduler-get-logs", job, "--download")
    assert again.err == "0 bytes were new\n"


def test_why_a_log_was_deleted_is_said(server: Serving, job: str, command: Command) -> None:
    run_logs.delete(server.logs, JobId(job), "its job ended more than 90 days ago")
    done = command("scheduler-get-logs", job)
    assert (done.out, done.err) == (
        "",
        "its output was deleted: its job ended more than 90 days ago\n",
    )


# --- to files -----------------------------------------------------------------------------------


def test_a_download_transfers_only_what_has_grown(
    server: Serving, job: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(server, job, 1, "\x00\n")
    first = command("scheduler-get-logs", job, "--download")
    paths = [f"assets/{job}/attempt-1/rank0.log", f"assets/{job}/attempt-2/rank0.log"]
    assert first.out.splitlines() == paths
    assert first.err == "79 bytes were new\n"
    again = command("scheduler-get-logs", job, "--download")
    assert (again.out, again.err) == (first.out, "0 bytes were new\n")
    write(server, job, 2, "more\n")
    grown = command("scheduler-get-logs", job, "--download")
    assert (grown.out, grown.err) == (first.out, "5 bytes were new\n")
    for path in paths:
        held = server.logs / job / Path(path).relative_to(f"assets/{job}")
        assert Path(path).read_bytes() == held.read_bytes()


def test_a_download_is_written_to_the_given_folder(
    job: str, command: Command, tmp_path: Path
) -> None:
    flags = ("--attempt", "1", "--output", "json")
    done = command("scheduler-get-logs", job, "--download", str(tmp_path / "here"), *flags)
    answer = json.loads(done.out)
    assert answer == {
        "files": [str(tmp_path / "here" / job / "attempt-1" / "rank0.log")],
        "received_bytes": 70,
    }


def test_a_folder_that_cannot_be_written_is_named(
    job: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = command("scheduler-get-logs", job, "--download", str(tmp_path / "file"))
    assert done.exit_code == 1
    assert done.err.startswith(f"scheduler-get-logs: {tmp_path}/file/{job}")
    assert done.err.endswith(": Not a directory\n")


@pytest.mark.parametrize("file", ["/etc/passwd", "../x", "a/../../x", "", "."])
def test_nothing_is_written_outside_of_the_folder(file: str) -> None:
    with pytest.raises(CommandError, match="sent an invalid file name"):
        safe_path(file)
