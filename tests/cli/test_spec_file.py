"""`run-scheduler --spec`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.serving import Serving


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_the_state_prints_can_be_submitted(
    output: str, server: Serving, command: Command, tmp_path: Path
) -> None:
    env = [pb.KeyValue(key="LR", value="0.1")]
    ports = [pb.PortMapping(host=31346, container=6006)]
    old = server.submit(
        "gr\u00fcn", held=True, env=env, args=["a b", "1"], priority=7, ports=ports, memory_mib=9
    )
    command("scheduler-cancel-job", old)  # its port is free again
    file = tmp_path / "spec"
    file.write_text(command("scheduler-state", old, "--output", output).out)
    named = command("run-scheduler", "--dry_run", "--output", "json", "--spec", str(file), "new")
    assert json.loads(named.out)["job"]["name"] == "new"
    done = command("run-scheduler", "--spec", str(file))
    assert done.exit_code == 0, done.err
    assert server.job(done.out.strip()).spec == server.job(old).spec


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": "x", "max_epoch": 3}', "'max_epoch' is not a field of a job (did you mean"),
        ('{"name": "x", "retries": "many"}', "retries"),
        ('{"command": ["ls"]}', "`name` is missing"),
        ('{"jobs": []}', "describes 0 jobs; it must be one"),
        ("[1]", "describes no job"),
        ("{: [", "is neither JSON nor YAML"),
        ('{"name": "x", "env": {"A": "(hidden)"}}', "the values of A are hidden"),
    ],
)
def test_a_file_that_describes_no_job_is_refused_in_one_line(
    text: str, told: str, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "spec"
    file.write_text(text)
    done = command("run-scheduler", "--spec", str(file))
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith(f"run-scheduler: --spec {file}: ")
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--image", "x"], "leave out --image"),
        (["--", "ls"], "leave out the words after `--`"),
        (["--num_gpus", "0"], "leave out --num_gpus"),
    ],
)
def test_a_file_describes_the_whole_job(words: list[str], told: str, command: Command) -> None:
    done = command("run-scheduler", "--spec", "/none", *words)
    assert (done.exit_code, told in done.err) == (2, True)


def test_a_missing_file_is_named(command: Command) -> None:
    done = command("run-scheduler", "--spec", "/none")
    assert done.err == "run-scheduler: --spec /none: No such file or directory\n"
