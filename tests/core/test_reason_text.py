"""Reasons as users read them, and as rows keep them."""

from __future__ import annotations

import pytest

from scheduler.core.model import Reason, Waiting, When, WholeGpus
from scheduler.core.reason_text import (
    exit_code,
    first_named,
    is_preemption,
    line,
    listed,
    stop_reason,
    text,
)

GPUS, MEMORY, TURN, IMAGE = Waiting.GPUS, Waiting.MEMORY, Waiting.TURN, Waiting.IMAGE
PARALLEL = Waiting.PARALLEL
EXCLUSIVE, UNKNOWN, POLICY = WholeGpus.EXCLUSIVE, WholeGpus.UNKNOWN, WholeGpus.POLICY
T4 = (("t4", 2),)
MIXED = (("a100", 1), ("t4", 2))
MANY = ("a", "b", "c", "d")

WAITING = [
    (Reason(Waiting.HELD), "until it is released"),
    (
        Reason(Waiting.AFTER, jobs=("train-fine",), cause="RUNNING, 3/10, about 12 min"),
        "waits for train-fine (RUNNING, 3/10, about 12 min)",
    ),
    (Reason(Waiting.AFTER, jobs=("a", "b"), when=When.FAILED), "waits for a and b to fail"),
    (Reason(Waiting.AFTER, jobs=MANY, when=When.FINISHED), "waits for a, b and 2 others to end"),
    (
        Reason(Waiting.BACKOFF, seconds=60, cause="exit code 1"),
        "tries again in 60 s, after: exit code 1",
    ),
    (Reason(Waiting.STOPPING), "waits for the pods of its last run to be gone"),
    (
        Reason(Waiting.STOPPING, asked=("a",)),
        "waits for a to stop at the end of an epoch",
    ),
    (
        Reason(Waiting.STOPPING, asked=MANY, gone=("e",), ends=("f", "g")),
        "waits for a, b and 2 others to stop at the end of an epoch and for e to be gone"
        " and for f and g to end",
    ),
    (Reason(Waiting.NODES), "no node is ready"),
    (Reason(IMAGE, image="lab/x:1"), "no ready node has lab/x:1, and it may not be pulled"),
    (Reason(IMAGE), "no ready node has the default image, and it may not be pulled"),
    (
        Reason(IMAGE, gpus=1, image="lab/x:1"),
        "no node with GPUs has lab/x:1, and it may not be pulled",
    ),
    (
        Reason(IMAGE, gpus=1, image="lab/x:1", image_nodes=("n1",)),
        "only n1 has lab/x:1, and no GPU there can be used",
    ),
    (Reason(GPUS, there=()), "there is no GPU"),
    (
        Reason(GPUS, gpus=1, memory_mib=99_999, there=()),
        "needs a GPU with 99,999 MiB; there is none",
    ),
    (Reason(GPUS, gpus=2, there=(("t4", 1),)), "needs 2 GPUs; there is 1"),
    (Reason(GPUS, gpus=8, whole=POLICY, there=(("", 4),)), "needs 8 GPUs; there are 4"),
    (
        Reason(GPUS, gpus=3, whole=EXCLUSIVE, there=MIXED),
        "needs 3 whole GPUs because it shares with no other job; there are 1 a100, 2 t4",
    ),
    (
        Reason(GPUS, gpus=3, memory_mib=12_000, nodes=2, free=T4),
        "needs 3 empty GPUs with 12,000 MiB on 2 or more nodes; empty now: 2",
    ),
    (
        Reason(GPUS, gpus=2, memory_mib=5000, nodes=1, free=(("", 1),)),
        "needs 2 empty GPUs with 5,000 MiB on one node; empty now: 1",
    ),
    (
        Reason(GPUS, gpus=1, memory_mib=500, free=()),
        "needs an empty GPU with 500 MiB; empty now: 0",
    ),
    (
        Reason(GPUS, gpus=1, whole=UNKNOWN, free=(("", 0),)),
        "needs a whole GPU because its memory use is not known yet (--estimated_memory);"
        " no GPU is empty",
    ),
    (
        Reason(GPUS, gpus=1, whole=EXCLUSIVE, free=()),
        "needs a whole GPU because it shares with no other job; no GPU large enough is empty",
    ),
    (
        Reason(GPUS, gpus=4, whole=EXCLUSIVE, nodes=2, free=(("", 3),)),
        "needs 4 whole GPUs on 2 or more nodes because it shares with no other job; empty now: 3",
    ),
    (
        Reason(GPUS, gpus=2, whole=POLICY, free=(("", 1),)),
        "needs 2 empty GPUs; empty now: 1",
    ),
    (
        Reason(GPUS, gpus=4, whole=POLICY, most=True, memory_mib=9000, nodes=2, free=(("", 3),)),
        "needs 4 empty GPUs with 9,000 MiB on 2 or more nodes, as many as it can use; empty now: 3",
    ),
    (
        Reason(GPUS, gpus=2, free=T4[:0], image="lab/x:1", image_nodes=("n1", "n2")),
        "needs 2 empty GPUs; empty now: 0; only n1 and n2 have lab/x:1",
    ),
    (
        Reason(MEMORY, memory_mib=4000, free_mib=2872, gpu=0),
        "needs 4,000 MiB; gpu0 has the most free: 2,872 MiB",
    ),
    (
        Reason(MEMORY, memory_mib=9, free_mib=7, gpu=1, node="n2"),
        "needs 9 MiB; n2/gpu1 has the most free: 7 MiB",
    ),
    (
        Reason(MEMORY, memory_mib=9, gpu=0, image_nodes=("n1", "n2", "n3"), image_nodes_more=4),
        "needs 9 MiB; gpu0 has the most free: 0 MiB; only n1, n2 and 5 others have the"
        " default image",
    ),
    (
        Reason(MEMORY, jobs=("a",)),
        "will run beside a, which leaves too little memory so far",
    ),
    (
        Reason(MEMORY, jobs=("a", "b")),
        "will run beside a and b, which leave too little memory so far",
    ),
    (Reason(PARALLEL, parallel=2), "at most 2 at once"),
    (
        Reason(PARALLEL, parallel=2, jobs=("a", "b")),
        "at most 2 at once; a and b come first",
    ),
    (Reason(TURN), "other jobs come first"),
    (Reason(TURN, jobs=("a", "b")), "what is free is reserved for a and b"),
    (
        Reason(TURN, jobs=("a", "b", "c"), jobs_more=3),
        "what is free is reserved for a, b and 4 others",
    ),
    (Reason(Waiting.PLANNING), "will be planned in a moment"),
    (
        Reason(Waiting.PLANNING, observed=False),
        "waits for the first observation of the cluster",
    ),
]

