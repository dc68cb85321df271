from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.evolve import evolve
from scheduler.core.facts import derive_facts
from scheduler.core.model import (
    Event,
    Fact,
    Job,
    JobId,
    Measured,
    OldLibrary,
    Outcome,
    Reported,
    RunPhase,
    Share,
    View,
    Visited,
)
from tests.builders import NOW, RULES, epoch_ended, job, node, share, view, with_run

A = JobId("a")
RUNNING = with_run(job("a", 4000), share(4000))
STARTING = with_run(job("a", 4000), share(4000), phase=RunPhase.STARTING, started_at=NOW - 8)
RUN = with_run(job("a", 4000), share(4000), phase=RunPhase.STARTING).run
assert RUN
STOPPING = with_run(job("a", 4000), share(4000), phase=RunPhase.STOPPING)


def told(before: Job | None, after: Job, *events: Event) -> list[Fact]:
    return list(
        derive_facts(view(*[before] if before else []), view(after), [after.id], events, NOW)
    )


def ended(of: Job, outcome: Outcome, reason: str) -> Job:
    return replace(of, run=None, outcome=outcome, reason=reason, ended_at=NOW)


def run_of_shares(of: Job, *shares: Share) -> Job:
    assert of.run
    return replace(of, run=replace(of.run, shares=shares))


@pytest.mark.parametrize(
    ("before", "after", "kind", "attempt", "data"),
    [
        (None, job("a"), "job_submitted", None, {"name": "a", "user": "ann"}),
        (
            job("a"),
            job("a", priority=5),
            "job_updated",
            None,
            {"priority": 5, "held": False, "max_epochs": 10},
        ),
        (job("a"), STARTING, "memory_learned", 1, {"from_mib": 0, "to_mib": 4000}),
        (job("a"), job("a", profiles_ignored=1), "profiles_ignored", None, {"ignored": 1}),
        (
            job("a", 4000),
            STARTING,
            "run_started",
            1,
            {"gpus": "gpu0 (4000 MiB)", "epochs_done": 0},
        ),
        (
            job("a", 4000),
            replace(STARTING, run=replace(RUN, expected_seconds=60.0)),
            "run_started",
            1,
            {
                "gpus": "gpu0 (4000 MiB)",
                "epochs_done": 0,
                "placement": "cpu",
                "expected_seconds": 60.0,
            },
        ),
        (
            RUNNING,
            replace(RUNNING, run=None, epochs_done=2, measured=(Measured("cpu", (), 61.0, 1),)),
            "run_ended",
            1,
            {
                "reason": "",
                "epochs_done": 2,
                "seconds": NOW,
                "placement": "cpu",
                "measured_seconds": 61.0,
            },
        ),
        (STARTING, RUNNING, "run_running", 1, {"seconds": 8.0}),
        (
            RUNNING,
            STOPPING,
            "run_asked_to_stop",
            1,
            {"reason": "preempted for it", "stop_at_epoch": 1},
        ),
        (
            RUNNING,
            run_of_shares(RUNNING, share(6000)),
            "run_resized",
            1,
            {"from_mib": 4000, "to_mib": 6000},
        ),
        (
            RUNNING,
            replace(RUNNING, run=None, reason="lost", epochs_done=2),
            "run_ended",
            1,
            {"reason": "lost", "epochs_done": 2, "seconds": NOW},
        ),
        *(
            (
                job("a", epochs_done=3),
                ended(job("a", epochs_done=3), outcome, "so it is"),
                kind,
                None,
                {"reason": "so it is", "epochs_done": 3},
            )
            for outcome, kind in [
                (Outcome.SUCCEEDED, "job_finished"),
                (Outcome.FAILED, "job_failed"),
                (Outcome.CANCELLED, "job_cancelled"),
            ]
        ),
    ],
)
def test_each_kind_of_fact_is_told_once(
    before: Job | None, after: Job, kind: str, attempt: int | None, data: dict[str, object]
) -> None:
    assert [fact for fact in told(before, after) if fact.kind == kind] == [
        Fact(NOW, kind, A, attempt, data)  # type: ignore[arg-type]  # values of facts, each
    ]


@pytest.mark.parametrize("same", [job("a"), STARTING, RUNNING, STOPPING])
def test_nothing_is_told_of_a_job_that_is_as_it_was(same: Job) -> None:
    assert told(same, same) == []


