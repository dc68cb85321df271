"""How a view changes when something happened. Pure. (What a plan changes: adopt.py.)

Theory of operation. A job *waits* while it has no run and no outcome. A run is launched by
adopt.py, and from then on its phase only moves forward:

    STARTING ──────────► RUNNING ──────────► STOPPING ──► over
        └───────────────────┴── (its pods end, or vanish) ──►

Two rules:

1. At every observation, all that the cluster shows is compared with all that the view has; the
   table below says what each pair means. Nothing else ends a run.
2. A run that is over passes through `_end_run`, which decides between an outcome and waiting again.

A report of a run (an epoch started or ended, a sign of life) shows that it runs, as well as an
observation does.

    view \\ cluster         nothing   pending  running  terminating  succeeded  failed
    STARTING               absent    -        running  -            exited     exited
    RUNNING                absent    -        -        -            exited     exited
    STOPPING               absent    -        -        -            exited     exited

*absent* means lost, or stopped, but only if the observation began after the run entered its phase:
an older one may have begun before its pods were created. A STARTING run that was never seen is
launched again under the same name (reconcile.py), and enters its phase again: an observation that
began before that, and arrives after a newer one, may miss the pods that are created now.

An exception: a gang of which one pod has failed or vanished is over (gang.py), although its other
pods may live for a while; they hold their GPUs as pods without a current run, and are removed as
such. The next run does not start before they are gone (adopt.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch

from scheduler.core import dependencies, gang, learning, sweeps, time_limit
from scheduler.core.admission import port_owner
from scheduler.core.draft import Change, Draft
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    EXIT_SKIPPED,
    EXIT_STOPPED,
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    Finished,
    Gpu,
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
    Visited,
)
from scheduler.core.runs import current_run, neighbours
from scheduler.core.trained import count_epochs, judge_end, record_trained, shortage

# Clusters are observed at least twice a minute. In a longer gap this machine was suspended, or its
# clock was set forward, and no run could be heard.
AWAY_SECONDS = 600.0
DOUBLED_MAX = 30  # doublings of a back-off, if no other limit comes first
HANGS = "it hangs"  # how the reason of a stop begins that is the job's fault: see watchdog.py
STEPS_HEARD = 8  # the number of newest reports whose step counts are remembered


def evolve(view: View, events: Sequence[Event], now: Time, rules: Rules) -> Change:
    draft = Draft(view, now, rules)
    draft.forget()
    # Observations are complete, so of several only the newest matters.
    looks = [event for event in events if isinstance(event, Observed)]
    newest = max(reversed(looks), key=lambda look: look.at, default=None)
    for event in events:
        if not isinstance(event, Observed) or event is newest:
            _apply(event, draft)
    return draft.build()


def restore_view(loaded: View) -> View:
    """The view of a daemon that has just started: rows, and nothing known of the cluster."""
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
    job = Job.submitted(event.job_id, event.spec, draft.now, event.token)
    if known := dependencies.known_at_submission(job, draft.jobs, event.ended, draft.now):
        draft.put(known)


@_apply.register
def _(event: Cancelled, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job is None or job.outcome:
        return
    by = f"cancelled by {event.by}" if event.by else "cancelled"
    job = _cancel(job, by, draft)
    if job.run and not event.graceful:
        # An earlier deadline stays: the time of a kill is never postponed.
        run, now = job.run, draft.now
        job = replace(job, run=replace(run, kill_at=min(now, run.kill_at or now)))
    draft.put(job)


def _cancel(job: Job, why: str, draft: Draft) -> Job:
    """The job ends as soon as its run has stopped at the end of its epoch."""
    if job.run is None:
        return _end_job(replace(job, cancelled=True), Outcome.CANCELLED, why, draft.now)
    run = asked_to_stop(job, why, draft.now, draft.rules)
    if not job.cancelled:  # a run stopped for another reason before now ends for this one
        run = replace(run, stop_reason=why)
    return replace(job, run=run, cancelled=True)


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
        # Never past the run's last epoch: a hostile number must not postpone a stop for ever.
        epoch = min(max(run.epoch_started, event.epoch), run.max_epochs)
        if epoch > run.epoch_started:
            if run.epoch_started < run.epochs_before:
                job = learning.record_restart(job, draft.now - run.started_at)
                draft.disturb(run)
            run = replace(
                run, epoch_started=epoch, epoch_at=draft.now, epoch_before_at=run.epoch_at
            )
        job = replace(job, run=run)
        # A rank that asks for an epoch has finished the epochs before it. So no epoch is lost if a
        # run stops here and its last report never comes. Only a report can end a run.
        done = min(event.epoch, run.max_epochs - 1, job.max_epochs)
        job = _advance_epochs(job, event.attempt, done)
        draft.put(record_trained(job, event.attempt, event.trained, event.epoch))


@_apply.register
def _(event: Reported, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and not event.refused and (run := _hear_from(job, event.attempt, draft.now)):
        job, memory_mib = _credible_memory(replace(job, run=run), event.memory_mib, draft)
        job = learning.record_peak(job, len(run.shares), memory_mib)
        draft.put(_raise_memory(job, memory_mib))


@_apply.register
def _(event: EpochEnded, draft: Draft) -> None:
    profile = _located(event.profile, draft)
    job = draft.jobs.get(profile.job_id)
    if job:
        job, memory_mib = _credible_memory(job, profile.memory_mib, draft)
        profile = replace(profile, memory_mib=memory_mib)
    draft.keep(profile)
    if job is None or job.outcome:
        return
    if run := _hear_from(job, profile.attempt, draft.now):
        epoch = min(profile.epoch, job.max_epochs)
        if epoch > run.epoch_measured and profile.rank == 0:  # one clock for all ranks
            job = _learn_speed(job, run, profile, draft)
            # An image that does not ask begins the next epoch now.
            began_at = draft.now if epoch > run.epoch_started else run.epoch_at
            heard = run.steps_heard
            if profile.steps:
                heard = (*heard, profile.steps)[-STEPS_HEARD:]
            run = replace(run, epoch_at=began_at, epoch_measured=epoch, steps_heard=heard)
        # A run that has finished an epoch has started it, even if it did not ask.
        run = replace(run, epoch_started=max(run.epoch_started, epoch - 1))
        job = learning.record_peak(replace(job, run=run), len(run.shares), profile.memory_mib)
    job = _advance_epochs(job, profile.attempt, min(profile.epoch, job.max_epochs))
    job = record_trained(job, profile.attempt, profile.trained, profile.epoch - 1, ended=True)
    job = _unless_done(_raise_memory(job, profile.memory_mib), draft.now)
    draft.put(_unless_hopeless(job, profile, draft))


@_apply.register
def _(event: Finished, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and (run := _hear_from(job, event.attempt, draft.now)):
        if not event.preempted:
            run = replace(run, finished=True)
        elif run.stop_at_epoch is not None:  # it may have obeyed this within an epoch
            run = replace(run, stop_at_epoch=min(run.stop_at_epoch, run.epoch_started))
        draft.put(replace(job, run=run))


@_apply.register
def _(event: OldLibrary, draft: Draft) -> None:
    job = draft.jobs.get(event.job_id)
    if job and (run := job.run) and run.attempt == event.attempt:
        draft.teach(job, old_library=True)


@_apply.register
def _(event: Visited, draft: Draft) -> None:
    """It changes nothing: what matters is the fact."""


@_apply.register
def _(event: Observed, draft: Draft) -> None:
    if draft.observed_at is not None and event.at < draft.observed_at:
        return  # a newer observation came first
    seen_before = draft.pods
    if draft.observed_at is None:
        draft.stale, draft.observed_since = True, draft.now
    elif draft.now > draft.observed_at + AWAY_SECONDS:
        draft.observed_since = draft.now
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
        elif job.run.phase is RunPhase.STARTING:  # the launch is repeated, and counts from now on
            draft.put(replace(job, run=replace(job.run, phase_at=draft.now)))


def _compare_with_pods(job: Job, run: Run, pods: tuple[Pod, ...], draft: Draft) -> Job:
    """Compares a run with the pods that the cluster shows: the table at the top."""
    states = [pod.state for pod in pods]
    if gang.is_broken(run, pods):
        return _end_run(job, run, gang.culprit(run, pods), draft)
    if states.count(PodState.SUCCEEDED) == len(states):
        return _end_run(job, run, pods[0], draft)
    if run.phase is RunPhase.STARTING and PodState.RUNNING in states:
        return replace(job, run=replace(run, phase=RunPhase.RUNNING, phase_at=draft.now))
    return job


def _end_run(job: Job, run: Run, pod: Pod | None, draft: Draft) -> Job:
    """A run has ended as `pod` shows (None: it has vanished): the job gets an outcome or waits
    again."""
    now, rules = draft.now, draft.rules
    exited_well = pod is not None and pod.state is PodState.SUCCEEDED
    wanted_more = run.max_epochs <= job.epochs_done < job.max_epochs  # since it was launched
    done = job.epochs_done >= job.max_epochs or (run.finished and not wanted_more)
    killed = run.kill_at is not None and now >= run.kill_at
    stopped = run.phase is RunPhase.STOPPING and (run.told_to_stop or killed or pod is None)
    seconds = max(0.0, now - run.started_at)
    draft.use(job.spec.user, seconds * len(run.shares))
    job = replace(job, run=None, ran_seconds=job.ran_seconds + seconds)
    if job.spec.step and pod is not None and pod.exit_code == EXIT_SKIPPED and not job.cancelled:
        return _end_job(job, Outcome.SKIPPED, pod.reason, now)
    done = done and not _lacks_outputs(job, pod)
    if done or (exited_well and not (stopped or job.cancelled or wanted_more)):
        if not done and _was_away_at_its_end(job, run, draft):
            why = (
                f"exit code 0 after {job.epochs_done} of {job.max_epochs} reported epochs, but its"
            )
            why += " old library may have reported others while the scheduler was away"
            return _end_job(job, Outcome.FAILED, why, now)
        return _finish(job, run, pod, now)
    if job.cancelled:
        return _end_job(job, Outcome.CANCELLED, run.stop_reason, now)
    if time_limit.is_reached(job, run):
        why = f"{time_limit.reason(job)} after epoch {job.epochs_done}"
        return _end_job(job, Outcome.FAILED, why, now)
    if (gone := lost_gpu(run, draft.nodes)) and _ended_by(gone, run, pod, killed):
        return _retry_or_fail(job, Failure.LOST, rules.lost_max, gone, now, rules)
    if pod is not None and pod.reason == Failure.OUT_OF_MEMORY:
        return _out_of_memory(job, run, pod.said, now, draft)
    if killed and run.stop_reason.startswith(HANGS):
        return _retry_or_fail(job, Failure.ERROR, job.spec.retries, run.stop_reason, now, rules)
    if exited_well or stopped or (pod and pod.exit_code == EXIT_STOPPED and run.stop_reason):
        said = run.stop_reason or ("more epochs are wanted" if wanted_more else "stopped")
        return replace(job, reason=f"{said}, after epoch {job.epochs_done}")
    if pod is not None and pod.reason == Failure.REFUSED:
        return _retry_or_fail(job, Failure.REFUSED, math.inf, pod.said, now, rules)
    if pod is None or pod.reason == Failure.LOST:
        why = "its pod was lost" if pod is None else pod.said or "its process was lost"
        return _retry_or_fail(job, Failure.LOST, rules.lost_max, why, now, rules)
    why = _exit_reason(pod)
    if bad := bad_gpu(run, draft.nodes):
        why = f"{why}, while {bad}"
        return _retry_or_fail(job, Failure.LOST, rules.lost_max, why, now, rules)
    return _retry_or_fail(job, Failure.ERROR, job.spec.retries, why, now, rules)


def _lacks_outputs(job: Job, pod: Pod | None) -> bool:
    """Whether it is a step whose wrapper could not keep what it gives."""
    return bool(job.spec.step) and (pod is None or pod.state is not PodState.SUCCEEDED)


def _ended_by(gone: str, run: Run, pod: Pod | None, killed: bool) -> bool:
    """Whether the run ended because its GPU was lost, and not by a stop that it obeyed or was
    killed for."""
    left = pod is not None and pod.exit_code in (0, EXIT_STOPPED)
    return not left and (not killed or run.stop_reason == gone)


def lost_gpu(run: Run, nodes: Sequence[Node]) -> str:
    """Which of its GPUs is lost, as text; empty: none of them."""
    return next((f"{name} was lost: {gpu.fault}" for name, gpu in _own(run, nodes) if gpu.lost), "")


def bad_gpu(run: Run, nodes: Sequence[Node]) -> str:
    """Which of its GPUs has an error for which runs must leave it, as text; empty: none of them."""
    return next(
        (f"{name} is to be left: {gpu.fault}" for name, gpu in _own(run, nodes) if gpu.leave), ""
    )


def _own(run: Run, nodes: Sequence[Node]) -> Iterator[tuple[str, Gpu]]:
    """The GPUs of a run, with their names."""
    keys = {share.key for share in run.shares}
    for node in nodes:
        for gpu in node.gpus:
            if (node.name, gpu.uuid) in keys:
                yield f"gpu{gpu.index} of {node.name}", gpu


def _unless_done(job: Job, now: Time) -> Job:
    """A waiting job without epochs left has ended; perhaps its last report came late. (What a step
    gives is kept after its epochs, so it ends when its wrapper does.)"""
    if job.waiting and job.epochs_done >= job.max_epochs and not job.spec.step:
        return _finish(job, None, None, now)
    return job


def _unless_hopeless(job: Job, profile: Profile, draft: Draft) -> Job:
    """A job whose score has just shown that others of its sweep are better is pruned."""
    scores = sweeps.record(draft.scores, job.spec, profile)
    if scores is draft.scores:
        return job
    draft.scores = scores
    if job.outcome or job.cancelled or profile.epoch >= job.max_epochs:
        return job
    of_sweep = scores[sweeps.sweep_of(job.spec)]
    why = sweeps.why_pruned(job.spec, job.id, profile.epoch, of_sweep)
    return _cancel(job, why, draft) if why else job


def _was_away_at_its_end(job: Job, run: Run, draft: Draft) -> bool:
    """Whether reports of the run's last epochs may be lost: nothing was heard of it since this
    daemon began to observe. The current library keeps what it could not report."""
    kind = draft.kinds.get(learning.kind_of(job.spec))
    if kind is None or not kind.old_library or run.renew_library or run.heard_at is None:
        return False
    return draft.observed_since is not None and run.heard_at < draft.observed_since


def _finish(job: Job, run: Run | None, pod: Pod | None, now: Time) -> Job:
    job = judge_end(job, run)
    said, missing = _finish_reason(job, pod), shortage(job)
    return _end_job(job, Outcome.SUCCEEDED, f"{said}, but {missing}" if missing else said, now)


def _finish_reason(job: Job, pod: Pod | None) -> str:
    said = "finished"
    if pod is not None and pod.state is PodState.FAILED:
        said = f"all epochs done, although its last run ended with {_exit_reason(pod)}"
    elif job.epochs_done < job.max_epochs and job.epochs_done:
        said = f"finished by itself after {job.epochs_done} of {job.max_epochs} epochs"
    elif not job.epochs_done and job.max_epochs > 1:
        said = f"finished, but reported none of its {job.max_epochs} epochs"
    return said


def _exit_reason(pod: Pod) -> str:
    if pod.reason == Failure.LOST and pod.said:
        return pod.said
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
    """A job may try again once with more memory than it had, if some GPU has more."""
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
    """The job, with its run asked to stop at the start of an epoch that no rank may start yet.

    Each run may finish at least one epoch, so that a job makes progress however often it is
    preempted.
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
    """Adds where the epoch was measured, and which jobs trained beside it; unknown for a run that
    is over."""
    run = current_run((profile.job_id, profile.attempt), draft.jobs)
    if run is None:
        return replace(profile, at=draft.now)
    beside = neighbours(profile.job_id, run, draft.held, draft.jobs)
    return replace(profile, placement=run.placement, beside=beside, at=draft.now)


