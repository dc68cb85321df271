"""Jobs that start after others: what each way of ending decides, and how far down."""

from __future__ import annotations

import pytest

from scheduler.core.decide import decide
from scheduler.core.dependencies import jobs_behind
from scheduler.core.evolve import restore_view
from scheduler.core.model import (
    After,
    Cancelled,
    Job,
    JobId,
    Outcome,
    Submitted,
    View,
    Waiting,
    When,
)
from scheduler.core.reason_text import text
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from tests.builders import NOW, RULES, job, node, observation, spec, view

A, B, C, D = map(JobId, "abcd")


def ended(name: str, outcome: Outcome) -> Job:
    return job(name, outcome=outcome, ended_at=NOW)


def behind(name: str, *after: After) -> Submitted:
    return Submitted(JobId(name), spec(name, after=after))


def decided(before: View, *events: object, now: float = NOW) -> View:
    return decide(before, events, now, fifo_sharing(RULES), RULES).view  # type: ignore[arg-type]


# succeeded, failed, cancelled, skipped
HOLDS = {
    When.SUCCEEDED: "+---",
    When.FAILED: "-+--",
    When.FINISHED: "+++-",
    When.SKIPPED_OR_SUCCEEDED: "+--+",
    When.ENDED: "++++",
}


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("when", When)
def test_each_end_lets_a_job_start_or_skips_it(when: When, outcome: Outcome) -> None:
    before = view(ended("a", outcome), nodes=[node()])
    found = decided(before, behind("b", After(A, when)), observation(nodes=[node()])).jobs[B]
    if HOLDS[when][list(Outcome).index(outcome)] == "+":
        assert (found.awaits, found.outcome) == ((), None)
        assert found.run
    else:
        assert found.outcome is Outcome.SKIPPED
        assert found.reason.startswith("a ")


def test_a_job_waits_as_long_as_the_other_lives_and_says_so() -> None:
    after = decided(View(), Submitted(A, spec("a", held=True)), behind("b", After(A)))
    after = decided(after, observation(nodes=[node()]))
    assert after.jobs[B].run is None
    assert after.why[B].kind is Waiting.AFTER
    assert text(after.why[B]) == "waits for a"


def test_what_became_of_a_job_is_known_although_the_view_has_forgotten_it() -> None:
    told = Submitted(B, spec("b", after=(After(A),)), ended=((A, Outcome.SUCCEEDED, "a"),))
    assert decided(View(), told).jobs[B].awaits == ()
    told = Submitted(B, spec("b", after=(After(A),)), ended=((A, Outcome.FAILED, "train"),))
    assert decided(View(), told).jobs[B].reason == "train failed"


def test_a_job_that_names_an_unknown_job_is_not_accepted() -> None:
    assert B not in decided(View(), behind("b", After(A))).jobs


def test_a_skip_goes_on_down_in_the_same_step() -> None:
    before = decided(
        View(),
        Submitted(A, spec("a")),
        behind("b", After(A)),
        behind("c", After(B)),
        behind("d", After(C, When.SKIPPED_OR_SUCCEEDED)),
    )
    after = decided(before, Cancelled(A))
    assert [after.jobs[id].outcome for id in (B, C)] == [Outcome.SKIPPED, Outcome.SKIPPED]
    assert [after.jobs[id].reason for id in (B, C)] == ["a was cancelled", "b was skipped"]
    assert (after.jobs[D].outcome, after.jobs[D].awaits) == (None, ())
    assert after.behind == {}


def test_one_condition_that_cannot_hold_skips_a_job_while_others_are_open() -> None:
    before = decided(
        View(), Submitted(A, spec("a")), Submitted(B, spec("b")), behind("c", After(A), After(B))
    )
    assert decided(before, Cancelled(B)).jobs[C].reason == "b was cancelled"


def test_a_job_that_lost_its_other_with_a_damaged_row_does_not_wait_for_ever() -> None:
    loaded = restore_view(View(jobs={B: Job.submitted(B, spec("b", after=(After(A),)), NOW)}))
    assert loaded.behind == {A: (B,)}
    found = decided(loaded, observation(nodes=[node()])).jobs[B]
    assert found.outcome is Outcome.SKIPPED
    assert found.reason == (
        "job a was lost with its row in the database, so how it ended is not known"
    )


def test_a_job_that_may_start_now_is_planned_at_once() -> None:
    first = Submitted(A, spec("a", held=True))
    before = decided(View(), first, behind("b", After(A, When.FINISHED)), now=NOW - 100)
    before = decided(before, observation(), now=NOW - 90)
    assert not before.stale
    assert decided(before, Cancelled(A)).planned_at == NOW


def test_the_jobs_behind_a_job_come_after_those_that_they_await() -> None:
    after = decided(
        View(),
        Submitted(A, spec("a")),
        behind("b", After(A)),
        behind("d", After(A), After(B)),
        behind("c", After(D), After(B)),
    )
    assert [each.id for each in jobs_behind(A, after)] == [B, D, C]
    assert jobs_behind(C, after) == []
