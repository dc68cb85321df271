"""The content of the tests' images, and when they are made again."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.kube.images import python_image

TAG = "docker.io/local/thing:1"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_is_kept_until_one_of_its_files_changes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    first = python_image(TAG, files={"/train.py": script})
    made_at = first.stat().st_mtime_ns
    assert python_image(TAG, files={"/train.py": script}) == first
    assert first.stat().st_mtime_ns == made_at
    script.write_text("print(10)")
    second = python_image(TAG, files={"/train.py": script})
    assert [*first.parent.glob("*.tar")] == [second]
    assert second != first


def test_python_starts_from_what_is_in_it(tmp_path: Path) -> None:
    """Only root can run it like a container; other tests do that."""
    path = python_image(TAG, ["typing_extensions.py"], command=["python3", "-V"])
    with tarfile.open(path) as image:
        (manifest,) = json.loads(_read(image, "manifest.json"))
        assert manifest["RepoTags"] == [TAG]
        assert json.loads(_read(image, manifest["Config"]))["config"]["Cmd"] == ["python3", "-V"]
        image.extract(manifest["Layers"][0], tmp_path, filter="data")
    with tarfile.open(tmp_path / manifest["Layers"][0]) as layer:
        assert {member.uid for member in layer} == {0}
        assert all(member.mode & 0o444 == 0o444 for member in layer)
        layer.extractall(tmp_path / "root", filter="tar")
    done = subprocess.run(
        [
            tmp_path / "root/usr/local/bin/python3",
            "-c",
            "import typing_extensions as it; print(it)",
        ],
        capture_output=True,
        text=True,
        env={},
    )
    assert str(tmp_path / "root") in done.stdout, done.stderr


def _read(image: tarfile.TarFile, name: str) -> bytes:
    file = image.extractfile(name)
    assert file is not None
    return file.read()
