from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.packages import fetching
from scheduler.packages.fetching import AGAIN, REFUSED, SETTINGS, TOKEN
from scheduler.packages.unpacking import content_path
from tests.packages.conftest import files, upload
from tests.serving import Serving, serving

TREE = {"train.py": b"print()\n", "lib/a.py": b"", "lib/b.py": b"", "big": b"0123456789" * 200_000}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path) as made:
        yield made


def run(server: Serving, package: str, token: str, folder: Path, address: str = "") -> int:
    told = {
        "server": address or f"127.0.0.1:{server.server.port}",
        "package": package,
        "folder": str(folder),
        "folders": {"data": "/data/cifar"},
    }
    return fetching.main({SETTINGS: json.dumps(told), TOKEN: token})


def test_a_job_has_the_files_of_its_package_and_links(server: Serving, tmp_path: Path) -> None:
    package = upload(server.packages, "ada", TREE)
    job = server.running(code=package)
    assert run(server, package, job.token, tmp_path / "tree") == 0
    found = {path: (tmp_path / "tree" / path).read_bytes() for path in TREE}
    assert found == TREE
    assert (tmp_path / "tree/data").readlink() == Path("/data/cifar")
    assert not (tmp_path / "tree/lib").stat().st_mode & 0o222
    assert run(server, package, job.token, tmp_path / "tree") == 0  # over what an earlier try left


def test_the_token_of_another_job_is_refused_in_one_line(
    server: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = upload(server.packages, "ada", TREE)
    other = server.running("other")
    assert run(server, package, other.token, tmp_path / "tree") == REFUSED
    assert capsys.readouterr().err == f"job {other.id} has another package, or none\n"
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("damaged", ["manifest", "file"])
def test_what_is_not_what_its_hash_says_is_refused_and_leaves_nothing(
    damaged: str, server: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = upload(server.packages, "ada", TREE)
    job = server.running(code=package)
    big = next(file.digest for file in files(TREE) if file.path == "big")
    digest = package[7:] if damaged == "manifest" else big
    path = Path(content_path(str(server.packages.contents), digest))
    path.write_bytes(path.read_bytes().replace(b"9", b"8", 1))
    assert run(server, package, job.token, tmp_path / "tree") != 0
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "tree").exists()


def test_a_daemon_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins to serve when this has tried once."""
    with serving(tmp_path) as server:
        package = upload(server.packages, "ada", TREE)
        job = server.running(code=package)
        tries: list[float] = []
        address = f"127.0.0.1:{server.server.port}"
        told = {"server": "127.0.0.1:1", "package": package, "folders": {}}
        told["folder"] = str(tmp_path / "tree")

        def pause(seconds: float) -> None:
            tries.append(seconds)
            told["server"] = address

        monkeypatch.setattr("scheduler.packages.fetching.time.sleep", pause)
        monkeypatch.setattr("scheduler.packages.fetching.json.loads", lambda _: told)
        assert fetching.main({SETTINGS: "", TOKEN: job.token}) == 0
    assert tries == [0.5]
    assert (tmp_path / "tree/train.py").exists()


def test_it_gives_up_so_that_the_run_is_repeated(
    server: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_SECONDS", 0.0)
    package = upload(server.packages, "ada", TREE)
    assert run(server, package, "token", tmp_path / "tree", "127.0.0.1:1") == AGAIN
    assert capsys.readouterr().err.count("\n") == 1


def test_a_disk_that_cannot_be_written_is_named_and_the_run_is_repeated(
    server: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    package = upload(server.packages, "ada", TREE)
    job = server.running(code=package)
    assert run(server, package, job.token, Path("/proc/nowhere/tree")) == AGAIN
    assert capsys.readouterr().err.startswith("/proc/nowhere/tree: ")
