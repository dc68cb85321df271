"""What happened between two views, told once for all readers. Pure.

The log, the metrics, `scheduler-state JOB` and the demo's story are made of nothing else. The
names and data of facts are part of the interface: add, never rename.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scheduler.model import (
    EpochEnded,
    Event,
    Fact,
    Job,
    JobId,
    Outcome,
    Run,
    RunPhase,
    Time,
    View,
)

_OUTCOMES = {
    Outcome.SUCCEEDED: "job_finished",
    Outcome.FAILED: "job_failed",
    Outcome.CANCELLED: "job_cancelled",
}


def facts(
    before: View, after: View, touched: Iterable[JobId], events: Sequence[Event], now: Time
) -> tuple[Fact, ...]:
    told = [*_nodes(before, after, now), *_epochs_over(before, events, now)]
    for job_id in touched:
        told += _job(before.jobs.get(job_id), after.jobs[job_id], now)
    return tuple(told)


def _job(old: Job | None, job: Job, now: Time) -> Iterator[Fact]:
    if old is None:
        yield Fact(
            now, "job_submitted", job.id, None, {"name": job.spec.name, "user": job.spec.user}
        )
        old = job if job.run is None and job.outcome is None else _unstarted(job)
    if job.memory_mib != old.memory_mib:
        data = {"from_mib": old.memory_mib, "to_mib": job.memory_mib}
        yield Fact(now, "memory_learned", job.id, job.attempts or None, data)
    if (job.priority, job.held, job.max_epochs) != (old.priority, old.held, old.max_epochs):
        yield Fact(
            now,
            "job_updated",
            job.id,
            None,
            {"priority": job.priority, "held": job.held, "max_epochs": job.max_epochs},
        )
    yield from _run(old, job, now)
    if job.outcome and not old.outcome:
        data = {"reason": job.reason, "epochs_done": job.epochs_done}
        yield Fact(now, _OUTCOMES[job.outcome], job.id, job.attempts or None, data)


def _unstarted(job: Job) -> Job:
    """The job as it was the moment it came, when a whole life fits into one batch."""
    return Job(
        job.id,
        job.spec,
        job.submitted_at,
        priority=job.priority,
        held=job.held,
        max_epochs=job.max_epochs,
        memory_mib=job.memory_mib,
    )


def _run(old: Job, job: Job, now: Time) -> Iterator[Fact]:
    was, run = old.run, job.run
    if was and run is None:
        yield _run_ended(was, job, now)
        return
    if run is None:
        return
    if was is None:
        gpus = ", ".join(f"{share.gpu} ({share.memory_mib} MiB)" for share in run.shares)
        data = {"gpus": gpus or "none", "epochs_done": run.epochs_before}
        yield Fact(now, "run_started", job.id, run.attempt, data)
        return
    if was.phase is RunPhase.STARTING and run.phase is not RunPhase.STARTING:
        yield Fact(now, "run_running", job.id, run.attempt, {"seconds": now - was.started_at})
    if was.phase is not RunPhase.STOPPING and run.phase is RunPhase.STOPPING:
        data = {"reason": run.stop_reason, "stop_at_epoch": run.stop_at_epoch}
        yield Fact(now, "run_asked_to_stop", job.id, run.attempt, data)
    if was.shares != run.shares:
        data = {
            "from_mib": sum(share.memory_mib for share in was.shares),
            "to_mib": sum(share.memory_mib for share in run.shares),
        }
        yield Fact(now, "run_resized", job.id, run.attempt, data)


def _run_ended(was: Run, job: Job, now: Time) -> Fact:
    data: dict[str, str | int | float | bool | None] = {
        "reason": job.reason,
        "epochs_done": job.epochs_done,
        "seconds": now - was.started_at,
    }
    if was.kill_at is not None and was.kill_at <= now and was.heard_at is not None:
        data["lost_work_seconds"] = max(0.0, was.kill_at - was.heard_at)
    return Fact(now, "run_ended", job.id, was.attempt, data)


def _epochs_over(before: View, events: Sequence[Event], now: Time) -> Iterator[Fact]:
    """A script that runs longer than it said spoils every estimate: say so."""
    for event in events:
        if isinstance(event, EpochEnded) and (job := before.jobs.get(event.profile.job_id)):
            reported = event.profile.epoch
            if reported > job.max_epochs:
                data = {"reported": reported, "max_epochs": job.max_epochs}
                yield Fact(now, "epochs_beyond_max", job.id, event.profile.attempt, data)


def _nodes(before: View, after: View, now: Time) -> Iterator[Fact]:
    if after.nodes is before.nodes:
        return
    old = {node.name: node.ready for node in before.nodes}
    new = {node.name: node.ready for node in after.nodes}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name, False) != new.get(name, False):
            kind = "node_ready" if new.get(name, False) else "node_lost"
            yield Fact(now, kind, data={"node": name})
