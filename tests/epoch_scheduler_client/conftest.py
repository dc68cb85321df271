"""A real daemon without GPUs, whose jobs run with our Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epoch_scheduler_client import Client
from tests.support import BIN, Daemon


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state", "1x16384").start()
    monkeypatch.setenv("SCHEDULER_SERVER", made.address)
    monkeypatch.setenv("PATH", f"{BIN}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SCHEDULER_TOKEN", raising=False)
    yield made
    made.end()


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return Client.from_environment()
