"""What steps of workflows give to each other in a real S3 server, which checks signatures."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.step_wrapper import s3_store
from scheduler.step_wrapper.folder_store import DataError
from scheduler.step_wrapper.s3_store import S3Store
from tests.clients import moto_server
from tests.clients.tracked_job import python_with
from tests.support import Daemon

pytestmark = pytest.mark.clients
BUCKET = "mllib"
Settings = Mapping[str, Any]
# A user with keys that the server checks from now on.
SETUP = """\
import boto3, json, sys, urllib.request
url = sys.argv[1]
def client(kind, key="k", secret="s"):
    return boto3.client(kind, endpoint_url=url, region_name="us-east-1",
                        aws_access_key_id=key, aws_secret_access_key=secret)
client("s3").create_bucket(Bucket=sys.argv[2])
iam = client("iam")
iam.create_user(UserName="ada")
made = iam.create_access_key(UserName="ada")["AccessKey"]
allow = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="ada", PolicyName="p", PolicyDocument=json.dumps(allow))
how = {"Content-Type": "text/plain"}
urllib.request.urlopen(urllib.request.Request(url + "/moto-api/reset-auth", data=b"0",
                                              method="POST", headers=how)).close()
print(json.dumps([made["AccessKeyId"], made["SecretAccessKey"]]))
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    python = python_with("boto3", "moto", "flask_cors")
    said = tmp_path_factory.mktemp("moto") / "said"
    with moto_server.serving(python, said) as port:
        command = [python, "-c", SETUP, f"http://127.0.0.1:{port}", BUCKET]
        key, secret = json.loads(subprocess.check_output(command, text=True))
        yield {
            **{"address": f"127.0.0.1:{port}", "region": "us-east-1", "tls": False},
            **{"cert_verify": True, "bucket": BUCKET, "prefix": "runs/ü a/"},
            **{"access_key": key, "secret_key": secret},
        }


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "0").start()
    yield made
    made.end()


