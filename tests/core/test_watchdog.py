"""Runs over their share, on GPUs with much room, with little, with none; and GPUs that are lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.decide import Decision
from scheduler.core.facts import derive_facts
from scheduler.core.learning import kind_of
from scheduler.core.memory import free_mib, usable_gpus
from scheduler.core.model import (
    Failure,
    Job,
    JobFamily,
    JobId,
    Node,
    Observed,
    Pod,
    PodState,
    Remove,
    RunPhase,
    View,
)
from scheduler.core.watchdog import watch_runs
from tests.builders import (
    CAPACITY,
    NOW,
    RULES,
    ScriptedCluster,
    after,
    job,
    node,
    observation,
    pod,
    share,
    view,
    with_run,
)

A, B = JobId("a"), JobId("b")


def roomy(nodes: int = 1) -> tuple[Node, ...]:
    """A GPU that reserves little, so that its memory exceeds its capacity."""
    gpu = replace(node().gpus[0], reserved_mib=100)  # has 16284, of which jobs may share 15893
    return tuple(Node(f"n{i + 1}", (gpu,)) for i in range(nodes))


def used(of: Job, mib: int, state: PodState = PodState.RUNNING) -> Pod:
    assert of.run
    return pod(of, state, used=tuple(replace(s, memory_mib=mib) for s in of.run.shares))


def seen(*jobs_and_used: tuple[Job, int]) -> View:
    before = view(
        *(job for job, _ in jobs_and_used),
        nodes=roomy(),
        pods=[used(job, mib) for job, mib in jobs_and_used],
    )
    return watch_runs(before, NOW, RULES).view


def run_of(after: View, job_id: JobId = A) -> tuple[RunPhase, int, float | None]:
    run = after.jobs[job_id].run
    assert run
    return run.phase, run.over_mib, run.kill_at


def two(a_share: int, b_share: int, **fields: Any) -> tuple[Job, Job]:
    a = with_run(job("a", a_share), share(a_share), epoch_started=2, **fields)
    return a, with_run(job("b", b_share), share(b_share), epoch_started=2)


def test_a_run_that_takes_no_more_than_its_share_is_not_touched() -> None:
    a, b = two(8000, 7000)
    before = view(a, b, nodes=roomy(), pods=[used(a, 8000), used(b, 6000)])
    assert watch_runs(before, NOW, RULES).touched == ()


def test_where_there_is_room_its_need_is_learned_and_its_share_follows() -> None:
    town = ScriptedCluster()
    town.submit("a", 4000)
    town.submit("b", 4000)
    town.change((A, 1), used=(share(4500),))
    town.look()
    town.look()
    assert town.view.jobs[A].memory_mib == 4500
    assert town.run("a").shares == (share(4500),)
    assert run_of(town.view) == (RunPhase.RUNNING, 0, None)


def test_without_room_it_is_warned_and_stops_after_its_epoch() -> None:
    a, b = two(8000, 7800)
    after = seen((a, 8200), (b, 7000))
    run = after.jobs[A].run
    assert run
    assert (run.phase, run.over_mib, run.stop_at_epoch) == (RunPhase.STOPPING, 200, 3)
    assert run.kill_at == NOW + RULES.stop_grace_seconds
    assert run.stop_reason == "over its share: takes 8200 of 8000 MiB on gpu0 of n1"
    assert after.jobs[A].memory_mib == 8200
    assert run_of(after, B) == (RunPhase.RUNNING, 0, None)


def test_at_the_cost_of_a_neighbour_it_is_ended_at_once() -> None:
    a, b = two(8000, 7800)
    after = seen((a, 8500), (b, 7000))
    run = after.jobs[A].run
    assert run
    assert (run.phase, run.over_mib, run.kill_at) == (RunPhase.STOPPING, 500, NOW)
    assert run.stop_reason.endswith("on gpu0 of n1, at the cost of others there")
    assert run_of(after, B) == (RunPhase.RUNNING, 0, None)


def test_alone_on_a_gpu_no_run_is_over_its_share() -> None:
    a = with_run(job("a", CAPACITY), share(CAPACITY), epoch_started=2)
    assert run_of(seen((a, 16384))) == (RunPhase.RUNNING, 0, None)


def test_its_last_epoch_is_not_interrupted_but_it_is_warned() -> None:
    a, b = two(8000, 7800)
    assert a.run
    a = replace(a, run=replace(a.run, epoch_started=9))
    assert run_of(seen((a, 8200), (b, 7000))) == (RunPhase.RUNNING, 200, None)


def test_one_that_never_spoke_cannot_be_asked() -> None:
    a, b = two(8000, 7800, heard_at=None)
    assert run_of(seen((a, 8200), (b, 7000))) == (RunPhase.RUNNING, 200, None)


def test_of_several_runs_the_one_furthest_over_is_stopped_and_the_others_stay() -> None:
    a, b = two(7900, 7900)
    after = seen((a, 8300), (b, 8000))
    assert run_of(after)[2] == NOW
    assert run_of(after, B)[0] is RunPhase.RUNNING


def test_the_next_observation_ends_no_other_run_while_the_first_one_stops() -> None:
    a, b = two(7900, 7900)
    first = seen((a, 8300), (b, 8000))
    again = watch_runs(first, NOW + 1.0, RULES)
    assert run_of(again.view)[2] == NOW
    assert run_of(again.view, B)[0] is RunPhase.RUNNING


def test_a_notice_is_cut_short_when_a_neighbour_comes_to_be_in_danger() -> None:
    a, b = two(8000, 7800)
    asked = seen((a, 8200), (b, 7000))
    worse = replace(asked, pods={**asked.pods, (A, 1): (used(asked.jobs[A], 8600),)})
    after = watch_runs(worse, NOW + 5.0, RULES).view
    assert run_of(after)[2] == NOW + 5.0
    assert "at the cost of others" in after.jobs[A].run.stop_reason  # type: ignore[union-attr]


def test_a_cancelled_job_ends_for_that_whatever_cuts_its_notice_short() -> None:
    a, b = two(8000, 7800, phase=RunPhase.STOPPING, stop_reason="cancelled by ann")
    after = seen((replace(a, cancelled=True), 8500), (b, 7000))
    assert run_of(after)[2] == NOW
    assert after.jobs[A].run.stop_reason == "cancelled by ann"  # type: ignore[union-attr]


def test_a_warning_ends_with_its_cause() -> None:
    a, b = two(8000, 7800)
    assert a.run
    a = replace(a, run=replace(a.run, over_mib=200))
    assert run_of(seen((a, 7900), (b, 7000))) == (RunPhase.RUNNING, 0, None)


def test_all_ranks_of_a_gang_on_a_gpu_are_taken_together() -> None:
    a, b = two(8000, 7800)
    parts = [
        pod(a, rank=rank, used=(share(4100),), shares=(share(8000),) if rank == 0 else ())
        for rank in (0, 1)
    ]
    before = view(a, b, nodes=roomy(), pods=[*parts, used(b, 7000)])
    assert run_of(watch_runs(before, NOW, RULES).view)[1] == 200


@pytest.mark.parametrize("mib", [8200, 8500])
def test_it_is_told_with_numbers_and_once(mib: int) -> None:
    a, b = two(8000, 7800)
    before = view(a, b, nodes=roomy(), pods=[used(a, mib), used(b, 7000)])
    change = watch_runs(before, NOW, RULES)
    told = {fact.kind: dict(fact.data) for fact in derive_facts(before, change.view, [A], (), NOW)}
    assert told["run_over_share"] == {
        "node": "n1",
        "gpu": "gpu0",
        "used_mib": mib,
        "share_mib": 8000,
        "at_once": mib == 8500,
    }
    assert told["memory_learned"] == {"from_mib": 8000, "to_mib": mib}
    again = watch_runs(change.view, NOW, RULES).view
    assert derive_facts(change.view, again, [A], (), NOW) == ()


def test_a_stopped_run_starts_again_with_what_it_needs() -> None:
    town = ScriptedCluster(*roomy(2))
    town.submit("a", 8000)
    town.submit("b", 7800)
    town.submit("c", 15000)
    key = (A, 1)
    town.change(key, used=(replace(town.run("a").shares[0], memory_mib=8500),))
    town.look()
    assert key not in town.pods
    town.end_epoch("c")
    town.exit("c", 0)
    assert town.run("a").shares[0].memory_mib == 8500
    assert town.view.jobs[A].failures == ()


# --- what is left of a run ----------------------------------------------------------------------


def test_a_gpu_is_free_when_no_process_is_seen_there() -> None:
    over = job("a", 4000, attempts=1)
    left = Pod(A, 1, PodState.FAILED, (share(4000),), exit_code=1, used=(share(3000),))
    assert free_mib(view(over, pods=[left])) == {("n1", "gpu0"): CAPACITY - 3000}
    gone = replace(left, used=())
    assert free_mib(view(over, pods=[gone])) == {("n1", "gpu0"): CAPACITY}


def test_a_job_does_not_start_again_before_its_last_process_is_gone() -> None:
    town = ScriptedCluster(*roomy(2))
    town.submit("a", 4000)
    town.change((A, 1), used=town.run("a").shares, state=PodState.FAILED, reason="lost")
    (left,) = town.pods[A, 1]
    for _ in range(20):
        town.step(Observed(town.now + 1.0, town.nodes, (left,)))
    assert town.view.jobs[A].run is None
    for _ in range(20):
        town.step(Observed(town.now + 1.0, town.nodes, ()))
    assert town.view.jobs[A].attempts == 2


# --- GPUs ---------------------------------------------------------------------------------------


def changed(town: ScriptedCluster, **fields: Any) -> Decision:
    """The first GPU is observed in this state."""
    gpu = replace(town.nodes[0].gpus[0], **fields)
    town.nodes = (replace(town.nodes[0], gpus=(gpu, *town.nodes[0].gpus[1:])), *town.nodes[1:])
    return town.look()


def test_the_run_on_a_lost_gpu_is_over_and_goes_on_elsewhere() -> None:
    town = ScriptedCluster(node(2))
    town.submit("a", CAPACITY)
    assert town.run("a").shares[0].gpu == "gpu0"
    made = changed(town, lost=True, fault="XID 79")
    assert made.actions == (Remove(A, 1),)
    town.look()
    ended = town.view.jobs[A]
    assert ended.failed(Failure.LOST) == 1
    assert ended.reason == "gpu0 of n1 was lost: XID 79"
    for _ in range(20):
        town.look()
    assert town.run("a").shares == (share(CAPACITY, gpu=1),)


def test_a_run_on_a_node_that_runs_must_leave_stops_after_an_epoch() -> None:
    elsewhere = replace(share(4000), node="n2")
    a = with_run(job("a", 4000), share(4000), epoch_started=2)
    b = with_run(job("b", 4000), elsewhere, epoch_started=2)
    there = replace(node(), ready=False, leave="its driver is being replaced")
    pods = [used(a, 4000), used(b, 4000)]
    before = view(a, b, nodes=[there, replace(node(), name="n2")], pods=pods)
    after = watch_runs(before, NOW, RULES).view
    run = after.jobs[A].run
    assert run
    assert (run.phase, run.stop_at_epoch) == (RunPhase.STOPPING, 3)
    assert run.stop_reason == "n1 is to be left: its driver is being replaced"
    assert run_of(after, B)[0] is RunPhase.RUNNING


def test_a_training_that_fails_on_a_lost_gpu_has_not_failed_itself() -> None:
    town = ScriptedCluster(node(1))
    town.submit("a", CAPACITY)
    town.change((A, 1), state=PodState.FAILED, exit_code=134)
    changed(town, lost=True, fault="XID 79")
    assert town.view.jobs[A].failures == ((Failure.LOST, 1),)


def test_nothing_is_started_on_a_gpu_with_a_fault_and_its_runs_go_on() -> None:
    town = ScriptedCluster(node(1))
    town.submit("a", 4000)
    changed(town, fault="XID 48")
    town.submit("b", 4000)
    assert town.running() == {"a"}
    assert town.run("a").phase is RunPhase.RUNNING
    assert usable_gpus(town.nodes) == {}


def test_a_run_leaves_a_gpu_that_needs_a_reset_after_an_epoch_and_goes_on_elsewhere() -> None:
    town = ScriptedCluster(node(2))
    town.submit("a", 4000)
    assert town.run("a").shares[0].gpu == "gpu0"
    changed(town, fault="XID 48: bad", leave=True)
    run = town.run("a")
    assert run.phase is RunPhase.STOPPING
    assert run.stop_reason == "gpu0 of n1 is to be left: XID 48: bad"
    town.end_epoch("a")
    town.settle()
    assert (town.view.jobs[A].failures, town.view.jobs[A].attempts) == ((), 2)
    assert [share.gpu for share in town.run("a").shares] == ["gpu1"]


def test_a_training_that_fails_on_a_gpu_to_be_left_has_not_failed_itself() -> None:
    town = ScriptedCluster(node(1))
    town.submit("a", CAPACITY)
    town.change((A, 1), state=PodState.FAILED, exit_code=134)
    changed(town, fault="XID 48: bad", leave=True)
    ended = town.view.jobs[A]
    assert ended.failures == ((Failure.LOST, 1),)
    assert ended.reason == "exit code 134, while gpu0 of n1 is to be left: XID 48: bad"


def test_beside_foreign_processes_nothing_is_started_and_runs_go_on() -> None:
    town = ScriptedCluster(node(1))
    town.submit("a", 4000)
    changed(town, strange_mib=6400, fault="foreign processes use 6400 MiB")
    town.submit("b", 4000)
    assert town.running() == {"a"}
    town.end_epoch("a")
    assert town.run("a").phase is RunPhase.RUNNING
    changed(town, strange_mib=0, fault="")
    assert town.running() == {"a", "b"}


def test_what_becomes_of_a_gpu_is_told() -> None:
    town = ScriptedCluster(node(1))
    town.look()
    before = town.view
    changed(town, strange_mib=6400, fault="XID 48")
    told = [(fact.kind, dict(fact.data)) for fact in derive_facts(before, town.view, (), (), NOW)]
    place = {"node": "n1", "gpu": "gpu0"}
    assert told == [
        ("gpu_fault", {**place, "fault": "XID 48", "lost": False}),
        ("gpu_strangers", {**place, "from_mib": 0, "to_mib": 6400}),
    ]
    before = town.view
    changed(town, strange_mib=0, fault="")
    kinds = [fact.kind for fact in derive_facts(before, town.view, (), (), NOW)]
    assert kinds == ["gpu_well", "gpu_strangers"]


# --- silence --------------------------------------------------------------------------------------

DAY = RULES.silent_seconds


@pytest.mark.parametrize(
    ("heard", "old_library", "max_epochs", "ends"),
    [
        (False, False, 5, True),
        (False, False, 1, False),  # such as `-- echo`
        (True, False, 5, False),  # the current library: its silence is the network's
        (True, True, 5, True),
        (False, True, 5, True),
    ],
)
def test_a_run_that_should_report_and_has_not_for_a_day_is_ended(
    heard: bool, old_library: bool, max_epochs: int, ends: bool
) -> None:
    silent = with_run(
        job("a", max_epochs=max_epochs), share(), heard_at=NOW if heard else None, phase_at=NOW
    )
    kinds = {kind_of(silent.spec): JobFamily(old_library=old_library)}

    def phase(now: float, observed_since: float) -> RunPhase:
        before = replace(
            view(silent, pods=[pod(silent)]), kinds=kinds, observed_since=observed_since
        )
        return run_of(watch_runs(before, now, RULES).view)[0]

    assert phase(NOW + DAY - 1, NOW - 1) is RunPhase.RUNNING
    assert phase(NOW + DAY, NOW - 1) is (RunPhase.STOPPING if ends else RunPhase.RUNNING)
    assert phase(NOW + DAY, NOW + 1) is RunPhase.RUNNING, "no daemon could hear it all the time"


@pytest.mark.parametrize(("retries", "outcome"), [(0, "failed"), (1, None)])
def test_a_run_that_hangs_is_the_jobs_fault(retries: int, outcome: str | None) -> None:
    hangs = with_run(job("a", max_epochs=5, retries=retries), share(), heard_at=None, phase_at=NOW)
    before = replace(view(hangs, pods=[pod(hangs)]), observed_since=NOW)
    ended = watch_runs(before, NOW + DAY, RULES).view
    killed = pod(hangs, PodState.FAILED, exit_code=137)
    over = after(ended, observation(killed, at=NOW + DAY + 1), now=NOW + DAY + 1).jobs[A]
    assert (over.outcome, over.run) == (outcome, None)
    assert over.reason == (
        "it hangs: it has reported nothing in 24 hours, although it has 5 epochs"
    )
