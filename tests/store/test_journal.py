from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model import (
    Action,
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Finished,
    Job,
    JobFamily,
    JobId,
    Launch,
    Observed,
    OldLibrary,
    Pod,
    PodState,
    Profile,
    Reason,
    Remove,
    Reported,
    Submitted,
    Updated,
    Used,
    View,
    Visited,
    Waiting,
)
from scheduler.core.ports import Step
from scheduler.store import journal, rows
from scheduler.store.journal import START_EVERY_SECONDS, WAITING_MAX, Decider, Journal, digest
from tests.builders import NOW, RULES, job, node, observation, pod, share, spec, view, with_run
from tests.strategies import values

KINDS = (
    *(Submitted, Cancelled, Updated, EpochStarted, Reported, EpochEnded, Finished, Observed),
    OldLibrary,
    Visited,
)
DECIDER = Decider("fifo_sharing", replace(RULES, plan_every_seconds=3.0))

# --- the news -----------------------------------------------------------------------------------


def read_again(*batches: Sequence[Event]) -> list[list[Event]]:
    """Each batch, written and read in its turn."""
    found, written_to, read_to = [], None, None
    for batch in batches:
        data, written_to = journal.encode_events(batch, written_to)
        events, read_to = journal.decode_events(data, read_to)
        found.append(events)
    return found


@given(st.lists(st.lists(st.one_of(*map(values, KINDS)), max_size=3), max_size=3))
def test_events_read_as_they_were_written(batches: list[list[Event]]) -> None:
    assert read_again(*batches) == batches


PODS = tuple(
    Pod(JobId(f"job-{n}"), 1, PodState.RUNNING, (share(100 + n),), rank)
    for n in range(40)
    for rank in range(2)
)


@given(st.lists(st.sampled_from(PODS), unique=True).map(tuple), st.data())
def test_pods_that_stay_come_go_and_change_are_read_in_their_order(
    pods: tuple[Pod, ...], data: st.DataObject
) -> None:
    later = list(data.draw(st.permutations(pods))) if data.draw(st.booleans()) else list(pods)
    kept = [p for p in later if data.draw(st.integers(0, 3))]
    changed = [
        p if data.draw(st.integers(0, 3)) else replace(p, state=PodState.FAILED) for p in kept
    ]
    new = data.draw(st.lists(st.sampled_from(PODS), unique=True))
    looks = [Observed(1.0, (node(),), pods), Observed(2.0, (node(2),), tuple(changed + new))]
    assert read_again(*[[look] for look in looks]) == [[look] for look in looks]


def test_a_look_that_shows_what_the_last_one_showed_costs_a_few_bytes() -> None:
    first = Observed(NOW, (node(8),), PODS)
    whole, looked = journal.encode_events([first], None)
    same, _ = journal.encode_events([Observed(NOW + 5, (node(8),), tuple(PODS))], looked)
    one_changed = (*PODS[:9], replace(PODS[9], state=PodState.FAILED), *PODS[10:])
    little, _ = journal.encode_events([replace(first, pods=one_changed)], looked)
    assert len(whole) > 5_000
    assert len(same) < 20
    assert len(little) < 200


def test_what_was_written_before_a_kind_had_its_last_values_is_read_with_the_defaults() -> None:
    old = msgspec.msgpack.encode([(1, ("job-1", "ann")), (4, ("job-1", 3))])
    assert journal.decode_events(old, None)[0] == [
        Cancelled(JobId("job-1"), "ann"),
        Reported(JobId("job-1"), 3),
    ]


def test_a_submission_from_before_ports_were_claimed_claims_none() -> None:
    wish = spec("a", ports=((31_346, 6006),))
    old = msgspec.msgpack.encode([(0, ("job-1", wish, "token"))])
    (event,), _ = journal.decode_events(old, None)
    assert event == Submitted(JobId("job-1"), wish, "token", claims_ports=False)


# --- who decides, and what about ----------------------------------------------------------------


