from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.command import CommandError
from cli.packages.local_package import batches, pack, parts
from scheduler.packages.manifest import LINK, PROGRAM
from tests.cli.packages.conftest import write


def test_the_same_tree_has_the_same_id_whatever_else_differs(tmp_path: Path) -> None:
    files = {"b.py": "2", "a/x": "1", "run.sh": "#!/bin/sh"}
    one, two = (
        write(tmp_path / "one", files),
        write(tmp_path / "two", dict(reversed(files.items()))),
    )
    os.utime(two / "b.py", (1, 1))
    (one / "b.py").chmod(0o600)
    (two / "b.py").chmod(0o664)
    for root in (one, two):
        (root / "run.sh").chmod(0o755 if root == one else 0o700)
        (root / "l").symlink_to("a/x")
    names = [*files, "l"]
    assert pack(str(one), names).id == pack(str(two), reversed(names)).id
    kinds = {entry.path: entry.kind for entry in pack(str(one), names).entries}
    assert (kinds["run.sh"], kinds["l"], kinds["b.py"]) == (PROGRAM, LINK, "file")
    (two / "b.py").chmod(0o755)
    assert pack(str(one), names).id != pack(str(two), names).id


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../x"])
def test_a_link_that_leaves_the_folder_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to(target)
    with pytest.raises(CommandError, match=rf"l: is a link that leaves the package: {target}"):
        pack(str(tmp_path), ["l"])


def test_each_content_is_sent_once_in_parts(tmp_path: Path) -> None:
    write(tmp_path, {"a": "x" * 1_200_000, "b": "x" * 1_200_000, "c": "", "d": "d"})
    package = pack(str(tmp_path), "abcd")
    sent = list(batches(parts(package, range(4), with_manifest=True)))
    each = [part for message in sent for part in message.parts]
    assert [part.size for part in each if part.digest] == [len(package.manifest), 1_200_000, 0, 1]
    assert b"".join(part.data for part in each) == package.manifest + b"x" * 1_200_000 + b"d"
    assert all(message.ByteSize() < 2**20 for message in sent)


def test_a_file_that_changes_before_it_is_sent_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"a": "old", "big": "x" * 2_000_000})
    package = pack(str(tmp_path), ["a", "big"])
    for text in ("new", "longer", "", "o"):
        (tmp_path / "a").write_text(text)
        with pytest.raises(CommandError, match="a: changed while it was read: try again"):
            list(parts(package, [0]))
    (tmp_path / "big").write_text("x" * 1_999_999 + "y")
    with pytest.raises(CommandError, match="big: changed"):
        list(parts(package, [1]))
    (tmp_path / "a").unlink()
    with pytest.raises(CommandError, match="a: No such file or directory"):
        list(parts(package, [0]))


def test_a_file_that_grows_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"log": "x" * 1_000_000})
    read = os.read

    def growing(file: int, size: int) -> bytes:
        with (tmp_path / "log").open("a") as opened:
            opened.write("more")
        return read(file, size)

    monkeypatch.setattr("cli.packages.local_package.os.read", growing)
    with pytest.raises(CommandError, match="log: changed while it was read"):
        pack(str(tmp_path), ["log"])


def test_a_file_of_others_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(tmp_path, {"a": ""})
    (tmp_path / "a").chmod(0)
    with pytest.raises(CommandError, match="a: Permission denied"):
        pack(str(tmp_path), ["a"])


def test_a_folder_that_has_become_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"r/d/file": "ours", "outside/file": "theirs"})
    (tmp_path / "r/d/file").unlink()
    (tmp_path / "r/d").rmdir()
    (tmp_path / "r/d").symlink_to("../outside")
    with pytest.raises(CommandError, match="d/file: Not a directory"):
        pack(str(tmp_path / "r"), ["d/file"])


def test_the_progress_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"a": "123", "b": "4567"})
    told: list[int] = []
    pack(str(tmp_path), "ab", told.append)
    assert told == [3, 7]
