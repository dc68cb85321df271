from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.cli.test_run import UUID4
from tests.serving import Serving
from tests.support import eventually

ENV = [pb.KeyValue(key="LR", value="0.1")]


def test_the_new_job_has_the_same_specification_and_a_new_id(
    server: Serving, command: Command
) -> None:
    old = server.running("demo", env=ENV, args=["a b", ""], retries=2, memory_mib=100).id
    server.cluster.end(old, 1, 7)
    done = command("scheduler-resubmit-job", old)
    assert done.exit_code == 0
    assert re.fullmatch(UUID4, done.out)
    new = done.out.strip()
    assert new != old
    assert server.job(new).spec == server.job(old).spec
    assert server.job(new).epochs_done == 0


def test_a_job_that_ended_long_ago_is_found_by_its_name(server: Serving, command: Command) -> None:
    old = server.running("demo").id
    server.cluster.end(old, 1)
    eventually(lambda: server.job(old).outcome)
    done = command("scheduler-resubmit-job", "demo", "--output", "json")
    answer = json.loads(done.out)
    assert server.job(answer["id"]).spec.name == "demo"


def test_a_held_job_is_held_again_and_the_command_says_so(
    server: Serving, command: Command
) -> None:
    old = server.submit("demo", held=True)
    done = command("scheduler-resubmit-job", old)
    assert "note: it is held; scheduler-update-job" in done.err
    assert server.job(done.out.strip()).held


def test_whoever_resubmits_is_the_owner(server: Serving, command: Command) -> None:
    old = server.submit("demo", user="eve")
    new = command("scheduler-resubmit-job", old).out.strip()
    assert server.job(new).spec == replace(server.job(old).spec, user="ada")


def test_variables_that_the_user_may_not_see_cannot_be_submitted_again(
    server: Serving, command: Command
) -> None:
    server.submit("demo", user="eve", env=ENV)
    done = command("scheduler-resubmit-job", "demo")
    assert (done.exit_code, done.out) == (4, "")
    assert done.err == (
        "scheduler-resubmit-job: demo belongs to eve, and the values of its variables"
        " (LR) are hidden from you\n"
    )
    assert command("scheduler-resubmit-job", "demo", user="root").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"), [(["nope"], "no job matches 'nope'"), ([], "JOB is missing")]
)
def test_a_job_that_is_not_found_is_wrong_usage(
    words: list[str], told: str, server: Serving, command: Command
) -> None:
    done = command("scheduler-resubmit-job", *words)
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.endswith(f"scheduler-resubmit-job: {told}\n")
