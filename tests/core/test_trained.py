"""Epochs that were reported are compared with those that the library says are in the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.evolve import evolve
from scheduler.core.facts import derive_facts
from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Job,
    JobId,
    Outcome,
    PodState,
    Trained,
    Updated,
    View,
)
from tests.builders import (
    NOW,
    RULES,
    after,
    epoch_ended,
    job,
    observation,
    pod,
    share,
    view,
    with_run,
)

A = JobId("a")


def second(done: int = 4, epochs: int = 8, **fields: object) -> Job:
    """A job whose second run has begun after `done` epochs, all of which were trained."""
    told = Trained(1, done, 0, 0, done)
    waits = replace(job("a", max_epochs=epochs), epochs_done=done, attempts=1, trained=told)
    return replace(with_run(waits, share(), epoch_started=-1), **fields)  # type: ignore[arg-type]


def begins(epoch: int, trained: int | None, attempt: int = 2) -> EpochStarted:
    return EpochStarted(A, attempt, epoch, trained)


def ends(epoch: int, trained: int | None, attempt: int = 2) -> EpochEnded:
    profile = epoch_ended(job("a"), epoch, attempt=attempt).profile
    return EpochEnded(replace(profile, trained=trained))


def missing(before: Job, *events: Event) -> int | None:
    return after(view(before), *events).jobs[A].epochs_missing


def facts(before: Job, *events: Event) -> Iterator[tuple[str, dict[str, object]]]:
    start = view(before)
    made = evolve(start, events, NOW, RULES)
    for fact in derive_facts(start, made.view, [A], events, NOW):
        yield fact.kind, dict(fact.data)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], 0),
        ([begins(4, 4), ends(5, 5), begins(5, 5), ends(6, 6)], 0),
        ([begins(4, 0)], 4),
        ([begins(4, 0), ends(5, 1), begins(5, 1), ends(6, 2)], 4),
        ([begins(4, 3), ends(5, 4)], 1),
        # It trains epochs again: what is missing becomes less with each.
        ([begins(2, 2)], 2),
        ([begins(2, 2), ends(3, 3)], 1),
        ([begins(2, 2), ends(3, 3), ends(4, 4), ends(5, 5)], 0),
        # Nothing is known: nothing changes.
        ([begins(4, None), ends(5, None)], 0),
        # A report that is late, lost or repeated.
        ([ends(5, 1)], 4),
        ([begins(4, 0), ends(6, 2), ends(5, 1), ends(5, 1)], 4),
        ([ends(3, 3), ends(3, 3), begins(2, 2)], 1),
        # Another rank, which tells nothing, is ahead of the first.
        ([begins(4, 4), begins(5, None)], 0),
        ([begins(4, 0), begins(5, None), ends(5, 1)], 4),
        # An older attempt goes on in vain: no run will load what it trains.
        ([begins(4, 4), ends(5, 5, attempt=1)], 1),
        ([begins(4, 4), ends(5, 5, attempt=1), ends(5, 5)], 0),
        # The last report of the older attempt comes before the first of the newer.
        ([ends(5, 5, attempt=1)], 0),
        # The script begins with epoch 1, but counts from 5: at the end it has trained all.
        ([begins(4, 0), *(ends(4 + n, n) for n in range(1, 9))], 0),
    ],
)
def test_what_is_missing_is_known_from_what_was_told(events: list[Event], expected: int) -> None:
    assert missing(second(), *events) == expected
    one_by_one = view(second())
    for event in events:
        one_by_one = after(one_by_one, event)
    assert one_by_one.jobs[A].epochs_missing == expected


def test_a_library_that_tells_nothing_leaves_everything_open() -> None:
    before = second(trained=None)
    assert missing(before, begins(4, None), ends(5, None)) is None


def test_what_was_missing_stays_missing_in_a_run_that_does_not_know() -> None:
    before = second(trained=Trained(1, 1, 0, 0, 4))
    assert missing(before, begins(4, None), ends(5, None)) == 3


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12), st.integers(0, 4))
def test_whatever_arrives_in_whatever_order_no_missing_epoch_is_forgotten(
    words: list[tuple[int, bool]], lacks: int
) -> None:
    """The run trains epochs 5 to 8 and lacks some of the first four; reports come in any order."""
    epochs = [(min(8, 5 + n) if ended else min(7, 4 + n), ended) for n, ended in words]
    events = [(ends if ended else begins)(epoch, epoch - lacks) for epoch, ended in epochs]
    assert missing(second(), *events) == (lacks if events else 0)


@pytest.mark.parametrize(
    ("event", "kind", "data"),
    [
        (begins(4, 0), "checkpoint_missing", {"epochs_loaded": 0, "first_epoch": 5}),
        (begins(0, 0), "checkpoint_missing", {"epochs_loaded": 0, "first_epoch": 1}),
        (begins(4, 3), "checkpoint_old", {"epochs_loaded": 3, "first_epoch": 5}),
        (begins(3, 3), "checkpoint_old", {"epochs_loaded": 3, "first_epoch": 4}),
        (ends(5, 1), "checkpoint_missing", {"epochs_loaded": 0, "first_epoch": 5}),
        # Its first question, and the report of its first epoch, are lost.
        (begins(5, 1), "checkpoint_missing", {"epochs_loaded": 0, "first_epoch": 5}),
        (ends(6, 4), "checkpoint_old", {"epochs_loaded": 2, "first_epoch": 5}),
    ],
)
def test_a_run_that_lacks_epochs_is_a_fact_at_once(
    event: Event, kind: str, data: dict[str, object]
) -> None:
    assert (kind, {"epochs_done": 4, **data}) in list(facts(second(), event))
    told = after(view(second()), event).jobs[A]
    assert kind not in dict(facts(told, begins(5, 1), ends(6, 2))), "only once"


def test_a_run_that_has_all_epochs_is_no_fact() -> None:
    kinds = dict(facts(second(), begins(4, 4), ends(5, 5)))
    assert not {"checkpoint_missing", "checkpoint_old", "epochs_repeated"} & kinds.keys()


def test_a_script_that_sets_its_epoch_back_is_a_fact() -> None:
    assert dict(facts(second(), begins(1, None)))["epochs_repeated"] == {
        "first_epoch": 2,
        "epochs_done": 4,
    }
    again = after(view(second()), begins(1, None)).jobs[A]
    assert "epochs_repeated" not in dict(facts(again, begins(2, None)))


def test_a_job_that_lacks_epochs_does_not_end_without_a_word() -> None:
    before = after(view(second()), begins(4, 0), *(ends(n, n - 4) for n in range(5, 9))).jobs[A]
    over = observation(pod(before, PodState.SUCCEEDED))
    ended = after(view(before), over).jobs[A]
    assert (ended.outcome, ended.epochs_done) == (Outcome.SUCCEEDED, 8)
    assert ended.reason == "finished, but its weights have only 4 of 8 epochs"
    assert dict(facts(before, over))["epochs_missing"] == {"epochs_done": 8, "epochs_trained": 4}


def test_a_job_that_has_all_epochs_ends_as_ever() -> None:
    before = after(view(second()), begins(4, 4), *(ends(n, n) for n in range(5, 9))).jobs[A]
    over = observation(pod(before, PodState.SUCCEEDED))
    assert after(view(before), over).jobs[A].reason == "finished"
    assert "epochs_missing" not in dict(facts(before, over))


def test_a_job_without_the_word_of_a_library_ends_as_ever() -> None:
    before: View = view(second(done=8, trained=None))
    ended = after(before, observation(pod(before.jobs[A], PodState.SUCCEEDED))).jobs[A]
    assert (ended.reason, ended.epochs_missing) == ("finished", None)


@pytest.mark.parametrize(
    ("events", "known"),
    [
        ([], False),  # not a word of its second run
        ([begins(5, None)], False),  # only of another rank
        ([ends(5, None)], True),  # it does not know; nothing was missing before
        ([begins(4, 4)], True),
        ([begins(4, 4), ends(5, 5, attempt=1)], False),  # has it trained epoch 5 again?
        ([begins(4, 4), ends(5, 5, attempt=1), ends(5, 5)], True),
        ([begins(4, None), ends(5, None, attempt=1), ends(5, None)], True),
    ],
)
def test_nothing_is_claimed_of_weights_that_the_last_run_did_not_tell_of(
    events: list[Event], known: bool
) -> None:
    before = after(view(second()), *events).jobs[A]
    over = observation(pod(before, PodState.SUCCEEDED))
    ended = after(view(before), over).jobs[A]
    said = f"finished by itself after {ended.epochs_done} of 8 epochs"
    unknown = f", but it is not known how many of {ended.epochs_done} epochs are in its weights"
    assert ended.reason == (said if known else said + unknown)
    assert ended.epochs_missing == (0 if known else None)
    told = dict(facts(before, over)).get("epochs_unknown")
    assert told == (None if known else {"epochs_done": ended.epochs_done})


def test_that_it_is_not_known_is_a_fact_also_if_all_comes_in_one_step() -> None:
    """The first word of its library, of an older attempt's epoch, comes with its end."""
    before = second(trained=None)
    over = observation(pod(before, PodState.SUCCEEDED))
    words: list[Event] = [begins(4, 4), ends(5, 5, attempt=1), over]
    assert dict(facts(before, *words))["epochs_unknown"] == {"epochs_done": 5}


def test_a_report_after_the_end_of_the_last_run_tells_of_its_weights() -> None:
    """All of its epochs are done, and nothing of it runs: its last report came late."""
    waits = replace(second(done=7), run=None, attempts=2)
    assert after(view(waits), ends(8, 8)).jobs[A].reason == "finished"
    late = after(view(waits), ends(8, 8, attempt=1)).jobs[A]
    assert late.reason == ("finished, but it is not known how many of 8 epochs are in its weights")


def test_weights_with_more_epochs_than_are_wanted_now_lack_none() -> None:
    told = after(view(second()), begins(4, 3), ends(5, 4), Updated(A, max_epochs=5)).jobs[A]
    assert (told.epochs_done, told.epochs_missing) == (5, 1)
    more = after(view(told), ends(6, 5)).jobs[A]
    assert (more.epochs_done, more.epochs_missing) == (5, 0)
