"""Runs of other programs, as entries. Real writers are in tests/clients/test_imports.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.command import UsageError
from cli.metrics_import import ImportedRun, counted
from tests.relay.written_files import AT, config, history, log, scalars


def told(path: Path) -> tuple[list[Any], dict[str, Any], ImportedRun]:
    """Points, and the rest."""
    run = ImportedRun(path)
    records = [json.loads(entry) for entry in run.entries()]
    points = [point for record in records for point in record.get("points", ())]
    rest: dict[str, Any] = {}
    for record in records:
        for kind in ("params", "tags"):
            rest.setdefault(kind, {}).update(record.get(kind, {}))
        if "describes" in record:
            rest["describes"] = record["describes"]
    return points, rest, run


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def mlflow_run(run: Path) -> Path:
    write(run / "meta.yaml", "run_id: x\n")
    write(run / "metrics" / "loss", "1700000000000 0.5 1\n1700000001000 nan 2\nhalf a")
    write(run / "metrics" / "val" / "acc", "1700000001000 1 2\n")
    write(run / "params" / "lr", "0.1")
    write(run / "tags" / "mlflow.note.content", "a try")
    write(run / "tags" / "kind", "test")
    return run


def test_a_run_of_an_mlflow_file_store(tmp_path: Path) -> None:
    points, rest, run = told(mlflow_run(tmp_path / "0" / "abc"))
    at = 1_700_000_000 * 10**9
    assert points[0] == ["metrics", {}, "loss", at, 1, 0.5]
    assert [point[2:5] for point in points[1:]] == [
        ["loss", at + 10**9, 2],
        ["val/acc", at + 10**9, 2],
    ]
    assert rest == {"params": {"lr": "0.1"}, "tags": {"kind": "test"}, "describes": "a try"}
    assert sum(run.skipped.values()) == 1


def test_the_only_run_below_a_folder_is_found_and_of_several_one_must_be_named(
    tmp_path: Path,
) -> None:
    mlflow_run(tmp_path / "mlruns" / "0" / "abc")
    assert len(told(tmp_path)[0]) == 3
    mlflow_run(tmp_path / "mlruns" / "0" / "def")
    with pytest.raises(UsageError, match=r"there are 2 runs, and a job is one of them:\n.*0/abc\n"):
        told(tmp_path)


def test_an_offline_run_of_wandb(tmp_path: Path) -> None:
    file = tmp_path / "offline-run-1" / "run-1.wandb"
    file.parent.mkdir()
    file.write_bytes(log(config(lr=0.1), history(0, loss=2.0), history(1, loss=1.0)))
    for path in (tmp_path, file):
        points, rest, _ = told(path)
        assert [point[2:] for point in points] == [
            ["loss", round(AT * 1e3) * 10**6, 0, 2.0],
            ["loss", round((AT + 1) * 1e3) * 10**6, 1, 1.0],
        ]
        assert rest["params"] == {"lr": "0.1"}


def test_event_files_of_several_runs_are_told_apart(tmp_path: Path) -> None:
    for name in ("", "eval"):
        (tmp_path / name).mkdir(exist_ok=True)
        file = tmp_path / name / "events.out.tfevents.1700000000.host"
        file.write_bytes(scalars(range(3)) + b"half of a record")
    points, _, run = told(tmp_path)
    assert [point[4] for point in points if point[1] == {}] == [0, 1, 2]
    assert [point[4] for point in points if point[1] == {"run": "eval"}] == [0, 1, 2]
    assert len(run.skipped) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "step,time,loss,acc\n1,1700000000,0.5,\n2,1700000001,NaN,true\n",
            [
                ["loss", 1_700_000_000 * 10**9, 1, 0.5],
                ["loss", 1_700_000_001 * 10**9, 2, "nan"],
                ["acc", 1_700_000_001 * 10**9, 2, True],
            ],
        ),
        (
            "job,job_name,metric,step,time,value\nx,y,loss,3,1700000000,7\nx,y,note,,1700000000,a\n",
            [
                ["loss", 1_700_000_000 * 10**9, 3, 7],
                ["note", 1_700_000_000 * 10**9, None, "a"],
            ],
        ),
        (
            "Wall time,Step,Value\n1700000000.5,4,0.25\n",
            [["x", 1_700_000_000_500_000_000, 4, 0.25]],
        ),
        ("loss\n0.5\n0.25\n", [["loss", 5 * 10**9, 0, 0.5], ["loss", 5 * 10**9, 1, 0.25]]),
    ],
)
def test_tables_as_people_and_programs_write_them(
    content: str, expected: list[Any], tmp_path: Path
) -> None:
    path = write(tmp_path / "x.csv", content)
    os.utime(path, (5, 5))
    points, _, run = told(path)
    found = [point[2:] for point in points]
    for row in found:
        if row[-1] != row[-1]:
            row[-1] = "nan"
    assert found == expected
    assert not run.skipped


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "step,loss\nthree,1\n4,1,2\n5,1e400\n6,99999999999999999999\n")
    points, _, run = told(path)
    assert [point[4] for point in points] == [4, 5, 6]
    assert run.skipped == {
        "a row whose step or time is no number": 1,
        "a row with more values than columns": 1,
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "there is no such file or folder"),
        ("x.txt", "is no .csv, no .wandb and no event file"),
        ("empty", "neither a run of MLflow or wandb nor an event file"),
    ],
)
def test_what_cannot_be_taken_is_named(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.txt").touch()
    with pytest.raises(UsageError, match=why) as raised:
        told(tmp_path / name)
    assert f"--import {tmp_path / name}: " in str(raised.value)


def test_entries_are_counted() -> None:
    assert counted(b'{"params": {"a": "1", "b": "2"}}') == {"params": 2}
