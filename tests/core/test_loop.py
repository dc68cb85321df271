from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler.core.errors import InvariantError, Unavailable
from scheduler.core.loop import Scheduler
from scheduler.core.model import (
    Action,
    Event,
    Fact,
    Job,
    JobId,
    Plan,
    Submitted,
    Time,
    Updated,
    View,
)
from scheduler.core.ports import Policy, Step
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests.builders import NOW, RULES, job, observation, share, spec, with_run

A = JobId("a")


class World:
    """Inbox, store and cluster in one: what the loop did to them, in order."""

    def __init__(self, *batches: Sequence[Event], jobs: Sequence[Job] = ()) -> None:
        self.batches, self.jobs = list(batches), jobs
        self.log: list[str] = []
        self.waited_until: list[Time | None] = []
        self.facts: list[Fact] = []
        self.full = False

    def now(self) -> Time:
        return NOW

    def wait(self, until: Time | None) -> Sequence[Event]:
        self.waited_until.append(until)
        return self.batches.pop(0)

    def load(self) -> View:
        return View(jobs={job.id: job for job in self.jobs})

    def commit(self, step: Step) -> None:
        if self.full:
            raise Unavailable("the disk is full")
        self.log.append(f"commit {', '.join(step.touched)}")
        self.facts += step.facts

    def perform(self, action: Action) -> None:
        self.log.append(f"perform {type(action).__name__} {action.job_id} {action.attempt}")


def scheduler(world: World, policy: Policy | None = None) -> Scheduler:
    return Scheduler(world, world, world, policy or fifo_sharing(RULES), RULES)


NEW = Submitted(A, spec("a"))


def test_a_step_commits_and_only_then_acts() -> None:
    world = World([observation(), NEW])
    scheduler(world).step()
    assert world.log == ["commit a", "perform Launch a 1"]


def test_the_view_to_be_read_is_the_committed_one() -> None:
    world = World([observation(), NEW])
    loop = scheduler(world)
    before = loop.view
    loop.step()
    assert before.jobs == {}
    assert loop.view.jobs[A].run
    assert loop.view.number == before.number + 1


def test_a_commit_that_fails_changes_and_performs_nothing() -> None:
    world = World([observation(), NEW], [observation(), NEW])
    loop = scheduler(world)
    before, world.full = loop.view, True
    with pytest.raises(Unavailable):
        loop.step()
    assert loop.view is before
    assert world.log == []
    world.full = False
    loop.step()
    assert world.log == ["commit a", "perform Launch a 1"], "as if nothing had been"


def test_a_violated_invariant_commits_nothing() -> None:
    world = World([Updated(A, priority=5)], jobs=[job("a", epochs_done=99)])
    loop = scheduler(world)
    before = loop.view
    with pytest.raises(InvariantError):
        loop.step()
    assert loop.view is before
    assert world.log == []


def test_a_policy_that_fails_commits_nothing() -> None:
    def fails(view: View, now: Time) -> Plan:
        raise ZeroDivisionError

    world = World([observation(), NEW])
    with pytest.raises(ZeroDivisionError):
        scheduler(world, fails).step()
    assert world.log == []


def test_the_loop_waits_until_the_moment_it_decided() -> None:
    backing_off = job("a", eligible_at=NOW + 60)
    world = World([observation()], [], jobs=[backing_off])
    loop = scheduler(world)
    loop.step()
    loop.step()
    assert world.waited_until == [NOW, NOW + 60], "at first not at all: see to old deadlines"


def test_a_start_believes_the_rows_and_asks_again_for_what_was_never_made() -> None:
    """Whether the launch was performed before the crash does not matter: its name is the same."""
    world = World([observation(), NEW])
    crashed = scheduler(world)
    crashed.step()
    restarted = World([observation()], jobs=list(crashed.view.jobs.values()))
    loop = scheduler(restarted)
    assert loop.view.held == crashed.view.held
    loop.step()
    assert restarted.log == ["commit ", "perform Launch a 1"]


def test_a_start_stops_nothing() -> None:
    running = with_run(job("a", 4000), share(4000))
    world = World([], [NEW], jobs=[running])
    loop = scheduler(world)
    loop.step()
    loop.step()
    assert loop.view.jobs == {A: running}
    assert not any("perform" in line for line in world.log)


def test_the_facts_of_a_step_are_committed_with_it() -> None:
    world = World([observation(), NEW])
    scheduler(world).step()
    told = [fact.kind for fact in world.facts]
    assert told == ["node_ready", "job_submitted", "run_started"]


def test_a_view_without_an_observation_launches_nothing_new() -> None:
    world = World([NEW])
    scheduler(world).step()
    assert world.log == ["commit a"]
