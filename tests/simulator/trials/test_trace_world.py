"""The world of a trace is exact: moments, speeds, and the reports to the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model import (
    EXIT_STOPPED,
    EpochEnded,
    EpochStarted,
    Finished,
    JobId,
    Launch,
    Observed,
    Outcome,
    PodState,
    Profile,
    Remove,
    Rules,
    Share,
    Submitted,
    View,
)
from scheduler.core.ports import Step
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from simulator.traces.behaviour import Course, Lie, TraceJob
from simulator.trials.outcome import JobTimes, Result, Tally
from simulator.trials.trace_world import TraceWorld
from simulator.trials.trial import Trial
from tests import builders
from tests.simulator.little import RULES, Plain, job, nodes, scripted_policy, trial

A, B = JobId("job-00000"), JobId("job-00001")
GPU0, GPU1 = ("n0", "gpu0"), ("n0", "gpu1")


def by_name(result: Result) -> dict[str, JobTimes]:
    return {times.name: times for times in result.jobs}


# --- how long things take -----------------------------------------------------------------------


def test_a_job_takes_its_restart_and_its_epochs() -> None:
    a = trial([job("a", at=5.0, epochs=3)], scripted_policy({"a": [GPU0]})).run().jobs[0]
    assert (a.submitted_at, a.started_at, a.ended_at) == (5.0, 5.0, 5.0 + 20.0 + 300.0)
    assert a.outcome is Outcome.SUCCEEDED
    assert (a.restarts, a.preemptions) == (0, 0)


def test_neighbours_slow_each_other_only_while_both_train() -> None:
    jobs = [job("a", epochs=1, truth=Plain(speed=0.5)), job("b", at=50.0, truth=Plain(speed=0.8))]
    result = by_name(trial(jobs, scripted_policy({"a": [GPU0], "b": [GPU0]})).run())
    # a trains from 20, alone to 70, when b begins; half its epoch takes 100 s then. b has done 0.8
    # of its first epoch when a ends.
    assert result["a"].ended_at == pytest.approx(70.0 + 50.0 / 0.5)
    assert result["b"].ended_at == pytest.approx(170.0 + 200.0 - 0.8 * 100.0)


def test_a_gang_is_as_fast_as_on_its_most_crowded_gpu() -> None:
    jobs = [job("gang", epochs=1, gpus=2), job("one", epochs=9, truth=Plain(speed=1.0))]
    result = by_name(trial(jobs, scripted_policy({"gang": [GPU0, GPU1], "one": [GPU1]}), 2).run())
    assert result["gang"].ended_at == pytest.approx(20.0 + 100.0 / 2 / 0.5)


def test_speeds_beside_several_neighbours_multiply() -> None:
    jobs = [job(name, epochs=1) for name in ("a", "b", "c")]
    result = trial(jobs, scripted_policy({"a": [GPU0], "b": [GPU0], "c": [GPU0]})).run()
    assert {times.ended_at for times in result.jobs} == {20.0 + 400.0}


def test_on_a_slow_node_everything_takes_longer() -> None:
    jobs = [job("here", epochs=2), job("there", epochs=2), job("both", epochs=2, gpus=2)]
    where = {"here": [GPU0], "there": [("n1", "gpu0")], "both": [GPU1, ("n1", "gpu1")]}
    made = trial(jobs, scripted_policy(where), 2, 2, slowness={"n1": 5.0})
    ends = {name: times.ended_at for name, times in by_name(made.run()).items()}
    assert ends == {"here": 20.0 + 200.0, "there": 20.0 + 1000.0, "both": 20.0 + 500.0}


def test_epochs_follow_the_course_of_the_job_in_each_run() -> None:
    tuned = replace(job("a", epochs=4), course=Course(0.5, 2.0, tuning=3.0, tuning_seconds=60.0))
    made = trial([tuned], scripted_policy({"a": [GPU0]}, {"a": (100.0, 300.0)}))
    # Of 60 slow seconds 40 are lost in each of two runs; the first epoch then takes 50 + 40.
    (a,) = made.run().jobs
    assert a.ended_at == pytest.approx(320.0 + 40.0 + 100.0 + 150.0 + 200.0)
    assert a.launches == 2


@dataclass(frozen=True)
class Shrinking(Plain):
    """Each epoch takes half as long as the one before it."""

    def epoch_seconds_at(self, epoch: int, type: str, count: int, nodes: int) -> float:
        return self.seconds * (1.0, 0.5, 0.25)[epoch]


def test_a_truth_may_know_each_epoch() -> None:
    made = trial([job("a", epochs=3, truth=Shrinking())], scripted_policy({"a": [GPU0]}))
    assert made.run().jobs[0].ended_at == 20.0 + 100.0 + 50.0 + 25.0


def test_a_lie_is_told_and_the_truth_takes_as_long_as_before() -> None:
    profiles: list[Profile] = []

    def listen(step: Step) -> None:
        profiles.extend(e.profile for e in step.events if isinstance(e, EpochEnded))

    liar = replace(job("a", epochs=3), lie=Lie(factors=(0.0, 10.0, 0.1)))
    (a,) = trial([liar], scripted_policy({"a": [GPU0]}), listener=listen).run().jobs
    assert a.ended_at == 20.0 + 300.0
    assert [profile.epoch_seconds for profile in profiles] == pytest.approx([1000.0, 10.0, 0.0])
    assert profiles[-1].samples_per_second == 0.0


def test_a_run_that_is_told_to_stop_ends_its_epoch_and_resumes_there() -> None:
    a = (
        trial([job("a", epochs=9)], scripted_policy({"a": [GPU0]}, {"a": (150.0, 400.0)}))
        .run()
        .jobs[0]
    )
    # Two epochs to 220; from 400 a restart, and the seven others.
    assert (a.ended_at, a.restarts, a.preemptions) == (400.0 + 20.0 + 700.0, 1, 1)
    assert a.queued_seconds == 400.0 - 220.0


def test_no_run_is_stopped_in_the_last_epoch() -> None:
    a = (
        trial([job("a", epochs=2)], scripted_policy({"a": [GPU0]}, {"a": (150.0, 400.0)}))
        .run()
        .jobs[0]
    )
    assert (a.ended_at, a.preemptions) == (220.0, 0)


def test_too_much_memory_kills_the_newest_alone() -> None:
    big = Plain(memory_mib=9000, speed=1.0)
    jobs = [job(n, at, truth=big, memory_mib=7000) for n, at in (("a", 0.0), ("b", 30.0))]
    result = by_name(trial(jobs, fifo_sharing(RULES)).run())
    assert (result["a"].restarts, result["a"].ended_at) == (0, 220.0)
    # b dies as it begins, is known to need more, and so waits for the whole GPU.
    assert (result["b"].launches, result["b"].ended_at) == (2, 220.0 + 20.0 + 200.0)


def test_what_cannot_train_where_it_was_put_fails() -> None:
    only_a100 = job("a", truth=Plain(types=("a100",)))
    mixed = [replace(nodes(1)[0], name="n1"), *nodes(1, type="a100")]
    result = Trial([only_a100], mixed, scripted_policy({"a": [("n1", "gpu0")]}), RULES).run()
    assert result.jobs[0].outcome is Outcome.FAILED
    assert result.effective_gpu_seconds == 0.0


# --- what the scheduler hears -------------------------------------------------------------------


def small(*jobs: TraceJob, gather_seconds: float = 0.0) -> TraceWorld:
    """Two GPUs, and a scheduler that believes a run of A and one of B to be on them."""
    jobs = jobs or (job("a"), job("b"))
    here = TraceWorld(jobs, nodes(2), Tally(), gather_seconds=gather_seconds)
    view = builders.view(
        *(
            builders.with_run(builders.job(id), builders.share(1000, n))
            for n, id in enumerate((A, B))
        )
    )
    here.read = lambda: view
    return here


def launch(job_id: JobId = A, gpu: int = 0, epochs: int = 2) -> Launch:
    shares = (Share("n0", f"gpu{gpu}", 1000),)
    return Launch(job_id, 1, job("a").spec, shares, 0, epochs, "")


def test_the_first_look_shows_the_nodes() -> None:
    here = small(job("a"))
    assert here.wait(0.0) == [Submitted(A, job("a").spec), Observed(0.0, tuple(nodes(2)))]


def test_time_goes_to_the_deadline_when_nothing_happens() -> None:
    here = small()
    here.wait(0.0)
    assert here.wait(70.0) == []
    assert here.now() == 70.0
    assert here.wait(50.0) == []
    assert here.now() == 70.0


def test_a_batch_is_closed_so_long_after_its_first_news() -> None:
    jobs = [job("a", at=at) for at in (5.0, 12.0, 15.0, 16.0)]
    here = small(*jobs, gather_seconds=10.0)
    here.wait(0.0)
    assert len(here.wait(None)) == 3
    assert here.now() == 15.0
    assert len(here.wait(None)) == 1


def test_a_deadline_closes_a_batch() -> None:
    here = small(*(job("a", at=at) for at in (5.0, 7.0, 9.0)), gather_seconds=10.0)
    here.wait(0.0)
    assert len(here.wait(8.0)) == 2
    assert here.now() == 8.0


def test_an_epoch_is_reported_with_its_placement_and_neighbours() -> None:
    heard: list[Profile] = []

    def listener(step: Step) -> None:
        heard.extend(step.profiles)

    jobs = [job("a", epochs=1, gpus=2), job("b", epochs=3, batch_size=10)]
    trial(jobs, scripted_policy({"a": [GPU0, GPU1], "b": [GPU0]}), 2, listener=listener).run()
    of_a, of_b, of_b_alone, _ = heard
    assert (of_a.job_id, of_a.placement, of_a.beside) == (A, "t4x2", (B,))
    assert (of_a.epoch_seconds, of_a.memory_mib, of_a.gpu_util) == (100.0, 1000, 0.7)
    # b trained for 100 s at half its speed, and then alone.
    assert (of_b.job_id, of_b.epoch, of_b.epoch_seconds) == (B, 1, 150.0)
    assert (of_b.step_seconds, of_b.samples_per_second) == (1.5, 1000 / 150.0)
    assert (of_b_alone.epoch_seconds, of_b_alone.beside) == (100.0, ())


def test_a_look_is_posted_when_a_run_is_over_and_not_before() -> None:
    here = small()
    here.wait(0.0)
    here.perform(launch(epochs=1))
    assert here.wait(None) == [EpochStarted(A, 1, 0)]
    *words, look = here.wait(None)
    assert [type(word) for word in words] == [EpochEnded, Finished]
    assert isinstance(look, Observed)
    assert [pod.state for pod in look.pods] == [PodState.SUCCEEDED]
    here.perform(Remove(A, 1))
    assert here.wait(1000.0) == []
    assert here.is_idle


def test_pods_that_have_not_changed_are_the_same_objects() -> None:
    here = small()
    here.wait(0.0)
    here.perform(launch(A, 0, epochs=9))
    here.perform(launch(B, 1, epochs=1))
    here.wait(30.0)
    before = [run.pods[0] for run in here.runs.values()]
    look = here.wait(None)[-1]
    assert isinstance(look, Observed)
    assert look.pods[0] is before[0]
    assert look.pods[1] is not before[1]


def test_a_repeated_launch_is_one_launch() -> None:
    here = small()
    here.wait(0.0)
    here.perform(launch())
    here.perform(launch())
    assert here.tally.jobs[A].launches == 1


def test_a_run_that_is_removed_while_it_trains_is_gone_in_a_moment() -> None:
    here = small()
    here.wait(0.0)
    here.perform(launch())
    here.wait(60.0)
    here.wait(60.0)
    here.perform(Remove(A, 1))
    here.perform(Remove(A, 1))
    assert here.wait(None) == [Observed(61.0, tuple(nodes(2)))]
    assert here.tally.jobs[A].ended_at == 61.0
    assert here.wait(1000.0) == []


def test_a_run_that_is_removed_before_it_begins_never_begins() -> None:
    here = small()
    here.wait(0.0)
    here.perform(launch())
    here.perform(Remove(A, 1))
    assert here.wait(1000.0) == [Observed(1.0, tuple(nodes(2)))]
    assert here.wait(1000.0) == []


def test_a_run_of_which_the_scheduler_knows_nothing_stops() -> None:
    here = small()
    here.read = View
    here.wait(0.0)
    here.perform(launch())
    *words, look = here.wait(None)
    assert words == [EpochStarted(A, 1, 0), Finished(A, 1, preempted=True)]
    assert isinstance(look, Observed)
    assert look.pods[0].exit_code == EXIT_STOPPED


# --- whatever comes -----------------------------------------------------------------------------


truths = st.builds(
    Plain,
    seconds=st.floats(1.0, 500.0),
    speed=st.floats(0.2, 1.0),
    memory_mib=st.integers(500, 15000),
)
traces = st.lists(
    st.builds(
        job,
        st.sampled_from("abc"),
        st.floats(0.0, 2000.0),
        st.integers(1, 6),
        st.integers(1, 2),
        truths,
        shareable=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(jobs=traces, gather=st.sampled_from([0.0, 4.0]), plan_every=st.sampled_from([0.0, 60.0]))
def test_every_job_ends_and_no_work_is_lost_or_done_twice(
    jobs: list[TraceJob], gather: float, plan_every: float
) -> None:
    rules = Rules(plan_every_seconds=plan_every)
    result = trial(jobs, fifo_sharing(rules), 2, 1, rules=rules, gather_seconds=gather).run()
    assert all(times.outcome is Outcome.SUCCEEDED for times in result.jobs)
    work = sum(job.truth.epoch_seconds("t4", 1, 1) * job.spec.max_epochs for job in jobs)
    assert result.effective_gpu_seconds == pytest.approx(work)
    assert 0.0 < result.busy_gpu_seconds < 3 * result.makespan_seconds
    for _, bars in groupby(result.bars, key=lambda bar: (bar.node, bar.gpu)):
        for name, own in groupby(sorted(bars, key=lambda b: (b.job, b.from_at)), lambda b: b.job):
            assert all(one.to_at <= after.from_at for one, after in pairwise(own)), name


def test_the_same_trial_twice_comes_to_the_same() -> None:
    jobs = [job(f"j{n}", at=n * 7.0, truth=Plain(seconds=11.0 * n + 5.0)) for n in range(20)]
    one, other = (trial(jobs, fifo_sharing(RULES), 2, 2).run() for _ in range(2))
    assert one == other
