"""Runs the commands in this process, against the real API with its own loop and store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import (
    cancel,
    compare,
    connect,
    context,
    files,
    interactive,
    logs,
    metrics,
    resubmit,
    run,
    run_workflow,
    state,
    update,
    upload_code,
)
from cli import open as opening
from scheduler.access.identity import user_token
from tests.gateway.serving_http import Gateway, gateway
from tests.serving import SECRET, Serving, serving

MAINS = {
    "run-scheduler": run.main,
    "scheduler-state": state.main,
    "scheduler-cancel-job": cancel.main,
    "scheduler-update-job": update.main,
    "scheduler-resubmit-job": resubmit.main,
    "scheduler-upload-code": upload_code.main,
    "scheduler-get-logs": logs.main,
    "scheduler-connect": connect.main,
    "scheduler-run-interactive": interactive.main,
    "scheduler-open": opening.main,
    "scheduler-compare": compare.main,
    "scheduler-run-workflow": run_workflow.main,
    "scheduler-metrics": metrics.main,
    "scheduler-context": context.main,
    "scheduler-files": files.main,
}


@dataclass(frozen=True)
class Done:
    exit_code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs one of the commands: `command("scheduler-state", "--nlast", "3", user="ada")`."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(name: str, *words: str, user: str = "ada") -> Done:
        monkeypatch.setenv("SCHEDULER_TOKEN", user_token(SECRET, user))
        capsys.readouterr()
        exit_code = MAINS[name](list(words))
        return Done(exit_code, *capsys.readouterr())

    return call


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    with serving(tmp_path) as made:
        monkeypatch.setenv("SCHEDULER_SERVER", f"127.0.0.1:{made.server.port}")
        yield made


@pytest.fixture
def pages(server: Serving, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway in front of the server, which tells the commands of it."""
    with gateway(f"127.0.0.1:{server.server.port}", "--folder", str(tmp_path)) as made:
        server.url = made.url
        yield made
