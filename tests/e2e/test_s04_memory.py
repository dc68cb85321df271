"""S04: the memory that a job needs is measured, whatever its estimate, and the share follows."""

import pytest

from tests.e2e.conftest import Daemons, Gates, Train

POLICY = ("--policy", "gpu_sharing")
EPOCHS = ("--max_epochs", "6")
OUT_OF_MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"


def test_a_job_that_needs_more_than_estimated_gets_it_and_preempts_its_neighbour(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, modest, other = daemons("1x16384", *POLICY), gates("modest"), gates("other")
    measures = train(modest, memory=9000, EPOCH_SECONDS="1:4")
    daemon.submit(*measures, *EPOCHS, "--estimated_memory", "2000", "modest")
    modest.await_ring()
    asks = train(other, EPOCH_SECONDS="1:4")
    daemon.submit(*asks, "--max_epochs", "20", "--estimated_memory", "10000", "other")
    other.await_ring()
    other.open()
    other.await_ring()
    (gpu,) = daemon.state_of("--cluster")["gpus"]
    assert gpu["reserved_mib"] == 12000, "they share"

    modest.open()
    modest.await_ring()
    jobs = daemon.wait_state(other="STOPPING")
    assert jobs["other"].epochs_done == 1, "the epoch in progress is not interrupted"
    other.open()
    jobs = daemon.wait_state(other="QUEUED", modest="RUNNING")
    assert (jobs["other"].epochs_done, jobs["other"].preempted) == (2, True)
    assert jobs["other"].reason == "memory (needs 10,000 MiB; gpu0 has the most free: 6,872 MiB)"
    (gpu,) = daemon.state_of("--cluster")["gpus"]
    assert [(job["name"], job["memory_mib"]) for job in gpu["jobs"]] == [("modest", 9000)]

    shown = daemon.run("scheduler-state", "modest", "--extended").stdout
    assert "  reservation changed from 2,000 to 9,000 MiB per GPU\n" in shown
    assert "  memory               9,000 MiB; the estimate was 2,000 MiB\n" in shown
    learned = daemon.job_of("modest")["learned"]
    assert (learned["memory_asked_mib"], learned["memory_mib"]) == (2000, 9000)

    modest.open(5)
    daemon.wait_state(modest="FINISHED", other="RUNNING")
    other.open(18)
    daemon.wait_state(other="FINISHED")


def test_the_duration_of_an_epoch_is_measured_alone_and_beside_another_job(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, first, second = daemons("1x16384", *POLICY), gates("first"), gates("second")
    epochs = ("--max_epochs", "50", "--estimated_memory", "6000")
    daemon.submit(*train(first, EPOCH_SECONDS="1:3"), *epochs, "first")
    for _ in range(3):
        first.await_ring()
        first.open()
    first.await_ring()
    daemon.wait(lambda jobs: jobs["first"].epochs_done == 3)
    speeds = daemon.job_of("first")["learned"]["epoch_seconds"]
    assert [(at["gpus"], at["measured"]) for at in speeds] == [("pretendedx1", pytest.approx(3.0))]

    daemon.submit(*train(second, EPOCH_SECONDS="1:4"), *epochs, "second")
    for _ in range(3):
        second.await_ring()
        second.open()
    second.await_ring()
    daemon.wait(lambda jobs: jobs["second"].epochs_done == 3)
    (beside,) = daemon.job_of("second")["learned"]["beside"]
    assert [job["name"] for job in beside["jobs"]] == ["first"]
    assert (
        "beside               first on pretendedx1: "
        in daemon.run("scheduler-state", "second", "--extended").stdout
    )


def test_an_out_of_memory_failure_is_retried_once_with_half_as_much_memory_more(
    daemons: Daemons,
) -> None:
    daemon = daemons("1x16384", *POLICY)
    script = f"echo '{OUT_OF_MEMORY}' >&2; exit 1"
    ref = daemon.submit("--estimated_memory", "4000", "greedy", "--", "sh", "-c", script)
    job = daemon.wait_state(greedy="FAILED")["greedy"]
    assert job.attempt == 2
    assert job.reason == f"out of GPU memory with 6000 MiB: {OUT_OF_MEMORY}"
    shown = daemon.run("scheduler-state", ref).stdout
    assert "  reservation changed from 4,000 to 6,000 MiB per GPU\n" in shown
    assert "out of GPU memory with 4,000 MiB: tried again with 6,000 MiB\n" in shown


@pytest.mark.parametrize("measured", [0, 500])
def test_a_measurement_never_lowers_the_reservation(
    daemons: Daemons, gates: Gates, train: Train, measured: int
) -> None:
    daemon, gate = daemons("1x16384", *POLICY), gates("g")
    words = train(gate, memory=measured)
    daemon.submit(*words, "--max_epochs", "2", "--estimated_memory", "2000", "job")
    gate.await_ring()
    gate.open()
    gate.await_ring()
    assert daemon.wait(lambda jobs: jobs["job"].epochs_done == 1)["job"].memory_mib == 2000
    (gpu,) = daemon.state_of("--cluster")["gpus"]
    assert gpu["reserved_mib"] == 2000