def test_files_and_folders_come_out_as_they_went_in(settings: Settings, tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "deep/empty").mkdir(parents=True)
    (model / "deep/w +ü%.pt").write_bytes(os.urandom(3 * 2**20))
    (model / "run.sh").write_text("echo")
    (model / "run.sh").chmod(0o755)
    (model / "latest").symlink_to("deep")
    log = tmp_path / "log"
    for attempt in ("a-1", "a-2"):
        log.write_text(attempt)
        artifacts = {"model": str(model), "log": str(log)}
        S3Store(dict(settings), "w1", "train").keep(attempt, {"n": attempt}, artifacts)
    found = S3Store(dict(settings), "w1", "test")
    assert found.parameters("train") == {"n": "a-2"}
    assert found.bring("train", "model", str(tmp_path / "in/model"))
    assert found.bring("train", "log", str(tmp_path / "in/log.txt"))
    assert (tmp_path / "in/log.txt").read_text() == "a-2"
    compared = subprocess.run(["diff", "-r", model, tmp_path / "in/model"], capture_output=True)
    assert compared.stdout == b""
    assert (tmp_path / "in/model/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "in/model/latest").is_symlink()
    assert (tmp_path / "in/model/deep/empty").is_dir()
    assert not found.bring("train", "other", str(tmp_path / "other"))
    assert not found.bring("never", "model", str(tmp_path / "other"))
    (tmp_path / "log").write_text("memory")
    for attempt in ("b-1", "b-2"):  # of steps that may run at once
        artifacts = {"log": str(tmp_path / "log")}
        S3Store(dict(settings), "memory", "ab12").keep(
            attempt, {"=at": "1"}, artifacts, alone=False
        )
    known = S3Store(dict(settings), "memory", "ab12")
    assert known.parameters("ab12") == {"=at": "1"}
    assert known.bring("ab12", "log", str(tmp_path / "in/again"))


def test_an_object_has_the_key_that_the_document_names(settings: Settings, tmp_path: Path) -> None:
    store = S3Store(dict(settings), "w1", "train")
    (tmp_path / "w.pt").write_text("weights")
    store.keep_key("model/cell2d/fine.pt", str(tmp_path / "w.pt"))
    assert store.bring_key("model/cell2d/fine.pt", str(tmp_path / "in/w.pt"))
    assert (tmp_path / "in/w.pt").read_text() == "weights"
    assert not store.bring_key("model/cell2d/none.pt", str(tmp_path / "in/w.pt"))


def test_what_is_wrong_is_one_line(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "PAUSE_SECONDS", 0.01)
    for change, words in (
        ({"secret_key": "other"}, "refused GET .*: HTTP 403 SignatureDoesNotMatch"),
        ({"access_key": "other"}, "refused GET .*: HTTP 403 InvalidAccessKeyId"),
        ({"bucket": "none"}, "refused GET .*: HTTP 404 NoSuchBucket"),
        ({"address": "127.0.0.1:1"}, "S3 store at 127.0.0.1:1: GET .*: .*Connection refused"),
        ({"tls": True}, "S3 store at .*: GET .*SSL"),
    ):
        store = S3Store({**settings, **change}, "w1", "test")
        with pytest.raises(DataError, match=words) as error:
            store.parameters("train")
        assert "\n" not in str(error.value)


def test_an_artifact_cannot_leave_the_folder_that_it_is_for(
    settings: Settings, tmp_path: Path
) -> None:
    store = S3Store(dict(settings), "w2", "train")
    outputs = {"attempt": "a-1", "parameters": {}, "artifacts": {"m": [["../up", "file", 420]]}}
    store._bucket.put(f"{store._step}/outputs.json", json.dumps(outputs).encode())
    with pytest.raises(DataError, match=r"'\.\.' cannot be a part of a path"):
        S3Store(dict(settings), "w2", "test").bring("train", "m", str(tmp_path / "in"))


def test_steps_of_a_workflow_exchange_by_it(
    settings: Settings, tmp_path: Path, daemon: Daemon
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    app.chmod(0o777)
    train = {
        "name": "train",
        "outputs": {
            "parameters": [{"name": "n", "valueFrom": {"path": f"{app}/n"}}],
            "artifacts": [{"name": "m", "path": f"{app}/m", "s3": {"key": "model/fine.pt"}}],
        },
        "container": {"command": ["sh", "-c", f"echo 5 > {app}/n; echo weights > {app}/m"]},
    }
    use = {
        "name": "use",
        "inputs": {
            "parameters": [{"name": "n"}],
            "artifacts": [
                {"name": "m", "path": f"{app}/in"},
                {"name": "k", "path": f"{app}/key", "s3": {"key": "model/fine.pt"}},
            ],
        },
        "container": {
            "command": ["sh", "-c"],
            "args": [
                f"cat {app}/in {app}/key; echo {{{{inputs.parameters.n}}}} $EPOCH_SCHEDULER_STORE"
            ],
        },
    }
    given = {
        "parameters": [{"name": "n", "value": "{{tasks.a.outputs.parameters.n}}"}],
        "artifacts": [{"name": "m", "from": "{{tasks.a.outputs.artifacts.m}}"}],
    }
    tasks = [
        {"name": "a", "template": "train"},
        {"name": "b", "template": "use", "dependencies": ["a"], "arguments": given},
    ]
    spec = {
        "entrypoint": "main",
        "templates": [{"name": "main", "dag": {"tasks": tasks}}, train, use],
    }
    file, keys = tmp_path / "w.json", tmp_path / "creds.yaml"
    file.write_text(json.dumps({"metadata": {"name": "w"}, "spec": spec}))
    keys.touch(mode=0o600)
    own = {"access key": settings["access_key"], "secret key": settings["secret_key"]}
    store = {"name": "lab", "address": settings["address"], "tls": False, **own}
    keys.write_text(json.dumps({"s3": [{**store, "sets": {"model": {"bucket": BUCKET}}}]}))
    done = daemon.run("scheduler-run-workflow", str(file), "--wait")
    assert done.returncode == 2
    assert done.stderr.endswith("step a: it has an artifact in S3: give --store s3://SET\n")
    flags = ("--store", "s3://model/x", "--credentials", str(keys))
    done = daemon.run("scheduler-run-workflow", str(file), "--wait", *flags)
    assert done.returncode == 0, done.stderr
    said = daemon.run("scheduler-get-logs", "b").stdout.splitlines()
    assert said[-3:] == ["weights", "weights", "5"]
    told = daemon.run("scheduler-state", "a", "--output", "json").stdout
    assert settings["secret_key"] not in told
