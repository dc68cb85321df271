"""Jobs that start only after others have ended. Pure.

`JobSpec.after` says which jobs, and how they must have ended; `Job.awaits` is what is left of it.
In the step in which a job ends, the condition of each job behind it is judged: it holds, and is
left out, or it can never hold, and the job ends SKIPPED, and so on down. Both ends are in one
commit, so nothing depends on how long an ended job is remembered. Only where the row of an awaited
job was damaged is its end not seen here; what it came to is then not known, and at the next
observation the jobs behind it end SKIPPED, rather than wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from scheduler.core.draft import Change, Draft
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    After,
    Job,
    JobId,
    Outcome,
    Reason,
    Rules,
    Time,
    View,
    Waiting,
    When,
)
from scheduler.core.reason_text import first_named

HOLDS: Mapping[When, frozenset[Outcome]] = {
    When.SUCCEEDED: frozenset({Outcome.SUCCEEDED}),
    When.FAILED: frozenset({Outcome.FAILED}),
    When.FINISHED: frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED}),
    When.SKIPPED_OR_SUCCEEDED: frozenset({Outcome.SKIPPED, Outcome.SUCCEEDED}),
    When.ENDED: frozenset(Outcome),
}
_DID = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "was cancelled",
    Outcome.SKIPPED: "was skipped",
    None: "was lost with its row in the database, so how it ended is not known",
}
_ONLY_IF = {When.FAILED: "if it failed", When.FINISHED: "after it has run"}


def judge(after: After, outcome: Outcome | None, name: str) -> str:
    """Why the condition can never hold, now that the job has ended so (None: that is not known);
    empty: it holds. Rows contain the text."""
    if outcome in HOLDS[after.when]:
        return ""
    only = f"; this job was to start only {_ONLY_IF[after.when]}" if after.when in _ONLY_IF else ""
    return f"{name} {_DID[outcome]}{only}"


def settle(
    view: View, touched: Iterable[JobId], looked: bool, now: Time, rules: Rules
) -> Change | None:
    """Judges the conditions that this step may have decided. `looked`: it has observed the cluster.
    None: there are none."""
    due = deque(dict.fromkeys(_undecided(view, touched, looked)))
    if not due:
        return None
    draft = Draft(view, now, rules)
    while due:
        job = _judged(draft.jobs[due.popleft()], draft)
        draft.put(job)
        if job.outcome:
            due.extend(draft.behind.get(job.id, ()))
    return draft.build()


def _undecided(view: View, touched: Iterable[JobId], looked: bool) -> Iterator[JobId]:
    if not view.behind:
        return
    for job_id in touched:
        job = view.jobs[job_id]
        if job.outcome:
            yield from view.behind.get(job_id, ())
        elif job.awaits:
            yield job_id
    for job_id, waiting in view.behind.items() if looked else ():
        if job_id not in view.jobs:
            yield from waiting


def _judged(job: Job, draft: Draft) -> Job:
    left = []
    for after in job.awaits if job.outcome is None else ():
        other = draft.jobs.get(after.job_id)
        if other and other.outcome is None:
            left.append(after)
        elif why := judge(after, *((other.outcome, other.spec.name) if other else _lost(after))):
            return replace(job, outcome=Outcome.SKIPPED, reason=why, ended_at=draft.now, awaits=())
    return job if len(left) == len(job.awaits) else replace(job, awaits=tuple(left))


def _lost(after: After) -> tuple[None, str]:
    return None, f"job {after.job_id}"


def known_at_submission(
    job: Job, jobs: Mapping[JobId, Job], ended: Iterable[tuple[JobId, Outcome, str]], now: Time
) -> Job | None:
    """The new job after what is known of jobs that ended before (id, outcome, name); None: it names
    a job that is neither in the view nor among them. What the view knows is judged by `settle`."""
    known = {job_id: (outcome, name) for job_id, outcome, name in ended}
    left = []
    for after in job.awaits:
        if after.job_id in jobs:
            left.append(after)
        elif after.job_id not in known:
            return None
        elif why := judge(after, *known[after.job_id]):
            return replace(job, outcome=Outcome.SKIPPED, reason=why, ended_at=now, awaits=())
    return replace(job, awaits=tuple(left))


def reason(job: Job, view: View) -> Reason:
    """Why a job waits that awaits others."""
    jobs = view.jobs
    names, more = first_named(
        jobs[after.job_id].spec.name if after.job_id in jobs else after.job_id
        for after in job.awaits
    )
    whens = {after.when for after in job.awaits}
    return Reason(
        Waiting.AFTER, jobs=names, jobs_more=more, when=whens.pop() if len(whens) == 1 else None
    )


def jobs_behind(job_id: JobId, view: View) -> list[Job]:
    """The live jobs that wait for the end of this one, and those behind them: each after those that
    it awaits itself."""
    found: set[JobId] = set()
    due = deque(view.behind.get(job_id, ()))
    while due:
        each = due.popleft()
        if each not in found:
            found.add(each)
            due.extend(view.behind.get(each, ()))
    awaited = {
        each: [after.job_id for after in view.jobs[each].awaits if after.job_id in found]
        for each in view.jobs  # by their submission
        if each in found
    }
    return [view.jobs[each] for each in TopologicalSorter(awaited).static_order()]
