"""Compares how we prune with how Optuna does: `python pruners.py SEEDS`, with Optuna.

Jobs of examples/search train at once, and report in random order. Each decision is compared. As
ours are not asked at the last epoch, and Optuna takes an infinite loss for a bad one, but a NaN for
the end, neither is asked there. Prints how often each rule pruned, and where they differ.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import optuna

from scheduler.core.model import JobId, JobSpec
from scheduler.core.sweeps import ASHA, FACTOR, MEDIAN, why_pruned

EXAMPLE = Path(__file__).parents[2] / "examples" / "search" / "train.py"
JOBS, EPOCHS, AT_ONCE = 40, 12, 4
RULES: dict[str, Callable[[int], optuna.pruners.BasePruner]] = {
    ASHA: lambda after: optuna.pruners.SuccessiveHalvingPruner(
        min_resource=max(1, after), reduction_factor=FACTOR
    ),
    MEDIAN: lambda after: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=after),
}


def main(seeds: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    curves = recorded()
    pruned, asked, different = Counter[str](), Counter[str](), list[str]()
    for seed in range(seeds):
        chance = random.Random(seed)
        maximize, after = chance.random() < 0.5, chance.choice([0, 1, 2, 5])
        for rule, pruner in RULES.items():
            known = [[-v if maximize else v for v in chance.choice(curves)] for _ in range(JOBS)]
            spec = JobSpec(
                name="trial",
                user="ada",
                max_epochs=EPOCHS,
                metric="loss",
                maximize=maximize,
                prune=rule,
                prune_after=after,
            )
            direction = "maximize" if maximize else "minimize"
            study = optuna.create_study(pruner=pruner(after), direction=direction)
            for told, (ours, theirs) in enumerate(decisions(spec, study, known, chance)):
                asked[rule] += 1
                pruned[rule] += bool(ours)
                if bool(ours) != theirs:
                    different.append(f"{seed} {rule} {told}: {ours!r}, {theirs}")
    json.dump({"asked": asked, "pruned": pruned, "different": different}, sys.stdout)


def recorded() -> list[list[float]]:
    """What jobs report whose settings were chosen at random."""
    made = importlib.util.spec_from_file_location("train", EXAMPLE)
    assert made is not None
    assert made.loader is not None
    made.loader.exec_module(example := importlib.util.module_from_spec(made))
    chance, curves = np.random.default_rng(0), []
    for _ in range(JOBS):
        weights, _ = example.resumed(None, int(chance.integers(4, 32)))
        settings = 10 ** chance.uniform(-4, -0.5), chance.uniform(0, 0.95), 1e-4
        curves.append([example.train(weights, epoch, *settings) for epoch in range(EPOCHS)])
    return [curve for curve in curves if np.isfinite(curve).all()]


def decisions(
    spec: JobSpec, study: optuna.Study, curves: Sequence[Sequence[float]], chance: random.Random
) -> list[tuple[str, bool]]:
    """Of each report: why we prune, and whether Optuna does."""
    made: list[tuple[str, bool]] = []
    scores: dict[int, dict[JobId, float]] = {}
    left = list(curves)
    live = dict[JobId, tuple[optuna.Trial, Sequence[float], int]]()
    while left or live:
        while left and len(live) < AT_ONCE:
            trial = study.ask()
            live[JobId(str(trial.number))] = trial, left.pop(), 0
        job_id = chance.choice(list(live))
        trial, curve, epoch = live[job_id]
        epoch, value = epoch + 1, curve[epoch]
        scores.setdefault(epoch, {})[job_id] = value
        trial.report(value, epoch)
        live[job_id] = trial, curve, epoch
        if epoch == EPOCHS:
            study.tell(trial, value)
            del live[job_id]
            continue
        made.append((why_pruned(spec, job_id, epoch, scores), trial.should_prune()))
        if any(made[-1]):
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            del live[job_id]
    return made


if __name__ == "__main__":
    main(int(sys.argv[1]))
