from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from kubernetesdlprofile import checkpoints


def write(path: Path, saved_at: float, whole: bool = True) -> str:
    """A checkpoint as torch writes it, or the first half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"weights" * 100)
    if not whole:
        path.write_bytes(path.read_bytes()[:400])
    os.utime(path, (saved_at, saved_at))
    return str(path)


def version(root: Path, number: int) -> Path:
    return root / "lightning_logs" / f"version_{number}" / "checkpoints"


def test_without_any_checkpoint_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "tf_ckpt").mkdir()
    version(tmp_path, 0).mkdir(parents=True)
    assert checkpoints.newest(str(tmp_path)) is None
    assert checkpoints.newest(str(tmp_path / "absent")) is None


def test_the_highest_epoch_of_all_versions_is_taken(tmp_path: Path) -> None:
    write(version(tmp_path, 0) / "epoch=9-step=90.ckpt", 9)
    best = write(version(tmp_path, 1) / "epoch=10-step=100.ckpt", 10)
    version(tmp_path, 2).mkdir(parents=True)
    (tmp_path / "lightning_logs" / "somebody_elses_folder").mkdir()
    assert checkpoints.newest(str(tmp_path)) == best


def test_of_the_same_epoch_the_newer_is_taken(tmp_path: Path) -> None:
    best = write(version(tmp_path, 0) / "epoch=3-step=30.ckpt", 20)
    write(version(tmp_path, 1) / "epoch=3-step=30.ckpt", 10)
    assert checkpoints.newest(str(tmp_path)) == best


def test_last_is_preferred(tmp_path: Path) -> None:
    write(version(tmp_path, 0) / "epoch=3-step=30.ckpt", 10)
    last = write(version(tmp_path, 0) / "last.ckpt", 10)
    assert checkpoints.newest(str(tmp_path)) == last


def test_last_of_an_earlier_version_is_not_preferred(tmp_path: Path) -> None:
    write(version(tmp_path, 0) / "last.ckpt", 10)
    newer = write(version(tmp_path, 1) / "epoch=5-step=50.ckpt", 20)
    assert checkpoints.newest(str(tmp_path)) == newer


def test_a_checkpoint_that_was_being_written_is_passed_over(tmp_path: Path) -> None:
    whole = write(version(tmp_path, 0) / "epoch=2-step=20.ckpt", 10)
    write(version(tmp_path, 0) / "epoch=3-step=30.ckpt", 20, whole=False)
    (version(tmp_path, 0) / "last.ckpt").touch()
    (version(tmp_path, 0) / "a folder.ckpt").mkdir()
    assert checkpoints.newest(str(tmp_path)) == whole


@pytest.mark.parametrize("name", ["tf_ckpt", "tf_ckpts"])
def test_tensorflows_checkpoints_are_found_in_each_of_their_forms(
    tmp_path: Path, name: str
) -> None:
    folder, file, prefix = tmp_path / "a" / name, tmp_path / "b" / name, tmp_path / "c" / name
    folder.mkdir(parents=True)
    (folder / "checkpoint").touch()
    file.parent.mkdir()
    file.touch()
    prefix.parent.mkdir()
    prefix.with_name(name + ".index").touch()
    for path in (folder, file, prefix):
        assert checkpoints.newest(str(path.parent)) == str(path)


def test_a_jobs_folder_is_made_with_all_above_it_and_may_exist(tmp_path: Path) -> None:
    for _ in range(2):
        assert checkpoints.folder(str(tmp_path / "snapshots"), "job") == str(
            tmp_path / "snapshots" / "job"
        )


def test_where_no_folder_can_be_made_a_private_one_is_used_and_said_to_lose_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "snapshots").touch()  # a file
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = Path(checkpoints.folder(str(tmp_path / "snapshots"), "job"))
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    (record,) = caplog.records
    assert "snapshots/job cannot be used" in record.getMessage()
    assert "will lose the work" in record.getMessage()
