from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command
from tests.cli.test_run import UUID4
from tests.serving import Serving, serving
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


def test_the_old_job_makes_room_when_the_new_one_is_accepted(
    server: Serving, command: Command
) -> None:
    old = server.running("demo").id
    done = command("scheduler-resubmit-job", "demo", "--num_gpus", "2")
    assert done.exit_code == 0, done.err
    new = done.out.strip()
    assert f"demo ({old[-8:]}): canceled; {new[-8:]} takes its place" in done.err
    assert server.job(old).cancelled
    assert (server.job(new).spec.gpus_min, server.job(new).spec.gpus_max) == (2, 2)


def test_an_old_job_that_is_kept_goes_on(server: Serving, command: Command) -> None:
    old = server.running("demo").id
    assert command("scheduler-resubmit-job", old, "--keep").exit_code == 0
    assert not server.job(old).cancelled


def test_a_job_of_another_user_goes_on(server: Serving, command: Command) -> None:
    old = server.running("demo", user="eve").id
    for user in ("ada", "root"):
        assert command("scheduler-resubmit-job", old, user=user).exit_code == 0
    assert not server.job(old).cancelled


def test_if_the_new_job_is_refused_the_old_one_goes_on(server: Serving, command: Command) -> None:
    old = server.running("demo").id
    done = command("scheduler-resubmit-job", old, "--num_gpus", "3")
    assert (done.exit_code, done.out) == (4, "")
    assert done.err == (
        "scheduler-resubmit-job: no node has 3 GPUs; the largest has 2; the old job is as it was\n"
    )
    assert not server.job(old).cancelled


def test_several_jobs_are_submitted_again_each_for_itself(
    server: Serving, command: Command
) -> None:
    olds = [server.submit(f"demo{number}", held=True) for number in range(3)]
    done = command("scheduler-resubmit-job", *olds[:2], "nope", olds[2])
    assert done.exit_code == 1
    assert "no job matches 'nope'" in done.err
    news = done.out.split()
    assert [server.job(job).spec.name for job in news] == ["demo0", "demo1", "demo2"]
    assert all(server.job(job).cancelled for job in olds)


def test_the_package_stays_the_same_or_is_the_latest_of_its_folder(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    code, other = tmp_path / "vision", tmp_path / "other"
    for folder in (code, other):
        folder.mkdir()
        (folder / "train.py").write_text(folder.name)
    first = command("scheduler-upload-code", str(code)).out.strip()
    old = server.running("demo", code=first).id
    (code / "train.py").write_text("new")
    second = command("scheduler-upload-code", str(code)).out.strip()
    command("scheduler-upload-code", str(other))
    same = command("scheduler-resubmit-job", old, "--keep").out.strip()
    latest = command("scheduler-resubmit-job", old, "--latest_code").out.strip()
    assert (server.job(same).spec.code, server.job(latest).spec.code) == (first, second)
    plain = server.submit("plain")
    done = command("scheduler-resubmit-job", plain, "--latest_code")
    assert (done.exit_code, "plain has no package of code" in done.err) == (4, True)


def test_a_package_that_was_collected_is_said_and_the_old_job_goes_on(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "vision").mkdir()
    (tmp_path / "vision/train.py").touch()
    package = command("scheduler-upload-code", str(tmp_path / "vision")).out.strip()
    old = server.running("demo", code=package).id
    server.wall.ahead = 1e9
    server.packages.collect(lambda _: False)
    done = command("scheduler-resubmit-job", old)
    assert done.exit_code == 4
    assert f"package {package[7:19]}: you have no such package here" in done.err
    assert not server.job(old).cancelled


def test_a_job_goes_to_the_scheduler_of_another_context_with_its_package(
    server: Serving, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "vision"
    (code / "lib").mkdir(parents=True)
    (code / "train.py").write_text("x" * 100_000)
    (code / "lib/a.py").write_text("")
    package = command("scheduler-upload-code", str(code)).out.strip()
    old = server.submit("plain", directory="/home/ada")
    coded = server.submit("coded", code=package)
    (tmp_path / "state").mkdir()
    with serving(tmp_path / "state") as other:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        file = tmp_path / "config/epoch-scheduler/config.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(f"contexts:\n  big:\n    server: 127.0.0.1:{other.server.port}\n")
        file.chmod(0o600)
        done = command("scheduler-resubmit-job", old, coded, "--target_context", "big")
        assert done.exit_code == 0, done.err
        new, new_coded = done.out.split()
        assert other.job(new).spec.directory == ""
        assert other.job(new_coded).spec.code == package
        assert other.packages.find("ada", package[7:]).size == 100_000
    assert server.job(old).cancelled
    assert server.job(coded).cancelled
