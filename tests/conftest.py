"""For all tests: which ones `make check` leaves out, and how properties are tried."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.nvml import machine

if TYPE_CHECKING:  # most tests need none of what these import
    from tests.serving import Serving
    from tests.support import Daemon

# Real daemons and many lives take their time.
HERE = Path(__file__).parent
SLOW = [
    "browser/test_live.py",
    "browser/test_log.py",
    "browser/test_many_jobs.py",
    "browser/test_pages.py",
    "cli/test_docs.py",
    "clusters/local/test_cluster.py",
    "clusters/local/test_run.py",
    "clusters/local/test_runner.py",
    "clusters/local/test_starts.py",
    "contracts",
    "e2e",
    "frameworks",
    "gateway/test_kills.py",
    "kube",
    "kubernetesdlprofile/test_defects.py",
    "kubernetesdlprofile/test_hardships.py",
    "kubernetesdlprofile/test_hooks.py",
    "kubernetesdlprofile/test_kubeprofiler.py",
    "legacy",
    "lives",
]

# The contexts of whoever runs the tests are not those of the commands under test.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "no-contexts")
os.environ.pop("SCHEDULER_CONTEXT", None)

# A daemon under test serves pages only if the test is about them.
os.environ.setdefault("SCHEDULER_GATEWAY__LISTEN", "off")

# A shell that starts us in the background has us ignore Ctrl-C, and a process that we start would
# inherit that: commands under test could not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No property fails because the machine was busy, and in CI each run is the same.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(HERE / name) for name in SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVML's stand-in, built and loaded. Without NVML_MACHINE it says that there is no driver."""
    library = machine.build(tmp_path_factory.mktemp("nvml"))
    machine.load(library)
    return library


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> machine.Machine:
    """A machine with a driver and no card yet, for this process and those that it starts."""
    made = machine.Machine(tmp_path / "machine.txt")
    for name, value in made.environment(nvml_library).items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    """The API on a loop in this process, one for each test."""
    from tests.serving import serving

    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A real daemon with one simulated GPU, for each test."""
    from tests.support import Daemon

    made = Daemon(tmp_path / "state", "1x16384").start()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
