from __future__ import annotations

from collections.abc import Iterable

from scheduler.presentation.workflow_tree import as_trees
from scheduler.v1 import scheduler_pb2 as pb


def job(step: str, after: Iterable[str] = (), id: str = "", uid: str = "u") -> pb.Job:
    made = pb.Job(id=id or f"{uid}-{step}", state="QUEUED")
    made.spec.name, made.spec.user = step, "ada"
    for key, value in {"workflow": "w", "step": step, "workflow-id": uid}.items():
        made.spec.labels.add(key=key, value=value)
    for each in after:
        made.spec.after.add(job=f"{uid}-{each}", when="succeeded")
    return made


def drawn(*jobs: pb.Job) -> list[str]:
    return [each.spec.name for each in as_trees(jobs[::-1])]


def test_names_draw_the_tree_of_each_workflow() -> None:
    first = [job("a"), job("b", "a"), job("c", "b"), job("d", "a"), job("e", "cd")]
    assert drawn(*first, job("x", uid="v"), job("y", "x", uid="v")) == [
        *("x", "`- y"),
        *("a", "|- b", "|  `- c", "|     `- e", "`- d"),
    ]


def test_of_a_step_that_was_retried_the_newest_job_is_in_its_place() -> None:
    found = as_trees([job("a", id="new"), job("b", "a"), job("a")])
    assert [(each.id, each.spec.name) for each in found] == [("new", "a"), ("u-b", "`- b")]


def test_a_step_whose_first_jobs_are_not_listed_is_a_root() -> None:
    assert drawn(job("b", "a"), job("c", "b")) == ["b", "`- c"]


def test_a_long_chain_is_no_recursion() -> None:
    jobs = [job(f"{n}", [f"{n - 1}"] if n else []) for n in range(3000)]
    assert len(drawn(*jobs)) == 3000


def test_what_was_submitted_by_hand_with_such_a_label_is_shown() -> None:
    made = pb.Job(id="j", state="QUEUED")
    made.spec.name = "alone"
    assert drawn(made) == ["alone"]
