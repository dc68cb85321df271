from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli import run
from cli.command import UsageError
from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import Serving, by

UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n"


def spec(*argv: str) -> pb.JobSpec:
    return run.spec(run.parser().read(argv))


# --- the request --------------------------------------------------------------------------------


def test_every_flag_reaches_the_wire() -> None:
    asked = spec(
        *("--image_name", "img:new", "--script_path", "/custom/t.py", "--custom_dir", "/home/ada"),
        *("--snapshots_dir", "/snap", "--batch_size", "32", "--training_set_size", "1000"),
        *("--max_epochs", "3", "--is_single_gpu", "--disable_gpu_sharing", "yes"),
        *("--estimated_memory", "4000", "--port_mapping", "33000:3000,31346:6006"),
        *("--est_nhours", "2.5", "--min_gpus", "1", "--max_gpus", "4", "--priority", "-3"),
        *("--env", "A=b=c", "--env", "D=", "--project", "p", "--experiment", "e"),
        *("--label", "k=v", "--retries", "2", "--hold", "--keep_library"),
        *("--processes_per_node", "gpu", "--export", "none"),
        *("demo", "--", "--epochs", "3", "a b"),
    )
    assert asked == pb.JobSpec(
        name="demo",
        image="img:new",
        args=["--epochs", "3", "a b"],
        script_path="/custom/t.py",
        custom_dir="/home/ada",
        snapshots_dir="/snap",
        batch_size=32,
        training_set_size=1000,
        max_epochs=3,
        is_single_gpu=True,
        disable_gpu_sharing=True,
        memory_mib=4000,
        ports=[
            pb.PortMapping(host=33000, container=3000),
            pb.PortMapping(host=31346, container=6006),
        ],
        hours_estimate=2.5,
        gpus_min=1,
        gpus_max=4,
        priority=-3,
        env=[pb.KeyValue(key="A", value="b=c"), pb.KeyValue(key="D", value="")],
        project="p",
        experiment="e",
        labels=[pb.KeyValue(key="k", value="v")],
        retries=2,
        held=True,
        keep_library=True,
        process_per_gpu=True,
    )


def test_the_scheduler_chooses_what_no_flag_sets() -> None:
    assert spec("demo", "--export", "none", "--", "ls") == pb.JobSpec(name="demo", command=["ls"])


@pytest.mark.parametrize(
    ("flags", "single"),
    [
        (["--is_single_gpu", "False"], False),
        (["--is-single-gpu=0"], False),
        (["--is_single_gpu"], True),
        (["--is_single_gpu", "1"], True),
        ([], False),
    ],
)
def test_a_boolean_flag_takes_an_optional_value(flags: list[str], single: bool) -> None:
    assert spec("demo", *flags, "--", "ls").is_single_gpu is single


def test_num_gpus_sets_both_bounds() -> None:
    asked = spec("--num_gpus", "0", "demo", "--", "ls")
    assert asked.HasField("gpus_min")
    assert asked.HasField("gpus_max")
    assert (asked.gpus_min, asked.gpus_max) == (0, 0)


def test_quotes_blanks_and_further_hyphens_are_kept() -> None:
    words = ["python", "train.py", "--data", "voc 20", "", '"', "--", "-- x"]
    assert list(spec("smi", "--", *words).command) == words


