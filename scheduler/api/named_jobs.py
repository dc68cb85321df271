"""What a submission says of the jobs after which it starts: which they are, and how they ended.

At the submission each job that is named must be known, so a graph can have a cycle only within one
request. What is live now is judged by the loop (core/dependencies.py); what has ended may be
forgotten by its view, so its outcome is told with the submission.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from scheduler.api.lookup import Lookup
from scheduler.core.dependencies import judge
from scheduler.core.errors import NotFound, Rejected
from scheduler.core.model import After, Job, JobId, JobSpec, Outcome, Submitted

Ended = tuple[tuple[JobId, Outcome, str], ...]


@dataclass(frozen=True, slots=True)
class NamedJobs:
    lookup: Lookup

    def resolved(
        self, job_id: JobId, spec: JobSpec, among: Mapping[JobId, object] | None = None
    ) -> JobSpec:
        """The specification with the id of each job that it names. `among`: jobs of the same
        request."""
        if not spec.after:
            return spec
        ids = {job_id, *(among or ())}
        after = (
            named if named.job_id in ids else After(self._find(named.job_id).id, named.when)
            for named in spec.after
        )
        return replace(spec, after=tuple(dict.fromkeys(after)))

    def _find(self, ref: str) -> Job:
        try:
            return self.lookup.find(ref)
        except (NotFound, Rejected) as error:
            raise type(error)(f"--after: {error}") from None

    def ended(self, spec: JobSpec, but: Collection[JobId] = ()) -> Ended:
        """What the loop may have forgotten. `but`: these have not ended."""
        jobs = [self.lookup.job(each.job_id) for each in spec.after if each.job_id not in but]
        return tuple(
            dict.fromkeys(
                (job.id, job.outcome, job.spec.name) for job in jobs if job and job.outcome
            )
        )

    def notes(self, spec: JobSpec) -> list[str]:
        """What the submitter should know: the job will never start."""
        known = {job_id: (outcome, name) for job_id, outcome, name in self.ended(spec)}
        why = (judge(named, *known[named.job_id]) for named in spec.after if named.job_id in known)
        return [f"this job is skipped: {each}" for each in why if each][:1]


def in_order(events: Iterable[Submitted]) -> list[Submitted]:
    """Each job behind those of the same request that it starts after. Raises Rejected."""
    by_id = {event.job_id: event for event in events}
    graph = {
        job_id: [after.job_id for after in event.spec.after if after.job_id in by_id]
        for job_id, event in by_id.items()
    }
    try:
        return [by_id[job_id] for job_id in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        names = " -> ".join(by_id[job_id].spec.name for job_id in reversed(error.args[1]))
        raise Rejected(f"--after: these jobs would wait for each other for ever: {names}") from None