def _learn_speed(job: Job, run: Run, profile: Profile, draft: Draft) -> Job:
    """Learns the job's speed there from the epoch that has just ended."""
    keys, beside = [share.key for share in run.shares], profile.beside
    quiet_since = max((draft.disturbed.get(key, 0.0) for key in keys), default=0.0)
    warm_up = draft.kind(job).warm_up_seconds
    taught = learning.record_epoch(job, run, profile, beside, quiet_since, draft.now, warm_up)
    if shown := learning.warm_up_shown(job, taught, run, draft.now):
        draft.learn_warm_up(job, shown)
    if beside and learning.situations_shared(taught) != learning.situations_shared(job):
        draft.stale = True  # neighbours that slow each other down should be separated soon
    return taught


def _hear_from(job: Job, attempt: int, now: Time) -> Run | None:
    """The run that has just reported, if it is the current run of its job."""
    run = job.run
    if run is None or run.attempt != attempt:
        return None
    if run.phase is RunPhase.STARTING:
        run = replace(run, phase=RunPhase.RUNNING, phase_at=now)
    return replace(run, heard_at=now)


def _advance_epochs(job: Job, attempt: int, epochs: int) -> Job:
    """Epoch numbers are absolute, so a late, lost or repeated report does no harm."""
    trained = count_epochs(job.trained, attempt, epochs)
    if epochs <= job.epochs_done:
        return job if trained is job.trained else replace(job, trained=trained)
    kept = tuple(pair for pair in job.failures if pair[0] not in (Failure.LOST, Failure.REFUSED))
    return replace(job, epochs_done=epochs, failures=kept, trained=trained)


def _credible_memory(job: Job, memory_mib: int, draft: Draft) -> tuple[Job, int]:
    """The memory of a report, or 0 if none of the run's GPUs has as much; this is counted.

    A job that was believed would fit on no GPU any more: it would wait for ever.
    """
    shares = job.run.shares if job.run else ()
    if memory_mib <= max((share.memory_mib for share in shares), default=0):
        return job, memory_mib  # nearly always; the rest looks at each GPU
    own = {share.key for share in shares}
    totals = [
        gpu.memory_mib
        for node in draft.nodes
        for gpu in node.gpus
        if not own or (node.name, gpu.uuid) in own
    ]
    if memory_mib <= max(totals, default=memory_mib):  # unknown before the first observation
        return job, memory_mib
    return replace(job, profiles_ignored=job.profiles_ignored + 1), 0


def _raise_memory(job: Job, memory_mib: int) -> Job:
    """A measured peak raises the known need of a job; no value, or 0, never lowers it."""
    return replace(job, memory_mib=memory_mib) if memory_mib > job.memory_mib else job
