"""Which of the epochs done are in the weights, as the client library counts them. Pure.

Theory of operation. Scripts report epochs, but whether they have loaded what earlier runs trained,
only their library can see, and not always. With its questions and reports it sends how many epochs
are in the weights. The first word of an attempt says what it began with; from then on the number
rises with the epochs that the attempt finishes. Where the library does not know, what is missing
stays as it was: the epochs that are finished add to both numbers. At the end of the job there must
be word of the weights that its last run leaves; otherwise nothing is claimed of them.
"""

from __future__ import annotations

from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, Run, Trained


def count_epochs(known: Trained | None, attempt: int, epochs: int) -> Trained | None:
    """What is trained when this attempt has finished so many epochs, counted from the first of its
    job. An older attempt than the one that has told trains weights that no run will load."""
    if known is None or attempt < known.attempt or epochs <= known.of:
        return known
    return replace(known, epochs=known.epochs + epochs - known.of, of=epochs)


def record_trained(
    job: Job, attempt: int, trained: int | None, epoch: int, ended: bool = False
) -> Job:
    """An attempt has told how many epochs are trained as it begins `epoch` (from 0) or has `ended`
    it. The newest attempt counts, and of what it told the highest number: reports may be late."""
    known, of = job.trained, epoch + ended
    if trained is None or attempt != job.attempts:
        return job
    if known is None or known.attempt != attempt:
        # Earlier questions and reports of this attempt may be lost.
        run = job.run
        first = min(epoch, run.epochs_before) if run and run.attempt == attempt else epoch
        loaded = max(0, first - (epoch - (trained - ended)))
        return replace(job, trained=Trained(attempt, trained, loaded, first, of))
    if trained <= known.epochs and of <= known.of:
        return job
    most = replace(known, epochs=max(known.epochs, trained), of=max(known.of, of))
    return replace(job, trained=most)


def judge_end(job: Job, run: Run | None) -> Job:
    """The job at its end. Its number is not certain if nothing was told of the weights that its
    last run leaves: this `run` reported no epoch (None: it is long over), or only older ones than
    the newest one, which an earlier run reported."""
    known = job.trained
    if known is None:
        return job
    spoke = known.attempt == job.attempts or (run is not None and run.epoch_measured > 0)
    certain = spoke and known.of >= job.epochs_done
    return job if certain else replace(job, trained=replace(known, certain=False))


def shortage(job: Job) -> str:
    """What the outcome of a job has to say; empty: no epoch is known to be missing."""
    if job.trained and not job.trained.certain:
        return f"it is not known how many of {job.epochs_done} epochs are in its weights"
    if not job.epochs_missing:
        return ""
    trained = job.epochs_done - job.epochs_missing
    return f"its weights have only {trained} of {job.epochs_done} epochs"