def test_a_decider_reads_as_it_was_written() -> None:
    assert journal.decode_decider(msgspec.msgpack.encode(DECIDER)) == DECIDER


def test_a_view_reads_as_it_was_written() -> None:
    running = with_run(job("a", 4000), share(4000))
    waiting = job("b")
    whole = replace(
        view(running, waiting, pods=[pod(running)]),
        number=7,
        stopping=frozenset({running.id}),
        behind={running.id: (waiting.id,)},
        due_at=9.0,
        disturbed={("n1", "gpu0"): 3.0},
        kinds={"kind": JobFamily(2)},
        used={"ann": Used(1.5, NOW)},
        ended={JobId("c"): 2.0},
        replan_at=NOW,
        planned_at=NOW,
        queue=(waiting.id,),
        observed_since=NOW,
        stops={running.id: Reason(Waiting.MOVED, before=(("t4", 2),))},
        why={waiting.id: Reason(Waiting.GPUS, gpus=1, free=(("t4", 0),))},
        scores={"ann/grid": {3: {running.id: math.inf}}},
    )
    assert all(getattr(whole, f.name) != getattr(View(), f.name) for f in fields(View))
    assert journal.decode_view(msgspec.msgpack.encode(whole)) == whole


def test_a_view_from_before_reasons_were_data_has_their_kinds() -> None:
    old = {"why": {"b": {"kind": "made room", "detail": "on gpu0"}}, "number": 3}
    read = journal.decode_view(msgspec.msgpack.encode(old))
    assert read == View(number=3, why={JobId("b"): Reason(Waiting.MADE_ROOM)})


A, B = job("a"), with_run(job("b", 4000), share(4000))
NEW = replace(DECIDER, digest_version=journal.DIGEST_VERSION)
NO_NODE = Reason(Waiting.NODES)
LAUNCH = Launch(A.id, 1, A.spec, (), 0, 1, "")


def made(*jobs: Job, actions: Sequence[Action] = (), **fields: Any) -> bytes:  # any field of a View
    after = replace(View(at=NOW), **fields)
    return digest(after, [(job, rows.job_state(job)) for job in jobs], actions, NEW)


@pytest.mark.parametrize(
    "other",
    [
        made(A),
        made(B, A),
        made(A, replace(B, epochs_done=1)),
        made(A, replace(B, id=JobId("c"))),
        made(A, B, actions=[LAUNCH]),
        made(A, B, actions=[Remove(A.id, 1), LAUNCH]),
        made(A, B, actions=[replace(LAUNCH, spec=spec("b")), Remove(A.id, 1)]),
        made(A, B, actions=[LAUNCH, Remove(A.id, 1)], replan_at=NOW),
        made(A, B, actions=[LAUNCH, Remove(A.id, 1)], planned_at=NOW, why={A.id: NO_NODE}),
        made(A, B, actions=[LAUNCH, Remove(A.id, 1)], planned_at=NOW, queue=(A.id,)),
    ],
)
def test_a_digest_tells_all_that_is_decided_apart(other: bytes) -> None:
    assert made(A, B, actions=[LAUNCH, Remove(A.id, 1)]) != other


def test_a_digest_does_not_tell_equal_reasons_apart() -> None:
    both = (NO_NODE, NO_NODE), (NO_NODE, replace(NO_NODE))
    one, two = (made(planned_at=NOW, why=dict(zip((A.id, B.id), of, strict=True))) for of in both)
    assert one == two
    gpus = {A.id: NO_NODE, B.id: Reason(Waiting.NODES, gpus=1)}
    assert made(planned_at=NOW, why=gpus) != one


def test_a_digest_is_of_what_is_decided_and_of_nothing_else() -> None:
    told = {A.id: NO_NODE}
    assert made(A, B) == made(A, B, why=told), "no plan was made in this step"
    assert made(A, replace(B, spec=spec("c"))) == made(A, B), "that is in the news, or a launch"


# --- what is to be written ----------------------------------------------------------------------

FRESH = Journal(DECIDER, start=4)


