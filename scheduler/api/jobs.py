"""The service for users: submit, show, cancel and update jobs, read logs.

Every user sees every job, and changes only their own; admins change all. The values of a job's
variables may be secret: only its owner and admins see them. The answer to a change is read from
committed rows.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc

from scheduler import job_secrets, run_logs
from scheduler.access.authentication import Authenticator
from scheduler.access.identity import new_job_token
from scheduler.api import log_stream, overview, visits, wire
from scheduler.api.calls import PAUSE_SECONDS, Conversation
from scheduler.api.grpc_server import is_insecure, token_of
from scheduler.api.lookup import Filter, JobPage, Lookup
from scheduler.api.named_jobs import NamedJobs, in_order
from scheduler.api.paging import NEWEST, Paging, checked_search
from scheduler.api.seats import Seats
from scheduler.api.status import ENDED, parse_states
from scheduler.api.target import Preview, Target
from scheduler.api.user_limits import UserLimits
from scheduler.api.visits import Visits
from scheduler.core import admission
from scheduler.core.dependencies import jobs_behind, known_at_submission
from scheduler.core.errors import Busy, Forbidden, Impossible, Rejected, SchedulerError
from scheduler.core.model import (
    Cancelled,
    GpuKey,
    Job,
    JobId,
    JobSpec,
    Rules,
    Submitted,
    Time,
    Updated,
    View,
    Visited,
)
from scheduler.estimates.slow_gpus import SlowGpus
from scheduler.gpus.usage import Usage
from scheduler.inbox import QueueInbox
from scheduler.job_secrets import JobSecrets
from scheduler.packages.store import PackageStore
from scheduler.store.annotations import check as check_annotations
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

LIST_DEFAULT = 20  # by default
LIST_MAX = 1000
FILTERS_MAX = 100  # of one kind: SQLite limits the length of conditions
REPLY_BYTES_MAX = 3 * 2**20  # a client accepts 4 MiB
SILENCE_SECONDS = 5.0  # a job may become unresponsive without any event
SECRET = "(secret)"  # is shown in place of its value
MANY_MAX = 10_000  # jobs that are submitted together
_NONE = "none of the jobs is submitted"
CLAIMS_MAX = 5  # attempts to claim ports whose owners end at the same time


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
    secrets: JobSecrets
    usage: Callable[[], Mapping[GpuKey, Usage]] = dict  # what was observed on GPUs
    limits: UserLimits | None = None  # None: there are none
    seats: Seats = field(default_factory=Seats)  # of watchers and readers of logs
    slow: Callable[[View], SlowGpus] = field(default_factory=overview.SlowGpuLookup)
    no_room: Callable[[], str] = str  # why no job can be stored now; empty: one can
    disk: Path | None = None  # a folder on the disk with the daemon's state
    heard_at: Callable[[View], Mapping[str, Time]] = lambda _: {}  # the agent of each node, last
    events: Callable[[], str] = str  # the cursor of what has not happened yet; see EventFeed
    annotate: Callable[[JobId, Mapping[str, str]], None] | None = None  # None: nobody can
    packages: PackageStore | None = None  # None: it keeps none
    visits: Visits | None = None  # None: nobody can
    is_session: Callable[[str], bool] = lambda _: False  # whether a token is that of a browser

    # --- changes ----------------------------------------------------------------------------

    def Submit(self, request: pb.SubmitRequest, context: grpc.ServicerContext) -> pb.SubmitReply:
        return self.submit(request, self._user(context))

    def submit(self, request: pb.SubmitRequest, user: str) -> pb.SubmitReply:
        """Accepts a job, submitted by either protocol."""
        job_id = wire.job_id(request.job_id)
        job = None if request.dry_run else self._find_own(job_id, user)
        spec = job.spec if job else admission.with_consequences(wire.spec(request.spec, user))
        secret_bytes = 0
        if job is None:
            self._admit(job_id, spec)
            self._check_code(user, spec.code)
            spec = self._named_jobs.resolved(job_id, spec)
            in_order([Submitted(job_id, spec)])
            secret_bytes = job_secrets.check(spec, dict(wire.pairs(request.secrets)))
        preview = self.target.preview(job_id, spec, self.view().nodes)
        if job is None:
            if self.limits and not request.dry_run:
                self.limits.enter(spec, secret_bytes=secret_bytes)
            self.target.prepare([spec], request.dry_run)
        if request.dry_run:
            message = self.lookup.describe_trial(self._tried(job_id, spec))
        else:
            if job is None:
                self._use_packages({job_id: spec})
            if job is None and spec.secrets:
                self.secrets.keep(job_id, dict(wire.pairs(request.secrets)))
            job = job or self._submit_to_loop(job_id, spec)
            message = self.lookup.message(job, private=True)
        return pb.SubmitReply(
            job=message,
            notes=[*preview.notes, *_epochs_note(request.spec), *self._named_jobs.notes(spec)],
            command=preview.command,
            env=_environment(preview, spec) if request.dry_run else (),
        )

    def SubmitMany(
        self, request: pb.SubmitManyRequest, context: grpc.ServicerContext
    ) -> pb.SubmitManyReply:
        user = self._user(context)
        secrets = dict(wire.pairs(request.secrets))
        if not 1 <= len(request.jobs) <= MANY_MAX:
            raise Rejected(f"{len(request.jobs)} jobs at once: must be 1 to {MANY_MAX}")
        notes: dict[str, None] = {}
        new: dict[JobId, JobSpec] = {}
        secret_bytes, checked = 0, {""}
        for each in request.jobs:
            job_id = wire.job_id(each.job_id)
            if job_id in new:
                raise Rejected(f"job_id {job_id}: is given twice")
            if self._find_own(job_id, user):
                continue
            message = wire.one_of_many(request.common, each.spec)
            try:
                if message.code not in checked:
                    self._check_code(user, message.code)
                    checked.add(message.code)
                spec = admission.with_consequences(wire.spec(message, user))
                new[job_id] = self._one_of_many(job_id, spec, notes)
                own = {name: secrets[name] for name in spec.secrets if name in secrets}
                secret_bytes += job_secrets.check(spec, own)
            except SchedulerError as error:
                name = admission.quote(message.name)
                raise type(error)(f"job {name}: {error}; {_NONE}") from None
            notes |= dict.fromkeys(_epochs_note(message))
        new = self._resolved(new)
        if new and not request.dry_run and self.limits:
            self.limits.enter(*new.values(), secret_bytes=secret_bytes)
        self.target.prepare(new.values(), request.dry_run)
        if new and not request.dry_run:
            self._use_packages(new)
            for job_id, spec in new.items():
                if spec.secrets:
                    self.secrets.keep(job_id, {name: secrets[name] for name in spec.secrets})
            self._submit_all_to_loop(new)
        return pb.SubmitManyReply(accepted=len(new), notes=notes)

    def _resolved(self, new: Mapping[JobId, JobSpec]) -> dict[JobId, JobSpec]:
        """With the ids of the jobs after which they start, and each job behind those."""
        found = {}
        for job_id, spec in new.items():
            try:
                found[job_id] = self._named_jobs.resolved(job_id, spec, new)
            except SchedulerError as error:
                raise type(error)(f"job {admission.quote(spec.name)}: {error}; {_NONE}") from None
        try:
            ordered = in_order(Submitted(job_id, spec) for job_id, spec in found.items())
        except Rejected as error:
            raise Rejected(f"{error}; {_NONE}") from None
        return {event.job_id: event.spec for event in ordered}

    def _submit_all_to_loop(self, new: Mapping[JobId, JobSpec]) -> None:
        """A job that another is to start after may end, and be forgotten, before the loop hears of
        the other: then it rejects that, and is told again what the jobs came to."""
        events = {id: Submitted(id, spec, new_job_token()) for id, spec in new.items()}
        for _ in range(CLAIMS_MAX):
            self.inbox.ask(
                *(
                    replace(event, ended=self._named_jobs.ended(event.spec, new))
                    for event in events.values()
                )
            )
            events = {id: event for id, event in events.items() if not self.lookup.job(id)}
            if not events:
                return
        raise Busy("--after: the jobs that are named keep ending: try again")

    def _one_of_many(self, job_id: JobId, spec: JobSpec, notes: dict[str, None]) -> JobSpec:
        """Checks one job, and adds its notes."""
        self._admit(job_id, spec)
        if spec.ports:  # the loop may refuse them to one job, and accept the others
            raise Rejected("--port_mapping: submit a job with ports by itself")
        preview = self.target.preview(job_id, spec, self.view().nodes)
        notes |= dict.fromkeys(preview.notes)
        return spec

    def CancelJob(
        self, request: pb.CancelJobRequest, context: grpc.ServicerContext
    ) -> pb.CancelJobReply:
        user = self._user(context)
        job = self._find_changeable(request.job, user)
        already_ended = job.outcome is not None
        behind = jobs_behind(job.id, self.view())
        if request.with_dependents:
            for each in behind:
                self._check_changeable(each, user)
        cancelled = [*reversed(behind)] if request.with_dependents else []
        if not already_ended:
            cancelled.append(job)
        if cancelled:  # those behind come first: else they would be skipped
            self.inbox.ask(*(Cancelled(each.id, user, request.graceful) for each in cancelled))
            job = self.lookup.job(job.id) or job
        return pb.CancelJobReply(
            job=self.lookup.message(job, private=True),
            already_ended=already_ended,
            dependents=[
                self.lookup.message(self.lookup.job(each.id) or each, private=True)
                for each in (behind if request.with_dependents else ())
            ],
            behind=[
                pb.JobName(id=each.id, name=each.spec.name)
                for each in (() if request.with_dependents else behind)
            ],
        )

    def UpdateJob(self, request: pb.UpdateJobRequest, context: grpc.ServicerContext) -> pb.Job:
        user = self._user(context)
        job = self._find_changeable(request.job, user)
        annotations = dict(wire.pairs(request.annotate))
        asked = Updated(
            job.id,
            user,
            request.priority if request.HasField("priority") else None,
            request.held if request.HasField("held") else None,
            request.max_epochs if request.HasField("max_epochs") else None,
        )
        changes = asked != Updated(job.id, user)
        if not (changes or annotations):
            raise Rejected("nothing to change: give a priority, held, max_epochs or annotate")
        if annotations:
            check_annotations(annotations)
        if changes:
            self._update(job, asked)
        if annotations:
            self._annotate(job, annotations)
        return self.lookup.message(self.lookup.job(job.id) or job, private=True)

    def _update(self, job: Job, asked: Updated) -> None:
        if job.outcome:
            raise Impossible(
                f"job {job.id} has ended: it is {ENDED[job.outcome]};"
                " scheduler-resubmit-job submits it again"
            )
        if asked.priority is not None:
            admission.check_integer("--priority", asked.priority, *admission.PRIORITIES)
        if asked.max_epochs is not None:
            admission.check_integer(
                "--max_epochs", asked.max_epochs, max(1, job.epochs_done), admission.INT_MAX
            )
        self.inbox.ask(asked)

    def _annotate(self, job: Job, annotations: Mapping[str, str]) -> None:
        if full := self.no_room():
            raise Busy(full)
        if self.annotate is None:
            raise Impossible("this scheduler keeps no annotations")
        self.annotate(job.id, annotations)

    # --- visits ---------------------------------------------------------------------------------

    def Connect(  # given its first request: see calls.py
        self, request: pb.ConnectRequest, context: grpc.ServicerContext
    ) -> Conversation:
        user = self._user(context)
        if self.visits is None:
            raise Impossible("this scheduler permits nobody to connect to jobs")
        if self.is_session(token_of(context) or ""):
            raise Forbidden("the session of a browser cannot connect to jobs: use your own token")
        if not request.HasField("to"):
            raise Rejected("the first request says to what: `to` is missing")
        job = self._find_changeable(request.to.job, user)
        run = visits.current_run(job, self.inbox.now())
        if user != job.spec.user and not request.to.hold:
            self.inbox.ask(Visited(job.id, run, user, visits.words(request.to)))
        return self.visits.open(job, run, user, request.to, lambda: self._user(context), context)

    # --- queries ----------------------------------------------------------------------------

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobReply:
        user = self._user(context)
        job = self.lookup.find(request.job)
        story = self.lookup.reader.numbered_story(job.id) if request.story else []
        reply = pb.GetJobReply(story=[wire.fact_message(fact, number) for number, fact in story])
        private = self._may_change(job, user)
        if request.outlook:
            message, learned = self.lookup.describe(job, private)
            reply.learned.CopyFrom(learned)
        else:
            message = self.lookup.message(job, private)
        reply.job.CopyFrom(message)
        if private and job.spec.code and self.packages:
            reply.origin.ParseFromString(self.packages.origin(job.id) or b"")
        if message.HasField("exit_code"):
            reply.job.log_line = run_logs.failure_line(self.logs, job.id, job.attempts)
        return reply

    def ListJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> pb.ListJobsReply:
        return self._list_jobs(request, self._user(context))

    def WatchJobs(
        self, request: pb.ListJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ListJobsReply | None]:
        """None: no news yet."""
        user = self._user(context)
        admission.check_length("jobs", request.jobs)
        with self.seats.taken_by(user):
            # A name is looked up once: after the end of the watched job it may mean another one.
            request.jobs[:] = [self.lookup.find(ref).id for ref in request.jobs]
            sent = None
            while True:
                number = self.view().number
                reply = self._list_jobs(request, user)
                if reply != sent:
                    yield reply
                    sent = reply
                for _ in range(round(SILENCE_SECONDS / PAUSE_SECONDS)):
                    yield None
                    if self.view().number != number:
                        break

    def GetCluster(
        self, request: pb.GetClusterRequest, context: grpc.ServicerContext
    ) -> pb.Cluster:
        self._user(context)
        view = self.view()
        disk = shutil.disk_usage(self.disk) if self.disk else None
        heard = sorted(self.heard_at(view).items())
        return pb.Cluster(
            gpus=overview.gpu_messages(view, self.lookup.state, self.usage(), self.slow(view)),
            users=overview.user_totals(view),
            policy=self.policy,
            observed_at=view.observed_at or 0.0,
            version=self.version,
            disk_bytes=disk.total if disk else 0,
            disk_free_bytes=disk.free if disk else 0,
            agents=[pb.AgentState(node=node, heard_at=at) for node, at in heard],
        )

    def GetLogs(
        self, request: pb.GetLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.LogChunk | None]:
        """None: no output yet."""
        user = self._user(context)
        job = self.lookup.find(request.job)

        def has_ended() -> bool:
            now = self.lookup.job(job.id)
            return now is None or now.outcome is not None

        with self.seats.taken_by(user):
            yield from log_stream.stream(self.logs, job, request, has_ended, _end_event(context))

    # --- what they share --------------------------------------------------------------------

    def _user(self, context: grpc.ServicerContext) -> str:
        return self.people.user(token_of(context), is_insecure(context))

    def _may_change(self, job: Job, user: str) -> bool:
        return user == job.spec.user or user in self.admins

    def _find_changeable(self, ref: str, user: str) -> Job:
        job = self.lookup.find(ref)
        self._check_changeable(job, user)
        return job

    def _check_changeable(self, job: Job, user: str) -> None:
        if not self._may_change(job, user):
            raise Forbidden(f"job {job.id} belongs to {job.spec.user}, and you are {user}")

    @property
    def _named_jobs(self) -> NamedJobs:
        return NamedJobs(self.lookup)

    def _find_own(self, job_id: JobId, user: str) -> Job | None:
        """Returns the job with this id, if it exists already."""
        job = self.lookup.job(job_id)
        if job and job.spec.user != user:
            raise Forbidden(
                f"job {job_id} already exists and belongs to {job.spec.user}: use another id"
            )
        return job

    def _admit(self, job_id: JobId, spec: JobSpec) -> None:
        if full := self.no_room():
            raise Busy(full)
        admission.check(spec, self.target.reserved)
        admission.check_possible(spec, self.view().nodes, self.rules)
        self._check_ports(job_id, spec)
        if refusal := self.target.refuses(spec.user, self.lookup.reader.users):
            raise Forbidden(refusal)

    def _check_code(self, user: str, code: str) -> None:
        if code and self.packages is None:
            raise Impossible("--code: this scheduler keeps no packages")
        if code and self.packages:
            self.packages.check(user, code)

    def _use_packages(self, jobs: Mapping[JobId, JobSpec]) -> None:
        """From now on their packages stay. `jobs` are those of one user."""
        by_package: dict[str, list[JobId]] = {}
        for job_id, spec in jobs.items():
            if spec.code:
                by_package.setdefault(spec.code, []).append(job_id)
        for code, ids in by_package.items():
            if self.packages:
                self.packages.use(jobs[ids[0]].user, code, ids)

    def _check_ports(self, job_id: JobId, spec: JobSpec) -> None:
        if self.target.maps_ports:
            admission.unclaimed(job_id, spec, self.view().jobs.values())

    def _tried(self, job_id: JobId, spec: JobSpec) -> Job:
        """As the loop would accept it now."""
        now, ended = self.inbox.now(), self._named_jobs.ended(spec)
        job = Job.submitted(job_id, spec, now)
        return known_at_submission(job, self.view().jobs, ended, now) or job

    def _submit_to_loop(self, job_id: JobId, spec: JobSpec) -> Job:
        """Returns the committed job. The loop decides which of two jobs gets a port. A job that it
        rejected is not found afterwards, and the committed view names the owner of the port. If
        that owner has ended in between, the port is free again, and the claim is repeated."""
        event = Submitted(job_id, spec, new_job_token(), self.target.maps_ports)
        for _ in range(CLAIMS_MAX):
            self.inbox.ask(replace(event, ended=self._named_jobs.ended(spec)))
            if job := self._find_own(job_id, spec.user):
                return job
            self._check_ports(job_id, spec)
        whose = "--after: the jobs" if spec.after else "--port_mapping: the owners of the ports"
        raise Busy(f"{whose} that are named keep ending: try again")

    def _list_jobs(self, request: pb.ListJobsRequest, user: str) -> pb.ListJobsReply:
        limit = request.limit if request.HasField("limit") else LIST_DEFAULT
        admission.check_integer("--nlast", limit, 1, LIST_MAX)
        admission.check_length("jobs", request.jobs)
        admission.check_length("--label", request.labels, FILTERS_MAX)
        admission.check_length("--status", request.states, FILTERS_MAX)
        wanted = Filter(
            user=request.user or ("" if request.all_users or request.jobs else user),
            project=request.project,
            experiment=request.experiment,
            labels=wire.pairs(request.labels),
            states=parse_states(request.states),
            search=checked_search(request.search),
        )
        paging = Paging.asked(request.order, request.ascending, request.cursor)
        events = self.events() if request.brief else ""  # before the jobs are looked at
        if request.jobs:
            if paging != NEWEST:
                raise Rejected("jobs that are named are listed on one page, the newest first")
            found = {job.id: job for job in map(self.lookup.find, request.jobs)}
            jobs, total = self.lookup.select(wanted, found.values(), limit)
            page = JobPage(jobs, [], total, more=False)
        else:
            page = self.lookup.page(wanted, limit, paging)
        messages = self.lookup.messages(
            page.jobs, lambda job: self._may_change(job, user), request.brief
        )
        sent = list(_truncate(messages))
        more = page.more or len(sent) < len(page.keys)
        cursor = paging.cursor(page.keys[len(sent) - 1]) if more else ""
        return pb.ListJobsReply(jobs=sent, total=page.total, next_cursor=cursor, events=events)


def _environment(preview: Preview, spec: JobSpec) -> Iterable[pb.KeyValue]:
    secrets = dict.fromkeys(spec.secrets, SECRET)
    return wire.pair_messages(sorted({**preview.environment, **secrets}.items()))


def _end_event(context: grpc.ServicerContext) -> threading.Event:
    """Returns an event that is set when the call has ended, for any reason."""
    gone = threading.Event()
    if not context.add_callback(gone.set):
        gone.set()
    return gone


def _epochs_note(spec: pb.JobSpec) -> list[str]:
    """What users of the library must know who have not said how many epochs there are."""
    words = [*spec.command, spec.script_path]
    python = spec.command and spec.command[0].rpartition("/")[2].startswith("python")
    if spec.HasField("max_epochs") or not (python or any(word.endswith(".py") for word in words)):
        return []
    return ["without --max_epochs, a script that uses kubernetesdlprofile trains 1 epoch"]


def _truncate(messages: Sequence[pb.Job]) -> Iterator[pb.Job]:
    left = REPLY_BYTES_MAX
    for message in messages:
        left -= message.ByteSize()
        if left < 0:
            return
        yield message
