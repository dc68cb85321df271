"""`run-scheduler --sweep` and `--repeat`."""

from __future__ import annotations

import json

import pytest

from scheduler.core.model import Job
from tests.cli.conftest import Command
from tests.serving import Serving

AXES = ("--sweep", "lr=0.1,0.01", "--sweep", "seed=1,2,3")
HELD = ("--hold", "--num_gpus", "0", "--export", "none")
COMMAND = ("grid", "--", "python", "t.py", "--lr", "{lr}", "--seed={seed}", "{other}")


def jobs(server: Serving) -> list[Job]:
    return list(server.scheduler.view.jobs.values())


def test_each_combination_is_a_job_with_a_number_and_a_label(
    server: Serving, command: Command
) -> None:
    done = command("run-scheduler", *AXES, *HELD, *COMMAND)
    assert done.exit_code == 0, done.err
    made = jobs(server)
    assert [job.id for job in made] == done.out.split()
    assert [job.spec.name for job in made] == [f"grid-{number}" for number in range(6)]
    assert [job.spec.command[3:] for job in made[:4]] == [
        ("0.1", "--seed=1", "{other}"),
        ("0.1", "--seed=2", "{other}"),
        ("0.1", "--seed=3", "{other}"),
        ("0.01", "--seed=1", "{other}"),
    ]
    assert dict(made[5].spec.env) == {"SWEEP_VALUES": '{"lr": "0.01", "seed": "3"}'}
    (label,) = {job.spec.labels for job in made}
    assert label[0][0] == "sweep"
    assert f"sweep {label[0][1]}: 6 jobs" in done.err


def test_a_sweep_is_listed_and_cancelled_by_its_label(server: Serving, command: Command) -> None:
    command("run-scheduler", *HELD, "other", "--", "true")
    command("run-scheduler", *AXES, *HELD, "--label", "sweep=mine", *COMMAND)
    listed = command("scheduler-state", "--label", "sweep=mine", "--output", "json")
    assert len(json.loads(listed.out)["jobs"]) == 6
    done = command("scheduler-cancel-job", "--label", "sweep=mine", "--yes")
    assert done.exit_code == 0, done.err
    assert {job.spec.name for job in jobs(server) if not job.outcome} == {"other"}


def test_repetitions_can_be_shuffled_and_limited(server: Serving, command: Command) -> None:
    done = command(
        *("run-scheduler", "--repeat", "3", "--sweep", "lr=1,2", "--limit", "4", *HELD),
        *("again", "--", "train", "{lr}", "{repeat}"),
    )
    assert done.exit_code == 0, done.err
    assert [job.spec.command for job in jobs(server)] == [
        ("train", "1", "0"),
        ("train", "2", "0"),
        ("train", "1", "1"),
        ("train", "2", "1"),
    ]
    flags = ("--shuffle", "--limit", "40", "--sweep", f"n={','.join(map(str, range(50)))}")
    shuffled = command("run-scheduler", *flags, *HELD, "mixed", "--", "train", "{n}")
    asked = [server.job(job_id).spec.command[1] for job_id in shuffled.out.split()]
    assert len(set(asked)) == 40
    assert asked != sorted(asked, key=int)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sweep", "lr=", "x", "--", "{lr}"], "--sweep: 'lr=': a value is empty"),
        (["--sweep", "lr=1,,2", "x", "--", "{lr}"], "a value is empty"),
        (["--sweep", "lr", "x", "--", "{lr}"], "'lr' must be KEY=VALUE,VALUE"),
        (["--sweep", "a b=1", "x", "--", "ls"], "'a b=1' must be KEY=VALUE"),
        (["--sweep", "lr=1,1", "x", "--", "{lr}"], "1 is given twice (--repeat"),
        (["--sweep", "a=1", "--sweep", "a=2", "x", "--", "{a}"], "--sweep a: is given twice"),
        (["--sweep", "lr=1,2", "x", "--", "t", "{rl}"], "--sweep lr: neither the command nor"),
        (["--repeat", "2", "--sweep", "repeat=1", "x", "--", "{repeat}"], "that --repeat counts"),
        (["--repeat", "1001", "x", "--", "ls"], "1001 jobs: give --yes to submit more than 1000"),
        (["--repeat", "10000", "--sweep", "a=1,2", "--yes", "x", "--", "{a}"], "at most 10000"),
        (["--limit", "3", "x", "--", "ls"], "--limit: chooses among many jobs"),
    ],
)
def test_what_makes_no_sweep_is_refused_in_one_line(
    words: list[str], told: str, server: Serving, command: Command
) -> None:
    done = command("run-scheduler", *words)
    assert (done.exit_code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not jobs(server)


def test_one_impossible_job_refuses_all(server: Serving, command: Command) -> None:
    done = command("run-scheduler", "--sweep", "name=a,b", *HELD, "two\n{name}", "--", "ls")
    assert done.exit_code == 2
    assert "job 'two\\na-0': job_name" in done.err
    assert "none of the jobs is submitted" in done.err
    assert not jobs(server)


def test_a_rehearsal_shows_each_job_and_submits_none(server: Serving, command: Command) -> None:
    done = command("run-scheduler", "--dry_run", *AXES, *HELD, *COMMAND)
    assert done.exit_code == 0, done.err
    assert done.out.splitlines()[1] == "grid-1  python t.py --lr 0.1 --seed=2 '{other}'"
    assert "would submit 6 jobs" in done.err
    assert not jobs(server)


def test_programs_get_ids_and_values(server: Serving, command: Command) -> None:
    done = command("run-scheduler", *AXES, *HELD, "--output", "json", *COMMAND)
    made = json.loads(done.out)
    assert [job["id"] for job in made["jobs"]] == [job.id for job in jobs(server)]
    assert made["jobs"][0]["values"] == {"lr": "0.1", "seed": "1"}
    assert {job.spec.labels for job in jobs(server)} == {(("sweep", made["sweep"]),)}


def test_secrets_are_kept_for_each_job(
    server: Serving, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "hush")
    done = command("run-scheduler", *AXES, *HELD, "--secret", "KEY", *COMMAND)
    assert done.exit_code == 0, done.err
    kept = [server.api.secrets.read(job.id) for job in jobs(server)]
    assert kept == [{"KEY": "hush"}] * 6
