"""What one finished epoch, or one finished run, teaches. Pure.

Little is kept: a mean for each situation. Predictions for new situations are made in
estimates/speed.py and estimates/interference.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    GpuKey,
    Job,
    JobFamily,
    JobId,
    JobSpec,
    Measured,
    Profile,
    Run,
    Share,
    Time,
    Used,
)

SITUATIONS_MAX = 16  # of a job; the one not updated for longest is forgotten
KIND_SITUATIONS_MAX = 64
EPOCHS_REMEMBERED = 10  # a mean forgets like one over this many epochs
RESTARTS_REMEMBERED = 3
EPOCH_SECONDS_MAX = 1e8  # three years
WHERE_GPUS_MAX, WHERE_NODES_MAX = 8, 16  # see where_of
UNLIKE = 1.3  # a family keeps apart what was so many times slower on some GPUs than on others,
PLACES_MAX = 4  # of up to so many sets of GPUs
SLACK_SECONDS = 5.0  # by how much an epoch may exceed the time that we measured for it
CREDIBLE = 0.5  # the least part of the time that we measured which a report may say

NEWEST = 4  # epochs of which the middle counts
FAR = 0.2  # the mean goes to the middle at once if it is off by this much, relatively
WARM_UP_SECONDS_MAX = 600.0  # from the launch of a run; what changes later is drift
FALL = 1.3  # a run that gets this many times faster before that was warming up


def kind_of(spec: JobSpec) -> str:
    """Jobs of one family are expected to behave alike."""
    script = spec.script_path or next(
        (word for word in (*spec.command, *spec.args) if word.endswith((".py", ".sh"))), ""
    )
    return "/".join((spec.project, spec.image, script, str(spec.batch_size)))


def is_plausible(profile: Profile, run: Run, now: Time) -> bool:
    """Whether an epoch can have taken this long: nothing is learned from a value that is zero, not
    a number, or absurd."""
    seconds = profile.epoch_seconds
    if not 0.0 < seconds < EPOCH_SECONDS_MAX:  # false for NaN too
        return False
    began_at = _began_at(profile, run)
    return began_at is None or seconds <= now - began_at + SLACK_SECONDS


def _began_at(profile: Profile, run: Run) -> Time | None:
    """When the epoch of this profile began, if known. The next one may have begun since."""
    if profile.epoch == run.epoch_started:
        return run.epoch_before_at
    # Images that do not ask begin an epoch with the report of the previous one.
    asked = profile.epoch == run.epoch_started + 1
    return run.epoch_at if asked or profile.epoch == run.epoch_measured + 1 else None


def record_epoch(
    job: Job,
    run: Run,
    profile: Profile,
    beside: tuple[JobId, ...],
    quiet_since: Time,
    now: Time,
    warm_up_seconds: float = 0.0,
) -> Job:
    """The job, with what the epoch that rank 0 of its run has just ended teaches about its speed.

    `quiet_since`: when its neighbours last changed. An epoch that began before that is not a valid
    measurement, nor is one that began in the warm-up of a run, if we know the job a little.
    """
    if run.epoch_measured == 0:
        job = replace(job, measured=tuple(_scaled(m, 1.0) for m in job.measured))
    if not is_plausible(profile, run, now):
        return replace(job, profiles_ignored=job.profiles_ignored + 1)
    began_at = _began_at(profile, run)
    if began_at is None or began_at < quiet_since:
        return job
    if job.measured and began_at < run.started_at + warm_up_seconds:
        return job
    # The first report: a run may begin after the epochs that were done when it was launched.
    warm = run.epoch_measured > 0
    seconds, where = _credible_seconds(profile, now - began_at), where_of(run.shares)
    same = [m for m in job.measured if (m.placement, m.beside) == (run.placement, beside)]
    # What a row from before GPUs were kept has shown is taken to be from here.
    here = [m for m in same if m.where == where] or [m for m in same if not m.where]
    here = here or [m for m in same if m.epochs and not warm]
    old = new = here[-1] if here else Measured(run.placement, beside, seconds, 0, where=where)
    if warm:
        new = replace(add_epoch(old, seconds), where=where, at=float(int(now)))
    warmed_up = now - run.started_at > WARM_UP_SECONDS_MAX and len(old.newest) == NEWEST
    drift = new.seconds / old.seconds if warmed_up else 1.0
    others = [_scaled(m, drift) for m in job.measured if m is not old]
    util = _blended(job.gpu_util, profile.gpu_util, EPOCHS_REMEMBERED)
    return replace(
        job,
        measured=(*others, new)[-SITUATIONS_MAX:],
        gpu_util=job.gpu_util if beside and job.gpu_util else min(util, 1.0),
    )


def _credible_seconds(profile: Profile, measured: float) -> float:
    """The seconds of this epoch: as reported, unless that is too little of what we `measured`."""
    if profile.epoch_seconds >= CREDIBLE * measured - SLACK_SECONDS:
        return profile.epoch_seconds
    return measured


def add_epoch(old: Measured, seconds: float) -> Measured:
    """The mean goes towards the middle of the newest epochs. So one that was slow, or whose clock
    jumped, hardly moves it, and a lasting change is followed within NEWEST epochs."""
    newest = (*old.newest, seconds)[-NEWEST:]
    if old.epochs == 0:  # only a first epoch was measured so far, which includes the warm-up
        return replace(old, seconds=seconds, epochs=1, newest=newest)
    # A run begins with no newest epochs; the mean stands for those of earlier runs.
    before = (old.seconds,) * min(old.epochs + 1 - len(newest), NEWEST - len(newest))
    off = math.log(_middle(before + newest) / old.seconds)
    # With few epochs, and if it is far off, the middle counts in full.
    usual = 1.0 / max(1, min(old.epochs + 1, EPOCHS_REMEMBERED) - NEWEST + 1)
    weight = max(usual, min(abs(off) / FAR, 1.0))
    moved = old.seconds * math.exp(weight * off)
    return replace(old, seconds=moved, epochs=old.epochs + 1, newest=newest)


def _middle(seconds: tuple[float, ...]) -> float:
    """The median; of an even number, the geometric mean of both in the middle."""
    ordered, half = sorted(seconds), len(seconds) // 2
    return math.sqrt(ordered[half] * ordered[~half])


def _scaled(measured: Measured, drift: float) -> Measured:
    """What was measured before this run or in another situation, now that epochs take this many
    times longer. Its newest epochs are not the newest any more."""
    if drift == 1.0 and not measured.newest:
        return measured
    return replace(measured, seconds=measured.seconds * drift, newest=())


def where_of(shares: Sequence[Share]) -> tuple[GpuKey, ...]:
    """Which GPUs these are, for what is learned of single GPUs. Of many GPUs only their nodes, each
    with an empty GPU; of many nodes nothing."""
    if len(shares) <= WHERE_GPUS_MAX:
        return tuple([share.key for share in shares])
    nodes = dict.fromkeys([share.node for share in shares])
    return tuple([(node, "") for node in nodes]) if len(nodes) <= WHERE_NODES_MAX else ()


def is_settled(measured: Measured) -> bool:
    """Whether so much was measured of a job that no warm-up is left in it."""
    epochs = measured.epochs + 1  # the first one is not among them
    return epochs * measured.seconds >= WARM_UP_SECONDS_MAX


def warm_up_shown(before: Job, after: Job, run: Run, now: Time) -> float:
    """For how long after its launch the run has trained more slowly than it does now, if the epoch
    that it has just ended shows that; else 0."""
    if after.measured is before.measured or not after.measured:
        return 0.0
    new = after.measured[-1]
    for old in before.measured:
        if (old.placement, old.beside, old.where) != (new.placement, new.beside, new.where):
            continue
        # A mean of earlier runs may have been higher for other reasons, like a slow node.
        was_first = old.epochs == 0 < new.epochs
        own = was_first or len(old.newest) == NEWEST
        if own and new.seconds * FALL < old.seconds:
            shown = now - run.started_at - new.newest[-1]
            most = WARM_UP_SECONDS_MAX
            return min(shown, most) if was_first or shown <= most else 0.0
    return 0.0


def record_peak(job: Job, gpus: int, memory_mib: int) -> Job:
    """Records the most that a GPU was seen to hold for it with this number of GPUs."""
    known = dict(job.peaks)
    if not gpus or memory_mib <= known.get(gpus, 0):
        return job
    return replace(job, peaks=tuple(sorted({**known, gpus: memory_mib}.items())))


def situations_shared(job: Job) -> frozenset[tuple[str, tuple[JobId, ...], bool]]:
    """The sets of neighbours that it has had, and whether for longer than a first epoch."""
    return frozenset((m.placement, m.beside, m.epochs > 0) for m in job.measured if m.beside)


def record_restart(job: Job, seconds: float) -> Job:
    """Records the time from the launch to the first epoch."""
    return replace(job, restart_seconds=_blended(job.restart_seconds, seconds, RESTARTS_REMEMBERED))


def _blended(old: float, new: float, remembered: int) -> float:
    """A mean of both; 0 means no value."""
    return old + (new - old) / remembered if old and new else old or new


def update_kind(kind: JobFamily, job: Job, name_of: Mapping[JobId, str]) -> JobFamily:
    """The family, with what an ended job of it has shown; `name_of`: the families of its
    neighbours."""
    size = max(1, job.spec.training_set_size)
    known = kind.measured
    for shown in job.measured:
        if any(other not in name_of for other in shown.beside):
            continue  # it ended so long ago that its family is not known
        beside = tuple(sorted(JobId(name_of[other]) for other in shown.beside))
        where = shown.where if is_settled(shown) else ()
        seconds = shown.seconds / size
        known = _with_shown(
            known, replace(shown, beside=beside, seconds=seconds, where=where, newest=())
        )
    jobs = kind.jobs + 1
    weight = 1.0 / min(jobs, EPOCHS_REMEMBERED)
    return JobFamily(
        jobs=jobs,
        measured=known[-KIND_SITUATIONS_MAX:],
        memory_mib=max(kind.memory_mib, job.memory_mib),
        gpu_util=_blended(kind.gpu_util, job.gpu_util, min(jobs, EPOCHS_REMEMBERED)),
        epochs=kind.epochs + weight * (job.epochs_done - kind.epochs),
        old_library=kind.old_library,
        warm_up_seconds=kind.warm_up_seconds,
    )


def _with_shown(known: tuple[Measured, ...], shown: Measured) -> tuple[Measured, ...]:
    """What a family has shown, with one situation of a job. What was about as fast on other GPUs is
    one mean with it; what was not is kept apart, with the GPUs, because these may be the reason."""
    here = [m for m in known if (m.placement, m.beside) == (shown.placement, shown.beside)]
    same = next((m for m in here if m.where == shown.where), None)
    if same is None:
        alike = [m for m in here if _apart(m, shown) < UNLIKE or not (m.epochs and shown.epochs)]
        same = min(alike, key=lambda m: _apart(m, shown), default=None)
    others = [m for m in known if m is not same]
    if same is None and len(here) >= PLACES_MAX:
        others.remove(here[0])
    return *others, _merged(same, shown)


def _apart(one: Measured, other: Measured) -> float:
    return max(one.seconds / other.seconds, other.seconds / one.seconds)


def _merged(old: Measured | None, new: Measured) -> Measured:
    if old is None or old.epochs == 0:
        return new
    if new.epochs == 0:
        return old
    weight = new.epochs / (old.epochs + new.epochs)
    return replace(
        new,
        seconds=old.seconds + weight * (new.seconds - old.seconds),
        epochs=min(old.epochs + new.epochs, EPOCHS_REMEMBERED),
        where=new.where if new.where == old.where else (),
        at=max(old.at, new.at),
    )


def add_usage(before: Used, gpu_seconds: float, now: Time, half_life_seconds: float) -> Used:
    """Adds GPU time used up to now."""
    return Used(usage_now(before, now, half_life_seconds) + gpu_seconds, now)


def usage_now(before: Used, now: Time, half_life_seconds: float) -> float:
    return before.gpu_seconds * math.exp2(-max(0.0, now - before.at) / half_life_seconds)
