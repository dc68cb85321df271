"""S22: an Argo-style workflow, by the client that people have, a real daemon and a server of S3."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from scheduler.access.identity import user_name
from tests.clients import moto_server
from tests.clients.tracked_job import python_with
from tests.gateway.serving_http import gateway
from tests.support import Daemon

pytestmark = pytest.mark.clients
SCRIPT = Path(__file__).parent / "trainings" / "old_workflow.py"
CRISP = Path(__file__).parents[1] / "e2e" / "crisplitdemo.yaml"
BUCKET = "test"
READ = """
import sys, boto3
keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
s3 = boto3.client("s3", endpoint_url=sys.argv[1], **keys)
print(s3.get_object(Bucket=sys.argv[2], Key=sys.argv[3])["Body"].read().decode())
"""


@dataclass
class OldClient:
    python: str
    daemon: Daemon
    folder: Path
    s3: str

    def run(self, workflow: Path, **params: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(self.python, SCRIPT, "--server", "abacus", "--run", workflow, "--name", "first"),
                *("--params", json.dumps(params)),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def object(self, key: str) -> Any:
        words = [self.python, "-c", READ, self.s3, BUCKET, key]
        return yaml.safe_load(subprocess.run(words, check=True, capture_output=True).stdout)

    def jobs(self, name: str) -> dict[str, Any]:
        found = self.daemon.state_of("--label", f"workflow={name}")["jobs"]
        return {job["name"]: job for job in found}

    def log(self, job: Any) -> list[str]:
        said = self.daemon.run("scheduler-get-logs", job["id"]).stdout.splitlines()
        return [line for line in said if not line.startswith("[epoch-scheduler]")]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = python_with("moto", "boto3", "requests", "yaml")
    with moto_server.serving(python, tmp_path_factory.mktemp("moto") / "said") as port:
        url = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
        yield url


@pytest.fixture
def old(daemon: Daemon, tmp_path: Path, s3: str) -> Iterator[OldClient]:
    """Its creds.yaml points at the gateway, and has the token in the address."""
    user = user_name(os.geteuid())
    with gateway(daemon.address) as served:
        host = served.url.removeprefix("http://")
        argo = {
            **{"name": "abacus", "address": f"{user}:{daemon.token(user)}@{host}"},
            **{"username": "", "password": "", "tls": False, "cert verify": False},
            "namespace": "argo",
        }
        store = {
            **{"name": "store", "type": "moto", "address": s3.removeprefix("http://")},
            **{"access key": "k", "secret key": "s", "tls": False, "cert verify": False},
            "sets": {"test": {"bucket": BUCKET, "prefix": ""}},
        }
        (tmp_path / "creds.yaml").write_text(yaml.safe_dump({"argo": [argo], "s3": [store]}))
        yield OldClient(python_with("moto"), daemon, tmp_path, s3)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    made.mkdir()
    made.chmod(0o777)
    return made


def test_its_workflow_runs_step_by_step(old: OldClient, app: Path) -> None:
    done = old.run(CRISP, batch_size=2, app=str(app), unknown=1)
    assert done.returncode == 0, done.stdout + done.stderr
    name = done.stdout.removeprefix("job: ").strip()
    assert name.startswith("crisplit-")
    old.daemon.wait_state(**{"train-fine": "FINISHED", "prune": "FINISHED", "test": "FINISHED"})
    jobs = old.jobs(name)
    assert [old.log(jobs[step]) for step in ("train-fine", "prune", "test")] == [
        ["began with 0"],
        ["began with 2"],
        ["began with 4"],
    ]
    assert (app / "results.yaml").read_text() == "batches: 6\n"
    assert old.object("tests.yaml")[-1]["job"] == name
    stored = old.object("workflows/first_crisplitdemo.yaml")
    assert stored["metadata"]["generateName"] == "crisplit-"


def test_a_step_that_is_left_out_gives_nothing_and_holds_up_nobody(
    old: OldClient, app: Path
) -> None:
    done = old.run(CRISP, start=1, app=str(app))
    name = done.stdout.removeprefix("job: ").strip()
    old.daemon.wait_state(prune="FINISHED", test="FINISHED")
    jobs = old.jobs(name)
    assert set(jobs) == {"prune", "test"}
    assert old.log(jobs["prune"]) == ["began with 0"]


def test_a_step_that_keeps_failing_fails_the_workflow(old: OldClient, app: Path) -> None:
    done = old.run(CRISP, fails="pruned", app=str(app))
    name = done.stdout.removeprefix("job: ").strip()
    old.daemon.wait_state(prune="FAILED", test="SKIPPED")
    jobs = old.jobs(name)
    assert (jobs["train-fine"]["state"], jobs["prune"]["attempt"]) == ("FINISHED", 2)
    shown = old.daemon.run("scheduler-state", "--label", f"workflow={name}").stdout
    assert [line.split()[-6:] for line in shown.splitlines()[1:]]
    assert "`- prune" in shown
    assert "prune failed" in shown


def test_a_refusal_is_shown_as_it_is(old: OldClient, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(CRISP.read_text().replace("entrypoint: crisplit", "entrypoint: crisp"))
    done = old.run(wrong)
    assert done.returncode != 0
    assert done.stdout.startswith('error 400 {"code":3,"message":"line 1, column ')
    assert "spec.entrypoint: there is no template 'crisp'" in done.stdout
