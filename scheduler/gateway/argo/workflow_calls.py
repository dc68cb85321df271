"""Workflows by calls of the daemon: found, submitted, tried again, ended. All with the token of the
caller; the daemon judges each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from scheduler.gateway.argo import sent_workflows, workflow_view
from scheduler.gateway.argo.selectors import Requirement
from scheduler.gateway.argo.sent_workflows import Manifest
from scheduler.gateway.argo.workflow_view import DELETED, Workflow, grouped
from scheduler.gateway.auth import KnownCaller
from scheduler.gateway.daemon_calls import DaemonCalls, Reply
from scheduler.gateway.problems import Problem
from scheduler.presentation.views import ENDED
from scheduler.presentation.workflow_submission import derived_id, name_suffix, submission
from scheduler.presentation.workflow_tree import STEP, WORKFLOW, WORKFLOW_ID, label
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.workflows.compiler import EXIT

LATEST = "@latest"
PAGE = 1000  # jobs
JOBS_MAX = 20_000  # that a list of workflows looks at
_AT_ONCE = 100  # jobs that a request names
_CALLS_AT_ONCE = 16
_RETRIED = ("FAILED", "CANCELED")


@dataclass(frozen=True, slots=True)
class WorkflowCalls:
    daemon: DaemonCalls
    caller: KnownCaller
    namespace: str  # empty: all

    # --- finding --------------------------------------------------------------------------------

    async def find(self, name: str) -> Workflow:
        """Of several with this name: the caller's own, else the newest. Raises Problem."""
        if name == LATEST:
            found = await self.select([], [], 1)
            if not found:
                raise Problem(404, "there is no workflow yet")
            name = found[0].name
        found = [each for each in await self._named(name) if not each.is_deleted]
        own = [each for each in found if each.user == self.caller.identity.user]
        if not found:
            raise Problem(404, f"workflow {name!a} not found in namespace {self.namespace!a}")
        return (own or found)[0]

    async def select(
        self, labels: Sequence[Requirement], fields: Sequence[Requirement], limit: int
    ) -> list[Workflow]:
        """Newest first, at most so many."""
        jobs = [job async for job in self._jobs(_label(WORKFLOW_ID))]
        found: list[Workflow] = []
        workflows = grouped(jobs)
        for at in range(0, len(workflows), _AT_ONCE):
            for each in await self._with_first(workflows[at : at + _AT_ONCE]):
                if each.is_deleted:
                    continue
                if all(one.holds(each.labels()) for one in labels) and all(
                    one.holds(each.fields()) for one in fields
                ):
                    found.append(each)
                    if len(found) == limit:
                        return found
        return found

    async def _named(self, name: str) -> list[Workflow]:
        """Newest first, also those that were deleted."""
        workflows = grouped([job async for job in self._jobs(_label(WORKFLOW, name))])
        return await self._with_first(workflows[:_AT_ONCE])

    async def _jobs(self, label: pb.KeyValue) -> AsyncIterator[pb.Job]:
        cursor, seen = "", 0
        project = workflow_view.project_of(self.namespace)
        while True:
            request = pb.ListJobsRequest(
                all_users=True,
                limit=PAGE,
                labels=[label],
                project=project,
                cursor=cursor,
                brief=True,
            )
            reply = await self._ask("ListJobs", request, pb.ListJobsReply)
            for job in reply.jobs:
                if not self.namespace or job.spec.project == project:
                    yield job
            cursor, seen = reply.next_cursor, seen + len(reply.jobs)
            if not cursor or seen >= JOBS_MAX:
                return

    async def _with_first(self, workflows: Sequence[Workflow]) -> list[Workflow]:
        """With the first jobs, which are not brief. One that is listed may be deleted meanwhile."""
        ids = [each.id for each in workflows if any(job.id == each.id for job in each.jobs)]
        request = pb.ListJobsRequest(jobs=ids, all_users=True, limit=max(1, len(ids)))
        found: dict[str, pb.Job] = {}
        if ids:
            try:
                reply = await self._ask("ListJobs", request, pb.ListJobsReply)
                found = {job.id: job for job in reply.jobs}
            except Problem as problem:
                if problem.status not in (400, 404):
                    raise
        return [Workflow(each.jobs, found.get(each.id)) for each in workflows]

    # --- submitting -----------------------------------------------------------------------------

    async def submit(self, manifest: Manifest, dry_run: bool = False) -> Workflow:
        own = str(manifest.metadata.get("namespace") or "")
        if own and own != self.namespace:
            raise Problem(
                400, f"metadata.namespace: is {own!a}, and the address says {self.namespace!a}"
            )
        name = manifest.name or _generated(manifest.metadata.get("generateName"))
        made = await asyncio.to_thread(manifest.compiled, name)
        if not made.steps:
            raise Problem(400, "no step of this workflow is to run")
        before = await self._named(name)
        for each in before:
            if not each.is_deleted:
                raise Problem(
                    409,
                    f"workflow {name!a} already exists; it belongs to {each.user}",
                    code="already_exists",
                )
        project = workflow_view.project_of(self.namespace)
        # The same workflow sent again, even at the same time, is the same jobs.
        identity = derived_id(WORKFLOW, project, name, before[0].id if before else "")
        request = await asyncio.to_thread(
            submission, made, identity, manifest.plain, project, manifest.labels
        )
        request.dry_run = dry_run
        reply = await self._submit_many(request)
        if dry_run:
            return _as_if(request, self.caller.identity.user)
        if not reply.accepted:
            raise Problem(409, f"workflow {name!a} already exists", code="already_exists")
        return await self._shown(identity, name)

    async def resubmit(self, workflow: Workflow, parameters: Mapping[str, str]) -> Workflow:
        if not workflow.document:
            raise Problem(
                403,
                f"workflow {workflow.name!a}: its document cannot be had: it belongs to"
                f" {workflow.user}, or was too long to be kept",
            )
        plain = _again(workflow.document, workflow.name, parameters)
        return await self.submit(sent_workflows.manifest_of(plain))

    async def retry(self, workflow: Workflow) -> Workflow:
        """Runs what failed once more, and what hangs on it; all else stays as it is."""
        self._check_own(workflow, admins=False)  # the jobs would be the admin's
        if not workflow.has_ended:
            raise Problem(
                400, f"workflow {workflow.name!a} still runs: what failed is retried at its end"
            )
        failed = [name for name, job in workflow.steps.items() if job.state in _RETRIED]
        if not failed:
            raise Problem(400, f"workflow {workflow.name!a}: no step of it has failed")
        again = {*failed, *workflow.behind(failed)}
        rounds = dict.fromkeys(again, 0)
        for job in workflow.jobs:
            if (name := label(job, STEP)) in rounds:
                rounds[name] += 1
        ids = {name: derived_id(workflow.id, name, str(at)) for name, at in rounds.items()}
        jobs = []
        for name, job in (await self._in_full(workflow, again)).items():
            spec = pb.JobSpec()
            spec.CopyFrom(job.spec)
            spec.ClearField("user")
            spec.ClearField("workflow")
            spec.ClearField("held")
            for each in spec.after:
                each.job = self._now(workflow, each.job, ids)
            jobs.append(pb.SubmitRequest(job_id=ids[name], spec=spec))
        await self._submit_many(pb.SubmitManyRequest(jobs=jobs))
        return await self._shown(workflow.id, workflow.name)

    @staticmethod
    def _now(workflow: Workflow, job: str, ids: Mapping[str, str]) -> str:
        """The job that stands for the same step as this one now."""
        step = workflow.step_of.get(job, "")
        if step in ids:
            return ids[step]
        return workflow.steps[step].id if step in workflow.steps else job

    async def _in_full(self, workflow: Workflow, steps: Iterable[str]) -> dict[str, pb.Job]:
        ids = {workflow.steps[name].id: name for name in steps}
        order = [id for id in (job.id for job in workflow.steps.values()) if id in ids]
        found: dict[str, pb.Job] = {}
        for at in range(0, len(order), _AT_ONCE):
            part = order[at : at + _AT_ONCE]
            while part:  # long ones do not fit into one reply
                request = pb.ListJobsRequest(jobs=part, all_users=True, limit=len(part))
                reply = await self._ask("ListJobs", request, pb.ListJobsReply)
                found |= {job.id: job for job in reply.jobs}
                left = [id for id in part if id not in found]
                if len(left) == len(part):
                    raise Problem(500, "the scheduler does not list the jobs of this workflow")
                part = left
        return {ids[id]: found[id] for id in order}

    async def _submit_many(self, request: pb.SubmitManyRequest) -> pb.SubmitManyReply:
        if request.ByteSize() > 2**20 - 1024:
            raise Problem(413, "the jobs of this workflow have more than 1 MiB of text together")
        return await self._ask("SubmitMany", request, pb.SubmitManyReply)

    async def _shown(self, identity: str, name: str) -> Workflow:
        for each in grouped([job async for job in self._jobs(_label(WORKFLOW, name))]):
            if each.id == identity:
                return (await self._with_first([each]))[0]
        raise Problem(500, f"workflow {name!a} was submitted, but is not listed")

    # --- changing -------------------------------------------------------------------------------

    async def stop(self, workflow: Workflow) -> None:
        """All but what runs at its end. What waits is cancelled before what it waits for."""
        if EXIT not in workflow.steps:
            return await self.terminate(workflow)
        self._check_own(workflow)
        for name in reversed(workflow.in_order()):
            job = workflow.steps[name]
            if name != EXIT and job.state not in ENDED:
                await self._ask("CancelJob", pb.CancelJobRequest(job=job.id), pb.CancelJobReply)

    async def terminate(self, workflow: Workflow) -> None:
        self._check_own(workflow)
        over = set[str]()
        for job in workflow.live:
            if job.id in over:
                continue
            request = pb.CancelJobRequest(job=job.id, with_dependents=True)
            reply = await self._ask("CancelJob", request, pb.CancelJobReply)
            over |= {job.id, *(each.id for each in reply.dependents)}

    async def hold(self, workflow: Workflow, held: bool) -> None:
        """What runs goes on; what waits is held, or released."""
        self._check_own(workflow)
        wanted = "HELD" if held else "QUEUED"
        jobs = [j for j in workflow.live if j.state in ("HELD", "QUEUED") and j.state != wanted]
        places = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def change(job: pb.Job) -> None:
            async with places:
                try:
                    request = pb.UpdateJobRequest(job=job.id, held=held)
                    await self._ask("UpdateJob", request, pb.Job)
                except Problem as problem:
                    if problem.status != 409:  # it has ended meanwhile
                        raise

        await asyncio.gather(*map(change, jobs))

    async def delete(self, workflow: Workflow) -> None:
        """Its jobs end, and stay in the scheduler's lists; the workflow is not listed any more."""
        await self.terminate(workflow)
        request = pb.UpdateJobRequest(
            job=workflow.id, annotate=[pb.KeyValue(key=DELETED, value="yes")]
        )
        await self._ask("UpdateJob", request, pb.Job)

    def _check_own(self, workflow: Workflow, admins: bool = True) -> None:
        """The daemon checks each job; this says it before the first."""
        identity = self.caller.identity
        if identity.user != workflow.user and not (admins and identity.admin):
            you = f"you are {identity.user}" if identity.user else "this token is not a person's"
            raise Problem(403, f"workflow {workflow.name!a} belongs to {workflow.user}, and {you}")

    async def _ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        return await self.daemon.ask(f"Scheduler/{method}", request, reply, self.caller.token)


