"""S16: contexts choose where commands go, and nothing of one shell changes another."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons
from tests.support import BIN

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a command as a person would, without any variable of ours."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDULER_")}
        environment = {**clean, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "COLUMNS": "120"}
        return subprocess.run(
            [BIN / words[0], *words[1:]],
            env={**environment, **variables},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


def listed(shell: Shell) -> list[str]:
    done = shell("scheduler-context")
    assert done.returncode == 0, done.stderr
    return [line.split("  ")[0] for line in done.stdout.splitlines()[1:]]


def test_the_life_of_contexts(shell: Shell, tmp_path: Path) -> None:
    added = shell(
        *("scheduler-context", "add", "--name", "gke.sandbox", "--type", "kubernetes"),
        *("--registry_url", "https://gcr.io", "--storage", "/storage"),
        *("--resources", "gpu=1 cpu=4"),
    )
    assert added.returncode == 0, added.stderr
    assert listed(shell) == ["gke.sandbox (active)"]
    for change in (
        ("copy", "gke.sandbox", "other"),
        ("set-active", "other"),
        ("set", "current_context", "gke.sandbox"),
        ("rename", "gke.sandbox", "gke"),
    ):
        done = shell("scheduler-context", *change)
        assert done.returncode == 0, done.stderr
    assert listed(shell) == ["gke (active)", "other"]
    edited = shell("scheduler-context", "edit", EDITOR="sed -i s/^gke:/cloud:/")
    assert edited.returncode == 0, edited.stderr
    assert listed(shell) == ["cloud (active)", "other"]
    assert shell("scheduler-context", "delete", "cloud").returncode == 0
    assert listed(shell) == ["other"]
    mistakes: list[tuple[str, ...]] = [
        ("scheduler-context", "add", "other"),
        ("scheduler-context", "set-active", "nope"),
        ("scheduler-context", "set", "other", "sevrer", "x:1"),
        ("run-scheduler", "--context", "nope", "j", "--", "true"),
    ]
    for words in mistakes:
        done = shell(*words)
        assert done.returncode == 2, words
        assert len(done.stderr.splitlines()) == 1
        assert any(repr(word) in done.stderr for word in words), done.stderr


def test_a_job_goes_where_its_context_says(daemons: Daemons, shell: Shell, tmp_path: Path) -> None:
    daemon = daemons("2x16384")
    for name, server in (("here", daemon.address), ("nowhere", "127.0.0.1:1")):
        added = shell(
            *("scheduler-context", "add", name, "--server", server),
            *("--max_epochs", "7", "--num_gpus", "2", "--env", f"FROM={name}"),
        )
        assert added.returncode == 0, added.stderr
    done = shell("run-scheduler", "--hold", "--env", "MORE=x", "a", "--", "true")
    assert done.returncode == 0, done.stderr
    job = daemon.job_of(done.stdout.strip())
    assert job["max_epochs"] == 7
    assert job["spec"]["env"] == {"FROM": "here", "MORE": "x"}
    assert job["spec"]["gpus_max"] == 2

    # What one shell chooses is its own.
    assert shell("scheduler-state", "a", SCHEDULER_CONTEXT="nowhere").returncode == 3
    assert shell("scheduler-state", "--context", "nowhere", "a").returncode == 3
    assert shell("scheduler-state", "a").returncode == 0
    beaten = shell(
        "scheduler-state", "a", SCHEDULER_CONTEXT="nowhere", SCHEDULER_SERVER=daemon.address
    )
    assert beaten.returncode == 0, beaten.stderr

    (tmp_path / "scheduler.yaml").write_text("max_epochs: 9\nbatch_size: 8\n")
    done = shell("run-scheduler", "--hold", "b", "--", "true")
    job = daemon.job_of(done.stdout.strip())
    assert (job["max_epochs"], job["spec"]["batch_size"]) == (7, 8)
    assert json.loads(shell("scheduler-context", "--output", "json").stdout)["contexts"][0][
        "active"
    ]
