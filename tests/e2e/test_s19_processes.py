"""S19 on one machine: a process per GPU. On several nodes:
tests/kube/test_trainings_on_nodes.py."""

from tests.e2e.conftest import Daemons

EACH = ("--image_name", "i", "--num_gpus", "4", "--processes_per_node", "gpu")


def test_each_gpu_has_a_process_with_its_own_rank(daemons: Daemons) -> None:
    daemon = daemons("4x16384")
    told = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NUM_NODES $MASTER_ADDR"'
    job_id = daemon.submit(*EACH, "ranks", "--", "sh", "-c", told)
    daemon.wait_state(ranks="FINISHED")
    said = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert sorted(said) == [f"{rank} {rank} 4 4 1 127.0.0.1" for rank in range(4)]
    shown = daemon.run("scheduler-state", job_id, "--extended").stdout
    assert "--processes_per_node" in shown


def test_when_one_fails_the_others_are_ended(daemons: Daemons) -> None:
    daemon = daemons("4x16384")
    script = "[ $RANK != 2 ] || exit 7; sleep 1000"
    daemon.submit(*EACH, "broken", "--", "sh", "-c", script)
    assert "7" in daemon.wait_state(broken="FAILED")["broken"].reason
