"""The service for training jobs: may this epoch start, and what came of the last one.

Answers are read from committed rows, and a report is acknowledged when it is on disk. A repeated or
late one does no harm, so a job that did not get the answer simply sends again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc

from scheduler.access.identity import prove_job
from scheduler.api import wire
from scheduler.api.grpc_server import token_of
from scheduler.core import admission
from scheduler.core.errors import NotFound, Rejected
from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Finished,
    Job,
    JobId,
    Profile,
    Reported,
    View,
)
from scheduler.core.runs import current_run, must_stop
from scheduler.inbox import QueueInbox
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

PROFILES_MAX = 1000  # in one request


@dataclass(frozen=True, slots=True)
class TrainingService(pb_grpc.ProfilerServicer):
    """The methods in lower case are for callers that receive reports by another protocol than
    gRPC. `token`: proves that the caller may report for the job."""

    inbox: QueueInbox
    view: Callable[[], View]
    # Jobs that have proved who they are since this daemon started: the listener for old images
    # hears these only with their token.
    proven: set[JobId] = field(default_factory=set)

    def StartEpoch(
        self, request: pb.StartEpochRequest, context: grpc.ServicerContext
    ) -> pb.StartEpochReply:
        job_id, attempt, epoch = request.job_id, request.attempt, request.epoch
        trained = request.trained if request.HasField("trained") else None
        reason = self.start_epoch(job_id, attempt, epoch, token_of(context), trained)
        self.record_proof(JobId(job_id))
        return pb.StartEpochReply(stop=reason is not None, reason=reason)

    def Report(self, request: pb.ReportRequest, context: grpc.ServicerContext) -> pb.Ack:
        token = token_of(context)
        reason = self.report(self._profiles(request.profiles, token), token)
        return pb.Ack(stop=reason is not None, reason=reason)

    def EndEpoch(
        self, request: pb.EndEpochRequest, context: grpc.ServicerContext
    ) -> pb.EndEpochReply:
        token = token_of(context)
        done = self.end_epochs(self._profiles(request.profiles, token), token)
        return pb.EndEpochReply(epochs_done=done)

    def Finish(self, request: pb.FinishRequest, context: grpc.ServicerContext) -> pb.Ack:
        job_id, attempt, rank = request.job_id, request.attempt, request.rank
        self.finish(job_id, attempt, rank, request.preempted, token_of(context))
        self.record_proof(JobId(job_id))
        return pb.Ack()

    # --- for any protocol ---------------------------------------------------------------------

    def start_epoch(
        self,
        job_id: str,
        attempt: int,
        epoch: int,
        token: str | None,
        trained: int | None = None,
    ) -> str | None:
        """Returns why the run must stop; None: it may start this epoch (counted from 0)."""
        job = self.find_job(job_id, attempt, token)
        admission.check_integer("epoch", epoch, 0, admission.INT_MAX)
        wire.check_trained(trained, epoch)
        if job.outcome is None:
            self.inbox.ask(EpochStarted(job.id, attempt, epoch, trained))
            job = self.view().jobs.get(job.id, job)
        return _stop_reason(job, attempt, epoch)

    def report(self, profiles: Sequence[Profile], token: str | None) -> str | None:
        """Returns why the run of the last profile must stop; None: it may continue. This is also
        reported within an epoch, so that a script that can save there has the time that is left
        until the deadline."""
        self._authenticate(profiles, token)
        self._ask([Reported(p.job_id, p.attempt, p.memory_mib) for p in profiles])
        last = profiles[-1]
        run = current_run((last.job_id, last.attempt), self.view().jobs)
        if run is None:
            return _over_message(last.attempt)
        return None if run.stop_at_epoch is None else run.stop_reason

    def end_epochs(self, profiles: Sequence[Profile], token: str | None) -> int:
        """Returns how many epochs the job of the last profile has done then."""
        self._authenticate(profiles, token)
        for profile in profiles:
            admission.check_integer("epoch", profile.epoch, 1, admission.INT_MAX)
        self._ask([EpochEnded(profile) for profile in profiles])
        job = self.view().jobs.get(profiles[-1].job_id)
        return job.epochs_done if job else 0

    def finish(
        self, job_id: str, attempt: int, rank: int, preempted: bool, token: str | None
    ) -> None:
        job = self.find_job(job_id, attempt, token)
        if rank == 0:  # the other ranks may still be busy
            self.inbox.ask(Finished(job.id, attempt, preempted))

    def find_job(self, job_id: str, attempt: int, token: str | None) -> Job:
        """Returns the job of a report, after checking the token and the attempt."""
        job = self.view().jobs.get(JobId(job_id))
        if job is None:
            raise NotFound(f"no live job has the id {admission.quote(job_id)}")
        prove_job(job, token)
        if not 1 <= attempt <= job.attempts:
            raise Rejected(f"attempt {attempt}: job {job.id} has had {job.attempts}")
        return job

    def record_proof(self, job_id: JobId) -> None:
        """The job has just sent its token."""
        if job_id not in self.proven:
            ended = self.proven - self.view().jobs.keys()
            self.proven.difference_update(ended)
            self.proven.add(job_id)

    def _authenticate(self, profiles: Sequence[Profile], token: str | None) -> None:
        for job_id, attempt in {(p.job_id, p.attempt): None for p in profiles}:
            self.find_job(job_id, attempt, token)

    def _profiles(self, messages: Sequence[pb.Profile], token: str | None) -> list[Profile]:
        if not 1 <= len(messages) <= PROFILES_MAX:
            raise Rejected(f"profiles: {len(messages)} of them, expected 1 to {PROFILES_MAX}")
        for job_id, attempt in {(m.job_id, m.attempt): None for m in messages}:
            self.find_job(job_id, attempt, token)
            self.record_proof(JobId(job_id))
        return [self._profile(message) for message in messages]

    def _profile(self, message: pb.Profile) -> Profile:
        """Rejects invalid values, and records this where the job's owner sees it."""
        try:
            return wire.profile(message)
        except Rejected:
            self.inbox.put(Reported(JobId(message.job_id), message.attempt, refused=True))
            raise

    def _ask(self, events: Sequence[Event]) -> None:
        """Events keep their order, so the answer to the last one covers all."""
        for event in events[:-1]:
            self.inbox.put(event)
        self.inbox.ask(events[-1])


def _stop_reason(job: Job, attempt: int, epoch: int) -> str | None:
    """Gives every rank the same answer, because it depends only on what is committed."""
    run = job.run
    if run is None or run.attempt != attempt:
        return _over_message(attempt)
    return run.stop_reason if must_stop(run, epoch) else None


def _over_message(attempt: int) -> str:
    return f"attempt {attempt} is over"
