"""What a workflow is, as Argo's clients see it: computed from its jobs, and kept nowhere. Pure.

The labels of jobs say to which workflow and step they belong. A step that was retried has several
jobs, of which the newest counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scheduler.gateway.argo import sent_workflows
from scheduler.presentation import views
from scheduler.presentation.views import ENDED
from scheduler.presentation.workflow_submission import unpacked
from scheduler.presentation.workflow_tree import STEP, WORKFLOW, WORKFLOW_ID, label, ordered
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.workflows.compiler import EXIT, CompiledWorkflow

DEFAULT_NAMESPACE = "default"  # jobs of no project
DELETED = "workflow-deleted"  # an annotation of the first job
OURS = "workflows.argoproj.io/"
_PHASES = {
    **dict.fromkeys(("HELD", "QUEUED", "STARTING"), "Pending"),
    **dict.fromkeys(("RUNNING", "STOPPING", "UNRESPONSIVE"), "Running"),
    "FINISHED": "Succeeded",
    **dict.fromkeys(("FAILED", "CANCELED"), "Failed"),
    "SKIPPED": "Omitted",
}
Node = dict[str, Any]


@dataclass(frozen=True)
class Workflow:
    jobs: Sequence[pb.Job]  # of all its attempts, newest first
    first: pb.Job | None = None  # the job with its document, not brief; None: not known

    @cached_property
    def id(self) -> str:
        return label(self.jobs[0], WORKFLOW_ID)

    @cached_property
    def name(self) -> str:
        return label(self.jobs[0], WORKFLOW)

    @property
    def user(self) -> str:
        return str(self.jobs[0].spec.user)

    @property
    def namespace(self) -> str:
        return namespace_of(self.jobs[0].spec.project)

    @property
    def is_deleted(self) -> bool:
        return self.first is not None and any(e.key == DELETED for e in self.first.annotations)

    @cached_property
    def steps(self) -> dict[str, pb.Job]:
        """The newest job of each, in the order of their submission."""
        newest: dict[str, pb.Job] = {}
        for job in self.jobs:
            newest.setdefault(label(job, STEP), job)
        return dict(reversed(newest.items()))

    @cached_property
    def step_of(self) -> dict[str, str]:
        return {job.id: label(job, STEP) for job in self.jobs}

    def before(self, job: pb.Job) -> list[str]:
        """The steps for whose ends it waits, or has waited."""
        names = (self.step_of.get(each.job) for each in job.spec.after)
        return [name for name in dict.fromkeys(names) if name and name in self.steps]

    def behind(self, steps: Iterable[str]) -> set[str]:
        """Steps that hang on these, and what hangs on those."""
        found, below = set[str](), dict[str, list[str]]()
        for name, job in self.steps.items():
            for other in self.before(job):
                below.setdefault(other, []).append(name)
        left = list(steps)
        while left:
            for name in below.get(left.pop(), ()):
                if name not in found:
                    found.add(name)
                    left.append(name)
        return found

    @cached_property
    def has_ended(self) -> bool:
        return all(job.state in ENDED for job in self.steps.values())

    @property
    def live(self) -> list[pb.Job]:
        return [job for job in self.steps.values() if job.state not in ENDED]

    @cached_property
    def phase(self) -> str:
        """As Argo judges a DAG: by the last steps of each branch. One that was left out is as its
        branch before it. What runs at the end of all is judged for itself."""
        if not self.has_ended:
            return "Running"
        own = [name for name in self.steps if name != EXIT]
        behind = {other for name in own for other in self.before(self.steps[name])}
        failed = dict[str, bool]()
        for name in self.in_order():
            job = self.steps[name]
            inherited = any(failed[other] for other in self.before(job))
            failed[name] = inherited if job.state == "SKIPPED" else job.state != "FINISHED"
        last = any(failed[name] for name in own if name not in behind)
        exited = EXIT in self.steps and self.steps[EXIT].state in ("FAILED", "CANCELED")
        return "Failed" if last or exited else "Succeeded"

    def in_order(self) -> list[str]:
        """Each behind those that it waits for."""
        return list(ordered({name: self.before(job) for name, job in self.steps.items()}))

    # --- as Argo's JSON -------------------------------------------------------------------------

    @cached_property
    def document(self) -> dict[str, Any]:
        """Empty: it was not kept, or only its owner may see it."""
        return unpacked(self.first.spec.workflow) if self.first else {}

    @cached_property
    def compiled(self) -> CompiledWorkflow | None:
        if not self.document:
            return None
        return sent_workflows.compiled_again(sent_workflows.encoded(self.document), self.name)

    def labels(self) -> dict[str, str]:
        of_first = self.first or self.jobs[-1]
        own = (WORKFLOW, WORKFLOW_ID, STEP)
        given = {each.key: each.value for each in of_first.spec.labels if each.key not in own}
        ended = "true" if self.has_ended else "false"
        computed = {"creator": self.user, "phase": self.phase, "completed": ended}
        return {**given, **{f"{OURS}{key}": value for key, value in computed.items()}}

    def fields(self) -> dict[str, str]:
        return {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "status.phase": self.phase,
        }

    def record(self, nodes: bool = True) -> Node:
        metadata = sent_workflows.mapping(self.document.get("metadata"))
        spec = dict(sent_workflows.mapping(self.document.get("spec")))
        if any(job.state == "CANCELED" for job in self.steps.values()) and self.has_ended:
            spec["shutdown"] = "Terminate"
        elif self.is_suspended:
            spec["suspend"] = True
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {
                "name": self.name,
                **_some(generateName=metadata.get("generateName")),
                "namespace": self.namespace,
                "uid": self.id,
                "creationTimestamp": moment(self._submitted_at),
                "labels": self.labels(),
                "annotations": {
                    **sent_workflows.mapping(metadata.get("annotations")),
                    f"{OURS}pod-name-format": "v1",  # then the name of a pod is the id of its node
                },
            },
            "spec": spec,
            "status": self._status(nodes),
        }

    @property
    def is_suspended(self) -> bool:
        """Nothing of it runs, and something is held."""
        states = {job.state for job in self.live}
        return bool(states) and states <= {"HELD", "QUEUED"} and "HELD" in states

    @property
    def _submitted_at(self) -> float:
        return min(job.submitted_at for job in self.jobs)

    @property
    def _ended_at(self) -> float | None:
        if not self.has_ended:
            return None
        return max((job.ended_at for job in self.steps.values()), default=self._submitted_at)

    def _status(self, nodes: bool) -> Node:
        done = sum(job.state in ENDED for job in self.steps.values())
        failed = [name for name, job in self.steps.items() if job.state in ("FAILED", "CANCELED")]
        status: Node = {
            "phase": self.phase,
            "startedAt": moment(self._submitted_at),
            "finishedAt": moment(self._ended_at),
            "progress": f"{done}/{len(self.steps)}",
            **_some(message=self._message(failed)),
        }
        conditions = [{"type": "Completed", "status": "True"}] if self.has_ended else []
        if self.compiled and nodes:
            warnings = self.compiled.warnings
            conditions += [
                {"type": "SpecWarning", "status": "True", "message": words} for words in warnings
            ]
        if conditions:
            status["conditions"] = conditions
        if nodes:
            status["nodes"] = {node["id"]: node for node in self.nodes()}
        return status

    def _message(self, failed: Sequence[str]) -> str:
        if self.phase != "Failed" or not failed:
            return ""
        name = failed[0]
        words = f"{name}: {views.remark(self.steps[name])}"
        return words if len(failed) == 1 else f"{words}; {len(failed) - 1} more failed"

    # --- its tree -------------------------------------------------------------------------------

    def node_id(self, step: str) -> str:
        """Also the name of its pod, for clients."""
        return f"{self.name}-{step}"

    def nodes(self) -> Iterator[Node]:
        """What waits for other steps is no node yet, as in Argo."""
        templates = (
            {step.name: step.template for step in self.compiled.steps} if self.compiled else {}
        )
        entrypoint = str(
            sent_workflows.mapping(self.document.get("spec")).get("entrypoint") or self.name
        )
        if list(self.steps) == [entrypoint] and templates.get(entrypoint) == entrypoint:
            node = self._step_node(entrypoint, self.steps[entrypoint], entrypoint)
            yield {**node, "id": self.name, "name": self.name, "displayName": self.name}
            return
        shown = {name: job for name, job in self.steps.items() if not self._awaits(job)}
        leaves = {
            name: self._step_node(name, job, templates.get(name, name.rpartition(".")[2]))
            for name, job in shown.items()
        }
        for name in self.compiled.left_out if self.compiled else ():
            leaves.setdefault(name, self._left_out_node(name))
        for name in leaves:
            before = self.before(shown[name]) if name in shown else []
            for other in before:
                if other in leaves:
                    leaves[other].setdefault("children", []).append(self.node_id(name))
        yield from self._group_nodes(leaves, entrypoint)
        yield from leaves.values()

    def _awaits(self, job: pb.Job) -> bool:
        if job.state in ENDED:
            return False
        return any(self.steps[name].state not in ENDED for name in self.before(job))

    def _step_node(self, step: str, job: pb.Job, template: str) -> Node:
        before = [self.steps[name].ended_at for name in self.before(job)]
        started = job.started_at if job.HasField("started_at") else max([job.submitted_at, *before])
        parent, _, own = step.rpartition(".")
        phase = _PHASES.get(job.state, "Error")
        if phase == "Omitted" and job.HasField("started_at"):
            phase = "Skipped"  # by its own condition
        node: Node = {
            "id": self.node_id(step),
            "name": f"{self.name}.{step}",
            "displayName": own,
            "type": "Skipped" if job.state == "SKIPPED" else "Pod",
            "templateName": template,
            "templateScope": f"local/{self.name}",
            "phase": phase,
            "boundaryID": self.node_id(parent) if parent else self.name,
            "startedAt": moment(started),
            "finishedAt": moment(job.ended_at if job.HasField("ended_at") else None),
            "progress": _progress(job),
            **_some(message=_message(job)),
        }
        if job.shares:
            node["hostNodeName"] = job.shares[0].node
        if job.HasField("exit_code"):
            node["outputs"] = {"exitCode": str(job.exit_code)}
        return node

    def _left_out_node(self, step: str) -> Node:
        parent, _, own = step.rpartition(".")
        at = moment(self._submitted_at)
        return {
            "id": self.node_id(step),
            "name": f"{self.name}.{step}",
            "displayName": own,
            "type": "Skipped",
            "phase": "Skipped",
            "boundaryID": self.node_id(parent) if parent else self.name,
            "startedAt": at,
            "finishedAt": at,
            "message": "it was not to run",
        }

    def _group_nodes(self, leaves: Mapping[str, Node], entrypoint: str) -> Iterator[Node]:
        """The workflow itself, and templates within it."""
        within: dict[str, list[str]] = {"": []}
        for name in self.steps.keys() | leaves.keys():
            parts = name.split(".")
            for depth in range(len(parts)):
                within.setdefault(".".join(parts[:depth]), []).append(name)
        for group, names in within.items():
            jobs = [self.steps[name] for name in names if name in self.steps]
            entered = [name for name in names if name in leaves]
            if group and not entered:
                continue
            parent, _, own = group.rpartition(".")
            inside = set(names)
            inner = [n for n in entered if inside.isdisjoint(self._before(n))]
            ended = [job.ended_at for job in jobs] if all(j.state in ENDED for j in jobs) else []
            node = {
                "id": self.node_id(group) if group else self.name,
                "name": f"{self.name}.{group}" if group else self.name,
                "displayName": own if group else self.name,
                "type": "DAG",
                "templateName": own if group else entrypoint,
                "templateScope": f"local/{self.name}",
                "phase": _phase_of_all(jobs) if group else self.phase,
                "startedAt": min(
                    (leaves[name]["startedAt"] for name in entered),
                    default=moment(self._submitted_at),
                ),
                "finishedAt": moment(max(ended) if ended else None),
                "children": [self.node_id(name) for name in sorted(inner)],
            }
            yield (
                {**node, "boundaryID": self.node_id(parent) if parent else self.name}
                if group
                else node
            )

    def _before(self, step: str) -> list[str]:
        return self.before(self.steps[step]) if step in self.steps else []


def grouped(jobs: Iterable[pb.Job]) -> list[Workflow]:
    """`jobs`: newest first; so are the workflows. Anybody may give such labels to jobs: a workflow
    is of the user whose its first job is."""
    found: dict[tuple[str, str], list[pb.Job]] = {}
    owners: dict[str, str] = {}
    for job in jobs:
        identity = label(job, WORKFLOW_ID)
        found.setdefault((identity, job.spec.user), []).append(job)
        if job.id == identity:
            owners[identity] = job.spec.user
    return [
        Workflow(each)
        for (identity, user), each in found.items()
        if identity and owners.get(identity, user) == user
    ]


def namespace_of(project: str) -> str:
    return project or DEFAULT_NAMESPACE


def project_of(namespace: str) -> str:
    return "" if namespace == DEFAULT_NAMESPACE else namespace


def moment(at: float | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at is not None else None


def _progress(job: pb.Job) -> str:
    most = max(1, job.max_epochs)
    return f"{most if job.state == 'FINISHED' else job.epochs_done}/{most}"


def _message(job: pb.Job) -> str:
    if job.state in ("FINISHED", "RUNNING"):
        return ""
    return views.remark(job)


def _phase_of_all(jobs: Sequence[pb.Job]) -> str:
    phases = {_PHASES.get(job.state, "Error") for job in jobs}
    for phase in ("Running", "Pending"):
        if phase in phases:
            return "Running"
    return "Failed" if "Failed" in phases else "Succeeded"


def _some(**values: Any) -> Node:
    return {name: value for name, value in values.items() if value}
