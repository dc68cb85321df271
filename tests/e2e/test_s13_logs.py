"""S13: the output of all attempts of a job is complete, while it runs and afterwards."""

import subprocess
from pathlib import Path

from tests.e2e.conftest import Daemons, Gates, Train
from tests.support import BIN


def test_the_output_of_all_attempts_is_complete(
    daemons: Daemons, gates: Gates, train: Train, tmp_path: Path
) -> None:
    daemon, gate = daemons("1x16384"), gates("g")
    lines = "for i in $(seq 500); do echo line $i; done"
    job_id = daemon.submit("--image", "i", "--max_epochs", "1", "talks", "--", "sh", "-c", lines)
    daemon.wait_state(talks="FINISHED")
    whole = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert whole == [f"line {i}" for i in range(1, 501)]
    tail = daemon.run("scheduler-get-logs", "--tail", "100", job_id).stdout.splitlines()
    assert tail == whole[-100:]

    failing = daemon.submit(
        *train(gate, FAIL="oh no"), "--retries", "1", "--max_epochs", "2", "fails"
    )
    gate.open(2)
    daemon.wait(lambda jobs: jobs["fails"].state in ("FINISHED", "FAILED"))
    both = daemon.run("scheduler-get-logs", failing).stdout
    assert "oh no" in both
    first = daemon.run("scheduler-get-logs", "--attempt", "1", failing).stdout
    assert "begins at epoch 0" in first

    folder = tmp_path / "assets"
    down = daemon.run("scheduler-get-logs", "--download", folder, job_id)
    kept = folder / job_id / "attempt-1" / "rank0.log"
    assert str(kept) in down.stdout
    assert kept.read_text().splitlines() == whole
    kept.write_text(kept.read_text()[:100])
    daemon.run("scheduler-get-logs", "--download", folder, job_id)
    assert kept.read_text().splitlines() == whole


def test_following_ends_with_the_job(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("1x16384"), gates("g")
    job_id = daemon.submit(*train(gate), "--max_epochs", "2", "j")
    daemon.submit("--image", "i", "--priority", "0", "waits", "--", "true")
    waiting = daemon.run("scheduler-get-logs", "waits")
    assert waiting.returncode == 0
    assert "no output yet" in waiting.stdout + waiting.stderr
    command = [str(BIN / "scheduler-get-logs"), "--server", daemon.address, "--follow", job_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline().startswith("begins")
        gate.open()
        assert follower.stdout.readline() == "epoch 1 done\n"
        gate.open()
        assert follower.stdout.read() == "epoch 2 done\n"
        assert follower.wait() == 0
