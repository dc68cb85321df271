"""S07: two ranks that ask at different times whether to continue get the same answer."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, Gates

RANKS = Path(__file__).with_name("ranks.py")
TWO_GPUS = ("--num_gpus", "2", "--estimated_memory", "9000")
EACH = ("--processes_per_node", "gpu")


@pytest.mark.parametrize("grpcio", [True, False])
def test_all_ranks_stop_after_the_same_epoch(
    daemons: Daemons, gates: Gates, tmp_path: Path, grpcio: bool
) -> None:
    """Without grpcio, as in most environments of users, they report by HTTP."""
    daemon, first, second = daemons("2x16384"), gates("rank0"), gates("rank1")
    words = ("--image_name", "i", "--max_epochs", "5", "--env", f"GATES={tmp_path}", *TWO_GPUS)
    if not grpcio:
        (tmp_path / "grpc.py").write_text("raise ImportError\n")
    path = ("--env", f"PYTHONPATH={tmp_path}")
    job_id = daemon.submit(*words, *path, *EACH, "--script_path", RANKS, "ranks")
    both = first, second
    for gate in both:
        gate.open()
        gate.await_ring()  # in its first epoch
    first.open()
    first.await_ring()  # it may begin its second epoch, and the other rank has not asked yet

    urgent = ("--image_name", "i", "--priority", "10", "urgent", "--", "sleep", "1000")
    urgent_id = daemon.submit(*TWO_GPUS, *urgent)
    daemon.wait_state(ranks="STOPPING")
    second.open()
    second.await_ring()
    for gate in both:
        gate.open()
    made_room = daemon.wait_state(urgent="RUNNING")["ranks"]
    assert (made_room.preempted, made_room.epochs_done) == (True, 2)

    daemon.run("scheduler-cancel-job", "--yes", urgent_id)
    for gate in both:
        gate.open(3)
    ended = daemon.wait_state(ranks="FINISHED")["ranks"]
    assert (ended.epochs_done, ended.attempt) == (5, 2)
    said = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    told = [f"rank {rank} epoch {epoch}" for rank in (0, 1) for epoch in range(1, 6)]
    assert sorted(line for line in said if line.startswith("rank")) == told, "each epoch once"
