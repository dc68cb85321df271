"""Which of the epochs done are in the weights, as the client library counts them. Pure.

Theory of operation. Scripts report epochs, but whether they have loaded what earlier runs trained,
only their library can see, and not always. With its questions and reports it sends how many epochs
are in the weights. The first word of an attempt says what it began with; from then on the number
rises with the epochs that the attempt finishes. Where the library does not know, what is missing
stays as it was: the epochs that are finished add to both numbers.
"""

from __future__ import annotations

from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, Trained


def add_epochs(job: Job, attempt: int, epochs: int) -> Trained | None:
    """What is trained when this attempt has raised the number of epochs done by `epochs`. An older
    attempt than the one that has told trains weights that no run will load."""
    known = job.trained
    if known is None or attempt < known.attempt:
        return known
    return replace(known, epochs=known.epochs + epochs)


def record_trained(
    job: Job, attempt: int, trained: int | None, epoch: int, ended: bool = False
) -> Job:
    """An attempt has told how many epochs are trained as it begins `epoch` (from 0) or has `ended`
    it. The newest attempt counts, and of what it told the highest number: reports may be late."""
    known = job.trained
    if trained is None or attempt != job.attempts:
        return job
    if known is None or known.attempt != attempt:
        # Earlier questions and reports of this attempt may be lost.
        run = job.run
        first = min(epoch, run.epochs_before) if run and run.attempt == attempt else epoch
        loaded = max(0, first - (epoch - (trained - ended)))
        return replace(job, trained=Trained(attempt, trained, loaded, first))
    if trained <= known.epochs:
        return job
    return replace(job, trained=replace(known, epochs=trained))


def shortage(job: Job) -> str:
    """What the outcome of a job has to say; empty: no epoch is known to be missing."""
    if not job.epochs_missing:
        return ""
    return (
        f"its weights have only {job.epochs_done - job.epochs_missing} of {job.epochs_done} epochs"
    )