def test_epochs_and_signs_of_life_are_no_facts() -> None:
    assert RUNNING.run
    spoke = replace(RUNNING, epochs_done=4, run=replace(RUNNING.run, heard_at=NOW))
    assert told(RUNNING, spoke) == []


def test_a_job_that_came_and_ended_in_one_step_is_told_whole() -> None:
    facts_told = told(None, ended(job("a"), Outcome.CANCELLED, "cancelled"))
    assert [fact.kind for fact in facts_told] == ["job_submitted", "job_cancelled"]


def test_a_job_that_came_and_started_in_one_step_is_told_whole() -> None:
    assert [fact.kind for fact in told(None, STARTING)] == ["job_submitted", "run_started"]


def test_a_run_that_ended_and_the_next_that_began_in_one_step_are_both_told() -> None:
    again = with_run(replace(RUNNING, run=None, reason="preempted"), share(4000))
    first, second = told(RUNNING, again)
    assert (first.kind, first.attempt, first.data["reason"]) == ("run_ended", 1, "preempted")
    assert (second.kind, second.attempt) == ("run_started", 2)


def test_a_job_ends_after_its_run() -> None:
    over = ended(RUNNING, Outcome.SUCCEEDED, "finished")
    assert [fact.kind for fact in told(RUNNING, over)] == ["run_ended", "job_finished"]


def test_a_run_without_gpus_says_so() -> None:
    (fact,) = told(job("a", gpus=0), with_run(job("a", gpus=0)))
    assert fact.data["gpus"] == "none"


def test_work_lost_to_a_kill_is_counted_from_the_last_word_heard() -> None:
    killed = with_run(
        job("a", 4000), share(4000), phase=RunPhase.STOPPING, heard_at=NOW - 50, kill_at=NOW - 10
    )
    (fact,) = told(killed, replace(killed, run=None))
    assert fact.data["lost_work_seconds"] == 40.0


def test_a_run_that_left_before_its_deadline_lost_no_work() -> None:
    (fact,) = told(STOPPING, replace(STOPPING, run=None))
    assert "lost_work_seconds" not in fact.data


def test_more_epochs_than_there_should_be_are_told() -> None:
    (fact,) = told(RUNNING, RUNNING, epoch_ended(RUNNING, 10), epoch_ended(RUNNING, 11))
    assert (fact.kind, fact.attempt) == ("epochs_beyond_max", 1)
    assert fact.data == {"reported": 11, "max_epochs": 10}


def test_a_report_that_was_refused_is_told_and_changes_nothing() -> None:
    before, refused = view(RUNNING), Reported(A, 1, refused=True)
    change = evolve(before, [refused], NOW, RULES)
    assert change.view.jobs is before.jobs
    (fact,) = derive_facts(before, change.view, change.touched, [refused], NOW)
    assert (fact.kind, fact.job_id, fact.attempt) == ("report_refused", A, 1)


def test_nodes_that_come_and_go_are_told() -> None:
    def nodes(before: View, after: View) -> list[tuple[str, object]]:
        return [(f.kind, f.data["node"]) for f in derive_facts(before, after, [], [], NOW)]

    one, both = view(nodes=[node()]), view(nodes=[node(), node(name="n2")])
    away = view(nodes=[node(), node(name="n2", ready=False)])
    assert nodes(one, both) == [("node_ready", "n2")]
    assert nodes(both, one) == [("node_lost", "n2")]
    assert nodes(both, away) == [("node_lost", "n2")]
    assert nodes(away, one) == [], "it was lost before"
    assert nodes(both, both) == []


def test_an_epoch_that_an_old_library_did_not_save_is_told() -> None:
    before = view(with_run(job("a", 4000), share(4000)))
    (told,) = derive_facts(before, before, (), [OldLibrary(JobId("a"), 1, 3)], NOW)
    assert (told.kind, told.attempt, dict(told.data)) == ("epoch_unsaved", 1, {"epoch": 3})
    assert not derive_facts(before, before, (), [OldLibrary(JobId("a"), 1)], NOW)


def test_a_visit_to_the_run_of_another_user_is_told() -> None:
    before = view(with_run(job("a"), share()))
    event = Visited(JobId("a"), 1, "ada", "a shell")
    (told,) = derive_facts(before, before, (), [event], NOW)
    assert (told.kind, told.attempt) == ("run_visited", 1)
    assert dict(told.data) == {"by": "ada", "what": "a shell"}
