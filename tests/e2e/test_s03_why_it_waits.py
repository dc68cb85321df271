"""S03: a waiting job shows one true reason, when the wait will be over, and what would change it.

The tests then do what is said to help, and it does help.
"""

import re

import pytest

from tests.e2e.conftest import Daemons, Gates, Train
from tests.support import Daemon, Gate

POLICY = ("--policy", "gpu_sharing")
LONG = ("--max_epochs", "1000")
LONGER = ("--max_epochs", "4000")
IN_AN_HOUR = r"in about [\dhmin ]+ \(80 %: [\dhmin ]+ to [\dhmin ]+\)"


def shown(daemon: Daemon, name: str, label: str) -> str:
    """The text beside a label, its lines joined."""
    lines = iter(daemon.run("scheduler-state", name).stdout.splitlines())
    found = next((line for line in lines if line.startswith(f"  {label}  ")), "")
    told = found.removeprefix(f"  {label}").lstrip()
    margin = " " * (len(found) - len(told))
    while told and (line := next(lines, "")).startswith(f"{margin}") and line[len(margin)] != " ":
        told += f" {line.strip()}"
    return told


def led(gate: Gate, epochs: int) -> None:
    """Leads the job through `epochs` epochs, and into the next one."""
    gate.await_ring()
    for _ in range(epochs):
        gate.open()
        gate.await_ring()


@pytest.fixture
def shared(daemons: Daemons, gates: Gates, train: Train) -> Daemon:
    """One GPU that A and B share for a long time."""
    daemon = daemons("1x16384", *POLICY)
    for name, memory in (("A", "6000"), ("B", "7000")):
        gate = gates(name)
        words = train(gate, EPOCH_SECONDS="1:4")
        daemon.submit(*words, *LONG, "--estimated_memory", memory, name)
        led(gate, 2)
    return daemon


def test_a_job_that_lacks_memory_starts_when_the_named_job_has_ended(
    shared: Daemon, train: Train
) -> None:
    shared.submit(*train(), *LONGER, "--estimated_memory", "4000", "C")
    waits = shared.wait(lambda jobs: jobs["C"].why.kind == "memory")
    assert waits["C"].reason == "memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
    assert (
        shown(shared, "C", "why")
        == "pending: memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
    )
    match = re.fullmatch(rf"when ([AB]) ends, {IN_AN_HOUR}", shown(shared, "C", "starts"))
    assert match
    told = shared.job_of("C")
    assert told["why"]["detail"] == "needs 4,000 MiB; gpu0 has the most free: 2,872 MiB"
    assert [job["name"] for job in told["why"]["until"]] == [match[1]]
    assert told["eta"]["starts_low"] < told["eta"]["starts_at"] < told["eta"]["starts_high"]
    assert told["eta"]["starts_at"] < told["eta"]["ends_at"]

    assert shared.run("scheduler-cancel-job", match[1]).returncode == 0
    shared.wait_state(C="RUNNING")


def test_a_new_job_like_the_running_ones_preempts_none_of_them(
    shared: Daemon, train: Train
) -> None:
    shared.submit(*train(), *LONG, "--estimated_memory", "4000", "C")
    planned = shared.wait(lambda jobs: jobs["C"].why.kind not in ("", "planning"))
    assert (planned["A"].state, planned["B"].state) == ("RUNNING", "RUNNING")


def test_a_job_that_does_not_share_is_told_so_and_that_sharing_would_start_it(
    shared: Daemon, train: Train
) -> None:
    asked = (*train(), *LONG, "--estimated_memory", "1000")
    shared.submit(*asked, "--disable_gpu_sharing", "true", "D")
    waits = shared.wait(lambda jobs: jobs["D"].why.kind == "gpus")
    assert (
        waits["D"].why.detail
        == "needs a whole GPU because it shares with no other job; no GPU large enough is empty"
    )
    starts = shown(shared, "D", "starts")
    assert re.fullmatch(rf"when (A and B|B and A) end, {IN_AN_HOUR}.*", starts)
    if starts.endswith(", or now without --disable_gpu_sharing"):
        shared.submit(*asked, "E")
        shared.wait_state(E="RUNNING", D="QUEUED")


def test_a_gang_is_told_how_many_gpus_are_free_and_that_fewer_would_start_it(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons("2x16384", *POLICY), gates("grid-3")
    words = train(gate, EPOCH_SECONDS="1:4")
    daemon.submit(*words, *LONG, "--estimated_memory", "9000", "grid-3")
    led(gate, 2)
    asked = (*train(), *LONG, "--estimated_memory", "12000")
    daemon.submit(*asked, "--num_gpus", "2", "pair")
    daemon.wait(lambda jobs: jobs["pair"].why.kind == "gpus")
    assert shown(daemon, "pair", "why") == (
        "pending: gpus (needs 2 empty GPUs with 12,000 MiB; empty now: 1)"
    )
    assert re.fullmatch(
        rf"when grid-3 ends, {IN_AN_HOUR}, or now with --num_gpus 1",
        shown(daemon, "pair", "starts"),
    )
    daemon.submit(*asked, "--num_gpus", "1", "single")
    daemon.wait_state(single="RUNNING", pair="QUEUED")


def test_a_preempted_job_shows_for_which_job_and_when_it_continues(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons("1x16384", *POLICY), gates("long")
    words = train(gate, EPOCH_SECONDS="1:4")
    daemon.submit(*words, *LONG, "--estimated_memory", "9000", "long")
    led(gate, 2)
    daemon.submit(*train(), *LONG, "--priority", "10", "urgent")
    daemon.wait_state(long="STOPPING")
    assert shown(daemon, "long", "why") == "preempted for urgent"
    assert shown(daemon, "urgent", "why") == (
        "pending: stopping (waits for long to stop at the end of an epoch)"
    )
    assert shown(daemon, "urgent", "starts").startswith("when long releases its GPUs")
    gate.open()
    daemon.wait_state(urgent="RUNNING", long="QUEUED")
    assert shown(daemon, "long", "last run") == "preempted for urgent, after epoch 3"
    assert shown(daemon, "long", "starts").startswith("when urgent ends")
    told = daemon.job_of("long")
    assert told["preempted"]
    assert told["reason"] == "memory (needs 9,000 MiB; gpu0 has the most free: 0 MiB)"


def test_a_slowed_job_shows_by_which_neighbour_and_whether_that_was_measured(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, first, second = daemons("1x16384", *POLICY), gates("first"), gates("second")
    asked = (*LONG, "--estimated_memory", "6000")
    daemon.submit(*train(first, EPOCH_SECONDS="1:3"), *asked, "first")
    led(first, 3)
    assert daemon.job_of("first")["why"] is None
    assert re.fullmatch(rf"{IN_AN_HOUR}, at .*", shown(daemon, "first", "ends"))
    daemon.submit(*train(second, EPOCH_SECONDS="1:3"), *asked, "second")
    led(second, 1)
    slowed = daemon.job_of("first")["why"]
    assert slowed["kind"] == "slowed"
    assert re.fullmatch(
        r"0\.\d\d of its speed alone, expected beside second", shown(daemon, "first", "slowed")
    )