def _label(key: str, value: str = "*") -> pb.KeyValue:
    return pb.KeyValue(key=key, value=value)


def _generated(prefix: object) -> str:
    return str(prefix or "workflow-") + name_suffix()


def _again(document: Mapping[str, Any], name: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The same document, under a new name, with other values of parameters."""
    metadata = dict(sent_workflows.mapping(document.get("metadata")))
    metadata["generateName"] = metadata.get("generateName") or f"{name}-"
    metadata.pop("name", None)
    spec = dict(sent_workflows.mapping(document.get("spec")))
    if parameters:
        arguments = dict(sent_workflows.mapping(spec.get("arguments")))
        known = [dict(each) for each in arguments.get("parameters") or ()]
        left = dict(parameters)
        for each in known:
            if each.get("name") in left:
                each["value"] = left.pop(each["name"])
        if left:
            names = ", ".join(str(each.get("name")) for each in known) or "none"
            raise Problem(400, f"there is no parameter {min(left)!r}; there are: {names}")
        spec["arguments"] = {**arguments, "parameters": known}
    return {**document, "metadata": metadata, "spec": spec}


def _as_if(request: pb.SubmitManyRequest, user: str) -> Workflow:
    """A workflow that was checked, and not submitted."""
    jobs = []
    for each in request.jobs:
        job = pb.Job(id=each.job_id, spec=each.spec, state="QUEUED")
        job.spec.user, job.spec.project = user, request.common.project
        jobs.append(job)
    return Workflow(jobs[::-1], jobs[0])
