"""`run-scheduler --local`: no scheduler is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import BIN, Daemon

TRAIN = Path(__file__).parents[1] / "e2e/train.py"


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": "", "SCHEDULER_SERVER": "127.0.0.1:1"}


def run(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "run-scheduler", *words],
        env={**environment(home), **variables},
        cwd=home,
        capture_output=True,
        text=True,
    )


def test_a_script_trains_here_with_its_checkpoints(tmp_path: Path) -> None:
    words = ["--local", "--max_epochs", "2", "--script_path", str(TRAIN), "demo"]
    done = run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "begins at epoch 0 restarted False epochs done 0",
        "epoch 1 done",
        "epoch 2 done",
    ]
    (checkpoint,) = tmp_path.glob(".epoch-scheduler/snapshots/*/epochs")
    assert checkpoint.read_text() == "2"


def test_the_variables_are_those_that_a_daemon_sets(tmp_path: Path) -> None:
    words = ["--num_gpus", "1", "--no_tracking", "--script_path", str(TRAIN)]
    words += ["--env", "PRINT_ENVIRONMENT=1", "--snapshots_dir", str(tmp_path / "snapshots")]
    here = json.loads(run(tmp_path, "--local", *words, "demo").stdout.splitlines()[0])
    daemon = Daemon(tmp_path / "state", "1x16384").start()
    try:
        told = {"SCHEDULER_SERVER": daemon.address}
        job_id = run(tmp_path, "--wait", *words, "demo", **told).stdout.strip()
        logged = subprocess.run(
            [BIN / "scheduler-get-logs", job_id],
            env={**environment(tmp_path), **told},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        daemon.end()
    by_daemon = json.loads(logged.stdout.splitlines()[0])
    own = {f"KUBEPROFILER_{name}" for name in ("SERVER", "HTTP", "TOKEN", "LAST_WORDS")}
    own |= {"USER", "LOGNAME", "SHELL"}  # this shell's are kept, and a test may have none
    empty = {name for name, value in by_daemon.items() if not value}
    assert by_daemon.keys() - here.keys() - empty <= own
    for name in ("NUM_GPUS", "NUM_NODES", "RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"):
        assert here[name] == by_daemon[name]


def test_it_exits_as_its_command_does(tmp_path: Path) -> None:
    words = ["--local", "--num_gpus", "0", "x", "--"]
    assert run(tmp_path, *words, "sh", "-c", "exit 3").returncode == 3
    assert run(tmp_path, *words, "sh", "-c", "kill -TERM $$").returncode == 143
    missing = run(tmp_path, *words, "no-such-program")
    assert missing.returncode == 4
    assert "run-scheduler: --local: no-such-program: No such file" in missing.stderr


def test_an_interrupt_is_for_the_command(tmp_path: Path) -> None:
    script = "trap 'echo heard; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [BIN / "run-scheduler", "--local", "--num_gpus", "0", "x", "--", "sh", "-c", script],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate()[0] == "heard\n"
    assert process.returncode == 7


def test_it_has_the_first_of_the_gpus_of_this_shell(tmp_path: Path) -> None:
    words = ["--local", "--num_gpus", "2", "x", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert run(tmp_path, *words, CUDA_VISIBLE_DEVICES="5,3,1").stdout == "5,3\n"
    few = run(tmp_path, *words, CUDA_VISIBLE_DEVICES="5")
    assert few.returncode == 4
    assert few.stderr.endswith("2 GPUs are wanted, and CUDA_VISIBLE_DEVICES has 1\n")


@pytest.mark.parametrize("flag", ["--hold", "--dry_run", "--code=."])
def test_what_is_for_submitted_jobs_is_refused(tmp_path: Path, flag: str) -> None:
    done = run(tmp_path, "--local", flag, "x", "--", "true")
    name = flag.partition("=")[0]
    assert (done.returncode, done.stderr) == (
        2,
        f"run-scheduler: {name} is for jobs that are submitted, and not with --local\n",
    )


def test_a_context_of_type_local_is_for_run_scheduler(tmp_path: Path) -> None:
    file = tmp_path / ".config/epoch-scheduler/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("current_context: here\ncontexts:\n  here:\n    type: local\n    num_gpus: 0\n")
    own = {"SCHEDULER_SERVER": ""}
    assert run(tmp_path, "x", "--", "echo", "hi", **own).stdout == "hi\n"
    asked = subprocess.run(
        [BIN / "scheduler-state"],
        env={**environment(tmp_path), **own},
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 4
    assert "context 'here' is of type local: it has no jobs to ask about" in asked.stderr


def test_words_that_begin_with_a_volume_name_its_folder(tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    words = ["--num_gpus", "0", "--volume", "./sets:/data", "--volume", "./sets:/data/x:ro", "demo"]
    done = run(tmp_path, "--local", *words, "--", "echo", "/data/a", "--d=/data/x/b", "/dataset")
    assert done.stdout == f"{tmp_path}/sets/a --d={tmp_path}/sets/b /dataset\n", done.stderr
    assert "/data/x:ro: the job can change it" in done.stderr
    claim = run(tmp_path, "--local", "--num_gpus", "0", "--volume", "sets:/data", "x", "--", "true")
    assert (claim.returncode, claim.stderr.count("\n")) == (4, 1)
    assert "write ./sets for a folder" in claim.stderr
