"""Copies between folders, with the storage alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import CommandError
from cli.storage.folder_storage import FolderStorage, is_kept
from cli.storage.stored_files import ChangedError, CopySource

CONTENT = bytes(range(256)) * 40


class Interrupted(Exception):
    pass


class Sending:
    """A file that is read in pieces, and whose reader is interrupted after `most` bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.storage = path, FolderStorage()
        self.starts: list[int] = []
        self.most = len(CONTENT) + 1

    def source(self) -> CopySource:
        file = self.storage.look(str(self.path))
        return CopySource(str(self.path), file, self._read)

    def _read(self, start: int) -> Iterator[bytes]:
        self.starts.append(start)
        sent = 0
        for data in self.storage.read(str(self.path), self.storage.look(str(self.path)), start):
            for at in range(0, len(data), 1000):
                if sent >= self.most:
                    raise Interrupted
                sent += 1000
                yield data[at : at + 1000]


@pytest.fixture
def sending(tmp_path: Path) -> Sending:
    path = tmp_path / "model.pt"
    path.write_bytes(CONTENT)
    os.utime(path, (1e9, 1e9))
    return Sending(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(sending: Sending, folder: Path, path: str = "model.pt") -> None:
    FolderStorage().write(str(folder), path, sending.source(), lambda _: None)


def interrupt(sending: Sending, folder: Path, after: int) -> None:
    sending.most = after
    with pytest.raises(Interrupted):
        write(sending, folder)
    sending.most = len(CONTENT) + 1


def test_an_interrupted_copy_goes_on_where_it_stopped(sending: Sending, tmp_path: Path) -> None:
    there = tmp_path / "there"
    interrupt(sending, there, after=4000)
    assert not (there / "model.pt").exists(), "a file is there when it is whole"
    write(sending, there)
    assert sending.starts == [0, 4000]
    assert (there / "model.pt").read_bytes() == CONTENT
    assert names(there) == ["model.pt"]


def test_what_is_there_of_another_version_is_not_used(sending: Sending, tmp_path: Path) -> None:
    there = tmp_path / "there"
    interrupt(sending, there, after=4000)
    sending.path.write_bytes(CONTENT[::-1])
    write(sending, there)
    assert sending.starts == [0, 0]
    assert (there / "model.pt").read_bytes() == CONTENT[::-1]
    assert names(there) == ["model.pt"]


def test_a_file_that_changes_while_it_is_read_is_no_copy(sending: Sending, tmp_path: Path) -> None:
    there, source = tmp_path / "there", sending.source()

    def read_and_change(start: int) -> Iterator[bytes]:
        pieces = FolderStorage().read(source.name, source.file, start)
        yield next(pieces)
        with sending.path.open("r+b") as opened:
            opened.write(b"x")
        yield from pieces

    with pytest.raises(ChangedError, match=r"model\.pt changed while it was copied"):
        FolderStorage().write(
            str(there), "model.pt", source._replace(read=read_and_change), lambda _: None
        )
    assert names(there) == []


def test_a_second_copy_of_the_same_at_once_is_refused(sending: Sending, tmp_path: Path) -> None:
    there, source = tmp_path / "there", sending.source()

    def read_and_copy(start: int) -> Iterator[bytes]:
        with pytest.raises(CommandError, match="is being copied to there by another command"):
            write(sending, there)
        yield from FolderStorage().read(source.name, source.file, start)

    write_once = source._replace(read=read_and_copy)
    FolderStorage().write(str(there), "model.pt", write_once, lambda _: None)
    assert (there / "model.pt").read_bytes() == CONTENT


def test_a_copy_is_known_by_size_and_time(sending: Sending, tmp_path: Path) -> None:
    write(sending, tmp_path / "there")
    copied, file = str(tmp_path / "there/model.pt"), sending.source().file
    assert FolderStorage().has(copied, file)
    assert not FolderStorage().has(copied, file._replace(modified_at=1e9 + 1))
    assert not FolderStorage().has(copied, file._replace(size=1))
    assert not FolderStorage().has(f"{copied}.not", file)


def test_a_copy_has_the_mode_of_a_new_file(sending: Sending, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(sending, tmp_path / "there")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "there/model.pt").stat().st_mode) == 0o640


def test_no_link_below_the_folder_is_followed(sending: Sending, tmp_path: Path) -> None:
    there, outside = tmp_path / "there", tmp_path / "outside"
    there.mkdir()
    outside.mkdir()
    (there / "epochs").symlink_to(outside)
    with pytest.raises(CommandError, match=r"epochs/model\.pt: a part of it is a link"):
        write(sending, there, "epochs/model.pt")
    assert names(outside) == []


def test_a_link_in_place_of_the_file_is_replaced(sending: Sending, tmp_path: Path) -> None:
    there, own = tmp_path / "there", tmp_path / "own"
    there.mkdir()
    own.write_text("mine")
    (there / "model.pt").symlink_to(own)
    write(sending, there)
    assert own.read_text() == "mine"
    assert not (there / "model.pt").is_symlink()


@pytest.mark.parametrize("trap", ["symlink", "hard link", "fifo"])
def test_a_partial_copy_that_is_not_ours_is_not_written_to(
    sending: Sending, tmp_path: Path, trap: str
) -> None:
    there, own = tmp_path / "there", tmp_path / "own"
    there.mkdir()
    own.write_text("mine")
    partial = there / f".model.pt.{sending.source().identity}.part"
    match trap:
        case "symlink":
            partial.symlink_to(own)
        case "hard link":
            partial.hardlink_to(own)
        case "fifo":
            os.mkfifo(partial)
    write(sending, there)
    assert own.read_text() == "mine"
    assert (there / "model.pt").read_bytes() == CONTENT
    assert (there / "model.pt").stat().st_nlink == 1


def test_links_to_files_of_the_folder_are_those_files(tmp_path: Path) -> None:
    (tmp_path / "in/epochs").mkdir(parents=True)
    (tmp_path / "in/epochs/3.ckpt").write_text("weights")
    (tmp_path / "in/last.ckpt").symlink_to("epochs/3.ckpt")
    (tmp_path / "in/all").symlink_to("epochs")
    (tmp_path / "in/passwords").symlink_to("/etc/passwd")
    (tmp_path / "in/nowhere").symlink_to("not-there")
    os.mkfifo(tmp_path / "in/pipe")
    found = {each.path: each for each in FolderStorage().below(str(tmp_path / "in"))}
    assert {path for path, each in found.items() if not each.why} == {"last.ckpt", "epochs/3.ckpt"}
    assert found["last.ckpt"].size == 7
    assert {path: each.why for path, each in found.items() if each.why} == {
        "all": "a link to a folder",
        "passwords": "a link that leaves the folder",
        "nowhere": "No such file or directory",
        "pipe": "neither a file nor a folder",
    }


def test_removing_a_folder_leaves_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/deep/link").symlink_to(tmp_path / "kept")
    FolderStorage().remove(str(tmp_path / "out"), lambda _: None)
    assert names(tmp_path) == ["kept"]
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    FolderStorage().remove(str(tmp_path / "link"), lambda _: None)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["file"]


def test_the_root_is_kept_whatever_its_name(tmp_path: Path) -> None:
    for name in ("/", "//", "/..", "/etc/..", str(Path("~").expanduser())):
        assert is_kept(name), name
    assert not is_kept(str(tmp_path / "x"))
