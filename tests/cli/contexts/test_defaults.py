from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from cli import run, state
from cli.command import DEFAULT_SERVER, CommandError, UsageError
from scheduler.v1 import scheduler_pb2 as pb

TEXT = """\
current_context: lab
contexts:
  lab:
    server: gpu1:7443
    ca: ~/lab.pem
    registry_url: https://jfrog.com/
    image: train:1
    num_gpus: 2
    max_epochs: 30
    estimated_memory: 6G
    is_single_gpu: no
    env: {A: context, B: context}
    label: {team: vision}
    tags: [sandbox]
    secret: [TOKEN]
  other:
    server: gpu2:7443
    resources: gpu=3 time=4h
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SCHEDULER_SERVER", "SCHEDULER_CA", "SCHEDULER_CONTEXT", "SCHEDULER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", "/home/ada")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    file = tmp_path / "epoch-scheduler" / "config.yaml"
    file.parent.mkdir()
    write(file, TEXT)
    return file


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def options(*words: str) -> argparse.Namespace:
    return run.parser().read([*words, "job", "--", "true"])


def spec(*words: str) -> pb.JobSpec:
    return run.spec(options(*words))


def pairs(found: object) -> dict[str, str]:
    return {pair.key: pair.value for pair in found}  # type: ignore[attr-defined]


# --- which context ------------------------------------------------------------------------------


def test_a_flag_beats_the_variable_and_the_variable_the_active_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert options().server == "gpu1:7443"
    monkeypatch.setenv("SCHEDULER_CONTEXT", "other")
    assert options().server == "gpu2:7443"
    assert options("--context", "lab").server == "gpu1:7443"
    assert state.parser().read(["--context=lab"]).server == "gpu1:7443"


@pytest.mark.parametrize("words", [("--context", "nope"), ("--context=nope",)])
def test_a_context_that_is_not_there_is_refused_before_any_network(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="no context 'nope'"):
        options(*words)


def test_without_contexts_nothing_is_different(file: Path) -> None:
    file.unlink()
    assert (options().server, options().in_context) == (DEFAULT_SERVER, None)


def test_a_broken_file_stops_each_command_but_not_its_help(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, "contexts: {lab: {sevrer: x}}")
    with pytest.raises(UsageError, match="unknown key 'sevrer'"):
        state.parser().read([])
    with pytest.raises(SystemExit):
        state.parser().read(["--help"])
    assert "--context" in capsys.readouterr().out


# --- the connection -----------------------------------------------------------------------------


def test_what_belongs_to_a_server_is_not_used_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options().ca == "/home/ada/lab.pem"
    assert options("--server", "x:1").ca == ""
    monkeypatch.setenv("SCHEDULER_SERVER", "y:1")
    assert (options().server, options().ca) == ("y:1", "")
    monkeypatch.setenv("SCHEDULER_CA", "/y.pem")
    assert (options().server, options().ca) == ("y:1", "/y.pem")
    named = options("--context", "other")
    assert (named.server, named.ca) == ("gpu2:7443", "")
    assert options("--context", "lab").ca == "/home/ada/lab.pem"


def test_another_server_is_no_slurm_cluster_but_gets_the_images_of_the_context(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "x")
    assert spec("--server", "x:1").image == "jfrog.com/train:1"
    write(file, "current_context: a\ncontexts:\n  a: {type: slurm, slurm: {host: b}}\n")
    assert options().in_context.type == "slurm"
    assert options("--server", "x:1").in_context is None


def test_a_token_goes_to_the_server_of_its_context_only(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    write(file, TEXT.replace("    ca:", f"    token_file: {token}\n    ca:"))
    with pytest.raises(UsageError, match=f"line 5: token_file: {token}: No such file"):
        options()
    write(token, "secret\n")
    assert options().token == "secret"
    assert options("--server", "x:1").token == ""
    assert options("--context", "other").token == ""
    monkeypatch.setenv("SCHEDULER_SERVER", "y:1")
    assert options().token == ""
    assert options("--context", "lab").token == "secret"


@pytest.mark.parametrize(
    ("mode", "content", "told"),
    [
        (0o640, "secret", "others can read .*: run `chmod 600 "),
        (0o600, "", "does not contain a token"),
        (0o600, "two words", "does not contain a token"),
        (0o600, "a\nb", "does not contain a token"),
    ],
)
def test_a_token_file_that_is_none_is_refused(
    file: Path, tmp_path: Path, mode: int, content: str, told: str
) -> None:
    token = tmp_path / "token"
    token.write_text(content)
    token.chmod(mode)
    write(file, TEXT.replace("    ca:", f"    token_file: {token}\n    ca:"))
    with pytest.raises(UsageError, match=told):
        options()


# --- the job ------------------------------------------------------------------------------------


def test_a_context_sets_what_the_flags_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "x")
    asked = spec("--env", "B=flag", "--env", "C=flag", "--max_epochs", "3")
    assert asked.image == "jfrog.com/train:1"
    assert (asked.gpus_min, asked.gpus_max, asked.max_epochs) == (2, 2, 3)
    assert asked.memory_mib == 6144
    assert not asked.is_single_gpu
    assert pairs(asked.env) == {"A": "context", "B": "flag", "C": "flag"}
    assert pairs(asked.labels) == {"team": "vision", "sandbox": "true"}
    assert list(asked.secrets) == ["TOKEN"]
    assert spec("--image", "docker.io/x").image == "docker.io/x"


def test_of_flags_that_exclude_each_other_the_given_ones_count() -> None:
    asked = spec("--min_gpus", "1")
    assert (asked.gpus_min, asked.HasField("gpus_max")) == (1, False)
    assert spec("--num_gpus", "1").gpus_max == 1


def test_resources_are_what_the_flags_of_that_meaning_are() -> None:
    asked = spec("--context", "other")
    assert (asked.gpus_max, asked.time_limit_seconds) == (3, 4 * 3600)
    assert spec("--context", "other", "--max_gpus", "1").gpus_max == 1


def test_resources_that_a_scheduler_does_not_give_are_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, TEXT.replace("gpu=3 time=4h", "gpu=1 cpu=4"))
    assert spec("--context", "other").gpus_max == 1
    assert "resources: this scheduler gives no job cpu of its own" in capsys.readouterr().err
    write(file, TEXT.replace("gpu=3 time=4h", "tpu=1"))
    with pytest.raises(CommandError, match=r"line 18: resources: .* no resource 'tpu'") as refused:
        spec("--context", "other")
    assert refused.value.exit_code == 4
    assert state.parser().read(["--context", "other"]).server == "gpu2:7443"


def test_other_commands_get_the_connection_only() -> None:
    asked = state.parser().read([])
    assert asked.server == "gpu1:7443"
    assert (asked.project, asked.label) == ("", [])


def test_a_file_that_describes_the_whole_job_gets_no_defaults(tmp_path: Path) -> None:
    given = run.parser().read(["--spec", "x.json"])
    assert (given.server, given.image, given.max_epochs) == ("gpu1:7443", None, None)


# --- the project's file -------------------------------------------------------------------------


def work_tree(folder: Path, text: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / "src" / "deep").mkdir(parents=True)
    write(folder / "scheduler.yaml", text)
    return folder / "src" / "deep"


def test_a_project_sets_what_neither_flags_nor_context_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = work_tree(tmp_path / "work", "max_epochs: 9\nbatch_size: 8\nlabel: {a: b}\n")
    monkeypatch.chdir(inside)
    asked = spec()
    assert (asked.max_epochs, asked.batch_size) == (30, 8)
    assert pairs(asked.labels) == {"a": "b", "team": "vision", "sandbox": "true"}
    said = capsys.readouterr().err
    assert f"{tmp_path}/work/scheduler.yaml sets max_epochs, batch_size, label" in said
    assert spec("--batch_size", "4").batch_size == 4
    assert not spec("--project_file", "none").HasField("batch_size")
    assert capsys.readouterr().err == "", "once a day is enough"


def test_a_project_file_of_somebody_above_the_work_tree_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "scheduler.yaml", "batch_size: 8\n")
    assert not spec().HasField("batch_size"), "no work tree, and not in this folder"
    (tmp_path / "work" / ".git").mkdir()
    assert not spec().HasField("batch_size")
    write(tmp_path / "work" / "scheduler.yaml", "batch_size: 4\n")
    assert spec().batch_size == 4
    assert spec("--project_file", "../scheduler.yaml").batch_size == 8


def test_a_project_file_that_wants_more_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "work" / "scheduler.yaml", "server: evil:1\n")
    with pytest.raises(UsageError, match="line 1: a project file cannot set server"):
        spec()
    assert state.parser().read([]).server == "gpu1:7443", "other commands do not read it"


def test_a_project_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="--project_file nope: No such file"):
        spec("--project_file", "nope")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_project_file_of_another_user_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "work" / "scheduler.yaml"
    write(file, "batch_size: 8\n")
    os.chown(file, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        spec()