def test_folders_are_relative_to_the_current_folder() -> None:
    assert spec("x", "--custom_dir", "code", "--", "ls").custom_dir == f"{Path.cwd()}/code"
    home = spec("x", "--snapshots_dir", "~/snap", "--", "ls").snapshots_dir
    assert home == f"{Path.home()}/snap"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["x"], "nothing to run: give --script_path PATH, or a command after `--`"),
        (["x", "--"], "nothing to run"),
        (["x", "--num_gpus", "1", "--max_gpus", "2", "--", "ls"], "--num_gpus sets both bounds"),
        (["x", "--batch_size", "0"], "--batch_size: 0 must be at least 1"),
        (["x", "--est_nhours", "0.5"], "--est_nhours: 0.5 must be more than 1"),
        (["x", "--est_nhours", "nan"], "--est_nhours: nan must be more than 1"),
        (["x", "--est_nhours", "soon"], "--est_nhours: 'soon' is not a number of hours"),
        (["x", "--port_mapping", "31346-6006"], "'31346-6006' must be HOST_PORT:JOB_PORT"),
        (["x", "--port_mapping", "1:2,"], "'' must be HOST_PORT:JOB_PORT"),
        (["x", "--port_mapping", "1:70000"], "70000 must be at most 65535"),
        (["x", "--num_gpus", "-1"], "--num_gpus: -1 must be at least 0"),
        (
            ["--image", "img:new", "--is_single_gpu", "False", "--disable_gpu_sharing", "x"],
            "--disable_gpu_sharing: 'x' is neither true nor false",
        ),
    ],
)
def test_a_usage_error_is_reported_before_any_call(argv: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        spec(*argv)


def test_a_missing_name_prints_the_usage(command: Command) -> None:
    done = command("run-scheduler", "--image", "img:new")
    assert done.exit_code == 2
    assert done.err == (
        "run-scheduler: JOB_NAME is missing; usage: run-scheduler [OPTION..] JOB_NAME"
        " [-- COMMAND|ARGUMENT..] | --spec FILE\n"
    )


# --- the answer ---------------------------------------------------------------------------------


def test_stdout_is_the_id_and_nothing_else(server: Serving, command: Command) -> None:
    done = command("run-scheduler", "--image", "img:new", "demo", "--", "python", "t.py")
    assert done.exit_code == 0
    assert re.fullmatch(UUID4, done.out)
    assert "note: image img:new is not used" in done.err
    job = server.job(done.out.strip())
    assert (job.spec.user, job.spec.command) == ("ada", ("python", "t.py"))


def test_json_has_the_notes_too(server: Serving, command: Command) -> None:
    done = command("run-scheduler", "--output", "json", "--image", "i", "demo", "--", "ls")
    answer = json.loads(done.out)
    assert server.job(answer["id"]).spec.name == "demo"
    assert any("image" in each for each in answer["notes"])


def test_a_dry_run_shows_the_arguments_unchanged_and_submits_nothing(
    server: Serving, command: Command
) -> None:
    flags = ("--dry_run", "--script_path", "/custom/t.py", "--env", "LR=0.1", "demo")
    done = command("run-scheduler", *flags, "--", "--epochs", "3", "a b")
    assert done.exit_code == 0
    assert 'command  ["python","/custom/t.py","--epochs","3","a b"]\n' in done.out
    assert 'args     ["--epochs","3","a b"]\n' in done.out
    assert "gpus     1 GPU, whole until its memory use is measured\n" in done.out
    assert "  LR=0.1\n" in done.out
    assert not server.scheduler.view.jobs


def test_a_dry_run_in_json(server: Serving, command: Command) -> None:
    flags = ("--dry_run", "--output", "json", "--num_gpus", "2", "--estimated_memory", "5")
    done = command("run-scheduler", *flags, "demo", "--", "echo", "a b")
    answer = json.loads(done.out)
    assert answer["command"] == ["echo", "a b"]
    assert answer["gpus"] == "2 GPUs, 5 MiB"
    assert answer["env"]["NUM_GPUS"] == "2"


@pytest.mark.parametrize(
    ("flags", "exit_code", "told"),
    [
        (["--estimated_memory", "20000"], 4, "no GPU can hold 20,000 MiB"),
        (["--num_gpus", "9"], 4, "no node has 9 GPUs"),
        (["--env", "1X=2"], 2, "--env '1X': is not a valid variable name"),
        (["--label", "a b=c"], 2, "--label 'a b'"),
        (["--image", "two\nlines"], 2, "--image_name 'two\\nlines'"),
        (["--priority", "99999"], 2, "--priority 99999: must be at most 1000"),
    ],
)
def test_a_refusal_is_reported_in_one_line(
    flags: list[str], exit_code: int, told: str, server: Serving, command: Command
) -> None:
    done = command("run-scheduler", *flags, "demo", "--", "ls")
    assert (done.exit_code, done.out) == (exit_code, "")
    assert done.err.startswith(f"run-scheduler: {told}")
    assert done.err.count("\n") == 1
    assert not server.scheduler.view.jobs


# --- what would happen --------------------------------------------------------------------------


def test_a_dry_run_says_that_the_job_would_start_now(server: Serving, command: Command) -> None:
    done = command("run-scheduler", "--dry_run", "--estimated_memory", "4G", "demo", "--", "ls")
    assert "gpus     1 GPU, 4,096 MiB\n" in done.out
    assert "starts   now, on westworld gpu0\n" in done.out


def test_a_dry_run_says_why_the_job_would_wait_and_until_when(
    server: Serving, command: Command
) -> None:
    server.running("big", gpus_min=2, gpus_max=2)
    done = command("run-scheduler", "--dry_run", "--num_gpus", "2", "demo", "--", "ls")
    assert "waits    gpus (" in done.out
    assert "starts   when big ends" in done.out
    record = json.loads(
        command("run-scheduler", "--dry_run", "--output", "json", "demo", "--", "ls").out
    )
    assert (record["job"]["state"], record["job"]["why"]["until"][0]["name"]) == ("QUEUED", "big")
    assert set(server.scheduler.view.jobs) == {
        server.people.ListJobs(pb.ListJobsRequest(), metadata=by("ada")).jobs[0].id
    }
