"""Our own format of traces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.generate import generate
from simulator.traces import own_format
from simulator.traces.behaviour import SerialTruth
from simulator.traces.own_format import DEFAULTS, NEEDED, read, write
from simulator.traces.text_rows import TraceError
from tests.simulator.little import job

HEAD = ",".join(NEEDED)
ROW = "5,a,1,2,1000,10,60"


def trace(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    jobs = generate(20, seed=1, gpus=8, load=1.0)
    plain = [each for each in jobs if isinstance(each.truth, SerialTruth)]
    assert plain
    path = tmp_path / "trace.csv"
    write(path, plain)
    assert read(path) == plain


def test_the_least_that_can_be_said_is_enough(tmp_path: Path) -> None:
    (found,) = read(trace(tmp_path, HEAD, ROW))
    assert found.submit_at == 5.0
    assert (found.spec.name, found.spec.user, found.spec.priority) == ("a", "trace", 1)
    assert found.truth == SerialTruth(1000, 1.0, 60.0, 0.0)


def test_the_default_estimate_is_the_memory_rounded_up(tmp_path: Path) -> None:
    (found,) = read(trace(tmp_path, HEAD, ROW))
    assert (found.truth.memory_mib, found.spec.memory_mib) == (1000, 1024)
    (said,) = read(trace(tmp_path, f"{HEAD},estimate_mib", f"{ROW},0"))
    assert said.spec.memory_mib == 0, "the owner gives no estimate"


def test_epochs_scale_by_the_part_that_no_gpu_shortens(tmp_path: Path) -> None:
    (found,) = read(trace(tmp_path, f"{HEAD},scaling", f"{ROW},0.5"))
    assert found.truth.epoch_seconds("t4", 1, 1) == 60.0
    assert found.truth.epoch_seconds("t4", 2, 1) == 45.0


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("-1,a,1,2,1000,10,60", "submit_at"),
        ("5,,1,2,1000,10,60", "name"),
        ("5,a,3,2,1000,10,60", "gpus_max"),
        ("5,a,1,2,0,10,60", "memory_mib"),
        ("5,a,1,2,1000,0,60", "epochs"),
        ("5,a,1,2,1000,10,0", "epoch_seconds"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, row: str, column: str) -> None:
    with pytest.raises(TraceError, match=rf"trace\.csv:2: {column}: "):
        read(trace(tmp_path, HEAD, row))


def test_what_these_columns_cannot_tell_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its scaling is a measured table"):
        write(tmp_path / "trace.csv", [job("a")])


def test_every_column_is_explained_to_people() -> None:
    assert own_format.__doc__
    explained = re.findall(r"^    (\w+)(?: |$)", own_format.__doc__, re.M)
    assert {*NEEDED, *DEFAULTS} <= set(explained)
