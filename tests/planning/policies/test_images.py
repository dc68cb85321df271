"""Images that only some nodes have: no policy plans a job onto a node without its image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.adopt import adopt
from scheduler.core.images import has
from scheduler.core.model import Node, Rules, View
from scheduler.core.reason_text import line
from scheduler.planning.policies import POLICIES
from tests.builders import NOW, ScriptedCluster, node, share, with_run
from tests.builders import job as made_job
from tests.builders import view as made_view
from tests.views import RULES as ANY_RULES
from tests.views import views

RULES = Rules(plan_every_seconds=0.0)
X = "docker.io/lab/x:1"
OTHER = "docker.io/lab/other:1"
HERE: dict[str, Any] = {"image": "lab/x:1", "memory_mib": 4000}
ANY: dict[str, Any] = {"image": "lab/other:1", "memory_mib": 4000, "shareable": False}


def having(there: Node, *images: str) -> Node:
    return replace(there, images=frozenset(images))


def town(name: str, *nodes: Node) -> ScriptedCluster:
    made = ScriptedCluster(*nodes, rules=RULES, policy=POLICIES[name](RULES))
    made.look()
    return made


def two(gpus: int) -> tuple[Node, Node]:
    """Two nodes; only the second one has the image."""
    return having(node(gpus, "n1"), OTHER), having(node(gpus, "n2"), OTHER, X)


def where(made: ScriptedCluster, name: str) -> set[str]:
    return {share.node for share in made.run(name).shares}


@settings(max_examples=60)
@given(
    view=views(),
    name=st.sampled_from(sorted(POLICIES)),
    there=st.lists(st.sets(st.sampled_from([X, OTHER])), min_size=9, max_size=9),
    wanted=st.lists(st.sampled_from(["lab/x:1", "lab/other:1"]), min_size=30, max_size=30),
)
def test_no_job_starts_where_its_image_is_missing(
    view: View, name: str, there: list[set[str]], wanted: list[str]
) -> None:
    nodes = tuple(
        having(each, *images) for each, images in zip(view.nodes, there * 9, strict=False)
    )
    jobs = {
        job.id: replace(job, spec=replace(job.spec, image=image))
        for job, image in zip(view.jobs.values(), wanted * 9, strict=False)
    }
    view = replace(view, nodes=nodes, jobs=jobs)
    plan = POLICIES[name](ANY_RULES)(view, NOW)
    after = adopt(view, plan, NOW, ANY_RULES).view
    on = {each.name: each for each in nodes}
    for before in jobs.values():
        wish = plan.placements.get(before.id, ())
        if before.run is None or {s.key for s in wish} != {s.key for s in before.run.shares}:
            assert all(has(on[share.node].images, before.spec.image) for share in wish)
        if before.waiting and name != "fifo_sharing":
            assert (before.id in plan.placements) == (after.jobs[before.id].run is not None)
            assert (before.id in plan.placements) != (before.id in plan.why)


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_is_put_where_its_image_is(name: str) -> None:
    made = town(name, *two(2))
    made.submit("a", **HERE)
    made.submit("gang", **HERE, gpus=1)
    assert where(made, "a") == where(made, "gang") == {"n2"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_waits_for_an_image_that_no_node_has_and_no_job_waits_for_it(name: str) -> None:
    made = town(name, *two(1))
    made.submit("a", image="lab/y:1", memory_mib=4000)
    assert made.why("a") == "image (no node with GPUs has lab/y:1, and it may not be pulled)"
    made.submit("b", **ANY)
    made.submit("c", **ANY)
    assert made.running() == {"b", "c"}
    made.nodes = (having(node(1, "n1"), OTHER, "docker.io/lab/y:1"), made.nodes[1])
    made.look()
    made.exit("b")
    made.exit("c")
    assert where(made, "a") == {"n1"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_waits_for_the_runs_where_its_image_is_and_others_go_elsewhere(name: str) -> None:
    made = town(name, *two(1))
    made.submit("a", **{**ANY, "image": "lab/x:1"})  # so that it is on n2
    made.submit("b", **HERE, shareable=False)
    why = made.why("b")
    assert "empty now: 0" in why or "is empty" in why
    assert why.endswith("; only n2 has lab/x:1)")
    if name != "fifo":  # where no job overtakes
        made.submit("c", **ANY)
        assert where(made, "c") == {"n1"}
    made.exit("a")
    assert where(made, "b") == {"n2"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_that_can_be_anywhere_leaves_the_gpus_to_those_that_cannot(name: str) -> None:
    n1, n2 = two(1)
    made = town(name, replace(n1, ready=False), replace(n2, ready=False))
    made.submit("a", **ANY)
    made.submit("b", **HERE, shareable=False)
    made.nodes = (n1, n2)
    made.look()
    if name != "fifo_sharing":  # which gives jobs what they need one after the other
        assert made.running() == {"a", "b"}
        assert where(made, "b") == {"n2"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_gang_has_gpus_only_where_its_image_is(name: str) -> None:
    n1, n2 = two(2)
    made = town(name, n1, n2)
    made.submit("large", **{**HERE, "shareable": False}, gpus=3)
    assert made.why("large").endswith("; only n2 has lab/x:1)")
    made.submit("gang", **{**HERE, "shareable": False}, gpus=2)
    assert where(made, "gang") == {"n2"}
    made.submit("b", **ANY, gpus=2)
    assert where(made, "b") == {"n1"}
    made.nodes = (having(n1, OTHER, X), n2)
    made.look()
    made.exit("gang")
    made.exit("b")
    assert where(made, "large") == {"n1", "n2"}


@pytest.mark.parametrize("name", ["gpu_sharing", "fifo_sharing"])
def test_two_are_not_put_on_one_gpu_that_lacks_the_image_of_one(name: str) -> None:
    made = town(name, *two(1))
    made.submit("big", image="lab/x:1", memory_mib=14_000)
    made.submit("b", **{**ANY, "shareable": True})
    made.submit("c", **HERE)
    assert where(made, "big") == {"n2"}
    assert where(made, "b") == {"n1"}
    assert made.why("c").endswith("; only n2 has lab/x:1)")
    made.exit("big")
    assert where(made, "c") == {"n2"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_stays_as_it_is_when_its_image_is_gone(name: str) -> None:
    made = town(name, *two(1))
    made.submit("a", **HERE)
    had = made.run("a")
    made.nodes = tuple(having(each, OTHER) for each in made.nodes)
    made.look()
    made.submit("b", **ANY)
    made.end_epoch("a", 4000)
    run = made.run("a")
    assert (run.attempt, run.shares, run.stop_at_epoch) == (1, had.shares, None)


def test_a_gang_moves_jobs_away_that_can_be_elsewhere() -> None:
    n1, n2 = two(2)
    a = with_run(made_job("a", 4000, shareable=False, epochs_done=3), share(15872, 0, "n2"))
    a = replace(a, spec=replace(a.spec, image="lab/other:1", max_epochs=50), max_epochs=50)
    assert a.run
    a = replace(a, run=replace(a.run, epochs_before=1, max_epochs=50, epoch_started=3))
    gang = made_job("gang", 4000, gpus=2, shareable=False, priority=1)
    gang = replace(gang, spec=replace(gang.spec, image="lab/x:1"))
    now = made_view(a, gang, nodes=[n1, n2])
    plan = POLICIES["gpu_sharing"](RULES)(now, NOW)
    assert {share.node for share in plan.placements["a"]} == {"n1"}  # type: ignore[index]  # a name
    assert line(plan.why["gang"]).startswith("stopping (waits for a")  # type: ignore[index]


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_without_gpus_waits_until_some_node_has_its_image(name: str) -> None:
    n1, n2 = two(1)
    made = town(name, n1, replace(n2, ready=False))
    made.submit("a", image="lab/x:1", gpus=0)
    assert made.why("a") == "image (no ready node has lab/x:1, and it may not be pulled)"
    made.nodes = (n1, n2)
    made.look()
    assert made.running() == {"a"}
