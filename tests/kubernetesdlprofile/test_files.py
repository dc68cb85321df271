"""Reports into files, as on Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubernetesdlprofile import wire
from kubernetesdlprofile.files import FileTransport
from kubernetesdlprofile.transport import Unreachable, connect
from tests.kubernetesdlprofile.conftest import JOB_ID, Environment, Run

PROFILE = wire.Profile(JOB_ID, 2, 0, 3, 0.1, 1.5, 320.0, 4000, 0.0, 10, 30, -1, 3)
SCRIPT = """
from kubernetesdlprofile import kubeprofiler
import os
with kubeprofiler.KubeProfiler() as api:
    for epoch in api.epochs():
        print(epoch, flush=True)
        if epoch == 1:
            open(os.path.join(os.environ["KUBEPROFILER_FILES"], "stop"), "w").close()
"""


def told(folder: Path) -> list[str]:
    return (folder / "epochs").read_text().split()


def question(epoch: int, rank: int = 0) -> wire.StartEpoch:
    return wire.StartEpoch(JOB_ID, 2, rank, 0, epoch)


def test_the_newest_epoch_is_written_down(tmp_path: Path) -> None:
    files = connect("elsewhere:1", "", "", str(tmp_path))
    files.call("EndEpoch", [PROFILE, PROFILE._replace(epoch=4, trained=4)], 1)
    job_id, attempt, _, epochs, trained, seconds = told(tmp_path)
    assert (job_id, attempt, epochs, trained, seconds) == (JOB_ID, "2", "4", "4", "1.5")
    files.call("EndEpoch", [PROFILE], 1)  # again, as an older checkpoint was loaded
    assert told(tmp_path)[3] == "4"
    files.call("EndEpoch", [PROFILE._replace(epoch=9, rank=1)], 1)
    assert told(tmp_path)[3] == "4", "the first rank tells for all"


def test_all_ranks_stop_before_the_same_epoch(tmp_path: Path) -> None:
    ranks = [FileTransport(str(tmp_path)) for _ in range(3)]
    assert not ranks[0].call("StartEpoch", question(5), 1)[0]
    (tmp_path / "stop").touch()
    assert not ranks[1].call("StartEpoch", question(5, 1), 1)[0], "the epoch has begun"
    assert ranks[1].call("Report", [PROFILE], 1)[0]
    assert ranks[1].call("StartEpoch", question(6, 1), 1)[0]
    (tmp_path / "stop").unlink()
    assert ranks[2].call("StartEpoch", question(6, 2), 1)[0]


def test_a_folder_that_is_gone_is_trouble_and_not_the_end(tmp_path: Path) -> None:
    files = FileTransport(str(tmp_path / "gone"))
    with pytest.raises(Unreachable, match="No such file"):
        files.call("EndEpoch", [PROFILE], 1)
    with pytest.raises(Unreachable, match="No such file"):
        files.call("StartEpoch", question(1), 1)


def test_a_script_stops_at_the_next_epoch_and_exits_as_stopped(
    run_script: Run, job_environment: Environment, tmp_path: Path
) -> None:
    job_environment.pop("KUBEPROFILER_SERVER", None)
    job_environment |= {"KUBEPROFILER_FILES": str(tmp_path), "EPOCHS_TO_BE_DONE": "5"}
    done = run_script(SCRIPT, job_environment)
    assert (done.returncode, done.stdout.split()) == (85, ["0", "1"]), done.stderr
    assert told(tmp_path)[3] == "2"
