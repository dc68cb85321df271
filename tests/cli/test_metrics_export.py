"""What jobs have logged, as files; and that what is exported can be imported again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.cli.conftest import Command
from tests.cli.test_compare import trained
from tests.gateway.series.delivering import NOW_NS, SECOND, metric
from tests.gateway.serving_http import Gateway
from tests.serving import Serving


def demo(server: Serving, pages: Gateway, name: str = "demo") -> str:
    points = [metric("loss", 1 / (1 + step), step, NOW_NS + step * SECOND) for step in range(5)]
    odd = [metric("loss", float("inf"), 5, NOW_NS + 6 * SECOND), metric("note", "text", 1)]
    told = (
        {"params": {"lr": "0.1", "../../escape": "x"}},
        {"tags": {"a/b": "c"}},
        {"describes": "n"},
    )
    return trained(server, pages, name, {"points": [*points, *odd]}, *told)


def summary(command: Command, job: str) -> list[tuple[str, object, object, int]]:
    (found,) = json.loads(command("scheduler-metrics", job, "--output", "json").out)["jobs"]
    return [
        (each["name"], each["last"], each["min"], each["last_step"]) for each in found["series"]
    ]


def test_csv_and_back(server: Serving, pages: Gateway, command: Command, tmp_path: Path) -> None:
    demo(server, pages)
    path = tmp_path / "points.csv"
    done = command("scheduler-metrics", "demo", "--export", str(path))
    assert (done.exit_code, done.out, done.err) == (0, f"{path}\n", "")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["value"] for row in rows][:3] == ["1.0", "0.5", repr(1 / 3)]
    server.submit("copy", held=True)
    done = command("scheduler-metrics", "copy", "--import", str(path))
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == "7 points, 0 params, 0 tags sent, 0 of them refused\n"
    assert summary(command, "copy") == summary(command, "demo")
    again = command("scheduler-metrics", "copy", "--import", str(path), "--all")
    assert again.exit_code == 0
    assert command("scheduler-metrics", "copy", "--all", "--csv").out.count("\n") == 8


def test_the_layout_of_mlflow_and_back(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    job_id = demo(server, pages)
    with pages.client(server.job(job_id).token) as relay:
        relay.put("/api/v1/tracking/artifacts/plots/a.txt", content=b"a").raise_for_status()
    folder = tmp_path / "mlruns"
    done = command("scheduler-metrics", "demo", "--export", str(folder))
    run = folder / "0" / job_id.replace("-", "")
    assert (done.exit_code, done.out) == (0, f"{run}\n")
    assert (run / "params" / "lr").read_text() == "0.1"
    assert (run / "params" / "_" / "_" / "escape").read_text() == "x"
    assert (run / "artifacts" / "plots" / "a.txt").read_bytes() == b"a"
    assert (run / "metrics" / "loss").read_text().splitlines()[-1].split()[1:] == ["inf", "5"]
    assert not (run / "metrics" / "note").exists()
    server.submit("copy", held=True)
    done = command("scheduler-metrics", "copy", "--import", str(folder))
    assert done.out == "6 points, 2 params, 3 tags sent, 0 of them refused\n"
    assert summary(command, "copy") == summary(command, "demo")[:1]
    again = command("scheduler-metrics", "demo", "--export", str(folder))
    assert (again.exit_code, "is there already" in again.err) == (2, True)


def test_parquet_needs_pyarrow(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    demo(server, pages)
    path = tmp_path / "points.parquet"
    done = command("scheduler-metrics", "demo", "--export", str(path))
    assert (done.exit_code, path.exists()) in ((2, False), (0, True))
    if done.exit_code:
        assert "pyarrow is not installed; .csv needs nothing" in done.err


def test_only_its_owner_adds_to_a_job(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    server.submit("adas", held=True)
    path = tmp_path / "x.csv"
    path.write_text("step,loss\n1,0.5\n")
    done = command("scheduler-metrics", "adas", "--import", str(path), user="bob")
    assert done.exit_code == 4
    assert done.err == (
        "scheduler-metrics: this job is ada's: only they may add to what it logged\n"
    )
    assert command("scheduler-metrics", "adas", "x", "--import", str(path)).exit_code == 2


def test_what_is_refused_is_said(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    server.submit("mine", held=True)
    path = tmp_path / "x.csv"
    path.write_text("step,time,loss\n1,8000000000,0.5\n2,1700000000,0.25\n")
    done = command("scheduler-metrics", "mine", "--import", str(path))
    assert done.exit_code == 1
    assert done.out == "2 points, 0 params, 0 tags sent, 1 of them refused\n"
    assert "far ahead of the gateway's clock" in done.err
