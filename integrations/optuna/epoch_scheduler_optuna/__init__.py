"""Runs the trials of a study as jobs: exactly as many as asked for, whatever is killed.

A trial that a killed program left as RUNNING is not lost (optuna#1641, #4862, #6283): the id of its
job is derived from the study and its number, so its job is found again, or submitted at last.
"""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from collections.abc import Callable

import optuna
from optuna.trial import Trial, TrialState

from epoch_scheduler_client import Client, Job, JobSpec

POLL_SECONDS = 0.5
ENDED = ("FINISHED", "FAILED", "CANCELED")
PRUNED = "pruned"  # how the reason of a pruned job begins


def optimize(
    study: optuna.Study,
    job_of: Callable[[Trial], JobSpec],
    *,
    n_trials: int,
    parallel: int = 4,
    client: Client | None = None,
) -> None:
    """Returns when the study has `n_trials` trials and none of them runs. `job_of` makes the job of
    a trial, by what the trial suggests; it is called again for trials that were interrupted."""
    client = client or Client.from_environment()
    running: dict[int, tuple[Trial, Job]] = {}
    for frozen in study.get_trials(states=(TrialState.RUNNING,)):
        trial = Trial(study, frozen._trial_id)
        running[trial.number] = trial, _submitted(study, trial, job_of, client)
    while True:
        room = min(parallel - len(running), n_trials - len(study.get_trials(deepcopy=False)))
        for _ in range(room):
            trial = study.ask()
            running[trial.number] = trial, _submitted(study, trial, job_of, client)
        if not running:
            return
        for number, (trial, job) in list(running.items()):
            if job.state() in ENDED:
                _tell(study, trial, job)
                del running[number]
        time.sleep(POLL_SECONDS)


def _submitted(
    study: optuna.Study, trial: Trial, job_of: Callable[[Trial], JobSpec], client: Client
) -> Job:
    spec = job_of(trial)
    name = f"epoch-scheduler optuna {study.study_name}/{trial.number}"
    digest = hashlib.sha256(name.encode()).digest()
    labels = {"sweep": study.study_name, **spec.labels}
    numbered = {**spec.__dict__, "name": f"{spec.name}-{trial.number}", "labels": labels}
    job_id = str(uuid.UUID(bytes=digest[:16], version=4))
    job = client.submit(JobSpec(**numbered), job_id=job_id)
    trial.set_user_attr("job", job.id)
    return job


def _tell(study: optuna.Study, trial: Trial, job: Job) -> None:
    scores = {epoch: score for epoch, score in job.scores().items() if math.isfinite(score)}
    for epoch, score in scores.items():
        trial.report(score, epoch)
    best = max if study.direction == optuna.study.StudyDirection.MAXIMIZE else min
    if job.state() == "CANCELED" and job.reason().startswith(PRUNED) and scores:
        study.tell(trial, state=TrialState.PRUNED)
    elif job.state() == "FINISHED" and scores:
        study.tell(trial, best(scores.values()))
    else:
        study.tell(trial, state=TrialState.FAIL)