RUNNING = [
    (Reason(Waiting.STARTING, cause="its pod cannot be scheduled"), "its pod cannot be scheduled"),
    (Reason(Waiting.STOPPING, cause="preempted for b"), "preempted for b"),
    (Reason(Waiting.SILENT), "no report for more than two heartbeats"),
    (
        Reason(Waiting.SLOWED, speed=0.754, measured=True, jobs=("b",)),
        "0.75 of its speed alone, measured beside b",
    ),
    (
        Reason(Waiting.SLOWED, speed=0.5, jobs=("b", "c")),
        "0.50 of its speed alone, expected beside b and c",
    ),
    (Reason(Waiting.SLOWED, speed=0.6, gpus=2), "0.60 of its speed on 2 GPUs"),
    (
        Reason(Waiting.SLOWED, speed=0.6, gpus=2, jobs=("b",)),
        "0.60 of its speed on 2 GPUs, where b is",
    ),
    (
        Reason(Waiting.SLOWED, speed=0.6, gpus=4, jobs=("b", "c")),
        "0.60 of its speed on 4 GPUs, where b and c are",
    ),
]

# These texts are in rows, so they never change.
STOPPED = [
    (Reason(Waiting.HELD), "held by request"),
    (Reason(Waiting.STOPPED), "stopped by the plan"),
    (Reason(Waiting.PREEMPTED), "preempted for others"),
    (Reason(Waiting.PREEMPTED, slows=True), "preempted for others"),
    (Reason(Waiting.PREEMPTED, jobs=("b", "c")), "preempted for b and c"),
    (Reason(Waiting.PREEMPTED, jobs=("b",), slows=True), "preempted for b, which it may slow"),
    (
        Reason(Waiting.PREEMPTED, jobs=("b",), gpu=1, memory_mib=9000, free_mib=7000),
        "preempted no room beside b on gpu1: needs 9000, free 7000",
    ),
    (Reason(Waiting.MOVED), "moved by the plan"),
    (Reason(Waiting.MOVED, before=T4, after=(("a100", 1),)), "moved from 2 t4 to 1 a100"),
    (
        Reason(Waiting.MOVED, before=(("", 1),), after=(("", 2),)),
        "moved from 1 GPU to 2",
    ),
    (
        Reason(Waiting.MOVED, before=(("", 2),), after=(("", 1),), jobs=("b",)),
        "moved from 2 GPUs to 1, for b",
    ),
    (
        Reason(Waiting.MOVED, before=T4, after=T4, nodes_before=2, nodes=1, jobs=("b",)),
        "moved from 2 nodes to 1",
    ),
    (Reason(Waiting.MOVED, before=T4, after=T4, jobs=("b",)), "moved for b"),
    (Reason(Waiting.MOVED, before=T4, after=T4), "moved to other GPUs of the same type"),
    (
        Reason(Waiting.MADE_ROOM, gpu=0, grown=True),
        "made room on gpu0, where it was measured to need more",
    ),
    (
        Reason(Waiting.MADE_ROOM, gpu=3),
        "made room on gpu3, where others were measured to need more",
    ),
]


