"""S08: no training is disturbed when the daemon dies; a new daemon finds out what happened."""

import json
from pathlib import Path

from tests.e2e.conftest import Daemons, Gates, Train
from tests.support import Daemon, eventually


def _pids(daemon: Daemon) -> dict[str, int]:
    return {
        path.parent.name: json.loads(path.read_text())["pid"]
        for path in daemon.state.glob("runs/*/started.json")
    }


def test_five_trainings_outlive_a_killed_daemon(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    # fifo_sharing moves no job. Another policy would learn from epochs that wait at a gate that
    # these jobs slow each other down.
    daemon = daemons("1x16384", "--policy", "fifo_sharing")
    names = [f"j{i}" for i in range(5)]
    opened = {name: gates(name) for name in names}
    ids = {
        name: daemon.submit(
            *train(opened[name]), "--max_epochs", "4", "--estimated_memory", "2000", name
        )
        for name in names
    }
    daemon.wait_state(**dict.fromkeys(names, "RUNNING"))
    for name in names[:3]:
        opened[name].open()
    daemon.wait(lambda jobs: all(jobs[name].epochs_done == 1 for name in names[:3]))
    before = _pids(daemon)
    assert len(before) == 5

    daemon.kill()
    down = daemon.run("scheduler-state", "--all_users")
    assert down.returncode == 3
    assert f"cannot reach scheduler at {daemon.address}" in down.stderr
    assert "Traceback" not in down.stderr
    opened["j0"].open(3)  # without a daemon, one job ends and one makes progress
    opened["j1"].open()
    gone = Path("/proc") / str(before[f"{ids['j0']}-1"])
    eventually(lambda: not gone.exists())  # from now on it cannot report anything

    daemon.start()
    jobs = daemon.wait_state(j0="FINISHED", **dict.fromkeys(names[1:], "RUNNING"))
    assert {f"{ids[name]}-1" for name in names[1:]} <= _pids(daemon).keys()
    assert {run: pid for run, pid in _pids(daemon).items() if before[run] != pid} == {}
    assert jobs["j0"].epochs_done == 4, "it saved to a file what it could not report"
    for name in names[1:]:
        opened[name].open(4)
    ended = daemon.wait_state(**dict.fromkeys(names, "FINISHED"))
    assert [ended[name].attempt for name in names] == [1] * 5
    assert [ended[name].epochs_done for name in names] == [4] * 5


def test_a_stopped_daemon_leaves_the_trainings_running(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons(), gates("j")
    daemon.submit(*train(gate), "--max_epochs", "2", "j")
    daemon.wait_state(j="RUNNING")
    before = _pids(daemon)
    assert daemon.stop() == 0
    daemon.start()
    daemon.wait_state(j="RUNNING")
    assert _pids(daemon) == before
    gate.open(2)
    assert daemon.wait_state(j="FINISHED")["j"].attempt == 1
