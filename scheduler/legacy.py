"""The HTTP paths that training images speak which are older than this project.

What they say comes to the same as what the library of today says: the handlers are the job
service's own. What they leave unsaid is known here: the attempt is the job's newest, and an epoch
is the next one. For that nothing is kept but what rows hold, so a daemon that has just started
counts on where the last one ended.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler import admission, oldwire
from scheduler.api import Api
from scheduler.errors import Forbidden, NotFound, Rejected, SchedulerError, Unauthenticated
from scheduler.http11 import Reply, Request
from scheduler.model import Job, JobId, Profile, RunKey, Time, View
from scheduler.profiler import Profiler
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.values import replace
from scheduler.wire import job_id

STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 409,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
STOP, GO_ON = "1", "0"  # nothing else is understood, not even with a line's end
SUBMIT = "submit"
LOCKS = 64
FORGOTTEN_AT = 1000  # runs

_LOCAL = ("127.", "::1", "::ffff:127.")


@dataclass(frozen=True, slots=True)
class Legacy:
    """Answers requests, from any thread."""

    profiler: Profiler
    api: Api
    view: Callable[[], View]
    now: Callable[[], Time]
    token_required: bool
    from_elsewhere: bool  # whether who is not on this machine may come without a token
    # Runs that say which epoch they have finished, and the report that came before that: such a
    # run's reports count nothing. To forget this costs a measurement, and no epoch.
    _numbered: dict[RunKey, oldwire.Report] = field(default_factory=dict)
    # Of a job one report is counted at a time.
    _locks: tuple[threading.Lock, ...] = field(
        default_factory=lambda: tuple(threading.Lock() for _ in range(LOCKS))
    )

    def answer(self, request: Request, caller: str) -> Reply:
        """`caller`: its address."""
        try:
            return self._answer(request, caller)
        except SchedulerError as error:
            return Reply(STATUS.get(error.status, 500), f"{error}\n")

    def _answer(self, request: Request, caller: str) -> Reply:
        _, _, path = request.path.partition("/")
        verb, _, rest = path.partition("/")
        if verb not in _PATHS and path != SUBMIT:
            raise NotFound(f"no such path: {admission.shown(request.path)}")
        method, act = _PATHS.get(verb, ("POST", None))
        if request.method != method:
            words = f"/{verb} takes {method}, not {request.method}\n"
            return Reply(405, words, (("Allow", method),))
        if act is None:
            return Reply(200, self._submit(request, caller))
        job = self._job(rest.partition("/")[0] if verb in _LONGER else rest)
        token = self._token(job, request, caller)
        self.profiler.job(job.id, job.attempts, token)  # before anything is done
        return Reply(200, act(self, job, token, request.body))

    def _job(self, text: str) -> Job:
        job = self.view().jobs.get(job_id(text))
        if job is None:
            raise NotFound(f"no live job has the id {text}")
        return job

    def _token(self, job: Job, request: Request, caller: str) -> str | None:
        """What proves that the caller speaks for the job. Old images send none, and are taken at
        their word where the settings say so."""
        token = _bearer(request)
        if token is not None or self.token_required:
            return token
        if not (self.from_elsewhere or caller.startswith(_LOCAL)):
            raise Unauthenticated(f"no token: {caller} is not this machine")
        return job.token

    # --- the paths ----------------------------------------------------------------------------

    def _has_to_stop(self, job: Job, token: str | None, body: bytes) -> str:
        why = self.profiler.start_epoch(job.id, job.attempts, job.epochs_done, token)
        return GO_ON if why is None else STOP

    def _profiling(self, job: Job, token: str | None, body: bytes) -> str:
        told = oldwire.report(body)
        with self._lock(job.id):
            epoch = self._counted(job.id, told)
            if epoch:
                self.profiler.end_epochs([self._profile(job, told, epoch)], token)
                return ""
        self.profiler.report([told.profile(job, job.attempts)], token)
        return ""

    def _end_epoch(self, job: Job, token: str | None, body: bytes) -> str:
        done = oldwire.done(body)
        with self._lock(job.id):
            job = self.view().jobs.get(job.id, job)
            told = self._numbered.get((job.id, job.attempts), oldwire.Report())
            self._number(job)
            if done > job.epochs_done:
                self.profiler.end_epochs([self._profile(job, told, done)], token)
                return ""
        self.profiler.report([oldwire.Report().profile(job, job.attempts)], token)
        return ""

    def _signal_end(self, job: Job, token: str | None, body: bytes) -> str:
        self.profiler.finish(job.id, job.attempts, 0, False, token)
        return ""

    def _signal_end_profiling(self, job: Job, token: str | None, body: bytes) -> str:
        told = oldwire.profiling_ended(body)
        self.profiler.report([told.profile(job, job.attempts)], token)
        return ""

    def _submit(self, request: Request, caller: str) -> str:
        """As whom, is told by a token of theirs: a name alone would be anybody's."""
        user = self.api.people.user(_bearer(request), not caller.startswith(_LOCAL))
        fields, named = oldwire.submission(request.body)
        if named not in ("", user):
            raise Forbidden(f"username {admission.shown(named)}: this token is {user}'s")
        wanted = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=pb.JobSpec(**fields))
        try:
            return self.api.submit(wanted, user).job.id
        except Rejected as error:
            raise type(error)(oldwire.in_its_words(str(error))) from error

    # --- counting -----------------------------------------------------------------------------

    def _counted(self, id: JobId, told: oldwire.Report) -> int | None:
        """Which epoch this ends; None: none that is new, or it will be said."""
        job = self.view().jobs.get(id)
        if job is None or job.run is None or not told.ended or told.rank:  # one clock for all ranks
            return None
        key = id, job.run.attempt
        if key in self._numbered:
            self._numbered[key] = told
            return None
        return oldwire.next_epoch(told, job.run, self.now())

    def _profile(self, job: Job, told: oldwire.Report, epoch: int) -> Profile:
        if job.run:
            told = replace(told, epoch_seconds=oldwire.credible(told, job.run, self.now()))
        return told.profile(job, job.attempts, epoch)

    def _number(self, job: Job) -> None:
        """From now on this run's word counts."""
        if len(self._numbered) > FORGOTTEN_AT:
            jobs = self.view().jobs
            live = {(id, job.attempts) for id, job in jobs.items() if job.run}
            for key in [key for key in list(self._numbered) if key not in live]:
                self._numbered.pop(key, None)
        self._numbered[job.id, job.attempts] = oldwire.Report()

    def _lock(self, id: JobId) -> threading.Lock:
        return self._locks[hash(id) % LOCKS]


_PATHS = {
    "has_to_stop": ("GET", Legacy._has_to_stop),
    "profiling": ("POST", Legacy._profiling),
    "end_epoch": ("POST", Legacy._end_epoch),
    "signal_end": ("POST", Legacy._signal_end),
    "signal_end_profiling": ("POST", Legacy._signal_end_profiling),
}
_LONGER = {"signal_end_profiling"}  # after the job comes what we call its attempt


def _bearer(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
