"""Checks what is said of epochs that are missing in the weights: all of it, and nothing else."""

from __future__ import annotations

from scheduler.core.model import Fact, Job, Outcome, RunKey, View
from simulator.lives.checkers import Checker, changed_jobs
from simulator.lives.training import Training
from simulator.lives.world import World

RESUMED = ("checkpoint_missing", "checkpoint_old")


class MissingEpochs(Checker):
    """A job whose weights lack an epoch does not end FINISHED without a word in its row, its reason
    and its story. One that lacks none is not said to lack any. Only of a job whose last run did not
    tell what it trained may it be said that this is not known."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.resumed: set[RunKey] = set()  # runs that are known to have begun with too little
        self.asked: set[RunKey] = set()  # runs whose first question was answered
        self.ended: dict[str, int | None] = {}  # the epochs that the story says were trained

    def on_fact(self, fact: Fact) -> None:
        if fact.job_id is None or fact.attempt is None:
            return
        key = fact.job_id, fact.attempt
        if fact.kind in RESUMED:
            run = self.world.runs.get(key)
            true = run is None or _lacks(run)
            self.require(true, key, "has all epochs, but the story has", fact.kind)
            self.resumed.add(key)
        if fact.kind == "epochs_missing":
            self.ended[fact.job_id] = int(str(fact.data["epochs_trained"]))
        if fact.kind == "epochs_unknown":
            self.ended[fact.job_id] = None

    def on_restart(self, loaded: View) -> None:
        # The witness may not have seen the facts of the last commit.
        for job in loaded.jobs.values():
            run = job.trained and self.world.runs.get((job.id, job.trained.attempt))
            if run and _lacks(run):
                self.resumed.add(run.key)

    def on_answer(self, key: RunKey, epoch: int, stop: bool) -> None:
        run = self.world.runs.get(key)
        if run is None or run.truth.ranks > 1 or run.lacks is None:
            return
        if epoch == run.first:
            self.asked.add(key)
        # That an epoch is trained again is known only from the first question, which may be lost.
        if key in self.resumed or key in self.asked or run.lacks:
            said = key in self.resumed
            self.require(_lacks(run) == said, key, "began with", run.lacks, "missing epochs")

    def on_step(self, before: View, after: View) -> None:
        for job, old in changed_jobs(before, after):
            succeeded = job.outcome is Outcome.SUCCEEDED and not old.outcome
            if succeeded and self.world.truths[job.id].habit is not None:
                self._check_end(old, job)

    def _check_end(self, old: Job, job: Job) -> None:
        if job.trained and not job.trained.certain:
            told = old.trained
            known = told and told.attempt == job.attempts and told.of >= job.epochs_done
            self.require(not known, job, "has told what it trained:", told)
            self.require("it is not known how many" in job.reason, job, "does not say so")
            self.require(job.id in self.ended, job, "is not known, without a word in its story")
            return
        done, trained = self.world.folders.trained.get(job.id, (0, 0))
        counted = max(done, job.epochs_done)
        if trained >= counted:
            self.require(not job.epochs_missing, job, "lacks nothing, but", job.trained)
        # More epochs than are wanted now may have been trained: that is as good as all of them.
        elif trained < job.max_epochs:
            self.require(bool(job.epochs_missing), job, "has trained", trained, "and", job.trained)
            self.require("weights have only" in job.reason, job, "does not say", job.epochs_missing)
            said = self.ended.get(job.id)
            self.require(said is not None, job, "lacks epochs without a word in its story")


def _lacks(run: Training) -> bool:
    """Whether the library knows that the run began with fewer epochs than its job had done."""
    return bool(run.lacks) or run.first < run.launch.epochs_done
