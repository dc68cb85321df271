from __future__ import annotations

import os
import shutil
import zipfile
from functools import partial
from pathlib import Path

import pytest

from kubernetesdlprofile import checkpoints, folders


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
        assert checkpoints.at_start(str(path.parent)) == str(path)


def test_a_jobs_folder_is_made_with_all_above_it_and_may_exist(tmp_path: Path) -> None:
    for _ in range(2):
        assert folders.folder(str(tmp_path / "snapshots"), "job") == str(
            tmp_path / "snapshots" / "job"
        )


def test_where_no_folder_can_be_made_a_private_one_is_used_and_said_to_lose_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "snapshots").touch()  # a file
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = Path(folders.folder(str(tmp_path / "snapshots"), "job"))
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    (record,) = caplog.records
    assert "snapshots/job cannot be used" in record.getMessage()
    assert "will lose the work" in record.getMessage()


@pytest.mark.parametrize("name", ["model.pt", "net.pth", "model.keras", "weights.npz"])
def test_what_other_frameworks_write_is_found_whole(tmp_path: Path, name: str) -> None:
    whole = write(tmp_path / name, 10)
    write(tmp_path / ("later-" + name), 20, whole=False)
    (tmp_path / "events.log").write_text("no checkpoint")
    (tmp_path / (".7-" + name)).write_text("being written")
    assert checkpoints.newest(str(tmp_path)) == whole


def test_of_tensorflows_checkpoints_the_newest_with_all_of_its_parts_is_taken(
    tmp_path: Path,
) -> None:
    for number in (9, 10, 11):
        for part in range(2):
            (tmp_path / f"ckpt-{number}.data-0000{part}-of-00002").write_text("weights")
        (tmp_path / f"ckpt-{number}.index").write_text("index")
    (tmp_path / "ckpt-11.data-00001-of-00002").unlink()
    (tmp_path / "ckpt-12.data-00000-of-00001").write_text("weights, and no index yet")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "ckpt-10")


def test_a_folder_of_hugging_faces_trainer_is_taken_when_its_state_is_written(
    tmp_path: Path,
) -> None:
    for step in (90, 100, 110):
        write(tmp_path / f"checkpoint-{step}" / "optimizer.pt", step)
    for step in (90, 100):
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "checkpoint-100")


def test_a_checkpoint_is_written_beside_the_old_one_and_takes_its_place(tmp_path: Path) -> None:
    path, source = tmp_path / "new" / "last.ckpt", tmp_path / "source"
    for content in ("first", "second"):
        source.write_text(content)
        assert checkpoints.save(path, partial(shutil.copy, source))
        assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("no space"), RuntimeError("PytorchStreamWriter")])
def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    path = tmp_path / "last.ckpt"
    path.write_text("whole")

    def write_half(name: str) -> None:
        Path(name).write_text("half")
        raise error

    for _ in range(2):
        assert not checkpoints.save(path, write_half)
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
    (record,) = caplog.records
    assert f"no checkpoint was written ({error})" in record.getMessage()


def test_a_bug_in_the_scripts_own_writer_is_the_scripts(tmp_path: Path) -> None:
    with pytest.raises(NameError):
        checkpoints.save(tmp_path / "last.ckpt", lambda name: undefined)  # type: ignore[name-defined]  # noqa: F821
    assert list(tmp_path.iterdir()) == []
