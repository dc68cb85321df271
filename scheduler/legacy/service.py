"""The HTTP paths that old images call.

Their reports have the same effect as those of the current library: the handlers are the job
service's own. What the reports omit is added here: the attempt is the job's newest, and an epoch is
the next one. This needs only what rows contain, so a daemon that has just started continues to
count where the last one stopped.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from scheduler.access.identity import user_name
from scheduler.api.jobs import JobService
from scheduler.api.trainings import TrainingService
from scheduler.api.wire import job_id, score
from scheduler.clusters.local.accounts import account_of
from scheduler.core import admission
from scheduler.core.errors import Forbidden, NotFound, Rejected, SchedulerError, Unauthenticated
from scheduler.core.fast_replace import replace
from scheduler.core.learning import kind_of
from scheduler.core.model import Job, JobId, OldLibrary, RunKey, Time, View
from scheduler.core.runs import current_run
from scheduler.http.http11 import Reply, Request
from scheduler.http.http_server import Caller
from scheduler.legacy import messages
from scheduler.v1 import scheduler_pb2 as pb

STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 409,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
STOP, GO_ON = "1", "0"  # old images understand nothing else, not even with a newline
SUBMIT = "submit"
LOCKS = 64
NUMBERED_MAX = 1000  # runs

_NOT_HEARD = messages.Unsaved(0, messages.OldReport())
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _RunRequest:
    """What all requests of jobs have in common."""

    job: Job
    attempt: int
    token: str | None
    body: bytes
    epoch: int  # that it wants to start, counted from 0
    trained: int | None  # epochs in the weights; only the current library sends this,
    score: float | None  # and this: see Profile

    @property
    def key(self) -> RunKey:
        return self.job.id, self.attempt


@dataclass(frozen=True, slots=True)
class LegacyService:
    """Answers requests, from any thread."""

    trainings: TrainingService
    api: JobService
    view: Callable[[], View]
    now: Callable[[], Time]
    token_required: bool
    # The jobs that have a pod at this address; none: it is not known as the address of one. None:
    # there are no pods, and remote callers may not omit the token.
    jobs_at: Callable[[str], Collection[JobId]] | None
    # Runs that report the number of their finished epoch, and the report that came before: other
    # reports of such a run count no epoch. Forgetting this costs a measurement, but no epoch.
    _numbered: dict[RunKey, messages.OldReport] = field(default_factory=dict)
    # An epoch that has ended in an image that asks only then whether it must stop, and exits before
    # the script has saved: it counts when the run goes on. None: this image does not do so.
    _unsaved: dict[RunKey, messages.Unsaved | None] = field(default_factory=dict)
    # The reports of a job are counted one at a time.
    _locks: tuple[threading.Lock, ...] = field(
        default_factory=lambda: tuple(threading.Lock() for _ in range(LOCKS))
    )

    def answer(self, request: Request, caller: Caller) -> Reply:
        try:
            return self._answer(request, caller)
        except SchedulerError as error:
            return Reply(STATUS.get(error.status, 500), f"{error}\n")

    def _answer(self, request: Request, caller: Caller) -> Reply:
        _, _, path = request.path.partition("/")
        verb, _, rest = path.partition("/")
        if verb not in _PATHS and path != SUBMIT:
            raise NotFound(f"no such path: {admission.quote(request.path)}")
        method, act = _PATHS.get(verb, ("POST", None))
        if request.method != method:
            words = f"/{verb} needs the method {method}, not {request.method}\n"
            return Reply(405, words, (("Allow", method),))
        if act is None:
            return Reply(200, self._submit(request, caller))
        job = self._find_job(rest.partition("/")[0] if verb in _LONGER else rest)
        told = _RunRequest(
            job,
            _parse_number(request, "x-attempt", job.attempts),
            self._token(job, request, caller),
            request.body,
            _parse_number(request, "x-epoch", job.epochs_done),
            _parse_number(request, "x-trained", 0) if "x-trained" in request.headers else None,
            _parse_score(request.headers.get("x-score")),
        )
        self.trainings.find_job(job.id, told.attempt, told.token)  # check first
        if _bearer(request) is not None:
            self.trainings.record_proof(job.id)
        said = act(self, told)
        if verb in _RENEWABLE and "x-attempt" not in request.headers:
            self._note_old_library(told)
        return Reply(200, said)

    def _find_job(self, text: str) -> Job:
        job = self.view().jobs.get(job_id(text))
        if job is None:
            raise NotFound(f"no live job has the id {text}")
        return job

    def _token(self, job: Job, request: Request, caller: Caller) -> str | None:
        """Returns the token that proves that the caller may report for the job. Old images send
        none: they are trusted if the settings say so, and the kernel knows them as processes of
        the job's user. On a cluster, a pod of another job is not."""
        token = _bearer(request)
        if token is not None or self.token_required or job.id in self.trainings.proven:
            return token
        if self.jobs_at:
            there = self.jobs_at(caller.address)
            if there and job.id not in there:
                raise Forbidden(f"no token: the pod at {caller.address} is of another job")
            return job.token
        uid = caller.find_uid()
        if uid is None:
            raise Unauthenticated(f"no token: {caller.address} is not this machine")
        if uid not in (0, os.geteuid()) and uid != account_of(job.spec.user).uid:
            raise Forbidden(f"no token: {user_name(uid)} has no jobs of {job.spec.user}")
        return job.token

    # --- the paths ----------------------------------------------------------------------------

    def _has_to_stop(self, told: _RunRequest) -> str:
        id, attempt = told.job.id, told.attempt
        with self._lock(id):
            ended = self._unsaved.setdefault(told.key, None)
            epoch = ended.epoch - 1 if ended else told.epoch
            why = self.trainings.start_epoch(id, attempt, epoch, told.token, told.trained)
            if ended and why is None and not ended.counted:
                self._count_unsaved(told, ended)
            elif ended and why is not None and not ended.stopped:
                self._unsaved[told.key] = replace(ended, stopped=True)
                if not ended.counted:
                    self.trainings.inbox.put(OldLibrary(id, attempt, ended.epoch))
        return GO_ON if why is None else STOP

    def _profiling(self, told: _RunRequest) -> str:
        said = messages.parse_report(told.body)
        with self._lock(told.job.id):
            unsaved = self._unsaved.get(told.key)
            if (
                unsaved
                and not unsaved.counted
                and said.rank == 0
                and messages.has_gone_on(said, unsaved)
            ):
                self._count_unsaved(told, unsaved)
            epoch = self._find_ended_epoch(told, said)
            if epoch and self._is_unsaved(told, said, epoch):
                self._forget_ended_runs()
                self._unsaved[told.key] = messages.Unsaved(epoch, said)
            elif epoch:
                self._record_epoch(told, said, epoch)
                return ""
        return self._record_heartbeat(told, said)

    def _end_epoch(self, told: _RunRequest) -> str:
        done = messages.parse_done(told.body)
        with self._lock(told.job.id):
            said = self._numbered.get(told.key, messages.OldReport())
            self._mark_numbered(told.key)
            if done > told.job.epochs_done:
                self._record_epoch(told, said, done)
                return ""
        self._record_heartbeat(told, messages.OldReport())
        return ""

    def _signal_end(self, told: _RunRequest) -> str:
        self.trainings.finish(told.job.id, told.attempt, 0, False, told.token)
        return ""

    def _signal_end_profiling(self, told: _RunRequest) -> str:
        self._record_heartbeat(told, messages.parse_profiling_end(told.body))
        return ""

    def _submit(self, request: Request, caller: Caller) -> str:
        """The token identifies the user: anybody could send any name."""
        user = self.api.people.user(_bearer(request), caller.find_uid() is None)
        fields, named = messages.parse_submission(request.body)
        if named not in ("", user):
            raise Forbidden(f"username {admission.quote(named)}: this token belongs to {user}")
        wanted = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=pb.JobSpec(**fields))
        try:
            return self.api.submit(wanted, user).job.id
        except Rejected as error:
            raise type(error)(messages.with_field_names(str(error))) from error

    def _note_old_library(self, told: _RunRequest) -> None:
        """Records that the job uses an old library, which the current one can replace."""
        kind = self.view().kinds.get(kind_of(told.job.spec))
        if kind is None or not kind.old_library:
            with suppress(SchedulerError):  # then the next request records it
                self.trainings.inbox.put(OldLibrary(told.job.id, told.attempt))

    # --- epochs -------------------------------------------------------------------------------

    def _find_ended_epoch(self, told: _RunRequest, said: messages.OldReport) -> int | None:
        """Returns the epoch that has ended; None: no new one, or the run will report its
        number."""
        if not said.ended:
            return None
        if said.epoch:
            return said.epoch
        run = current_run((told.job.id, told.attempt), self.view().jobs)
        if run is None or said.rank:
            return None  # one clock for all ranks
        if told.key in self._numbered:
            self._numbered[told.key] = said
            return None
        unsaved = self._unsaved.get(told.key)
        if unsaved and not unsaved.counted:
            run = messages.with_unsaved(run, unsaved)
        return messages.next_epoch(said, run, self.now())

    def _is_unsaved(self, told: _RunRequest, said: messages.OldReport, epoch: int) -> bool:
        """Whether the run may exit before it saves this epoch: it has not asked to start it, so it
        will ask now. The last epoch is never interrupted."""
        run = current_run(told.key, self.view().jobs)
        if run is None or said.epoch or self._unsaved.get(told.key, _NOT_HEARD) is None:
            return False
        return run.epoch_started < epoch - 1 and epoch < run.max_epochs

    def _count_unsaved(self, told: _RunRequest, unsaved: messages.Unsaved) -> None:
        """The run goes on, so the script saves what it has trained."""
        self._record_epoch(told, unsaved.report, unsaved.epoch)
        # An exit in one of its threads stops nothing: such an image is not asked again.
        again = None if unsaved.stopped else replace(unsaved, counted=True)
        self._unsaved[told.key] = again

    def _record_epoch(self, told: _RunRequest, said: messages.OldReport, epoch: int) -> None:
        run = told.job.run
        if run and run.attempt == told.attempt and not said.epoch:
            said = replace(said, epoch_seconds=messages.credible_seconds(said, run, self.now()))
        profile = said.profile(told.job, told.attempt, epoch)
        profile = replace(profile, trained=told.trained, score=told.score)
        self.trainings.end_epochs([profile], told.token)

    def _record_heartbeat(self, told: _RunRequest, said: messages.OldReport) -> str:
        """Only the current library reads the answer."""
        why = self.trainings.report([said.profile(told.job, told.attempt)], told.token)
        return "" if why is None else STOP

    def _mark_numbered(self, key: RunKey) -> None:
        """From now on, this run's own epoch numbers count."""
        self._forget_ended_runs()
        self._numbered[key] = messages.OldReport()

    def _forget_ended_runs(self) -> None:
        for known in (self._numbered, self._unsaved):
            if len(known) > NUMBERED_MAX:
                jobs = self.view().jobs
                live = {(id, job.attempts) for id, job in jobs.items() if job.run}
                for old in [old for old in list(known) if old not in live]:
                    known.pop(old, None)

    def _lock(self, id: JobId) -> threading.Lock:
        return self._locks[hash(id) % LOCKS]


_PATHS = {
    "has_to_stop": ("GET", LegacyService._has_to_stop),
    "profiling": ("POST", LegacyService._profiling),
    "end_epoch": ("POST", LegacyService._end_epoch),
    "signal_end": ("POST", LegacyService._signal_end),
    "signal_end_profiling": ("POST", LegacyService._signal_end_profiling),
}
_RENEWABLE = {"has_to_stop", "profiling", "end_epoch"}  # the oldest library has another interface
_LONGER = {"signal_end_profiling"}  # the attempt follows the job in the path


def _parse_number(request: Request, header: str, otherwise: int) -> int:
    """The current library sends it; a request of an old image means the newest attempt, and the
    epoch after the last finished one."""
    number = request.headers.get(header)
    if number is None:
        return otherwise
    if not _NUMBER.fullmatch(number):
        raise Rejected(f"{header.title()} {admission.quote(number)}: is not a number")
    return int(number)


def _parse_score(text: str | None) -> float | None:
    try:
        return None if text is None else score(float(text))
    except ValueError:
        raise Rejected(f"X-Score {admission.quote(text or '')}: is not a number") from None


def _bearer(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
