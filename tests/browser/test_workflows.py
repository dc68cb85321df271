"""Workflows on the pages: the graph of one, and the list of all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.access.identity import user_token
from scheduler.v1 import scheduler_pb2 as pb
from tests.browser.conftest import Site, epoch
from tests.browser.visitor import NARROW, WIDE
from tests.serving import SECRET, by

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAY = {"container": {"image": "x", "command": ["true"]}}


def submit(site: Site, tasks: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, str]:
    """The ids of the jobs, by step."""
    named = [{"name": task, "template": "say", **more} for task, more in tasks.items()]
    templates = [{"name": "main", "dag": {"tasks": named}}, {"name": "say", **SAY}]
    workflow = {"metadata": {"name": name}, "spec": {"entrypoint": "main", "templates": templates}}
    with site.gateway.client(user_token(SECRET, "ada")) as client:
        answer = client.post("/api/v1/workflows/default", json={"workflow": workflow})
    assert answer.status_code == 200, answer.text
    label = [pb.KeyValue(key="workflow", value=name)]
    request = pb.ListJobsRequest(labels=label, limit=1000, all_users=True)
    listed = site.daemon.people.ListJobs(request, metadata=by("ada"))
    return {job.spec.name: job.id for job in listed.jobs}


CRISP = {
    "pretrain": {},
    "train-fine": {"depends": "pretrain"},
    "prune": {"depends": "train-fine"},
    "test": {"depends": "prune"},
    "baseline": {"depends": "pretrain"},
    "compare": {"depends": "test && baseline"},
    "tidy": {"depends": "train-fine.Failed"},
    "report": {"depends": "compare.Succeeded || compare.Failed"},
}


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)])
def test_a_graph_shows_each_step_below_those_that_it_waits_for(
    site: Site, size: tuple[int, int], dark: bool
) -> None:
    ids = submit(site, CRISP, f"crisp-{size[0]}")
    person = site.visit(size=size, dark=dark)
    person.go(f"/jobs/{ids['prune']}")
    person.page.get_by_role("link", name=f"workflow crisp-{size[0]}").click()
    person.sees_title(f"crisp-{size[0]}")
    place = {
        step: person.page.locator("a.step").filter(has_text=step).bounding_box() for step in CRISP
    }
    for step, task in CRISP.items():
        for other in CRISP:
            if other in str(task.get("depends", "")).replace(".", " ").split():
                low, high = place[step], place[other]
                assert low
                assert high
                assert low["y"] > high["y"] + high["height"]
    boxes = [box for box in place.values() if box]
    for box in boxes:
        same = [b for b in boxes if b is not box and abs(b["y"] - box["y"]) < 1]
        assert all(abs(b["x"] - box["x"]) >= box["width"] for b in same)
    assert person.page.locator("path.edge.failed").count() == 2  # and one that explains it
    person.sees("also if it fails")
    link = person.page.get_by_role("link", name="compare: QUEUED, after test, baseline")
    link.focus()
    assert person.barriers() == []
    assert not person.overflows()
    link.click()
    person.sees_title("compare")


def test_a_graph_changes_as_its_jobs_do(site: Site) -> None:
    ids = submit(site, {"a": {}, "b": {"depends": "a"}}, "moving")
    person = site.visit()
    person.go(f"/workflows/{ids['a']}")
    person.sees("2 steps of ada, 0 ended")
    person.page.locator("a.step.RUNNING", has_text="a").wait_for()
    epoch(site, ids["a"])
    site.daemon.cluster.end(ids["a"], 1)
    person.page.locator("a.step.FINISHED", has_text="a").wait_for()
    person.page.locator("a.step.RUNNING", has_text="b").wait_for()
    person.sees("2 steps of ada, 1 ended")
    site.daemon.cluster.end(ids["b"], 1, exit_code=1)
    person.page.locator("a.step.FAILED", has_text="b").wait_for()


def test_more_steps_than_can_be_drawn_are_a_list(site: Site) -> None:
    tasks = {f"s{n}": {"depends": f"s{n - 1}"} if n else {} for n in range(61)}
    ids = submit(site, tasks, "many")
    person = site.visit(size=NARROW)
    person.go(f"/workflows/{ids['s0']}")
    person.sees("61 steps of ada")
    names = person.page.locator("tbody tr td:first-child").all_inner_texts()
    assert names == [f"s{n}" for n in range(61)]
    assert person.page.locator(".graph").count() == 0
    assert person.barriers() == []
    assert not person.overflows()


def test_all_workflows_are_listed(site: Site) -> None:
    submit(site, {"a": {}}, "listed-one")
    person = site.visit()
    person.go("/workflows")
    person.page.get_by_role("link", name="listed-one").wait_for()
    submit(site, {"a": {}}, "listed-two")
    link = person.page.get_by_role("link", name="listed-two")
    link.wait_for()
    assert person.barriers() == []
    link.click()
    person.sees_title("listed-two")
    person.go("/workflows/00000000-0000-4000-8000-000000000000")
    person.sees("there is no such workflow")


def in_page(page: Page, code: str, *given: object) -> Any:
    """What a function of the module says."""
    return page.evaluate(
        f"async ([{code.split('=>')[0].strip('() ')}]) => {{"
        f" const it = await import('/static/graph.js'); return ({code.split('=>', 1)[1]}); }}",
        json.loads(json.dumps(given)),
    )


def job(step: str, after: list[str], number: int = 1) -> dict[str, Any]:
    waits = [{"job": f"{other}-1", "when": "succeeded"} for other in after]
    return {
        "id": f"{step}-{number}",
        "name": step,
        "labels": {"step": step},
        "spec": {"after": waits},
    }


def test_steps_are_ordered_and_the_newest_job_of_each_counts(blank: Page) -> None:
    jobs = [job("c", ["b"], 2), job("c", ["b"]), job("b", ["a"]), job("a", [])]
    found = in_page(blank, "(jobs) => it.stepsOf(jobs)", jobs)
    assert [(each["name"], each["depth"], each["job"]["id"]) for each in found] == [
        ("a", 0, "a-1"),
        ("b", 1, "b-1"),
        ("c", 2, "c-2"),
    ]


def test_a_chain_of_1000_steps_is_ordered(blank: Page) -> None:
    jobs = [job(f"s{n}", [f"s{n - 1}"] if n else []) for n in range(1000)]
    found = in_page(blank, "(jobs) => it.stepsOf(jobs).map((s) => s.depth)", jobs)
    assert found == list(range(1000))
