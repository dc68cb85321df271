"""A workflow as a tree in text: each step once, below the last of those that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler.v1 import scheduler_pb2 as pb

# Labels of each job. The id is that of the first job, which has the document.
WORKFLOW, STEP, WORKFLOW_ID = "workflow", "step", "workflow-id"


def branches(after: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str, str]]:
    """What is drawn before each step, the step, and the one that it is below; empty: none. `after`
    has each step behind those that it waits for."""
    depth: dict[str, int] = {}
    below: dict[str, list[str]] = {"": []}
    for name, others in after.items():
        parent = max(others, key=depth.__getitem__, default="")
        depth[name] = depth[parent] + 1 if parent else 0
        below.setdefault(parent, []).append(name)
    left = [("", "", name, name == below[""][-1]) for name in reversed(below[""])]
    while left:
        parent, indent, name, last = left.pop()
        yield f"{indent}{('`- ' if last else '|- ') if parent else ''}", name, parent
        inner = indent + (("   " if last else "|  ") if parent else "")
        under = below.get(name, [])
        left += [(name, inner, each, each == under[-1]) for each in reversed(under)]


def as_trees(jobs: Sequence[pb.Job]) -> list[pb.Job]:
    """The steps of workflows, newest first, in the order of their trees, which their names draw. Of
    a step that was retried, the newest job counts."""
    workflows: dict[tuple[str, str], list[pb.Job]] = {}
    for job in jobs:
        workflows.setdefault((label(job, WORKFLOW_ID), job.spec.user), []).append(job)
    return [each for one in workflows.values() for each in _tree(one)]


def _tree(jobs: Sequence[pb.Job]) -> Iterator[pb.Job]:
    steps: dict[str, pb.Job] = {}
    for job in jobs:
        steps.setdefault(label(job, STEP) or job.id, job)
    names = {job.id: label(job, STEP) or job.id for job in jobs}
    found = {
        name: [names[each.job] for each in job.spec.after if each.job in names]
        for name, job in reversed(steps.items())
    }
    for drawn, name, _ in branches(ordered(found)):
        shown = pb.Job()
        shown.CopyFrom(steps[name])
        shown.spec.name = f"{drawn}{shown.spec.name}"
        yield shown


def ordered(after: dict[str, list[str]]) -> dict[str, list[str]]:
    """Each behind those that it waits for, else as it is. A chain may be long."""
    found: dict[str, list[str]] = {}
    left = list(reversed(after))
    while left:
        name = left[-1]
        missing = [other for other in after[name] if other not in found and other != name]
        if name in found or not missing:
            found.setdefault(left.pop(), after[name])
        else:
            left += missing
    return found


def label(job: pb.Job, key: str) -> str:
    """Empty: it has none of this key."""
    return next((str(each.value) for each in job.spec.labels if each.key == key), "")
