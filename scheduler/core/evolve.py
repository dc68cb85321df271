"""How a view changes when something happened. Pure. (How it changes by a plan: adopt.py.)

Theory of operation. A job *waits* while it has no run and no outcome. A run is launched by
adopt.py and then only ever moves forward:

    STARTING ──────────► RUNNING ──────────► STOPPING ──► over
        └───────────────────┴── (its pods end, or vanish) ──►

Two rules:

1. What the cluster shows is compared with what we believe, whole, at every observation; the table
   below says what each pair means. Nothing else ends a run.
2. A run that is over leaves through `_over`, which decides between an outcome and waiting again.

Hearing from a run (an epoch started or ended, a sign of life) is as good as seeing it run.

    we believe \\ it shows  nothing   pending  running  terminating  succeeded  failed
    STARTING               absent    -        running  -            exited     exited
    RUNNING                absent    -        -        -            exited     exited
    STOPPING               absent    -        -        -            exited     exited

*absent* means lost, or stopped, only if the look began after the run came into its phase: an older
look may have begun before its pods were created. A STARTING run that was never seen is simply
asked for again, under the same name (reconcile.py); it comes into its phase anew, because a look
that began before that, and arrives after a newer one, may miss what is created now.

One honest line: a gang of which one pod has failed, or vanished, is over (ranks.py), although its
other pods may live for a while; they hold their GPUs as pods of a run nobody believes in, and are
removed as such. The next run does not start before they are gone (adopt.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch

from scheduler.core import gang, learning
from scheduler.core.admission import port_owner
from scheduler.core.draft import Change, Draft
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    EXIT_STOPPED,
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    Finished,
    Job,
    Node,
    Observed,
    OldLibrary,
    Outcome,
    Pod,
    PodState,
    Profile,
    Reported,
    Rules,
    Run,
    RunPhase,
    Submitted,
    Time,
    Updated,
    View,
)
from scheduler.core.runs import current_run, neighbours

DOUBLED_MAX = 30  # times: a back-off grows for so long, if nothing else bounds it
STEPS_HEARD = 8  # of so many reports it is remembered how many steps they had counted


def evolve(view: View, events: Sequence[Event], now: Time, rules: Rules) -> Change:
    draft = Draft(view, now, rules)
    draft.forget()
    # Observations are whole, so of several only the newest is worth a look.
    looks = [event for event in events if isinstance(event, Observed)]
    newest = max(reversed(looks), key=lambda look: look.at, default=None)
    for event in events:
        if not isinstance(event, Observed) or event is newest:
            _apply(event, draft)
    return draft.build()


def restore_view(loaded: View) -> View:
    """The view of a daemon that has just started: rows, and no idea yet of the cluster."""
    draft = Draft(replace(loaded, jobs={}), 0.0, Rules())
    for job in loaded.jobs.values():
        draft.put(job)
    return draft.build().view


@singledispatch
def _apply(event: object, draft: Draft) -> None:
    raise TypeError(f"not an event: {event!r}")


@_apply.register
def _(event: Submitted, draft: Draft) -> None:
    if event.job_id in draft.jobs:  # a client that lost our answer sends again
        return
    if event.claims_ports and port_owner(event.job_id, event.spec, draft.jobs.values()):
        return  # the view stays as it is, and the API tells the submitter
    draft.put(Job.submitted(event.job_id, event.spec, draft.now, event.token))


@_apply.register
def _(event: Cancelled, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job is None or job.outcome:
        return
    by = f"cancelled by {event.by}" if event.by else "cancelled"
    if job.run is None:
        job = replace(job, cancelled=True)
        draft.put(_end_job(job, Outcome.CANCELLED, by, draft.now))
        return
    run = asked_to_stop(job, by, draft.now, draft.rules)
    if not job.cancelled:  # whatever it was asked to stop for before, it ends for this
        run = replace(run, stop_reason=by)
    if not event.graceful:
        # An earlier deadline stays: the clock of a kill is never set back.
        kill_at = draft.now if run.kill_at is None else min(run.kill_at, draft.now)
        run = replace(run, kill_at=kill_at)
    draft.put(replace(job, run=run, cancelled=True))


@_apply.register
def _(event: Updated, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job is None or job.outcome:
        return
    if event.priority is not None:
        job = replace(job, priority=event.priority)
    if event.held is not None:
        job = replace(job, held=event.held)
    if event.max_epochs is not None:
        job = replace(job, max_epochs=max(event.max_epochs, job.epochs_done))
    draft.put(_unless_done(job, draft.now))


@_apply.register
def _(event: EpochStarted, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and (run := _hear_from(job, event.attempt, draft.now)):
        # Never past the last of which it knows: a hostile number must not put off a stop for ever.
        epoch = min(max(run.epoch_started, event.epoch), run.max_epochs)
        if epoch > run.epoch_started:
            if run.epoch_started < run.epochs_before:
                job = learning.record_restart(job, draft.now - run.started_at)
                draft.disturb(run)
            run = replace(
                run, epoch_started=epoch, epoch_at=draft.now, epoch_before_at=run.epoch_at
            )
        job = replace(job, run=run)
        # Whoever asks for an epoch has finished those before it. So nothing is lost when a run
        # stops here whose last report never comes. To end a run it takes a report.
        done = min(event.epoch, run.max_epochs - 1, job.max_epochs)
        draft.put(_advance_epochs(job, done))


@_apply.register
def _(event: Reported, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and not event.refused and (run := _hear_from(job, event.attempt, draft.now)):
        job = learning.record_peak(replace(job, run=run), len(run.shares), event.memory_mib)
        draft.put(_raise_memory(job, event.memory_mib))


@_apply.register
def _(event: EpochEnded, draft: Draft) -> None:
    profile = _located(event.profile, draft)
    draft.keep(profile)
    job = draft.jobs.get(profile.job_id)
    if job is None or job.outcome:
        return
    if run := _hear_from(job, profile.attempt, draft.now):
        epoch = min(profile.epoch, job.max_epochs)
        if epoch > run.epoch_measured and profile.rank == 0:  # one clock for all ranks
            job = _learn_speed(job, run, profile, draft)
            # An image that does not ask begins the next one now.
            began_at = draft.now if epoch > run.epoch_started else run.epoch_at
            heard = run.steps_heard
            if profile.steps:
                heard = (*heard, profile.steps)[-STEPS_HEARD:]
            run = replace(run, epoch_at=began_at, epoch_measured=epoch, steps_heard=heard)
        # Whoever has finished an epoch was let into it, even if we were not asked.
        run = replace(run, epoch_started=max(run.epoch_started, epoch - 1))
        job = learning.record_peak(replace(job, run=run), len(run.shares), profile.memory_mib)
    job = _advance_epochs(job, min(profile.epoch, job.max_epochs))
    draft.put(_unless_done(_raise_memory(job, profile.memory_mib), draft.now))


@_apply.register
def _(event: Finished, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and (run := _hear_from(job, event.attempt, draft.now)):
        if not event.preempted:
            run = replace(run, finished=True)
        elif run.stop_at_epoch is not None:  # it may have been told within an epoch, and left there
            run = replace(run, stop_at_epoch=min(run.stop_at_epoch, run.epoch_started))
        draft.put(replace(job, run=run))


@_apply.register
def _(event: OldLibrary, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and (run := job.run) and run.attempt == event.attempt:
        draft.teach(job, old_library=True)


@_apply.register
def _(event: Observed, draft: Draft) -> None:
    if draft.observed_at is not None and event.at < draft.observed_at:
        return  # it was overtaken by a newer look
    seen_before = draft.pods
    if draft.observed_at is None:
        draft.stale = True
    draft.observed_at = event.at
    draft.observe(event.nodes, gang.by_run(event.pods))
    for job in draft.jobs.values():
        if job.run is None:
            continue
        key = (job.id, job.run.attempt)
        pods = draft.pods.get(key, ())
        if pods:
            found = _compare_with_pods(job, job.run, pods, draft)
            if found is not job:
                draft.put(found)
        elif event.at > job.run.phase_at and (
            key in seen_before or job.run.phase is not RunPhase.STARTING
        ):
            draft.put(_end_run(job, job.run, None, draft))
        elif job.run.phase is RunPhase.STARTING:  # asked for once more, from now on
            draft.put(replace(job, run=replace(job.run, phase_at=draft.now)))


def _compare_with_pods(job: Job, run: Run, pods: tuple[Pod, ...], draft: Draft) -> Job:
    """What we believe about a run against the pods the cluster shows: the table on top."""
    states = [pod.state for pod in pods]
    if gang.is_broken(run, pods):
        return _end_run(job, run, gang.culprit(run, pods), draft)
    if states.count(PodState.SUCCEEDED) == len(states):
        return _end_run(job, run, pods[0], draft)
    if run.phase is RunPhase.STARTING and PodState.RUNNING in states:
        return replace(job, run=replace(run, phase=RunPhase.RUNNING, phase_at=draft.now))
    return job


def _end_run(job: Job, run: Run, pod: Pod | None, draft: Draft) -> Job:
    """A run has ended as `pod` shows (None: it has vanished): an outcome, or waiting again."""
    now, rules = draft.now, draft.rules
    exited_well = pod is not None and pod.state is PodState.SUCCEEDED
    wanted_more = run.max_epochs <= job.epochs_done < job.max_epochs  # since it was launched
    done = job.epochs_done >= job.max_epochs or (run.finished and not wanted_more)
    killed = run.kill_at is not None and now >= run.kill_at
    stopped = run.phase is RunPhase.STOPPING and (run.told_to_stop or killed or pod is None)
    seconds = max(0.0, now - run.started_at)
    draft.use(job.spec.user, seconds * len(run.shares))
    job = replace(job, run=None, ran_seconds=job.ran_seconds + seconds)
    if done or (exited_well and not (stopped or job.cancelled or wanted_more)):
        return _end_job(job, Outcome.SUCCEEDED, _finish_reason(job, pod), now)
    if job.cancelled:
        return _end_job(job, Outcome.CANCELLED, run.stop_reason, now)
    if (gone := lost_gpu(run, draft.nodes)) and _ended_by(gone, run, pod, killed):
        return _retry_or_fail(job, Failure.LOST, rules.lost_max, gone, now, rules)
    if pod is not None and pod.reason == Failure.OUT_OF_MEMORY:
        return _out_of_memory(job, run, pod.said, now, draft)
    if exited_well or stopped or (pod and pod.exit_code == EXIT_STOPPED and run.stop_reason):
        said = run.stop_reason or ("more epochs are wanted" if wanted_more else "stopped")
        return replace(job, reason=f"{said}, after epoch {job.epochs_done}")
    if pod is not None and pod.reason == Failure.REFUSED:
        return _retry_or_fail(job, Failure.REFUSED, math.inf, pod.said, now, rules)
    if pod is None or pod.reason == Failure.LOST:
        why = "its pod was lost" if pod is None else pod.said or "its process was lost"
        return _retry_or_fail(job, Failure.LOST, rules.lost_max, why, now, rules)
    return _retry_or_fail(job, Failure.ERROR, job.spec.retries, _exit_reason(pod), now, rules)


def _ended_by(gone: str, run: Run, pod: Pod | None, killed: bool) -> bool:
    """Whether it was the loss of its card, and not a stop that it had heeded, or was killed for."""
    left = pod is not None and pod.exit_code in (0, EXIT_STOPPED)
    return not left and (not killed or run.stop_reason == gone)


def lost_gpu(run: Run, nodes: Sequence[Node]) -> str:
    """Which of its cards is lost, in words; empty: none of them."""
    keys = {share.key for share in run.shares}
    lost = ((node, gpu) for node in nodes for gpu in node.gpus if gpu.lost)
    for node, gpu in lost:
        if (node.name, gpu.uuid) in keys:
            return f"gpu{gpu.index} of {node.name} was lost: {gpu.fault}"
    return ""


def _unless_done(job: Job, now: Time) -> Job:
    """A waiting job with no epoch left to do has ended: perhaps its last report came late."""
    if job.waiting and job.epochs_done >= job.max_epochs:
        return _end_job(job, Outcome.SUCCEEDED, _finish_reason(job, None), now)
    return job


def _finish_reason(job: Job, pod: Pod | None) -> str:
    if pod is not None and pod.state is PodState.FAILED:
        return f"all epochs done, although its last run ended with {_exit_reason(pod)}"
    if job.epochs_done < job.max_epochs and job.epochs_done:
        return f"finished by itself after {job.epochs_done} of {job.max_epochs} epochs"
    return "finished"


def _exit_reason(pod: Pod) -> str:
    return pod.reason or f"exit code {pod.exit_code}"


def _retry_or_fail(
    job: Job, failure: Failure, budget: float, why: str, now: Time, rules: Rules
) -> Job:
    count = job.failed(failure) + 1
    job = replace(job, failures=_counted(job, failure, count))
    if count > budget:
        after = f", {count} times" if count > 1 else ""
        return _end_job(job, Outcome.FAILED, f"{why}{after}", now)
    pause = min(
        rules.backoff_seconds * 2.0 ** min(count - 1, DOUBLED_MAX), rules.backoff_max_seconds
    )
    return replace(job, eligible_at=now + pause, reason=why)


def _out_of_memory(job: Job, run: Run, said: str, now: Time, draft: Draft) -> Job:
    """Once, a job may try again with more memory than it had, if there is a card with more."""
    had = max((share.memory_mib for share in run.shares), default=0)
    largest = max((gpu.capacity_mib for node in draft.nodes for gpu in node.gpus), default=0)
    more = min(int(had * draft.rules.out_of_memory_factor), max(largest, had))
    wanted = max(more, job.memory_mib)  # it may have been measured to need more than it was given
    why = f"out of GPU memory with {had} MiB"
    if job.failed(Failure.OUT_OF_MEMORY) or wanted <= had:
        return _end_job(job, Outcome.FAILED, f"{why}: {said}" if said else why, now)
    failures = _counted(job, Failure.OUT_OF_MEMORY, 1)
    return replace(
        job, failures=failures, memory_mib=wanted, reason=f"{why}: tried again with {wanted} MiB"
    )


def _counted(job: Job, failure: Failure, count: int) -> tuple[tuple[Failure, int], ...]:
    return tuple(sorted({**dict(job.failures), failure: count}.items()))


def _end_job(job: Job, outcome: Outcome, reason: str, now: Time) -> Job:
    return replace(job, run=None, outcome=outcome, reason=reason, ended_at=now)


def asked_to_stop(job: Job, why: str, now: Time, rules: Rules) -> Run:
    """The job's run, asked to stop at the start of an epoch that no rank has been let into.

    Each run is let to finish one epoch at least, so that however often a job makes room, it
    gets on.
    """
    run = job.run
    assert run is not None, "only a run can be asked to stop"
    if run.phase is RunPhase.STOPPING:
        return run
    return replace(
        run,
        phase=RunPhase.STOPPING,
        phase_at=now,
        stop_at_epoch=max(run.epoch_started, run.epochs_before) + 1,
        stop_reason=why,
        kill_at=now + rules.stop_grace_seconds,
    )


def _located(profile: Profile, draft: Draft) -> Profile:
    """With where it was measured, and which jobs trained beside it; unknown of a run that is
    over."""
    run = current_run((profile.job_id, profile.attempt), draft.jobs)
    if run is None:
        return replace(profile, at=draft.now)
    beside = neighbours(profile.job_id, run, draft.held, draft.jobs)
    return replace(profile, placement=run.placement, beside=beside, at=draft.now)


def _learn_speed(job: Job, run: Run, profile: Profile, draft: Draft) -> Job:
    """What the epoch just ended teaches about the job's speed there."""
    keys, beside = [share.key for share in run.shares], profile.beside
    quiet_since = max((draft.disturbed.get(key, 0.0) for key in keys), default=0.0)
    taught = learning.record_epoch(job, run, profile, beside, quiet_since, draft.now)
    if beside and learning.situations_shared(taught) != learning.situations_shared(job):
        draft.stale = True  # neighbours that harm each other are to be parted soon
    return taught


def _hear_from(job: Job, attempt: int, now: Time) -> Run | None:
    """The run that has just spoken to us, if it is the one that we believe in."""
    run = job.run
    if run is None or run.attempt != attempt:
        return None
    if run.phase is RunPhase.STARTING:
        run = replace(run, phase=RunPhase.RUNNING, phase_at=now)
    return replace(run, heard_at=now)


def _advance_epochs(job: Job, epochs: int) -> Job:
    """Epoch numbers are absolute, so a late, lost or repeated report does no harm."""
    if epochs <= job.epochs_done:
        return job
    kept = tuple(pair for pair in job.failures if pair[0] not in (Failure.LOST, Failure.REFUSED))
    return replace(job, epochs_done=epochs, failures=kept)


def _raise_memory(job: Job, memory_mib: int) -> Job:
    """A measured peak raises what a job is known to need; nothing, or a 0, never lowers it."""
    return replace(job, memory_mib=memory_mib) if memory_mib > job.memory_mib else job