@pytest.mark.parametrize(("reason", "words"), WAITING + RUNNING)
def test_a_reason_reads_as_a_sentence(reason: Reason, words: str) -> None:
    assert text(reason) == words
    assert line(reason) == f"{reason.kind} ({words})"


@pytest.mark.parametrize(("reason", "words"), STOPPED)
def test_what_is_written_into_rows_stays_as_it_is(reason: Reason, words: str) -> None:
    assert stop_reason(reason) == words


def test_every_kind_has_its_text() -> None:
    assert {reason.kind for reason, _ in WAITING + RUNNING + STOPPED} == set(Waiting)


def test_a_preemption_is_known_by_the_text_in_the_row() -> None:
    preemptions = {reason.kind for reason, words in STOPPED if is_preemption(words)}
    assert preemptions == {Waiting.PREEMPTED, Waiting.MADE_ROOM}
    assert not is_preemption("exit code 1")


def test_a_line_without_a_text_is_the_kind() -> None:
    assert line(Reason(Waiting.STARTING)) == "starting"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d"], "a, b and 2 others"),
    ],
)
def test_many_names_are_counted(names: list[str], words: str) -> None:
    assert listed(names) == words
    assert listed(*first_named(names)) == words


def test_a_name_is_counted_once() -> None:
    assert first_named(["a", "b", "a", "c", "d", "e"]) == (("a", "b", "c"), 2)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("exit code 7", 7),
        ("exit code 1, 3 times", 1),
        ("killed by SIGKILL", 137),
        ("killed by SIGTERM, 2 times", 143),
        ("killed by signal 42", 170),
        ("killed by SIGNOSUCH", None),
        ("killed: it used more main memory than its pod may use", None),
        ("its pod was lost", None),
        ("exit code 7 of something else", None),
    ],
)
def test_the_exit_code_of_a_failed_program_is_known(failure: str, code: int | None) -> None:
    assert exit_code(failure) == code
