"""Finds live and ended jobs for users, by name or id and by filters.

The view is taken before the database is read. A job that ends in between is found twice and
counted once; it is never missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.api import wire
from scheduler.api.paging import NEWEST, Key, Paging, is_found
from scheduler.api.status import ENDED, State, is_silent, state, status
from scheduler.core.admission import quote
from scheduler.core.errors import NotFound, Rejected
from scheduler.core.model import Job, JobId, Outcome, Time, View
from scheduler.outlook.prospect import Foresight, Prospect
from scheduler.store.reader import ANY_VALUE, Query, Reader
from scheduler.v1 import scheduler_pb2 as pb

_END_OF_ID = re.compile(r"[0-9a-f-]{4,36}")
_SHORT = 8  # characters of an id's end, which are usually enough


_EVERY_STATE = frozenset(State)


@dataclass(frozen=True, slots=True)
class Filter:
    """An empty field matches every job."""

    user: str = ""
    project: str = ""
    experiment: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    states: frozenset[State] = _EVERY_STATE
    search: str = ""  # in lower case

    def chosen(self, jobs: list[Job], due_at: Time) -> list[Job]:
        """Looks only at what is asked for: there may be very many jobs, and pages ask often."""
        found = jobs
        if self.states != _EVERY_STATE:
            found = [job for job in found if state(job, due_at) in self.states]
        if self.user:
            found = [job for job in found if job.spec.user == self.user]
        if self.project:
            found = [job for job in found if job.spec.project == self.project]
        if self.experiment:
            found = [job for job in found if job.spec.experiment == self.experiment]
        if self.labels:
            found = [job for job in found if self._is_labelled(job)]
        if self.search:
            found = [job for job in found if is_found(job, self.search)]
        return found

    def _is_labelled(self, job: Job) -> bool:
        labels = dict(job.spec.labels)
        return all(
            key in labels and value in (ANY_VALUE, labels[key]) for key, value in self.labels
        )

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome, ended in ENDED.items() if ended in self.states)


@dataclass(frozen=True, slots=True)
class JobPage:
    jobs: list[Job]
    keys: list[Key]  # of these jobs
    total: int  # how many match
    more: bool  # whether there is a next page


@dataclass(frozen=True, slots=True)
class Lookup:
    view: Callable[[], View]
    reader: Reader
    now: Callable[[], Time]
    heartbeat_seconds: float
    outlook: Foresight
    since: Time = 0.0  # the start of the daemon, which could hear no job before
    annotations: Callable[[JobId], Mapping[str, str]] = lambda _: {}  # of a job

    def job(self, job_id: JobId) -> Job | None:
        return self.view().jobs.get(job_id) or self.reader.job(job_id)

    def find(self, ref: str) -> Job:
        """Finds a job by its id, by the unique end of its id, or by its name. A name must belong to
        only one live job or, if no live job has it, to only one ended job."""
        view = self.view()
        found: list[Job] = []
        what = "end of several ids"
        if _END_OF_ID.fullmatch(ref):
            found = [view.jobs.get(job.id, job) for job in self.reader.find_by_id(ref)]
        if not found:
            what = "name of several jobs"
            found = [j for j in view.jobs.values() if j.spec.name == ref and j.outcome is None]
            found = found or self.reader.find_ended(ref)
        if not found:
            raise NotFound(f"no job matches {quote(ref)}")
        if len(found) > 1:
            raise Rejected(f"{quote(ref)} is the {what}:\n{self._list_jobs(found)}")
        return found[0]

    def page(self, wanted: Filter, limit: int, paging: Paging) -> JobPage:
        due = self.due_at()
        ordered = self.view().jobs.values()  # by their submission
        live = wanted.chosen([job for job in ordered if job.outcome is None], due)
        total_live = len(live)
        if paging == NEWEST:
            live = live[-limit - 1 :]
            numbers = self.reader.numbers(job.id for job in live)
        else:
            numbers = self.reader.live_numbers() if live else {}
        ended, total = self._find_ended(wanted, limit + 1, paging)
        numbers |= self.reader.numbers(job.id for job in ended)
        jobs = {job.id: job for job in (*live, *ended) if job.id in numbers}
        keys = {id: paging.key(job, state(job, due), numbers[id]) for id, job in jobs.items()}
        found = [id for id, key in keys.items() if paging.comes_after(key)]
        found.sort(key=keys.__getitem__, reverse=not paging.ascending)
        shown = found[:limit]
        return JobPage(
            [jobs[id] for id in shown],
            [keys[id] for id in shown],
            total + total_live,
            len(found) > limit,
        )

    def select(self, wanted: Filter, jobs: Iterable[Job], limit: int) -> tuple[list[Job], int]:
        """Returns those of the jobs that match, newest first, and the number of matches."""
        taken = wanted.chosen(list(jobs), self.due_at())
        return _newest_first(taken)[:limit], len(taken)

    def state(self, job: Job) -> State:
        return state(job, self.due_at())

    def silent(self, view: View) -> set[JobId]:
        """The jobs that are UNRESPONSIVE."""
        due = self.due_at()
        return {
            job.id
            for job in view.jobs.values()
            if is_silent(job, due) and state(job, due) is State.UNRESPONSIVE
        }

    def message(self, job: Job, private: bool) -> pb.Job:
        return self.messages([job], lambda _: private)[0]

    def describe(self, job: Job, private: bool) -> tuple[pb.Job, pb.Learned]:
        """Returns the job with its forecast, and what has been learned about it."""
        view = self.view()
        job = view.jobs.get(job.id, job)
        prospect = self.outlook.of(job, view, self.now())
        message = self.message(job, private)
        wire.add_prospect(message, prospect, view, self._silent(view, job.id, prospect))
        return message, wire.learned_message(job, prospect, view)

    def describe_trial(self, job: Job) -> pb.Job:
        """Returns a job that is not submitted, as it would be if it were submitted now."""
        tried = self.outlook.trial(job, self.view(), self.now())
        job = tried.view.jobs[job.id]
        message = wire.job_message(job, status(job, tried.view, None, self.due_at()))
        silent = self._silent(tried.view, job.id, tried.prospect)
        wire.add_prospect(message, tried.prospect, tried.view, silent)
        return message

    def messages(
        self, jobs: Sequence[Job], private: Callable[[Job], bool], brief: bool = False
    ) -> list[pb.Job]:
        """Returns messages for a user. `private`: whether this user may see a job's variables."""
        view, due = self.view(), self.due_at()
        epochs = self.reader.newest_epoch(job.id for job in jobs if job.epochs_done)
        statuses = (status(job, view, epochs.get(job.id), due) for job in jobs)
        messages = [
            wire.job_message(job, of, private(job), brief)
            for job, of in zip(jobs, statuses, strict=True)
        ]
        if not brief:
            scored = self.reader.scores(job.id for job in jobs if job.spec.metric)
            for message in messages:
                message.scores.extend(wire.score_messages(scored.get(JobId(message.id), ())))
                of_job = self.annotations(JobId(message.id))
                message.annotations.extend(wire.pair_messages(of_job.items()))
        return messages

    def _silent(self, view: View, job_id: JobId, prospect: Prospect) -> list[JobId]:
        """Of this job and those that it waits for."""
        ids, due = (job_id, *prospect.remedy.until), self.due_at()
        return [id for id in ids if is_silent(view.jobs.get(id), due)]

    def due_at(self) -> Time:
        """A job that has not been heard since then is unresponsive: one lost or late report is
        harmless, two in a row are not. After a start of the daemon, each job has that long to
        report."""
        due_at = self.now() - 2 * self.heartbeat_seconds
        return due_at if due_at > self.since else 0.0

    def _find_ended(self, wanted: Filter, limit: int, paging: Paging) -> tuple[list[Job], int]:
        if not wanted.outcomes:
            return [], 0
        return self.reader.jobs(
            Query(
                users=(wanted.user,) if wanted.user else (),
                project=wanted.project,
                experiment=wanted.experiment,
                labels=wanted.labels,
                outcomes=wanted.outcomes,
                limit=limit,
                search=wanted.search,
                order=paging.order,
                ascending=paging.ascending,
                after=paging.after,
            )
        )

    def _list_jobs(self, jobs: Iterable[Job]) -> str:
        """Returns a line for each job that tells them apart."""
        jobs = list(jobs)
        length = _SHORT
        while len({job.id[-length:] for job in jobs}) < len(jobs):
            length += 1
        return "\n".join(
            f"  {job.id[-length:]}  {job.spec.name}  {job.spec.user}  {self.state(job)}"
            for job in jobs
        )


def _newest_first(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (job.submitted_at, job.id), reverse=True)
