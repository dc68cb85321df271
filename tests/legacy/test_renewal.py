"""The current library replaces an old one in an image, without a new build of the image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.legacy.conftest import Submit
from tests.legacy.test_images import URGENT, kept, opened
from tests.support import Daemon, Gate

EPOCHS = 6
TRAIN = Path(__file__).with_name("renewed.py")
OLD = """
import sys
sys.path.append({root!r})
from tests.legacy.images import GENERATIONS

class KubeProfiler(GENERATIONS[{generation!r}]):
    def __init__(self, job_manager_hostname="10.106.102.22", db_hostname="10.106.72.44"):
        super().__init__(job_manager_hostname)
"""


@pytest.fixture
def submit(daemon: Daemon, gate: Gate, tmp_path: Path, legacy: str) -> Submit:
    """A training where an old library is installed, as the first that Python finds."""

    def submitted(name: str, generation: str, *flags: str) -> str:
        image = tmp_path / generation
        package = image / "kubernetesdlprofile"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        source = OLD.format(root=str(Path(__file__).parents[2]), generation=generation)
        (package / "kubeprofiler.py").write_text(source)
        told = {
            "IMAGE": image,
            "PYTHONPATH": image,
            "LEGACY": legacy,
            "GATE": gate.path,
            "CHECKPOINT": tmp_path / f"{name}.checkpoint",
        }
        words = [word for key, value in told.items() for word in ("--env", f"{key}={value}")]
        words += ["--image", "old:1", "--snapshots_dir", str(tmp_path / "snapshots")]
        words += ["--max_epochs", str(EPOCHS), "--script_path", str(TRAIN), *flags, name]
        return daemon.submit(*words)

    return submitted


def libraries(daemon: Daemon, job_id: str) -> list[str]:
    """Those that its runs found, one after the other."""
    said = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert "its own is there False" not in said
    return [line.removeprefix("library ") for line in said if line.startswith("library ")]


NEW = "beside ['kubernetesdlprofile']"


@pytest.mark.parametrize("generation", ["G1", "G5", "G8"])
def test_the_second_run_of_an_old_image_has_the_library_of_today(
    daemon: Daemon, gate: Gate, tmp_path: Path, submit: Submit, generation: str
) -> None:
    job_id = submit("old", generation)
    gate.await_ring()
    gate.open()
    gate.await_ring()
    urgent_id = daemon.submit(*URGENT)
    daemon.wait_state(old="STOPPING")
    gate.open()
    with opened(gate):
        made_room = daemon.wait_state(urgent="RUNNING")["old"]
    assert (made_room.state, made_room.preempted) == ("QUEUED", True)
    daemon.kill()
    daemon.start()  # which knows of it

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    with opened(gate):
        ended = daemon.wait_state(old="FINISHED")["old"]
    assert (ended.epochs_done, ended.attempt) == (EPOCHS, 2)
    assert kept(tmp_path / "old.checkpoint") == list(range(1, EPOCHS + 1))
    assert libraries(daemon, job_id) == ["its own", NEW]
    started = [fact for fact in daemon.story(job_id) if fact.kind == "run_started"]
    assert [json.loads(fact.data_json).get("library") for fact in started] == [None, "renewed"]
    assert "all epochs" not in ended.reason, "it said that it had finished"


def test_the_next_job_of_the_kind_has_it_at_once_unless_it_keeps_its_own(
    daemon: Daemon, gate: Gate, submit: Submit
) -> None:
    with opened(gate):
        jobs = []
        for name, *flags in (("first",), ("second",), ("third", "--keep_library")):
            jobs.append(submit(name, "G8", *flags))
            daemon.wait_state(**{name: "FINISHED"})
    assert [libraries(daemon, job_id) for job_id in jobs] == [["its own"], [NEW], ["its own"]]
