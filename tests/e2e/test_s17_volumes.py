"""S17: a context says what jobs see where; so do jobs that are submitted again, and shells.
(Of Kubernetes: tests/kube/test_project_storage.py.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons

LIST = "volumes: ['~/data:{0}/seen:ro']"


def test_a_context_says_what_jobs_see_where(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemons("0")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("of the context\n")
    contexts = tmp_path / "config" / "epoch-scheduler" / "config.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text(f"current_context: a\ncontexts:\n  a: {{{LIST.format(tmp_path)}}}\n")
    contexts.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))

    words = ("--num_gpus", "0", "a", "--", "sh", "-c", 'cat "$0/file" && sleep 1000')
    job = daemon.submit(*words, f"{tmp_path}/seen")
    daemon.wait_state(a="RUNNING")
    spec = daemon.job_of(job)["spec"]
    assert spec["volumes"] == [f"{tmp_path}/data:{tmp_path}/seen:ro"]
    shown = daemon.run("scheduler-state", job, "--extended").stdout
    assert "--volume" in shown
    if os.geteuid() == 0:  # else only words of its own command are replaced
        look = f"cat {tmp_path}/seen/file; touch {tmp_path}/seen/x || ls {tmp_path}/seen"
        done = daemon.run("scheduler-connect", "a", "--", "sh", "-c", look)
        assert done.stdout == "of the context\nfile\n", done.stderr
        assert list((tmp_path / "seen").iterdir()) == []

    again = daemon.run("scheduler-resubmit-job", "a", "--keep").stdout.strip()
    assert daemon.job_of(again)["spec"]["volumes"] == spec["volumes"]
    other = f"{tmp_path}/data:{tmp_path}/other"
    more = daemon.submit("--hold", "--num_gpus", "0", "--volume", other, "b", "--", "true")
    assert daemon.job_of(more)["spec"]["volumes"] == [other]


def test_what_cannot_be_seen_is_refused_in_one_line(daemons: Daemons, tmp_path: Path) -> None:
    daemon = daemons("0")
    (tmp_path / "file").touch()
    mistakes = [
        ("/nope:/x", 4, "/nope: No such file or directory"),
        (f"{tmp_path}/file:{tmp_path}/x", 4, f"{tmp_path}/file: Not a directory"),
        ("data:/x", 4, "data would be a claim of a Kubernetes cluster: write ./data for a folder"),
        (f"{tmp_path}:/etc", 2, "DST must not be in /etc"),
        (f"{tmp_path}", 2, "is not SRC:DST or SRC:DST:ro"),
    ]
    if os.geteuid() == 0:
        file = tmp_path / "file"
        mistakes += [(f"/usr:{file}", 4, f"{file} is not a folder that you may enter")]
    for volume, code, told in mistakes:
        words = ("--num_gpus", "0", "--volume", volume, "a", "--", "true")
        done = daemon.run("run-scheduler", *words)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert told in done.stderr
        assert "--volume" in done.stderr
    assert daemon.state_of()["jobs"] == []
