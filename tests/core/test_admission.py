"""What is refused at submission, and in which words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core import admission
from scheduler.core.errors import Impossible, Rejected
from scheduler.core.model import Job, JobId, JobSpec, Node, Outcome, Rules
from tests import builders
from tests.strategies import values

GOOD = JobSpec(name="demo", user="ada", script_path="/custom/train.py")
RESERVED = frozenset({"JOB_UUID"})

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "job_name: must not be empty"),
    ({"name": "a\nb"}, r"job_name 'a\nb': must be one line without control characters"),
    ({"name": "a\x1b[31mb"}, r"job_name 'a\x1b[31mb': must be one line without control"),
    ({"name": "a\u202eb"}, r"job_name 'a\u202eb': must be one line without control"),
    ({"name": " a"}, "job_name ' a': must not begin or end with a blank"),
    ({"name": "x" * 254}, f"job_name '{'x' * 60}...': has 254 characters, 253 at most"),
    ({"project": "a\tb"}, r"--project 'a\tb': must be one line"),
    ({"experiment": "x" * 300}, "--experiment 'xxx"),
    ({"image": "img\nnew"}, r"--image_name 'img\nnew': must be one line"),
    ({"image": "img new"}, "--image_name 'img new': must not contain blanks"),
    ({"script_path": "train.py"}, "--script_path 'train.py': must be an absolute path"),
    ({"custom_dir": "here"}, "--custom_dir 'here': must be an absolute path"),
    ({"snapshots_dir": "./s"}, "--snapshots_dir './s': must be an absolute path"),
    ({"batch_size": 0}, "--batch_size 0: must be at least 1"),
    ({"max_epochs": -1}, "--max_epochs -1: must be at least 1"),
    ({"training_set_size": 2**31}, "--training_set_size 2147483648: must be at most 2147483647"),
    ({"retries": -1}, "--retries -1: must be at least 0"),
    ({"priority": 1001}, "--priority 1001: must be at most 1000"),
    ({"priority": -1001}, "--priority -1001: must be at least -1000"),
    ({"script_path": ""}, "nothing to run: give --script_path, or a command after `--`"),
    ({"command": ("",)}, "command: its first word must name a program"),
    ({"args": ("a\0b",)}, r"command 'a\x00b': must not contain a NUL character"),
    ({"args": ("x",) * 1001}, "command: 1001 values given, 1000 at most"),
    ({"args": ("x" * 65_536,)}, "this job has 655"),
    (
        {"labels": tuple((f"k{n}", "v" * 63) for n in range(999))},
        "this job has 66846 bytes of command, --env, --export and other text; 65536 at most",
    ),
    ({"ports": ((0, 80),)}, "--port_mapping 0:80: ports must be between 1 and 65535"),
    ({"ports": ((80, 65536),)}, "--port_mapping 80:65536: ports must be between 1 and 65535"),
    ({"ports": ((8080, 80), (8080, 81))}, "--port_mapping: port 8080 is mapped twice"),
    ({"env": (("2X", "a"),)}, "--env '2X': is not a valid variable name"),
    ({"env": (("", "a"),)}, "--env '': is not a valid variable name"),
    ({"env": (("A", "b\0"),)}, r"--env A 'b\x00': must not contain a NUL character"),
    ({"env": (("JOB_UUID", "x"),)}, "--env JOB_UUID: is set by the scheduler"),
    ({"env": (("A", "1"), ("A", "2"))}, "--env: A is given twice"),
    ({"labels": (("-a", "b"),)}, "--label '-a': a key must have at most 63 letters, digits"),
    ({"labels": (("a", "b c"),)}, "--label a='b c': a value must have at most 63 letters, digits"),
    ({"labels": (("a", "x" * 64),)}, "--label a='xxx"),
    ({"labels": (("a", "1"), ("a", "1"))}, "--label: a is given twice"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED)
def test_what_cannot_be_is_named_as_people_spell_it(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected) as refusal:
        admission.check(replace(GOOD, **fields), RESERVED)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Größe 3 ✓"},
        {"args": ("--epochs", "3", "a b", "line\nbreak", "")},
        {"env": (("PATH", "/bin"), ("_x", ""), ("A", "ü\n"))},
        {"labels": (("team", "vision"), ("example.org/kind", "a.b_c-d"), ("empty", ""))},
        {"ports": ((31346, 6006), (33000, 3000))},
        {"image": "registry:5000/a/b:1.0@sha256:00"},
        {"script_path": "", "command": ("nvidia-smi",)},
    ],
)
def test_what_can_be_is_taken(fields: dict[str, Any]) -> None:
    admission.check(replace(GOOD, **fields), RESERVED)


def test_a_port_belongs_to_one_live_job_and_never_stands_in_its_own_way() -> None:
    wish = replace(GOOD, ports=((31346, 6006),))
    owner = Job.submitted(JobId("a"), wish, 0.0)
    admission.unclaimed(owner.id, wish, [owner])
    admission.unclaimed(JobId("b"), wish, [replace(owner, outcome=Outcome.FAILED)])
    with pytest.raises(Rejected, match=r"31346 in use by .* \(job a of"):
        admission.unclaimed(JobId("b"), wish, [owner])


@given(values(JobSpec))
def test_a_refusal_is_one_short_printable_line_whatever_was_sent(spec: JobSpec) -> None:
    refusal = _refusal(spec)
    if refusal is None:
        assert spec.name.isprintable()
        assert min(spec.max_epochs, spec.batch_size, spec.training_set_size) >= 1
    else:
        assert refusal.isprintable()
        assert len(refusal) < 300


def _refusal(spec: JobSpec) -> str | None:
    try:
        admission.check(spec)
    except Rejected as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(
    ("least", "most", "single", "expected"),
    [
        (None, None, False, (1, 1)),
        (None, None, True, (1, 1)),
        (2, None, False, (2, 2)),
        (None, 4, False, (1, 4)),
        (None, 4, True, (1, 1)),
        (1, 4, True, (1, 1)),
        (2, 4, False, (2, 4)),
        (0, 0, False, (0, 0)),
        (0, None, True, (0, 0)),
        (None, 0, False, (0, 0)),
    ],
)
def test_what_is_not_said_of_gpus_follows_from_what_is(
    least: int | None, most: int | None, single: bool, expected: tuple[int, int]
) -> None:
    assert admission.gpu_range(least, most, single) == expected


@pytest.mark.parametrize(
    ("least", "most", "single", "words"),
    [
        (3, 2, False, "--min_gpus 3: must not be more than --max_gpus 2"),
        (2, 4, True, "--is_single_gpu: contradicts --min_gpus 2"),
        (0, 2, False, "--min_gpus 0: must be at least 1 with --max_gpus 2"),
        (-1, None, False, "--min_gpus -1: must be at least 0"),
        (None, -1, False, "--max_gpus -1: must be at least 0"),
    ],
)
def test_gpus_that_contradict_each_other_are_refused(
    least: int | None, most: int | None, single: bool, words: str
) -> None:
    with pytest.raises(Rejected, match=words):
        admission.gpu_range(least, most, single)


def test_hours_are_more_than_one_and_a_number() -> None:
    assert admission.estimated_hours(None) == 0
    assert admission.estimated_hours(1.5) == 1.5
    for hours, words in [
        (0.5, "--est_nhours 0.5: must be > 1"),
        (1.0, "--est_nhours 1: must be > 1"),
        (-math.inf, "--est_nhours -inf: must be a number of hours"),
        (math.nan, "--est_nhours nan: must be a number of hours"),
        (1e300, "--est_nhours 1e\\+300: must be at most 1000000"),
    ]:
        with pytest.raises(Rejected, match=words):
            admission.estimated_hours(hours)


def test_memory_is_at_least_one_mib() -> None:
    assert admission.estimated_memory(None) == 0
    assert admission.estimated_memory(1) == 1
    with pytest.raises(Rejected, match="--estimated_memory 0: must be at least 1"):
        admission.estimated_memory(0)
    with pytest.raises(Rejected, match="--estimated_memory 2147483647: must be at most 16777216"):
        admission.estimated_memory(2**31 - 1)


TWO_AND_FOUR = (builders.node(2, "a"), builders.node(4, "b", 8192))
MIXED = replace(
    builders.node(3), gpus=(*builders.node(2).gpus, replace(builders.make_gpu(2), type="a100"))
)


@pytest.mark.parametrize(
    ("nodes", "fields", "words"),
    [
        (
            TWO_AND_FOUR,
            {"memory_mib": 20000},
            "no GPU can hold 20,000 MiB; the largest holds 15,872 MiB",
        ),
        (
            TWO_AND_FOUR,
            {"gpus_min": 7},
            "all nodes together do not have 7 GPUs; they have at most 6",
        ),
        (
            TWO_AND_FOUR,
            {"gpus_min": 3, "memory_mib": 9000},
            "all nodes together do not have 3 GPUs that hold 9,000 MiB each; they have at most 2",
        ),
        ((builders.node(4),), {"gpus_min": 6}, "no node has 6 GPUs; the largest has 4"),
        (
            (replace(builders.node(), gpus=(builders.make_gpu(0), builders.make_gpu(1, 8192))),),
            {"gpus_min": 2, "memory_mib": 9000},
            "no node has 2 GPUs that hold 9,000 MiB each; the best has 1",
        ),
        ((MIXED,), {"gpus_min": 3}, "no node has 3 GPUs of one type; the largest has 2"),
        (
            (MIXED, replace(MIXED, name="n2")),
            {"gpus_min": 5},
            "all nodes together do not have 5 GPUs of one type; they have at most 4",
        ),
    ],
)
def test_what_all_nodes_together_could_never_run_is_refused(
    nodes: Sequence[Node], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(Impossible) as refusal:
        admission.check_possible(replace(GOOD, **fields), nodes, Rules())
    assert str(refusal.value) == words


def test_a_gang_may_be_on_several_nodes() -> None:
    admission.check_possible(replace(GOOD, gpus_min=6, gpus_max=6), TWO_AND_FOUR, Rules())
    admission.check_possible(replace(GOOD, gpus_min=4), (MIXED, replace(MIXED, name="n2")), Rules())


def test_the_margin_counts() -> None:
    spec = replace(GOOD, memory_mib=15872)
    admission.check_possible(spec, TWO_AND_FOUR, Rules())
    with pytest.raises(Impossible, match="no GPU can hold 15,972 MiB"):
        admission.check_possible(spec, TWO_AND_FOUR, Rules(memory_margin_mib=100))


def test_a_machine_without_gpus_takes_jobs_that_need_none() -> None:
    bare = (builders.node(0),)
    admission.check_possible(replace(GOOD, gpus_min=0, gpus_max=0), bare, Rules())
    with pytest.raises(Impossible, match="no node has a GPU"):
        admission.check_possible(GOOD, bare, Rules())


def test_before_anything_is_known_everything_is_possible() -> None:
    admission.check_possible(replace(GOOD, gpus_min=64, memory_mib=10**6), (), Rules())


def test_letters_beyond_ascii_are_shown_as_they_are() -> None:
    assert admission.quote("gr\u00fcn \u597d") == "'gr\u00fcn \u597d'"
    assert admission.quote("a\u202eb") == r"'a\u202eb'"


@given(st.text())
def test_what_is_shown_is_printable_quoted_and_short(value: str) -> None:
    assert admission.quote(value).isprintable()
    assert admission.quote(value)[0] in "'\""
    assert len(admission.quote(value)) < 700
