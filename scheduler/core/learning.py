"""What one finished epoch, or one finished run, teaches. Pure.

Kept is little: for each situation a mean. What it means for situations that nobody was in yet is
for speed.py and interference.py to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, JobFamily, JobId, JobSpec, Measured, Profile, Run, Time, Used

SITUATIONS_MAX = 16  # of a job; the one longest not met is forgotten
KIND_SITUATIONS_MAX = 64
EPOCHS_REMEMBERED = 10  # a mean forgets like one over so many
RESTARTS_REMEMBERED = 3
EPOCH_SECONDS_MAX = 1e8  # three years
SLACK_SECONDS = 5.0  # what an epoch may have taken longer than we saw it take


def kind_of(spec: JobSpec) -> str:
    """Jobs of one kind are expected to behave alike."""
    script = spec.script_path or next(
        (word for word in (*spec.command, *spec.args) if word.endswith((".py", ".sh"))), ""
    )
    return "/".join((spec.project, spec.image, script, str(spec.batch_size)))


def is_plausible(profile: Profile, run: Run, now: Time) -> bool:
    """Whether an epoch can have taken so long: what is zero, not a number or absurd is not learned
    from."""
    seconds = profile.epoch_seconds
    if not 0.0 < seconds < EPOCH_SECONDS_MAX:  # nor is it then NaN
        return False
    began_at = _began_at(profile, run)
    return began_at is None or seconds <= now - began_at + SLACK_SECONDS


def _began_at(profile: Profile, run: Run) -> Time | None:
    """When the epoch began that the profile is of, if we know. The next may have begun since."""
    if profile.epoch == run.epoch_started:
        return run.epoch_before_at
    # Where an image does not ask, an epoch begins with the report of the one before.
    asked = profile.epoch == run.epoch_started + 1
    return run.epoch_at if asked or profile.epoch == run.epoch_measured + 1 else None


def record_epoch(
    job: Job, run: Run, profile: Profile, beside: tuple[JobId, ...], quiet_since: Time, now: Time
) -> Job:
    """The job, with what the epoch that its run has just ended, by rank 0, teaches of its speed.

    `quiet_since`: when its neighbours last changed. An epoch that began before that is no measure.
    """
    if not is_plausible(profile, run, now):
        return replace(job, profiles_ignored=job.profiles_ignored + 1)
    began_at = _began_at(profile, run)
    if began_at is None or began_at < quiet_since:
        return job
    warm = profile.epoch > run.epochs_before + 1
    found = [m for m in job.measured if (m.placement, m.beside) == (run.placement, beside)]
    old = found[0] if found else Measured(run.placement, beside, profile.epoch_seconds, 0)
    new = _with(old, profile.epoch_seconds) if warm else old
    others = tuple(m for m in job.measured if m not in found)
    util = _blended(job.gpu_util, profile.gpu_util, EPOCHS_REMEMBERED)
    return replace(
        job,
        measured=(*others, new)[-SITUATIONS_MAX:],
        gpu_util=job.gpu_util if beside and job.gpu_util else min(util, 1.0),
    )


def _with(old: Measured, seconds: float) -> Measured:
    if old.epochs == 0:  # there was but a first epoch, and its warm-up with it
        return replace(old, seconds=seconds, epochs=1)
    weight = 1.0 / min(old.epochs + 1, EPOCHS_REMEMBERED)
    return replace(
        old, seconds=old.seconds + weight * (seconds - old.seconds), epochs=old.epochs + 1
    )


def record_peak(job: Job, gpus: int, memory_mib: int) -> Job:
    """With so many GPUs each was seen to hold so much for it."""
    known = dict(job.peaks)
    if not gpus or memory_mib <= known.get(gpus, 0):
        return job
    return replace(job, peaks=tuple(sorted({**known, gpus: memory_mib}.items())))


def situations_shared(job: Job) -> frozenset[tuple[str, tuple[JobId, ...], bool]]:
    """The company that it has been in, and whether longer than for a first epoch."""
    return frozenset((m.placement, m.beside, m.epochs > 0) for m in job.measured if m.beside)


def record_restart(job: Job, seconds: float) -> Job:
    """From the launch to the first epoch it took so long."""
    return replace(job, restart_seconds=_blended(job.restart_seconds, seconds, RESTARTS_REMEMBERED))


def _blended(old: float, new: float, remembered: int) -> float:
    """A 0 is no value."""
    return old + (new - old) / remembered if old and new else old or new


def update_kind(kind: JobFamily, job: Job, name_of: Mapping[JobId, str]) -> JobFamily:
    """The kind, with what a job of it that is over has shown; `name_of`: its neighbours' kinds."""
    size = max(1, job.spec.training_set_size)
    known = {(m.placement, m.beside): m for m in kind.measured}
    for shown in job.measured:
        if any(other not in name_of for other in shown.beside):
            continue  # so long gone that nobody knows what it was
        beside = tuple(JobId(name_of[other]) for other in shown.beside)
        key = shown.placement, tuple(sorted(beside))
        known[key] = _merged(known.pop(key, None), shown, *key, shown.seconds / size)
    jobs = kind.jobs + 1
    weight = 1.0 / min(jobs, EPOCHS_REMEMBERED)
    return JobFamily(
        jobs=jobs,
        measured=tuple(known.values())[-KIND_SITUATIONS_MAX:],
        memory_mib=max(kind.memory_mib, job.memory_mib),
        gpu_util=_blended(kind.gpu_util, job.gpu_util, min(jobs, EPOCHS_REMEMBERED)),
        epochs=kind.epochs + weight * (job.epochs_done - kind.epochs),
        old_library=kind.old_library,
    )


def _merged(
    old: Measured | None, new: Measured, placement: str, beside: tuple[JobId, ...], seconds: float
) -> Measured:
    if old is None or old.epochs == 0:
        return Measured(placement, beside, seconds, new.epochs)
    if new.epochs == 0:
        return old
    weight = new.epochs / (old.epochs + new.epochs)
    epochs = min(old.epochs + new.epochs, EPOCHS_REMEMBERED)
    return replace(old, seconds=old.seconds + weight * (seconds - old.seconds), epochs=epochs)


def add_usage(before: Used, gpu_seconds: float, now: Time, half_life_seconds: float) -> Used:
    """So much more GPU time was had, up to now."""
    return Used(usage_now(before, now, half_life_seconds) + gpu_seconds, now)


def usage_now(before: Used, now: Time, half_life_seconds: float) -> float:
    return before.gpu_seconds * math.exp2(-max(0.0, now - before.at) / half_life_seconds)
