"""The service for people: submit, look, cancel, update, read logs.

Every user sees every job, and changes only their own; admins change all. What a job's variables
hold, which may be secret, is for its owner and admins. An answer to a change is read from
committed rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from scheduler.access.authentication import Authenticator
from scheduler.access.identity import new_job_token
from scheduler.api import log_stream, overview, wire
from scheduler.api.grpc_server import is_insecure, token_of
from scheduler.api.lookup import Filter, Lookup
from scheduler.api.status import ENDED, states
from scheduler.core import admission
from scheduler.core.errors import Forbidden, Impossible, Rejected
from scheduler.core.model import (
    Cancelled,
    GpuKey,
    Job,
    JobId,
    JobSpec,
    Launch,
    Rules,
    Share,
    Submitted,
    Updated,
    View,
)
from scheduler.gpus.usage import Usage
from scheduler.inbox import QueueInbox
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

LISTED = 20  # unless told otherwise
LISTED_MAX = 1000
FILTERS_MAX = 100  # of one kind: SQLite takes no endless conditions
REPLY_BYTES_MAX = 3 * 2**20  # a client takes 4 MiB
WATCH_SECONDS = 0.25
SILENCE_SECONDS = 5.0  # a job may fall silent without any news


class Target(Protocol):
    """What is asked of the cluster before it is given a job."""

    @property
    def reserved(self) -> Collection[str]:
        """The variables that it sets itself."""

    @property
    def maps_ports(self) -> bool:
        """Whether a job has the ports that it asks for to itself."""

    def refuses(self, user: str) -> str | None:
        """Why no job of this user can run here."""

    def notes(self, spec: JobSpec) -> Sequence[str]:
        """What the person should know of how it will run here, a line each."""

    def preview(self, launch: Launch) -> tuple[Sequence[str], Mapping[str, str]]:
        """The command and the environment of its first process, the token left out."""


@dataclass(frozen=True, slots=True)
class JobService(pb_grpc.SchedulerServicer):
    inbox: QueueInbox
    view: Callable[[], View]
    lookup: Lookup
    target: Target
    logs: Path  # the folder that holds a folder for each job
    rules: Rules
    people: Authenticator
    admins: frozenset[str]
    policy: str
    version: str
    usage: Callable[[], Mapping[GpuKey, Usage]] = dict  # what is seen on cards

    # --- changes ----------------------------------------------------------------------------

    def Submit(self, request: pb.SubmitRequest, context: grpc.ServicerContext) -> pb.SubmitReply:
        return self.submit(request, self._user(context))

    def submit(self, request: pb.SubmitRequest, user: str) -> pb.SubmitReply:
        """However it came."""
        job_id = wire.job_id(request.job_id)
        job = None if request.dry_run else self._own(job_id, user)
        if job is None:
            spec = wire.spec(request.spec, user)
            self._admit(spec)
            if request.dry_run:
                return self._rehearsed(job_id, spec)
            self._preview(job_id, spec)
            self.inbox.ask(Submitted(job_id, spec, new_job_token()))
            job = self._own(job_id, user)
            assert job is not None, "a committed job is in the view"
        return pb.SubmitReply(
            job=self.lookup.message(job, private=True),
            notes=self.target.notes(job.spec),
            command=self._preview(job_id, job.spec)[0],
        )

    def CancelJob(
        self, request: pb.CancelJobRequest, context: grpc.ServicerContext
    ) -> pb.CancelJobReply:
        user = self._user(context)
        job = self._changeable(request.job, user)
        already_ended = job.outcome is not None
        if not already_ended:
            self.inbox.ask(Cancelled(job.id, user, request.graceful))
            job = self.lookup.job(job.id) or job
        return pb.CancelJobReply(
            job=self.lookup.message(job, private=True), already_ended=already_ended
        )

    def UpdateJob(self, request: pb.UpdateJobRequest, context: grpc.ServicerContext) -> pb.Job:
        user = self._user(context)
        job = self._changeable(request.job, user)
        if job.outcome:
            raise Impossible(f"job {job.id} has ended: it is {ENDED[job.outcome]}")
        asked = Updated(
            job.id,
            user,
            request.priority if request.HasField("priority") else None,
            request.held if request.HasField("held") else None,
            request.max_epochs if request.HasField("max_epochs") else None,
        )
        if asked == Updated(job.id, user):
            raise Rejected("nothing to change: give a priority, held or max_epochs")
        if asked.priority is not None:
            admission.whole("--priority", asked.priority, *admission.PRIORITIES)
        if asked.max_epochs is not None:
            admission.whole(
                "--max_epochs", asked.max_epochs, max(1, job.epochs_done), admission.INT_MAX
            )
        self.inbox.ask(asked)
        return self.lookup.message(self.lookup.job(job.id) or job, private=True)

    # --- looks ------------------------------------------------------------------------------

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobReply:
        user = self._user(context)
        job = self.lookup.find(request.job)
        story = self.lookup.reader.story(job.id) if request.story else []
        reply = pb.GetJobReply(story=[wire.fact_message(fact) for fact in story])
        private = self._may_change(job, user)
        if request.outlook:
            message, learned = self.lookup.describe(job, private)
            reply.learned.CopyFrom(learned)
        else:
            message = self.lookup.message(job, private)
        reply.job.CopyFrom(message)
        return reply

    def ListJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> pb.ListJobsReply:
        return self._listed(request, self._user(context))

    def WatchJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ListJobsReply]:
        user = self._user(context)
        admission.few("jobs", request.jobs)
        # A name is looked up once: it is lost with the end of the job that one has come to watch.
        request.jobs[:] = [self.lookup.find(ref).id for ref in request.jobs]
        gone = _gone(context)
        sent = None
        while not gone.is_set():
            number = self.view().number
            reply = self._listed(request, user)
            if reply != sent:
                yield reply
                sent = reply
            self._wait_for_news(number, gone)

    def GetCluster(
        self, request: pb.GetClusterRequest, context: grpc.ServicerContext
    ) -> pb.Cluster:
        self._user(context)
        view = self.view()
        return pb.Cluster(
            gpus=overview.gpu_messages(view, self.lookup.state, self.usage()),
            users=overview.user_totals(view),
            policy=self.policy,
            observed_at=view.observed_at or 0.0,
            version=self.version,
        )

    def GetLogs(
        self, request: pb.GetLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.LogChunk]:
        self._user(context)
        job = self.lookup.find(request.job)

        def over() -> bool:
            now = self.lookup.job(job.id)
            return now is None or now.outcome is not None

        yield from log_stream.stream(self.logs, job, request, over, _gone(context))

    # --- what they share --------------------------------------------------------------------

    def _user(self, context: grpc.ServicerContext) -> str:
        return self.people.user(token_of(context), is_insecure(context))

    def _may_change(self, job: Job, user: str) -> bool:
        return user == job.spec.user or user in self.admins

    def _changeable(self, ref: str, user: str) -> Job:
        job = self.lookup.find(ref)
        if not self._may_change(job, user):
            raise Forbidden(f"job {job.id} is {job.spec.user}'s, and you are {user}")
        return job

    def _own(self, job_id: JobId, user: str) -> Job | None:
        """The job of this id, if it is there already."""
        job = self.lookup.job(job_id)
        if job and job.spec.user != user:
            raise Forbidden(f"job {job_id} exists and is {job.spec.user}'s: make another id")
        return job

    def _admit(self, spec: JobSpec) -> None:
        admission.check(spec, self.target.reserved)
        view = self.view()
        admission.possible(spec, view.nodes, self.rules)
        if self.target.maps_ports:
            admission.unclaimed(spec, view.jobs.values())
        if refusal := self.target.refuses(spec.user):
            raise Forbidden(refusal)

    def _rehearsed(self, job_id: JobId, spec: JobSpec) -> pb.SubmitReply:
        """What would come of it. Nothing is changed."""
        command, environment = self._preview(job_id, spec)
        job = Job.submitted(job_id, spec, self.inbox.now())
        return pb.SubmitReply(
            job=self.lookup.message(job, private=True),
            notes=self.target.notes(spec),
            command=command,
            env=wire.pair_messages(sorted(environment.items())),
        )

    def _preview(self, job_id: JobId, spec: JobSpec) -> tuple[Sequence[str], Mapping[str, str]]:
        """As if it were launched on an empty cluster."""
        shares = _likely(spec, self.view())
        return self.target.preview(Launch(job_id, 1, spec, shares, 0, spec.max_epochs, token=""))

    def _listed(self, request: pb.ListJobsRequest, user: str) -> pb.ListJobsReply:
        limit = request.limit if request.HasField("limit") else LISTED
        admission.whole("--nlast", limit, 1, LISTED_MAX)
        admission.few("jobs", request.jobs)
        admission.few("--label", request.labels, FILTERS_MAX)
        admission.few("--status", request.states, FILTERS_MAX)
        wanted = Filter(
            user=request.user or ("" if request.all_users or request.jobs else user),
            project=request.project,
            experiment=request.experiment,
            labels=wire.pairs(request.labels),
            states=states(request.states),
        )
        if request.jobs:
            found = {job.id: job for job in map(self.lookup.find, request.jobs)}
            jobs, total = self.lookup.select(wanted, found.values(), limit)
        else:
            jobs, total = self.lookup.newest(wanted, limit)
        messages = self.lookup.messages(jobs, lambda job: self._may_change(job, user))
        return pb.ListJobsReply(jobs=_as_many_as_fit(messages), total=total)

    def _wait_for_news(self, number: int, gone: threading.Event) -> None:
        for _ in range(round(SILENCE_SECONDS / WATCH_SECONDS)):
            if gone.wait(WATCH_SECONDS) or self.view().number != number:
                return


def _gone(context: grpc.ServicerContext) -> threading.Event:
    """Set when the call has ended, for whatever reason."""
    gone = threading.Event()
    if not context.add_callback(gone.set):
        gone.set()
    return gone


def _likely(spec: JobSpec, view: View) -> tuple[Share, ...]:
    """Shares such as it might be given: the first GPUs of the first node that has enough."""
    for node in view.nodes:
        if len(node.gpus) >= spec.gpus_min:
            chosen = node.gpus[: spec.gpus_max]
            return tuple(
                Share(node.name, gpu.uuid, spec.memory_mib or gpu.capacity_mib) for gpu in chosen
            )
    return ()


def _as_many_as_fit(messages: Sequence[pb.Job]) -> Iterator[pb.Job]:
    left = REPLY_BYTES_MAX
    for message in messages:
        left -= message.ByteSize()
        if left < 0:
            return
        yield message
