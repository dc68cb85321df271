"""scheduler-files with boto3 and moto's S3 server, which accepts any key unless told not to."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import MAINS, Done
from tests.clients import moto_server
from tests.clients.influxd import free_ports
from tests.clients.tracked_job import python_with
from tests.support import DEADLINE_SECONDS, eventually

SET, BUCKET, PREFIX = "model", "mllib", "runs/a"
PART = 16 * 1024 * 1024
RUN = """\
import sys
sys.path.append(sys.argv.pop(1))
from cli.files import main
sys.exit(main())
"""

pytestmark = pytest.mark.clients


class Store:
    def __init__(self, port: int, packages: str, log: Path, folder: Path) -> None:
        import boto3

        self.port, self.packages, self.log, self.folder = port, packages, log, folder
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="k",
            aws_secret_access_key="s",
            region_name="us-east-1",
        )

    def credentials(self, bucket: str = BUCKET, port: int = 0) -> str:
        file = self.folder / "creds.yaml"
        file.touch(mode=0o600)
        file.write_text(
            f"s3: [{{name: store, address: '127.0.0.1:{port or self.port}', access key: k, "
            f"secret key: s, tls: false, sets: {{{SET}: {{bucket: {bucket}, prefix: {PREFIX}}}}}}}]"
        )
        return str(file)

    def put(self, name: str, content: bytes = b"x") -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=content)

    def get(self, name: str) -> bytes:
        body = self.client.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")["Body"]
        return bytes(body.read())

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return [each["Key"] for each in found]

    def requests(self) -> str:
        return self.log.read_text()

    def parts(self) -> list[int]:
        """Of the upload that is not complete."""
        found = []
        for upload in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
            where = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
            found += self.client.list_parts(Bucket=BUCKET, **where).get("Parts", ())
        return [each["PartNumber"] for each in found]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", RUN, self.packages, *words, "--credentials", self.credentials()],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def check_keys(self, after: float) -> None:
        """After so many calls moto checks keys, and knows none."""
        url = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        how = {"Content-Type": "text/plain"}
        request = urllib.request.Request(url, data=str(after).encode(), method="POST", headers=how)
        urllib.request.urlopen(request, timeout=DEADLINE_SECONDS).close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str, Path]]:
    python = python_with("boto3", "moto", "flask_cors")
    where = "import boto3, os; print(os.path.dirname(os.path.dirname(boto3.__file__)))"
    packages = subprocess.check_output([python, "-c", where], text=True).strip()
    said = tmp_path_factory.mktemp("moto") / "said"
    with moto_server.serving(python, said) as port:
        yield port, packages, said


@pytest.fixture
def store(server: tuple[int, str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    port, packages, log = server
    monkeypatch.setattr(sys, "path", [*sys.path, packages])  # what we have counts first
    for name in ("HTTP_PROXY", "http_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    reset = urllib.request.Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset, timeout=DEADLINE_SECONDS).close()
    made = Store(port, packages, log, tmp_path)
    made.client.create_bucket(Bucket=BUCKET)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def files(store: Store, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str, bucket: str = BUCKET, port: int = 0) -> Done:
        capsys.readouterr()
        credentials = store.credentials(bucket, port)
        code = MAINS["scheduler-files"]([*words, "--credentials", credentials])
        return Done(code, *capsys.readouterr())

    return call


def test_a_folder_goes_there_and_comes_back(store: Store, files: Any, tmp_path: Path) -> None:
    (tmp_path / "out/epochs").mkdir(parents=True)
    (tmp_path / "out/epochs/3 ü.pt").write_bytes(b"w" * 5000)
    (tmp_path / "out/empty").touch()
    done = files("put", "out", f"s3://{SET}/first")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == "copied 2 files (4.9 KiB) to s3://model/first\n"
    assert store.names() == ["runs/a/first/empty", "runs/a/first/epochs/3 ü.pt"]
    assert files("put", "out", f"s3://{SET}/first").out.endswith("; 2 were there already\n")
    assert "epochs/\n" in files("ls", f"s3://{SET}/first").out
    assert files("ls", f"s3://{SET}").out.endswith("first/\n")
    assert files("get", f"s3://{SET}/first", "back").exit_code == 0
    assert (tmp_path / "back/epochs/3 ü.pt").read_bytes() == b"w" * 5000
    assert files("get", f"s3://{SET}/first", "back").out.endswith("; 2 were there already\n")
    store.put("first/empty", b"new")
    assert files("get", f"s3://{SET}/first", "back").out.startswith("copied 1 file (3 bytes)")


def test_what_changed_here_is_copied_again(store: Store, files: Any, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("one")
    files("put", "x", f"s3://{SET}/")
    file.write_text("two")
    assert files("put", "x", f"s3://{SET}/").out.startswith("copied 1 file")
    assert store.get("x") == b"two"


def test_names_that_would_leave_the_folder_are_left_out(
    store: Store, files: Any, tmp_path: Path
) -> None:
    for name in ("good", "../up", "a/../../up", "a//b", "/abs", "esc\x1b[2J", "dir/", "n" * 300):
        store.put(name, b"" if name.endswith("/") else b"x")
    done = files("get", f"s3://{SET}", "deep/there")
    assert done.exit_code == 1
    assert done.out == "copied 2 files (2 bytes) to deep/there; 5 were left out\n"
    assert done.err.count("its name leaves the folder") == 4
    assert done.err.count("its name is too long") == 1
    assert "\x1b" not in done.err
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["creds.yaml", "deep", "deep/there", "deep/there/esc\x1b[2J", "deep/there/good"]
    assert "\x1b" not in files("ls", f"s3://{SET}").out


def test_many_names_are_listed_and_removed(store: Store, files: Any) -> None:
    for number in range(1100):
        store.put(f"many/{number:04}")
    store.put("other")
    store.put("many-more")
    assert files("ls", f"s3://{SET}/many").out.count("\n") == 1101
    done = files("rm", f"s3://{SET}/many", "--yes")
    assert (done.exit_code, done.err) == (0, "")
    assert store.names() == ["runs/a/many-more", "runs/a/other"]
    assert files("rm", f"s3://{SET}/other", "--yes").exit_code == 0
    assert store.names() == ["runs/a/many-more"]
    assert files("rm", f"s3://{SET}/other", "--yes").exit_code == 2


def test_a_put_that_was_killed_goes_on_where_it_stopped(
    store: Store, files: Any, tmp_path: Path
) -> None:
    content = os.urandom(3 * PART + 1000)
    (tmp_path / "big").write_bytes(content)
    started = store.start("put", "big", f"s3://{SET}/big")
    eventually(lambda: len(store.parts()) >= 1 or started.poll() is not None)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    there = store.parts()
    assert 1 <= len(there) < 4, "killed too late"
    done = files("put", "big", f"s3://{SET}/big")
    assert (done.exit_code, done.err) == (0, "")
    assert store.get("big") == content
    assert store.parts() == []


def test_parts_of_another_version_are_replaced(store: Store, files: Any, tmp_path: Path) -> None:
    """And those that are the same are not sent again."""
    content = os.urandom(2 * PART + 1000)
    where = {"Bucket": BUCKET, "Key": f"{PREFIX}/big"}
    upload = store.client.create_multipart_upload(**where)["UploadId"]
    for number, data in ((1, content[:PART]), (2, b"old" * (PART // 3))):
        store.client.upload_part(**where, UploadId=upload, PartNumber=number, Body=data)
    (tmp_path / "big").write_bytes(content)
    before = store.requests()
    assert files("put", "big", f"s3://{SET}/big").exit_code == 0
    sent = re.findall(r"PUT \S*partNumber=(\d)", store.requests()[len(before) :])
    assert sent == ["2", "3"]
    assert store.get("big") == content


def test_a_get_that_was_killed_goes_on_where_it_stopped(
    store: Store, files: Any, tmp_path: Path
) -> None:
    content = os.urandom(6 * PART)
    store.put("big", content)
    started = store.start("get", f"s3://{SET}/big", "there/")
    there = tmp_path / "there"
    eventually(lambda: _size(there) > 1_000_000 or started.poll() is not None)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    half = _size(there)
    assert 0 < half < len(content), "killed too late"
    (partial,) = there.iterdir()
    node = partial.stat().st_ino
    assert files("get", f"s3://{SET}/big", "there/").exit_code == 0
    (whole,) = there.iterdir()
    assert (whole.name, whole.stat().st_ino) == ("big", node)
    assert whole.read_bytes() == content


def test_an_object_that_changed_meanwhile_is_fetched_from_its_beginning(
    store: Store, files: Any, tmp_path: Path
) -> None:
    store.put("big", os.urandom(6 * PART))
    started = store.start("get", f"s3://{SET}/big", "there/")
    eventually(lambda: _size(tmp_path / "there") > 1_000_000 or started.poll() is not None)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    store.put("big", b"new")
    assert files("get", f"s3://{SET}/big", "there/").exit_code == 0
    (whole,) = (tmp_path / "there").iterdir()
    assert whole.read_bytes() == b"new"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0


def test_what_a_store_refuses_is_told_in_one_line(store: Store, files: Any) -> None:
    store.put("x")
    done = files("get", f"s3://{SET}/x", bucket="other")
    assert (done.exit_code, done.err.count("\n")) == (2, 1)
    assert "has no bucket 'other'" in done.err
    done = files("get", f"s3://{SET}/not")
    assert (done.exit_code, done.err.count("\n")) == (2, 1)
    assert done.err == "scheduler-files: s3://model/not: no such file or folder\n"
    done = files("ls", f"s3://{SET}", port=free_ports(1)[0])
    assert (done.exit_code, done.err.count("\n")) == (3, 1)
    assert done.err.startswith("scheduler-files: cannot reach S3 store 'store' at 127.0.0.1:")
    done = files("ls", "s3://modl")
    assert (done.exit_code, done.err.count("\n")) == (2, 1)
    assert "no set 'modl' (did you mean 'model'?)" in done.err


def test_a_wrong_key_is_refused(store: Store, files: Any) -> None:
    store.put("x")
    store.check_keys(after=0)
    try:
        for words in (("ls", f"s3://{SET}"), ("get", f"s3://{SET}/x")):
            done = files(*words)
            assert (done.exit_code, done.out, done.err.count("\n")) == (4, "", 1)
            assert "refused s3://model" in done.err
    finally:
        store.check_keys(after=math.inf)
