"""The actions that make the cluster match the view. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduler.core.memory import all_gpus
from scheduler.core.model import (
    Action,
    Gpu,
    GpuKey,
    Job,
    JobId,
    Launch,
    PodState,
    Remove,
    Run,
    RunKey,
    RunPhase,
    Time,
    View,
)
from scheduler.core.runs import current_run


def reconcile(
    view: View, touched: Iterable[JobId], looked: bool, since: Time, now: Time
) -> Iterator[Action]:
    """Actions for the jobs that were touched, or for all jobs if the cluster was just observed
    (`looked`).

    `since` is the time of the step before: a deadline that has passed after it is due now.
    """
    touched = [job_id for job_id in touched if job_id in view.jobs]
    known: dict[GpuKey, Gpu] = {}
    for job in view.jobs.values() if looked else (view.jobs[job_id] for job_id in touched):
        if job.run and (launch := _launch(job, job.run, view)):
            known = known or all_gpus(view.nodes)
            if not _overfull(launch, view, known):
                yield launch
    # Before the next deadline, only touched jobs can be due.
    waits = view.due_at > now and not looked
    for job_id in sorted(view.stopping.intersection(touched) if waits else view.stopping):
        run = view.jobs[job_id].run
        if run and run.kill_at is not None and run.kill_at <= now:
            news = looked or run.kill_at > since or job_id in touched
            if news and not _leaves((job_id, run.attempt), view):
                yield Remove(job_id, run.attempt)
    runs = view.pods if looked else [(job_id, view.jobs[job_id].attempts) for job_id in touched]
    for key in runs:
        spared = key not in view.pods or current_run(key, view.jobs) or _orphaned(key, view)
        if not (spared or _leaves(key, view)):
            yield Remove(*key)


def _launch(job: Job, run: Run, view: View) -> Launch | None:
    if run.phase is not RunPhase.STARTING or (job.id, run.attempt) in view.pods:
        return None
    if run.phase_at != view.at:  # an observation that misses it says when the launch is repeated
        return None
    return Launch(
        job_id=job.id,
        attempt=run.attempt,
        spec=job.spec,
        shares=run.shares,
        epochs_done=run.epochs_before,
        max_epochs=run.max_epochs,
        token=job.token,
        renew_library=run.renew_library,
    )


def _overfull(launch: Launch, view: View, known: Mapping[GpuKey, Gpu]) -> bool:
    """Since the run got its GPUs, leftovers of another run there have taken more than they held
    then. The next observation tries again."""
    return any(
        sum(view.held.get(share.key, {}).values()) > known[share.key].capacity_mib
        for share in launch.shares
        if share.key in known
    )


def _orphaned(key: RunKey, view: View) -> bool:
    """The pod goes on although its job is unknown, which is a good reason not to remove it."""
    pods = view.pods[key]
    states = {pod.state for pod in pods}
    over = PodState.FAILED in states or states == {PodState.SUCCEEDED}
    return all(pod.orphan for pod in pods) and not over


def _leaves(key: RunKey, view: View) -> bool:
    """Whether the cluster is removing it already."""
    pods = view.pods.get(key, ())
    return bool(pods) and all(pod.state is PodState.TERMINATING for pod in pods)
