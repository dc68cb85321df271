"""Jobs from Python, on a real daemon."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from epoch_scheduler_client import Client, ClientError, JobSpec
from tests.support import Daemon, eventually


def shell(script: str, name: str = "demo", **more: object) -> JobSpec:
    return JobSpec(name, command=["sh", "-c", script], num_gpus=0, **more)  # type: ignore[arg-type]


def test_a_job_runs_here_with_this_environment(client: Client) -> None:
    job = client.submit(shell("pwd; echo $LR $KEY", env={"LR": "0.1"}, secrets={"KEY": "hush"}))
    assert job.wait(30) == "FINISHED"
    assert job.logs().split() == [str(Path.cwd()), "0.1", "hush"]
    assert "hush" not in repr(job.record())
    assert client.job("demo") == job


def test_a_failure_says_why(client: Client) -> None:
    job = client.submit(shell("echo ValueError: no such file; exit 3"))
    assert (job.wait(30), job.record()["exit_code"]) == ("FAILED", 3)
    assert job.reason() == "exit code 3; its log: ValueError: no such file"


def test_waiting_has_an_end_and_survives_the_daemon(client: Client, daemon: Daemon) -> None:
    job = client.submit(shell("sleep 1000"))
    with pytest.raises(TimeoutError, match=r"has not ended in 0.1 s: it is"):
        job.wait(0.1)
    eventually(lambda: job.state() == "RUNNING")
    daemon.kill()
    with pytest.raises(TimeoutError, match="it is not known"):
        job.wait(0.1)
    daemon.start()
    with pytest.raises(TimeoutError, match="it is RUNNING"):
        job.wait(5)
    job.cancel()
    assert job.wait(30) == "CANCELED"
    job.cancel()


def test_many_jobs_are_accepted_or_none(client: Client) -> None:
    specs = [shell("true", f"n{number}", labels={"sweep": "s"}) for number in range(5)]
    jobs = client.submit_many(specs)
    assert [job.record()["name"] for job in jobs] == [f"n{number}" for number in range(5)]
    assert set(client.jobs(labels={"sweep": "s"})) == set(jobs)
    with pytest.raises(ClientError, match="job 'bad': --batch_size 0: must be at least 1") as told:
        client.submit_many([*specs, shell("true", "bad", more={"batch_size": 0})])
    assert told.value.exit_code == 2
    assert len(client.jobs()) == 5
    assert client.submit_many([]) == []


def test_an_id_submitted_again_is_the_same_job(client: Client) -> None:
    job_id = str(uuid.uuid4())
    first = client.submit(shell("true", "first"), job_id=job_id)
    again = client.submit(shell("true", "second"), job_id=job_id)
    assert (first, again.record()["name"]) == (again, "first")


def test_what_a_job_reports_is_read_from_it(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "t.py"
    script.write_text(
        "from kubernetesdlprofile import kubeprofiler\n"
        "api = kubeprofiler.KubeProfiler()\n"
        "for epoch in api.epochs():\n    api.log_metric('loss', 1 / (epoch + 1))\n"
    )
    spec = JobSpec("t", command=[sys.executable, str(script)], max_epochs=2, metric="loss")
    job = client.submit(spec)
    assert job.wait(60) == "FINISHED"
    assert job.scores() == {1: 1.0, 2: 0.5}


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ValueError, match="'max_epoch' is not a field of a job"):
        JobSpec("x", more={"max_epoch": 3}).message()


def test_the_client_imports_no_numbers_library() -> None:
    told = "import sys, epoch_scheduler_client; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
