"""The jobs of a sweep: how many may run at once, and which are pruned. Pure.

A sweep is all jobs of one user with the same value of the label `sweep`. A job that names a metric
reports it with its epochs; its *score* of an epoch is that value. A job is pruned if its score is
bad in comparison with the scores that other jobs had after as many epochs: it is asked to stop at
the end of its epoch, as if its owner had cancelled it gracefully, and its checkpoints stay.

- `asha` (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020): after N, 3 N,
  9 N, .. epochs, a job goes on if it is among the best third of those that have come so far.
- `median` (Golovin et al., "Google Vizier", 2017): from N epochs on, a job goes on while its best
  score so far is at least as good as the median of the scores that those had after as many epochs
  which have come to the last epoch, if there are five of them.

A score that is no finite number is worse than all others, and under both rules ends the job. But
for that, both decide as Optuna's pruners do (tests/clients/test_pruning.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from scheduler.core.model import Job, JobId, JobSpec, Profile

LABEL = "sweep"
WORKFLOW = "workflow-id"  # a label as well; of a workflow, only the number of jobs at once matters
ASHA, MEDIAN = "asha", "median"
RULES = (ASHA, MEDIAN)
FACTOR = 3  # of asha: a rung is after so many times the epochs of the one before
COMPARED_MIN = 5  # jobs that have come to the last epoch, for a median
KEPT = 100  # sweeps whose scores are remembered
PRUNED = "pruned"  # how the reason of a pruned job begins

Scores = Mapping[int, Mapping[JobId, float]]  # of a sweep: by epoch and job


def sweep_of(spec: JobSpec) -> str:
    """The name of its sweep among all users'; empty: it is in none."""
    labels = dict(spec.labels)
    name = labels.get(LABEL) or labels.get(WORKFLOW, "")
    return f"{spec.user}/{name}" if name else ""


# --- how many at once ---------------------------------------------------------------------------


def count_runs(jobs: Iterable[Job]) -> Counter[str]:
    """How many jobs of each sweep have a run, even if it has been asked to stop."""
    return Counter(sweep_of(job.spec) for job in jobs if job.run)


def is_full(job: Job, running: Mapping[str, int]) -> bool:
    """Whether as many jobs of its sweep run as may run at once."""
    return 0 < job.spec.parallel <= running.get(sweep_of(job.spec), 0)


# --- which are pruned ---------------------------------------------------------------------------


def record(known: Mapping[str, Scores], spec: JobSpec, profile: Profile) -> Mapping[str, Scores]:
    """Adds the score of an epoch; one that is known stays as it is."""
    sweep = sweep_of(spec)
    if profile.score is None or profile.rank or not (spec.metric and sweep):
        return known
    scores = known.get(sweep, {})
    rung = scores.get(profile.epoch, {})
    if profile.job_id in rung:
        return known
    rung = {**rung, profile.job_id: profile.score}
    others = {name: of for name, of in known.items() if name != sweep}
    while len(others) >= KEPT:
        del others[next(iter(others))]  # the one that was silent for longest
    return {**others, sweep: {**scores, profile.epoch: rung}}


def why_pruned(spec: JobSpec, job_id: JobId, epoch: int, scores: Scores) -> str:
    """Why the job is not worth another epoch, by its score after this one; empty: it is."""
    rung = {job: _worth(score, spec) for job, score in scores.get(epoch, {}).items()}
    if not spec.prune or job_id not in rung:
        return ""
    shown = f"{PRUNED} after epoch {epoch}: {spec.metric} {scores[epoch][job_id]:.6g}"
    if rung[job_id] == -math.inf:
        return f"{PRUNED} after epoch {epoch}: {spec.metric} is not a finite number"
    if spec.prune == ASHA:
        is_worse = _is_rung(epoch, max(1, spec.prune_after)) and _is_behind_best(job_id, rung)
        return f"{shown} is not among the best third of {len(rung)} jobs" if is_worse else ""
    done = scores.get(spec.max_epochs, {})
    others = [worth for job, worth in rung.items() if job in done]
    own = max(_worth(of[job_id], spec) for of in scores.values() if job_id in of)
    is_early = epoch < spec.prune_after or len(others) < COMPARED_MIN
    if is_early or own >= _median(others):
        return ""
    return f"{shown} is not as good as the median of {len(others)} finished jobs"


def _worth(score: float, spec: JobSpec) -> float:
    """The higher the better."""
    if not math.isfinite(score):
        return -math.inf
    return score if spec.maximize else -score


def _is_rung(epoch: int, first: int) -> bool:
    while first < epoch:
        first *= FACTOR
    return first == epoch


def _is_behind_best(job_id: JobId, rung: Mapping[JobId, float]) -> bool:
    go_on = max(1, len(rung) // FACTOR)
    return sum(worth > rung[job_id] for worth in rung.values()) >= go_on


def _median(values: list[float]) -> float:
    values, middle = sorted(values), len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (
        (values[middle - 1] + values[middle]) / 2 if values[middle - 1] > -math.inf else -math.inf
    )
