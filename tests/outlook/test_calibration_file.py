"""A file that may be lost, and may be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.outlook import calibration_file


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / calibration_file.FILE
    calibration_file.save(path, {"ends settled": [0.5, -0.25], "starts room": []})
    calibration_file.save(path, {"ends settled": [0.125]})
    assert calibration_file.load(path) == {"ends settled": [0.125]}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"ends settled": ["a"]}', b"\xff\x00", b"{"])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / calibration_file.FILE
    assert calibration_file.load(path) == {}
    path.write_bytes(content)
    assert calibration_file.load(path) == {}
