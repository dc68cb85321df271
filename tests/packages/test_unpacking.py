from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from scheduler.packages import unpacking
from scheduler.packages.manifest import LINK, PROGRAM, BadPackage, PackagedFile, encode, package_id
from scheduler.packages.unpacking import Unpacking, discard, remove_tree, unpacked


def entry(path: str, content: bytes = b"hi", kind: str = "file") -> PackagedFile:
    return PackagedFile(path, kind, len(content), hashlib.sha256(content).hexdigest())


def stored(folder: Path, entries: list[PackagedFile], *contents: bytes) -> str:
    """A store with one package."""
    manifest = encode(entries)
    for content in (manifest, *contents):
        path = Path(unpacking.content_path(str(folder), hashlib.sha256(content).hexdigest()))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return package_id(manifest)


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "new").mkdir()
    return str(tmp_path / "new")


def test_the_folder_has_the_files_and_nobody_can_write_there(tmp_path: Path) -> None:
    entries = [
        entry("a/b/x.py"),
        entry("a/run.sh", kind=PROGRAM),
        PackagedFile("l", LINK, target="a/b"),
    ]
    package = stored(tmp_path / "store", entries, b"hi")
    tree = Path(unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {}))
    assert (tree / "a/b/x.py").read_text() == "hi"
    assert os.access(tree / "a/run.sh", os.X_OK)
    assert not (tree / "a/b/x.py").stat().st_mode & 0o333
    assert (tree / "l").readlink() == Path("a/b")
    assert {path.stat().st_mode & 0o777 for path in (tree, tree / "a", tree / "a/b")} == {0o555}
    remove_tree(str(tmp_path / "trees"), tree.name)
    assert tree.exists()  # a run may have just begun to use it
    remove_tree(str(tmp_path / "trees"), tree.name, unused_seconds=0.0)
    assert not list((tmp_path / "trees").iterdir())


def test_it_is_unpacked_once_also_by_many_at_a_time(tmp_path: Path) -> None:
    package = stored(tmp_path / "store", [entry("x")], b"hi")
    found: list[int] = []

    def run() -> None:
        tree = unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {})
        found.append(Path(tree, "x").stat().st_ino)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_what_was_unpacked_before_the_machine_started_again_is_unpacked_anew(
    tmp_path: Path,
) -> None:
    package = stored(tmp_path / "store", [entry("x")], b"hi")
    tree = Path(unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {}))
    (tree / "x").chmod(0o600)
    (tree / "x").write_text("")  # as a power cut may leave it
    Path(f"{tree}{unpacking.BOOT}").write_text("another boot")
    again = unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {})
    assert Path(again, "x").read_text() == "hi"


def test_folders_elsewhere_are_linked_in_a_tree_of_their_own(tmp_path: Path) -> None:
    package = stored(tmp_path / "store", [entry("x")], b"hi")
    trees = str(tmp_path / "trees")
    plain = unpacked(str(tmp_path / "store"), package, trees, {})
    linked = unpacked(str(tmp_path / "store"), package, trees, {"data": "/data/cifar"})
    assert plain != linked
    assert Path(linked, "data").readlink() == Path("/data/cifar")
    with pytest.raises(BadPackage, match="x: the package has a file there"):
        unpacked(str(tmp_path / "store"), package, trees, {"x": "/data"})


@pytest.mark.parametrize("content", [b"ho", b"h", b"hi there", b"", b"hi" * 10**6])
def test_another_content_is_refused(content: bytes, place: str) -> None:
    work = Unpacking(place, [entry("x")])
    with pytest.raises(BadPackage, match="x: its content"):
        work.write(entry("x").digest, [content])
    work.close()


def test_no_more_is_written_than_the_manifest_says(place: str) -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    work = Unpacking(place, [entry("x", b"hi" * 10_000)])
    with pytest.raises(BadPackage):
        work.write(entry("x", b"hi" * 10_000).digest, endless())  # type: ignore[arg-type]
    assert taken == 21
    work.close()


def test_what_the_package_does_not_name_is_refused(place: str) -> None:
    work = Unpacking(place, [entry("x")])
    with pytest.raises(BadPackage, match="no such content"):
        work.write(entry("y", b"other").digest, [b"other"])
    with pytest.raises(BadPackage, match="x: its content is missing"):
        work.finish({})
    work.close()


def test_nothing_is_written_through_what_is_there_already(tmp_path: Path, place: str) -> None:
    """Neither through a link, a hard link, nor a pipe in a folder that should be empty."""
    victim = tmp_path / "victim"
    victim.write_text("old")
    (tmp_path / "elsewhere").mkdir()
    made = {"link": victim, "way": tmp_path / "elsewhere"}
    for name, target in made.items():
        Path(place, name).symlink_to(target)
    Path(place, "hard").hardlink_to(victim)
    os.mkfifo(f"{place}/pipe")
    for path in ("link", "way/x", "hard", "pipe"):
        work = Unpacking(place, [entry(path)])
        with pytest.raises(OSError, match=r"exists|Not a directory|Too many levels"):
            work.write(entry(path).digest, [b"hi"])
        work.close()
    assert victim.read_text() == "old"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_damaged_store_starts_nothing(tmp_path: Path) -> None:
    package = stored(tmp_path / "store", [entry("x")], b"hi")
    Path(unpacking.content_path(str(tmp_path / "store"), entry("x").digest)).write_bytes(b"ho")
    with pytest.raises(BadPackage, match="x: its content"):
        unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {})
    path = Path(unpacking.content_path(str(tmp_path / "store"), package[7:]))
    path.write_bytes(path.read_bytes().replace(b"x", b"y"))
    with pytest.raises(BadPackage, match="its manifest is damaged"):
        unpacked(str(tmp_path / "store"), package, str(tmp_path / "trees"), {})
    assert [each.name for each in (tmp_path / "trees").iterdir()] == [f"{package[7:]}.lock"]


def test_a_folder_is_deleted_without_following_its_links(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "kept")
    tree.chmod(0o555)
    discard(str(tree))
    assert not tree.exists()
    assert (tmp_path / "kept/file").exists()
    assert (tmp_path / "kept").stat().st_mode & 0o200
