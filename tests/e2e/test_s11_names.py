"""S11: a job is found by its id, the end of its id, or its name; an ambiguous one is an error."""

import json
import subprocess
import uuid

from scheduler.v1 import scheduler_pb2
from tests.e2e.conftest import Daemons
from tests.support import Daemon


def _submit_as(daemon: Daemon, job_id: str, name: str) -> None:
    spec = scheduler_pb2.JobSpec(name=name, image="i", command=["true"], held=True, gpus_min=0)
    with daemon.stub() as (stub, metadata):
        request = scheduler_pb2.SubmitRequest(job_id=job_id, spec=spec)
        stub.Submit(request, metadata=metadata, timeout=10)


def _found(daemon: Daemon, reference: str) -> subprocess.CompletedProcess[str]:
    return daemon.run("scheduler-state", "--output", "json", reference)


def test_an_end_of_an_id_is_enough_if_it_is_the_only_one(daemons: Daemons) -> None:
    daemon = daemons("0")
    head = str(uuid.uuid4())[:28]
    one, other = f"{head}60ce2fc7", f"{head}99ce2fc7"
    _submit_as(daemon, one, "first")
    _submit_as(daemon, other, "second")

    for reference in ("60ce2fc7", one, "first"):
        found = _found(daemon, reference)
        assert found.returncode == 0, found.stderr
        assert [job["id"] for job in json.loads(found.stdout)["jobs"]] == [one]

    doubtful = daemon.run("scheduler-get-logs", "ce2fc7")
    assert doubtful.returncode == 2
    assert "first" in doubtful.stderr
    assert "second" in doubtful.stderr
    assert "Traceback" not in doubtful.stderr

    daemon.run("scheduler-cancel-job", "first")
    ended = _found(daemon, "first")
    assert [job["id"] for job in json.loads(ended.stdout)["jobs"]] == [one]
    again = daemon.run("scheduler-cancel-job", "first")
    assert (again.returncode, "already" in again.stdout + again.stderr) == (0, True)

    unknown = _found(daemon, "deadbeef")
    assert unknown.returncode == 2
    assert "no job matches" in unknown.stderr


def test_the_same_id_again_is_the_same_job(daemons: Daemons) -> None:
    daemon = daemons("0")
    job_id = str(uuid.uuid4())
    _submit_as(daemon, job_id, "once")
    _submit_as(daemon, job_id, "once")
    daemon.run("scheduler-cancel-job", job_id)
    daemon.kill()
    daemon.start()
    _submit_as(daemon, job_id, "once")
    (job,) = daemon.state_of()["jobs"]
    assert job["state"] == "CANCELED"
