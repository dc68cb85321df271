"""What happened between two views, recorded once for all readers. Pure.

The log, the metrics, `scheduler-state JOB` and the demo's output consist of facts alone. The names
and data of facts are part of the interface: add, never rename.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scheduler.core.fast_replace import replace
from scheduler.core.memory import all_gpus
from scheduler.core.model import (
    EpochEnded,
    EpochStarted,
    Event,
    Fact,
    Job,
    JobId,
    OldLibrary,
    Outcome,
    Reported,
    Run,
    RunPhase,
    Time,
    Trained,
    View,
    Visited,
)
from scheduler.core.watchdog import excesses

Value = str | int | float | bool | None

_OUTCOMES = {
    Outcome.SUCCEEDED: "job_finished",
    Outcome.FAILED: "job_failed",
    Outcome.CANCELLED: "job_cancelled",
    Outcome.SKIPPED: "job_skipped",
}


def derive_facts(
    before: View, after: View, touched: Iterable[JobId], events: Sequence[Event], now: Time
) -> tuple[Fact, ...]:
    told = [*_nodes(before, after, now), *_reports(before, events, now)]
    for job_id in touched:
        told += _job(before.jobs.get(job_id), after.jobs[job_id], now)
    return (*told, *_warning_facts(before, after, touched, now))


def _fact(now: Time, kind: str, job: Job, attempt: int | None = None, **data: Value) -> Fact:
    return Fact(now, kind, job.id, attempt, data)


def _job(old: Job | None, job: Job, now: Time) -> Iterator[Fact]:
    attempt = job.attempts or None
    if old is None:
        yield _fact(now, "job_submitted", job, name=job.spec.name, user=job.spec.user)
        # A whole life may fit into one batch.
        old = Job.submitted(job.id, job.spec, job.submitted_at)
    if job.memory_mib != old.memory_mib:
        learned = {"from_mib": old.memory_mib, "to_mib": job.memory_mib}
        yield Fact(now, "memory_learned", job.id, attempt, learned)
    if job.profiles_ignored.bit_length() > old.profiles_ignored.bit_length():
        # Recorded at the first, and whenever the number has doubled: some jobs send nothing else.
        yield _fact(now, "profiles_ignored", job, attempt, ignored=job.profiles_ignored)
    asked = {"priority": job.priority, "held": job.held, "max_epochs": job.max_epochs}
    if (job.priority, job.held, job.max_epochs) != (old.priority, old.held, old.max_epochs):
        yield Fact(now, "job_updated", job.id, None, asked)
    yield from _run(old, job, now)
    if job.trained and (old.trained is None or old.trained.attempt != job.trained.attempt):
        yield from _resumed(job, job.trained, now)
    if job.outcome and not old.outcome:
        kind = _OUTCOMES[job.outcome]
        yield _fact(now, kind, job, attempt, reason=job.reason, epochs_done=job.epochs_done)
        if job.trained and not job.trained.certain:
            yield _fact(now, "epochs_unknown", job, attempt, epochs_done=job.epochs_done)
        if job.outcome is Outcome.SUCCEEDED and job.epochs_missing:
            trained = job.epochs_done - job.epochs_missing
            data: dict[str, Value] = {"epochs_done": job.epochs_done, "epochs_trained": trained}
            yield Fact(now, "epochs_missing", job.id, attempt, data)


def _resumed(job: Job, trained: Trained, now: Time) -> Iterator[Fact]:
    """A run has begun with fewer epochs in its weights than its job has done."""
    run = job.run
    done = run.epochs_before if run and run.attempt == trained.attempt else trained.first
    if trained.loaded < done:
        kind = "checkpoint_old" if trained.loaded else "checkpoint_missing"
        data: dict[str, Value] = {"epochs_done": done, "epochs_loaded": trained.loaded}
        data["first_epoch"] = trained.first + 1
        yield Fact(now, kind, job.id, trained.attempt, data)


def _run(old: Job, job: Job, now: Time) -> Iterator[Fact]:
    was, run = old.run, job.run
    if was and not (run and run.attempt == was.attempt):
        yield _run_ended(was, job, now)
        was = None  # the next run may have begun in the same step
    if run is None:
        return
    if was is None:
        gpus = ", ".join(f"{share.gpu} ({share.memory_mib} MiB)" for share in run.shares)
        done = run.epochs_before
        told: dict[str, Value] = {"gpus": gpus or "none", "epochs_done": done}
        if run.expected_seconds:
            told |= {"placement": run.placement, "expected_seconds": run.expected_seconds}
        if run.renew_library:
            told["library"] = "renewed"
        yield Fact(now, "run_started", job.id, run.attempt, told)
        return
    if was.phase is RunPhase.STARTING and run.phase is not RunPhase.STARTING:
        yield _fact(now, "run_running", job, run.attempt, seconds=now - was.started_at)
    if was.phase is not RunPhase.STOPPING and run.phase is RunPhase.STOPPING:
        at_epoch = run.stop_at_epoch
        why = run.stop_reason
        yield _fact(now, "run_asked_to_stop", job, run.attempt, reason=why, stop_at_epoch=at_epoch)
    if was.shares != run.shares:
        from_mib, to_mib = _memory(was), _memory(run)
        yield _fact(now, "run_resized", job, run.attempt, from_mib=from_mib, to_mib=to_mib)


def _warning_facts(
    before: View, after: View, touched: Iterable[JobId], now: Time
) -> Iterator[Fact]:
    """One fact for as long as the excess lasts: for the GPU on which the run is furthest over its
    share."""
    warned = {id for id in touched if _over_mib(after, id) and not _over_mib(before, id)}
    for excess in excesses(after) if warned else ():
        run = after.jobs[excess.job_id].run
        if run and excess.job_id in warned and excess.over_mib == run.over_mib:
            warned.remove(excess.job_id)
            data: dict[str, Value] = {
                "node": excess.share.node,
                "gpu": excess.share.gpu,
                "used_mib": excess.used_mib,
                "share_mib": excess.share.memory_mib,
                "at_once": run.kill_at is not None and run.kill_at <= now,
            }
            yield Fact(now, "run_over_share", excess.job_id, run.attempt, data)


def _over_mib(view: View, job_id: JobId) -> int:
    job = view.jobs.get(job_id)
    return job.run.over_mib if job and job.run else 0


def _memory(run: Run) -> int:
    return sum(share.memory_mib for share in run.shares)


def _run_ended(was: Run, job: Job, now: Time) -> Fact:
    data: dict[str, Value] = {
        "reason": job.reason,
        "epochs_done": job.epochs_done,
        "seconds": now - was.started_at,
    }
    data |= _came_to(was, job)
    if was.kill_at is not None and was.kill_at <= now and was.heard_at is not None:
        data["lost_work_seconds"] = max(0.0, was.kill_at - was.heard_at)
    return Fact(now, "run_ended", job.id, was.attempt, data)


def _came_to(was: Run, job: Job) -> dict[str, Value]:
    """How long its epochs took alone, to be compared with the expected duration."""
    learned = job.epochs_done > was.epochs_before + 1  # the first has a warm-up
    for shown in reversed(job.measured) if learned else ():
        if (shown.placement, shown.beside) == (was.placement, ()) and shown.epochs:
            return {"placement": was.placement, "measured_seconds": shown.seconds}
    return {}


def _reports(before: View, events: Sequence[Event], now: Time) -> Iterator[Fact]:
    """Facts about reports: a script that runs longer than it announced, or reports invalid values,
    spoils every estimate."""
    for event in events:
        if isinstance(event, Reported) and event.refused:
            yield Fact(now, "report_refused", event.job_id, event.attempt)
        if isinstance(event, OldLibrary) and event.unsaved:
            yield Fact(now, "epoch_unsaved", event.job_id, event.attempt, {"epoch": event.unsaved})
        if isinstance(event, Visited):
            data = {"by": event.by, "what": event.what}
            yield Fact(now, "run_visited", event.job_id, event.attempt, data)
        if isinstance(event, EpochStarted) and event.trained is None:
            yield from _repeated(before, event, now)
        if isinstance(event, EpochEnded) and (job := before.jobs.get(event.profile.job_id)):
            reported = event.profile.epoch
            if reported > job.max_epochs:
                yield _fact(
                    now,
                    "epochs_beyond_max",
                    job,
                    event.profile.attempt,
                    reported=reported,
                    max_epochs=job.max_epochs,
                )


def _repeated(before: View, event: EpochStarted, now: Time) -> Iterator[Fact]:
    """A run begins before the epoch that its job has reached: its script set the epoch itself."""
    job = before.jobs.get(event.job_id)
    run = job.run if job else None
    first = run is not None and run.attempt == event.attempt and run.epoch_started < 0
    if run and first and event.epoch < run.epochs_before:
        data: dict[str, Value] = {"first_epoch": event.epoch + 1, "epochs_done": run.epochs_before}
        yield Fact(now, "epochs_repeated", event.job_id, event.attempt, data)


def _nodes(before: View, after: View, now: Time) -> Iterator[Fact]:
    if after.nodes is before.nodes:
        return
    old = {node.name: node.ready for node in before.nodes}
    new = {node.name: node.ready for node in after.nodes}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name, False) != new.get(name, False):
            kind = "node_ready" if new.get(name, False) else "node_lost"
            yield Fact(now, kind, data={"node": name})
    yield from _gpu_facts(before, after, now)


def _gpu_facts(before: View, after: View, now: Time) -> Iterator[Fact]:
    """A GPU gets a fault or recovers; foreign processes appear on it or disappear."""
    known = all_gpus(before.nodes)
    for node in after.nodes:
        for gpu in node.gpus:
            old = known.get(
                (node.name, gpu.uuid), replace(gpu, fault="", lost=False, strange_mib=0)
            )
            place: dict[str, Value] = {"node": node.name, "gpu": gpu.uuid}
            if (gpu.fault, gpu.lost) != (old.fault, old.lost):
                kind = "gpu_fault" if gpu.fault else "gpu_well"
                yield Fact(now, kind, data={**place, "fault": gpu.fault, "lost": gpu.lost})
            if gpu.strange_mib != old.strange_mib:
                data = {**place, "from_mib": old.strange_mib, "to_mib": gpu.strange_mib}
                yield Fact(now, "gpu_strangers", data=data)
