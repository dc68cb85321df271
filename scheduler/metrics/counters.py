"""What was counted, under the names that Prometheus knows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scheduler.core import counts
from scheduler.core.counts import BOUNDS, SUM, Count
from scheduler.core.model import Failure

API_ERRORS, CONNECTIONS_CLOSED = "api_errors", "connections_closed"
HTTP_REFUSED, LOG_GAPS = "http_refused", "log_gaps"


@dataclass(frozen=True, slots=True)
class Counter:
    """Its name ends in `_total` for those who read it."""

    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ()  # of the label: shown with 0 too, or the first would be missed


@dataclass(frozen=True, slots=True)
class Histogram:
    name: str
    help: str


COUNTERS: Mapping[str, Counter] = {
    counts.FACTS: Counter("scheduler_facts", "Facts, by kind.", "kind", counts.KINDS),
    counts.PREEMPTIONS: Counter(
        "scheduler_preemptions",
        "Runs asked to stop that would have gone on.",
        "reason",
        counts.STOPPED_FOR,
    ),
    counts.FAILURES: Counter(
        "scheduler_run_failures", "Runs that failed, by class.", "class", tuple(Failure)
    ),
    counts.DRIFT: Counter(
        "scheduler_ledger_drift",
        "How often GPUs or runs were found in another state than we had written.",
        "kind",
        (counts.FOREIGN, counts.OVER_SHARE, counts.LOST),
    ),
    counts.LOST_WORK_SECONDS: Counter(
        "scheduler_lost_work_seconds", "Training that was lost because a run was killed."
    ),
    counts.EPOCHS_MISSING: Counter(
        "scheduler_epochs_missing", "Epochs that were reported but are not in the weights."
    ),
    API_ERRORS: Counter(
        "scheduler_api_errors",
        "Calls that were refused or failed since the start, by gRPC status.",
        "code",
        ("DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE"),
    ),
    HTTP_REFUSED: Counter(
        "scheduler_http_refused",
        "Connections for HTTP (old images, metrics) that were cut since the start, by reason.",
        "reason",
        ("crowded", "malformed", "slow", "unread"),
    ),
    LOG_GAPS: Counter(
        "scheduler_log_gaps",
        "Places in logs of pods where lines are missing, since the start.",
    ),
    CONNECTIONS_CLOSED: Counter(
        "scheduler_connections_closed",
        "Connections closed since the start because there were too many.",
    ),
}
HISTOGRAMS: Mapping[str, Histogram] = {
    counts.WAIT_SECONDS: Histogram(
        "scheduler_wait_seconds", "From the submission of a job to its first run."
    ),
    counts.EPOCH_SECONDS: Histogram("scheduler_epoch_seconds", "Duration of measured epochs."),
    counts.DECISION_SECONDS: Histogram(
        "scheduler_decision_seconds", "Time of the policy for a plan, since the start."
    ),
    counts.STEP_SECONDS: Histogram(
        "scheduler_step_seconds",
        "Time of the loop for a step: decide, commit and act, since the start.",
    ),
}


def of_counter(name: str, counted: Mapping[Count, float]) -> dict[str, float]:
    """Returns the values by label; without a label the only one is ''."""
    known = dict.fromkeys(COUNTERS[name].values or ([] if COUNTERS[name].label else [""]), 0.0)
    return known | {label: value for (of, label), value in counted.items() if of == name}


def buckets(name: str, counted: Mapping[Count, float]) -> tuple[list[tuple[str, float]], float]:
    """Returns how many were at most so large, for each bound, and the sum of all."""
    found = {label: value for (of, label), value in counted.items() if of == name}
    total = found.pop(SUM, 0.0)
    return list(_cumulated(BOUNDS[name], found)), total


def _cumulated(
    bounds: tuple[float, ...], found: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    """An installation may have counted with other bounds before."""
    sizes = sorted((float(label), number) for label, number in found.items())
    for bound in (*bounds, math.inf):
        shown = "+Inf" if bound == math.inf else str(float(bound))
        yield shown, sum(number for size, number in sizes if size <= bound)
