"""A recorded day is played again with a change; the answer is what would have happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core.errors import ConfigError, Rejected
from scheduler.core.loop import Scheduler
from scheduler.core.model import Rules, Time
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from scheduler.store.journal import Decider
from scheduler.store.writer import SqliteStore
from simulator.flags import parser
from simulator.replays.what_if import CHANGES, Answer, as_json, as_text, what_if
from simulator.simulate import main
from simulator.traces.behaviour import TraceJob
from simulator.trials.outcome import Tally
from simulator.trials.trace_world import TraceWorld
from tests.simulator.little import Plain, job, nodes

RULES = Rules(plan_every_seconds=0.0)


def record(path: Path, jobs: Sequence[TraceJob], gpus: int = 1, until: Time = 1e9) -> None:
    """Records what a daemon would keep of these jobs, up to a moment or to their end."""
    schedule(path, TraceWorld(jobs, nodes(gpus), Tally()), until)


def schedule(path: Path, world: TraceWorld, until: Time = 1e9) -> None:
    """One daemon in a world that may have had others before."""
    with closing(SqliteStore(path, decider=Decider("fifo_sharing", RULES))) as store:
        loop = Scheduler(world, store, world, fifo_sharing(RULES), RULES)
        world.read = lambda: loop.view
        while not world.is_idle and world.now() < until:
            loop.step()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.db"


def hours(answer: Answer, name: str) -> tuple[float, float]:
    """As it is and with the change."""
    return next((was, now) for one, was, now in answer.gains() if one.spec.name == name)


def long_and_short() -> list[TraceJob]:
    """A long job, and two short ones that come a little later and wait for it."""
    return [
        job("long", epochs=40, shareable=False, hours_estimate=1.2),
        job("short", at=10.0, epochs=4, shareable=False, hours_estimate=0.2),
        job("last", at=20.0, epochs=4, shareable=False, hours_estimate=0.2),
    ]


def test_played_as_it_is_jobs_take_what_they_took_in_truth(path: Path) -> None:
    jobs = [
        *long_and_short(),
        job("half", at=500.0, epochs=9, truth=Plain(seconds=60.0, speed=0.7, memory_mib=7000)),
        job("half too", at=500.0, epochs=9, truth=Plain(seconds=50.0, speed=0.7, memory_mib=7000)),
    ]
    record(path, jobs, gpus=2)
    answer = what_if(path, "policy=fifo_sharing")
    assert answer.before.times.keys() == answer.after.times.keys()
    for one, was, now in answer.gains():
        assert was == now
        assert one.ended_at is not None
        assert was == pytest.approx((one.ended_at - one.submitted_at) / 3600.0, rel=0.1)


def test_with_more_gpus_no_job_waits(path: Path) -> None:
    record(path, long_and_short())
    answer = what_if(path, "gpus+2")
    assert (answer.before.case.gpus, answer.after.case.gpus) == (1, 3)
    assert hours(answer, "last") == pytest.approx((1.34, 0.12), abs=0.02)
    assert hours(answer, "long") == pytest.approx((1.12, 1.12), abs=0.02)
    figures = answer.figures(answer.before), answer.figures(answer.after)
    assert [each["makespan_h"] for each in figures] == pytest.approx([1.34, 1.12], abs=0.02)


def test_with_fewer_gpus_they_wait_longer(path: Path) -> None:
    record(path, long_and_short(), gpus=3)
    answer = what_if(path, "gpus-2")
    assert (answer.before.case.gpus, answer.after.case.gpus) == (3, 1)
    assert hours(answer, "last") == pytest.approx((0.12, 1.34), abs=0.02)


def test_with_another_policy_other_jobs_come_first(path: Path) -> None:
    record(path, long_and_short())
    answer = what_if(path, "policy=srtf")
    assert (answer.before.case.policy, answer.after.case.policy) == ("fifo_sharing", "srtf")
    was, now = hours(answer, "short")
    assert now < was / 2
    was, now = hours(answer, "long")
    assert now > was


def test_without_a_job_the_others_gain(path: Path) -> None:
    record(path, long_and_short())
    answer = what_if(path, "without long")
    assert {one.spec.name for one in answer.jobs} == {"short", "last"}
    assert hours(answer, "last") == pytest.approx((1.34, 0.23), abs=0.02)
    assert "Left out" not in as_text(answer)


def test_with_more_priority_a_job_is_sooner_over(path: Path) -> None:
    record(path, long_and_short())
    answer = what_if(path, "priority last=5")
    was, now = hours(answer, "last")
    assert now < was / 2


def test_with_more_memory_two_jobs_no_longer_share(path: Path) -> None:
    small = Plain(speed=0.9, memory_mib=6000)
    record(path, [job("a", epochs=10, truth=small), job("b", epochs=10, truth=small)])
    answer = what_if(path, "memory b=12000")
    # Their speed alone is an estimate, because they never ran alone.
    assert hours(answer, "a") == pytest.approx((0.31, 0.28), abs=0.04)
    assert hours(answer, "b") == pytest.approx((0.31, 0.57), abs=0.04)


def test_jobs_that_are_not_over_are_played_to_their_end(path: Path) -> None:
    record(path, long_and_short(), until=2000.0)
    answer = what_if(path, "gpus+1")
    assert hours(answer, "long")[0] == pytest.approx(1.12, abs=0.02)
    assert hours(answer, "last")[0] == pytest.approx(1.34, abs=0.02)
    assert "really ended" not in as_text(answer)


def test_jobs_that_had_begun_when_the_journal_begins_have_left_what_they_had_left(
    path: Path,
) -> None:
    world = TraceWorld(long_and_short(), nodes(1), Tally())
    schedule(path, world, until=2000.0)
    schedule(path, world)
    assert hours(what_if(path, "gpus+1"), "long")[0] == pytest.approx(1.12, abs=0.02)
    assert hours(what_if(path, "gpus+1", from_start=2), "long")[0] == pytest.approx(0.58, abs=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "more gpus",
            "not one of gpus\\+N, gpus-N, policy=NAME, without JOB, memory JOB=MIB, prio",
        ),
        ("gpus+0", "not one of gpus"),
        ("policy=luck", "unknown policy 'luck'; known: .*fifo_sharing"),
        ("policy=luck.py:luck", "luck.py: No such file"),
        ("gpus-2", "there are only 1 of type t4"),
        ("without nobody", "no recorded job is named 'nobody'"),
        ("without twin", "'twin' is ambiguous: job-00001, job-00002"),
        ("priority 9999=4", "no recorded job is named '9999'"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    path: Path, change: str, words: str
) -> None:
    record(path, [job("a", epochs=1), job("twin", epochs=1), job("twin", epochs=1)])
    with pytest.raises(Rejected, match=words) as refused:
        what_if(path, change)
    assert "\n" not in str(refused.value)


def test_a_job_is_found_by_the_end_of_its_id(path: Path) -> None:
    record(path, [job("twin", epochs=1), job("twin", at=1.0, epochs=1)])
    assert len(what_if(path, "without 00001").jobs) == 1


def test_where_nothing_was_recorded_nothing_is_answered(path: Path) -> None:
    record(path, [])
    with pytest.raises(ConfigError, match="no job has run or waits"):
        what_if(path, "gpus+1")


@pytest.mark.parametrize(("first", "then"), [(3, 1), (1, 3)])
def test_the_gpus_are_those_that_jobs_had_longest_and_not_the_newest(
    path: Path, first: int, then: int
) -> None:
    late = [job("late", at=9000.0, epochs=1), job("last", at=9500.0, epochs=1)]
    here = TraceWorld([*long_and_short(), *late], nodes(3), Tally())
    here.nodes = tuple(nodes(first))
    schedule(path, here, until=8000.0)
    alone = what_if(path, "gpus+1")
    assert (alone.before.case.gpus, alone.after.case.gpus) == (first, first + 1)
    assert "The cluster changed" not in as_text(alone)
    here.nodes = tuple(nodes(then))
    schedule(path, here)
    answer = what_if(path, "gpus+1")
    assert (answer.before.case.gpus, answer.after.case.gpus) == (first, first + 1)
    assert (
        f"The cluster changed while jobs ran: it had 1 and 3 GPUs. Both plays have the {first}"
        " on which jobs ran longest."
    ) in as_text(answer)


def test_a_gpu_that_no_job_may_use_is_not_counted(path: Path) -> None:
    (node,) = nodes(2)
    faulty = replace(node, gpus=(node.gpus[0], replace(node.gpus[1], fault="ECC errors")))
    here = TraceWorld(long_and_short(), [faulty], Tally())
    schedule(path, here)
    assert what_if(path, "gpus+1").before.case.gpus == 1


def test_the_command_answers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(path, long_and_short())
    assert main(["--replay", str(path), "--what_if", "gpus+2"]) == 0
    assert capsys.readouterr().out == as_text(what_if(path, "gpus+2"))
    assert main(["--replay", str(path), "--what_if", "gpus+2", "--report", "json"]) == 0
    assert capsys.readouterr().out == as_json(what_if(path, "gpus+2"))


def test_the_commands_help_names_every_change() -> None:
    told = " ".join(parser().format_help().split())
    assert all(change in told for change in CHANGES)


def test_the_answer_as_text_and_as_json(path: Path) -> None:
    record(path, long_and_short())
    answer = what_if(path, "gpus+2")
    lines = as_text(answer).splitlines()
    assert lines[0] == "what if gpus+2: 3 jobs since 1970-01-01 00:00 UTC"
    assert lines[4].split() == ["GPUs", "1", "3"]
    assert lines[5].startswith("mean h ")
    assert lines[5].endswith("%")
    assert "gain most, h" in lines
    assert "lose most, h" not in lines
    assert lines[-1].startswith("3 of these jobs have really ended: after 1.2")
    said = json.loads(as_json(answer))
    assert (said["change"], said["after"]["gpus"]) == ("gpus+2", 3)
    assert said["before"]["mean_h"] > said["after"]["mean_h"]
    assert {one["name"] for one in said["jobs"]} == {"long", "short", "last"}
