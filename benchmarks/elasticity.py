"""Whether moves gain what they were to gain: `python -m benchmarks.elasticity --json [--data DIR]`.

Sia's workloads 1 and 2 under `gpu_sharing` in the daemon's own loop, on 64 GPUs of one type, and
workload 1 on 64 of three. All figures are read from the facts, as an operator would read them from
the log. A *move* is a run on more GPUs than the run before it had, or on others: such are made for
the sake of the job itself. Its gain is how many times as long its epochs were before: as predicted,
what was measured before it by what was expected of it (`run_started`); as realised, by what was
measured after it (`run_ended`). Epochs with their warm-up do not count, nor those beside others.
Without data (`--data`; the default is EPOCH_SCHEDULER_DATA or ../shared/data) it ends with 2.

    moves                   for which both are known
    share_as_predicted      of them, of which the realised gain was at least the predicted one, to
                            within 2 %, which is the noise of one epoch
    gain, predicted_gain    medians
    restarts                of all jobs, for whatever reason
    restarts_most           of one job
    restarts_per_job_hour   of all, by the hours that jobs had GPUs
    epochs_least            that a run finished which was asked to stop. As it is 1 or more, a job
                            restarts no more often than it finishes an epoch: in an hour at most
                            3600 / (its epoch and its restart, in seconds) times
    cpu_seconds
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import measured, options, show
from benchmarks.policies import MIXED, T4
from scheduler.core.model import Fact, JobId, Placement, Rules
from scheduler.core.ports import Step
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from simulator.simulate import cluster
from simulator.traces.loader import load
from simulator.trials.outcome import Result
from simulator.trials.trial import Trial

SLACK = 0.02
CASES = (("t4", T4, (1, 2)), ("mixed", MIXED, (1,)))
RULES = Rules(plan_every_seconds=60.0)


@dataclass(frozen=True, slots=True)
class Stay:
    """One run, as its facts tell it."""

    placement: str
    expected: float | None
    measured: float | None  # seconds per epoch
    epochs: int
    stopped: bool  # because it was asked to


@dataclass(frozen=True, slots=True)
class Move:
    predicted: float
    realised: float


def moves(stays: Sequence[Stay]) -> Iterator[Move]:
    for before, after in pairwise(stays):
        if before.measured and after.measured and after.expected and _for_itself(before, after):
            yield Move(before.measured / after.expected, before.measured / after.measured)


def _for_itself(before: Stay, after: Stay) -> bool:
    old, new = Placement.parse(before.placement), Placement.parse(after.placement)
    return old is not None and new is not None and (old.type != new.type or new.gpus > old.gpus)


class Reader:
    """Of the facts, as they are told."""

    def __init__(self) -> None:
        self.stays: dict[JobId, list[Stay]] = defaultdict(list)
        self._started: dict[JobId, Fact] = {}
        self._asked: set[JobId] = set()

    def __call__(self, step: Step) -> None:
        for fact in step.facts:
            if fact.job_id is None:
                continue
            if fact.kind == "run_started":
                self._started[fact.job_id] = fact
            elif fact.kind == "run_asked_to_stop":
                self._asked.add(fact.job_id)
            elif fact.kind == "run_ended":
                self._ended(fact.job_id, fact)

    def _ended(self, job_id: JobId, fact: Fact) -> None:
        started = self._started.pop(job_id).data
        self.stays[job_id].append(
            Stay(
                placement=str(started.get("placement", "")),
                expected=_number(started.get("expected_seconds")),
                measured=_number(fact.data.get("measured_seconds")),
                epochs=int(fact.data["epochs_done"] or 0) - int(started["epochs_done"] or 0),
                stopped=job_id in self._asked,
            )
        )
        self._asked.discard(job_id)


def _number(value: str | int | float | None) -> float | None:
    return float(value) if value else None


@dataclass(frozen=True, slots=True)
class Lived:
    stays: Mapping[JobId, Sequence[Stay]]
    result: Result
    cpu_seconds: float


def lived(data: Path, workload: int, gpus: str) -> Lived:
    began = time.process_time()
    jobs = load(data / "traces" / "sia" / f"workload-{workload}.csv", data=data, seed=1)
    reader = Reader()
    result = Trial(jobs, cluster(gpus), gpu_sharing(RULES), RULES, listener=reader).run()
    return Lived(dict(reader.stays), result, time.process_time() - began)


def figures(name: str, found: Sequence[Lived]) -> dict[str, float]:
    stays = [each for lived in found for each in lived.stays.values()]
    made = [move for each in stays for move in moves(each)]
    kept = [move.realised >= move.predicted * (1.0 - SLACK) for move in made]
    jobs = [job for lived in found for job in lived.result.jobs]
    restarts = sum(job.restarts for job in jobs)
    figures = {
        "moves": len(made),
        "share_as_predicted": statistics.mean(kept),
        "gain": statistics.median(move.realised for move in made),
        "predicted_gain": statistics.median(move.predicted for move in made),
        "restarts": restarts,
        "restarts_most": max(job.restarts for job in jobs),
        "restarts_per_job_hour": restarts / (sum(job.held_seconds for job in jobs) / 3600.0),
        "epochs_least": min(stay.epochs for each in stays for stay in each if stay.stopped),
    }
    return {f"{key}_{name}": round(value, 3) for key, value in figures.items()}


def main() -> None:
    given = options(__doc__, data=measured())
    if not (Path(given.data) / "traces").is_dir():
        sys.stderr.write(f"{given.data}: no traces there\n")
        sys.exit(2)
    told: dict[str, float] = {}
    seconds = 0.0
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        futures = {
            name: [pool.submit(lived, Path(given.data), number, gpus) for number in workloads]
            for name, gpus, workloads in CASES
        }
        for name, these in futures.items():
            found = [future.result() for future in these]
            told |= figures(name, found)
            seconds += sum(each.cpu_seconds for each in found)
    show(**told, cpu_seconds=round(seconds, 1))


if __name__ == "__main__":
    main()