def stepped(made: Journal, *ats: float, events: Sequence[Event] = ()) -> Journal:
    for number, at in enumerate(ats, 1):
        made = made.with_step(
            Step(View(number - 1), View(number), [], [], [], at, events), changed=[]
        )
    return made


def test_the_first_step_is_preceded_by_the_view_that_it_began_with() -> None:
    first = FRESH.with_step(Step(view(A), View(1), [], [], [], NOW), changed=[])
    ((start, number, at, _, kept),) = first.starts
    assert (start, number, at) == (5, 0, NOW)
    assert journal.decode_view(kept, lambda _: (A.spec, "")) == view(A)
    assert [row[:3] for row in first.steps] == [(5, 1, NOW)]


def test_the_journal_does_not_repeat_what_a_row_holds() -> None:
    """Submissions of 64 KiB made the database grow by three times as much."""
    big = spec("big", env=(("KEY", "x" * 60_000),))
    taken = Job.submitted(JobId("big"), big, NOW, "token")
    news = [Submitted(taken.id, big, "token", True), Submitted(taken.id, spec("again"))]
    done = Step(View(), view(taken), [taken.id], [], [], NOW, news)
    first = FRESH.with_step(done, rows.changed_jobs(done.before, done.after, done.touched))
    ((*_, heard, _),) = first.steps
    later = FRESH.with_step(Step(view(taken), view(taken), [], [], [], NOW), changed=[])
    ((*_, began),) = later.starts
    assert len(heard) + len(began) < 2_000
    read = lambda job_id: {taken.id: (big, "token")}[job_id]  # noqa: E731
    assert journal.decode_events(heard, None, read)[0] == news
    assert journal.decode_view(began, read) == view(taken)


def test_a_submission_without_a_row_is_kept_whole() -> None:
    clash = Submitted(A.id, A.spec, "token", claims_ports=True)
    ((*_, heard, _),) = stepped(FRESH, NOW, events=[clash]).steps
    assert journal.decode_events(heard, None)[0] == [clash]


def test_a_field_that_a_specification_got_later_changes_no_digest_unless_it_is_used() -> None:
    """Else no journal of before could be replayed."""
    assert made(actions=[LAUNCH]).hex() == "3b5b1933486ef9f5"
    used = replace(LAUNCH, spec=replace(LAUNCH.spec, directory="/home/ann"))
    assert made(actions=[used]) != made(actions=[LAUNCH])


def test_steps_wait_until_they_are_written() -> None:
    waits = stepped(FRESH, 1.0, 2.0)
    assert [row[1] for row in waits.steps] == [1, 2]
    assert stepped(waits.emptied(), 3.0).starts == ()
    assert len(stepped(waits.emptied(), 3.0).steps) == 1
    assert not stepped(FRESH, *[1.0] * (WAITING_MAX - 1)).full
    assert stepped(FRESH, *[1.0] * WAITING_MAX).full


def test_each_day_has_a_start_of_its_own_and_its_first_look_is_whole() -> None:
    seen = [observation(*PODS)]
    later = stepped(FRESH, 0.0, 1.0, START_EVERY_SECONDS, events=seen)
    assert [row[:3] for row in later.starts] == [(5, 0, 0.0), (6, 2, START_EVERY_SECONDS)]
    assert [row[0] for row in later.steps] == [5, 5, 6]
    whole, little, again = (len(row[3]) for row in later.steps)
    assert whole == again > 10 * little


def test_what_is_known_of_an_epoch_takes_little_room() -> None:
    """Most of what is written is this, at a busy site."""
    profile = Profile(JobId("12345678-1234-1234-1234-123456789012"), 1, 1, 0, "t4x2", (), 0.1, 60.0)
    data, _ = journal.encode_events([EpochEnded(profile)], None)
    assert len(data) < 120


def test_every_event_has_its_number() -> None:
    """Numbers are a format: a new event takes the next one, at the end of the list."""
    assert {*typing.get_args(Event), journal._Accepted} == set(journal._KINDS)
    assert len(set(journal._KINDS)) == len(journal._KINDS)
