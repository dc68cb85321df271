"""What a workflow is, computed from its jobs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from scheduler.gateway.argo.workflow_view import Workflow, grouped
from scheduler.v1 import scheduler_pb2 as pb


def job(
    step: str,
    state: str = "QUEUED",
    after: Iterable[str] = (),
    *,
    id: str = "",
    user: str = "ada",
    uid: str = "job-a",
    at: float = 0.0,
) -> pb.Job:
    labels = {"workflow": "w", "step": step, "workflow-id": uid}
    made = pb.Job(id=id or f"job-{step}", state=state, submitted_at=at, max_epochs=1)
    made.spec.user = user
    made.spec.labels.extend(pb.KeyValue(key=key, value=value) for key, value in labels.items())
    made.spec.after.extend(pb.After(job=f"job-{each}") for each in after)
    if state in ("FINISHED", "FAILED", "CANCELED"):
        made.started_at, made.ended_at = at + 1, at + 2
    return made


def workflow(*jobs: pb.Job) -> Workflow:
    (found,) = grouped(reversed(jobs))
    return found


@pytest.mark.parametrize(
    ("jobs", "phase"),
    [
        ((job("a"),), "Running"),
        ((job("a", "FINISHED"), job("b", "RUNNING", "a")), "Running"),
        ((job("a", "FINISHED"), job("b", "FINISHED", "a")), "Succeeded"),
        ((job("a", "FAILED"), job("b", "SKIPPED", "a")), "Failed"),
        ((job("a", "CANCELED"),), "Failed"),
        # As in Argo, a failure that something was made of is none of the workflow.
        ((job("a", "FAILED"), job("b", "FINISHED", "a")), "Succeeded"),
        ((job("a", "FAILED"), job("b", "FINISHED", "a"), job("c", "SKIPPED", "a")), "Failed"),
        ((job("a", "FINISHED"), job("b", "SKIPPED", "a")), "Succeeded"),
        ((job("a", "FAILED"), job("b", "SKIPPED", "a"), job("c", "FINISHED", "b")), "Succeeded"),
        ((job("a", "FAILED"), job("onExit", "FINISHED", "a")), "Failed"),
        ((job("a", "FINISHED"), job("onExit", "FAILED", "a")), "Failed"),
        ((job("a", "FINISHED"), job("onExit", "FINISHED", "a")), "Succeeded"),
    ],
)
def test_the_last_steps_of_each_branch_say_how_it_ended(
    jobs: tuple[pb.Job, ...], phase: str
) -> None:
    assert workflow(*jobs).phase == phase


def test_of_a_step_that_was_retried_the_newest_job_counts() -> None:
    found = workflow(
        job("a", "FAILED"), job("b", "SKIPPED", "a"), job("a", "FINISHED", id="job-a2", at=9)
    )
    assert found.steps["a"].id == "job-a2"
    assert found.before(found.steps["b"]) == ["a"]
    assert found.phase == "Succeeded"


def test_what_waits_for_others_is_no_node_yet() -> None:
    found = workflow(job("a", "RUNNING"), job("b", "QUEUED", "a"), job("c.d", "FINISHED"))
    nodes = {node["displayName"]: node for node in found.nodes()}
    assert set(nodes) == {"w", "a", "c", "d"}
    assert nodes["d"]["boundaryID"] == nodes["c"]["id"] == "w-c"
    assert nodes["c"]["boundaryID"] == nodes["a"]["boundaryID"] == "w"
    assert (nodes["c"]["type"], nodes["c"]["phase"]) == ("DAG", "Succeeded")
    assert nodes["w"]["children"] == ["w-a", "w-c.d"]


def test_children_are_what_comes_next() -> None:
    found = workflow(job("a", "FINISHED"), job("b", "FINISHED", "a"), job("c", "FAILED", "ab"))
    children = {node["id"]: node.get("children") for node in found.nodes()}
    assert children == {"w": ["w-a"], "w-a": ["w-b", "w-c"], "w-b": ["w-c"], "w-c": None}


def test_what_hangs_on_steps_is_found_to_the_end() -> None:
    found = workflow(job("a"), job("b", after="a"), job("c", after="b"), job("d"))
    assert found.behind(["a"]) == {"b", "c"}
    assert found.behind(["d"]) == set()


def test_a_workflow_is_of_the_user_of_its_first_job() -> None:
    own, foreign = job("a"), job("b", id="x", user="eve")
    (found,) = grouped([foreign, own])
    assert (found.user, set(found.steps)) == ("ada", {"a"})


def test_jobs_whose_first_one_is_gone_are_still_a_workflow() -> None:
    found = workflow(job("b", "FINISHED", uid="gone"))
    assert (found.id, found.phase, found.record()["spec"]) == ("gone", "Succeeded", {})


def test_a_chain_of_10_000_steps_has_a_phase() -> None:
    jobs = [job("0", "FAILED")]
    jobs += [job(str(n), "SKIPPED", [str(n - 1)]) for n in range(1, 10_000)]
    assert workflow(*jobs).phase == "Failed"
