"""What is counted of each step: sums over the whole life of an installation, for metrics. Pure.

The store writes them with the rows that they count, so no restart and no crash changes a sum.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from scheduler.core.model import Fact, Failure, Profile, Waiting
from scheduler.core.ports import Step

Count = tuple[str, str]  # what is counted, and its label; "": it has none
Counts = Mapping[Count, float]

# The sums of facts have the kind of the fact as their label.
FACTS, PREEMPTIONS, FAILURES, DRIFT = "facts", "preemptions", "failures", "drift"
LOST_WORK_SECONDS, EPOCHS_MISSING = "lost_work_seconds", "epochs_missing"
# The times that are counted by size: the label is the largest that a bucket takes, or SUM.
WAIT_SECONDS, EPOCH_SECONDS = "wait_seconds", "epoch_seconds"
DECISION_SECONDS, STEP_SECONDS = "decision_seconds", "step_seconds"  # since the daemon's start
SUM = "sum"
BOUNDS: Mapping[str, tuple[float, ...]] = {
    WAIT_SECONDS: (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400),
    EPOCH_SECONDS: (1, 5, 15, 60, 300, 900, 1800, 3600, 2 * 3600, 6 * 3600, 86400),
    DECISION_SECONDS: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    STEP_SECONDS: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
}
# Why a run is asked to stop that would have gone on: by the first words of the text.
STOPPED_FOR = (
    *(Waiting.PREEMPTED, Waiting.MOVED, Waiting.MADE_ROOM, Waiting.STOPPED, Waiting.HELD),
    "over its share",
)
# All kinds of facts.
KINDS = (
    *("job_submitted", "job_updated", "job_finished", "job_failed", "job_cancelled"),
    "job_skipped",
    *("run_started", "run_running", "run_asked_to_stop", "run_resized", "run_ended"),
    "run_visited",
    *("run_over_share", "memory_learned", "profiles_ignored", "report_refused", "epochs_missing"),
    *("epochs_unknown", "epochs_repeated", "epochs_beyond_max", "epoch_unsaved"),
    *("checkpoint_missing", "checkpoint_old"),
    *("node_ready", "node_lost", "gpu_fault", "gpu_well", "gpu_strangers"),
)
FOREIGN, OVER_SHARE, LOST = "foreign", "over share", "lost"


def count(step: Step, stored: Sequence[Profile]) -> Counts:
    """`stored`: the measured epochs of the step that were not stored before: reports are sent
    again until they are acknowledged."""
    counts: dict[Count, float] = defaultdict(float)
    for fact in step.facts:
        counts[FACTS, fact.kind] += 1
        for key, value in _said(fact):
            counts[key] += value
    for profile in stored:
        if profile.rank == 0:
            enter(counts, EPOCH_SECONDS, profile.epoch_seconds)
    for job_id in step.touched:
        job, before = step.after.jobs.get(job_id), step.before.jobs.get(job_id)
        if job is None:
            continue
        if job.started_at is not None and (before is None or before.started_at is None):
            enter(counts, WAIT_SECONDS, job.started_at - job.submitted_at)
        for failure, number in job.failures:
            new = number - (before.failed(failure) if before else 0)
            if new > 0:
                counts[FAILURES, failure] += new
                if failure is Failure.LOST:
                    counts[DRIFT, LOST] += new
    return counts


def _said(fact: Fact) -> Iterator[tuple[Count, float]]:
    data = fact.data
    match fact.kind:
        case "run_asked_to_stop":
            words = str(data.get("reason"))
            for reason in STOPPED_FOR:
                if words.startswith(reason):
                    yield (PREEMPTIONS, reason), 1
                    break
        case "run_ended" if "lost_work_seconds" in data:
            yield (LOST_WORK_SECONDS, ""), _number(data.get("lost_work_seconds"))
        case "epochs_missing":
            done, trained = _number(data.get("epochs_done")), _number(data.get("epochs_trained"))
            yield (EPOCHS_MISSING, ""), max(0.0, done - trained)
        case "run_over_share":
            yield (DRIFT, OVER_SHARE), 1
        case "gpu_strangers" if _number(data.get("to_mib")) > _number(data.get("from_mib")):
            yield (DRIFT, FOREIGN), 1


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def enter(counts: dict[Count, float], name: str, seconds: float) -> None:
    """Counts a time by its size."""
    if math.isfinite(seconds) and seconds >= 0:
        bounds = (*BOUNDS[name], math.inf)
        size = name, f"{bounds[bisect_left(bounds, seconds)]:g}"
        counts[size] = counts.get(size, 0.0) + 1
        counts[name, SUM] = counts.get((name, SUM), 0.0) + seconds
