"""What the real MLflow and wandb have written is imported, and MLflow reads what is exported."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command, command, pages, server
from tests.cli.test_metrics_export import demo, summary
from tests.clients.tracked_job import python_with
from tests.gateway.serving_http import Gateway
from tests.serving import Serving

__all__ = ["command", "pages", "server"]  # fixtures
pytestmark = pytest.mark.clients

WRITE_MLFLOW = """
import mlflow
with mlflow.start_run(run_name="made", description="a try"):
    mlflow.log_params({"lr": 0.1, "net.depth": 3})
    for step in range(5):
        mlflow.log_metrics({"loss": 1 / (1 + step), "val/acc": step}, step=step)
"""
READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient()
(run,) = client.search_runs(["0"])
history = [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, "loss")]
print(json.dumps([run.data.params, run.data.tags.get("mlflow.note.content"), history]))
"""
WRITE_WANDB = """
import wandb
with wandb.init(mode="offline", project="p", config={"lr": 0.1}) as run:
    for step in range(5):
        run.log({"loss": 1 / (1 + step)})
"""


def run(python: str, code: str, folder: Path) -> str:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": str(folder / "mlruns")}
    environment |= {"MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_SILENT": "true", "HOME": str(folder)}
    done = subprocess.run(
        [python, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "elsewhere"
    made.mkdir()
    return made


def test_a_run_of_mlflow_is_imported(
    server: Serving, pages: Gateway, command: Command, folder: Path
) -> None:
    run(python_with("mlflow"), WRITE_MLFLOW, folder)
    server.submit("copy", held=True)
    done = command("scheduler-metrics", "copy", "--import", str(folder / "mlruns"))
    assert (done.exit_code, done.err) == (0, "")
    assert [each[:2] for each in summary(command, "copy")] == [("loss", 0.2), ("val/acc", 4.0)]
    compared = command("scheduler-compare", "copy", "copy", "--config", "--all").out
    assert "param.net.depth" in compared


def test_mlflow_reads_what_is_exported(
    server: Serving, pages: Gateway, command: Command, folder: Path
) -> None:
    python = python_with("mlflow")
    demo(server, pages)
    assert command("scheduler-metrics", "demo", "--export", str(folder / "mlruns")).exit_code == 0
    params, note, history = json.loads(run(python, READ_MLFLOW, folder).splitlines()[-1])
    assert (params["lr"], note) == ("0.1", "n")
    assert history[:5] == [[step, 1 / (1 + step)] for step in range(5)]


def test_an_offline_run_of_wandb_is_imported(
    server: Serving, pages: Gateway, command: Command, folder: Path
) -> None:
    run(python_with("wandb"), WRITE_WANDB, folder)
    server.submit("copy", held=True)
    done = command("scheduler-metrics", "copy", "--import", str(folder))
    assert (done.exit_code, done.err) == (0, ""), done.err
    assert ("loss", 0.2, 0.2, 4) in summary(command, "copy")
