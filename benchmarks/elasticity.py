"""Whether moves gain what was predicted: `python -m benchmarks.elasticity --json [--data DIR]`.

Sia's workloads 1 and 2 run under `gpu_sharing` in the daemon's own loop, on 64 GPUs of one type,
and workload 1 also on 64 of three types. All figures come from the facts, as an operator would read
them in the log. A *move* is a run on more GPUs than the job's previous run, or on other GPUs, for
the sake of the job itself. Its gain is the ratio of the epoch times before and after it: predicted,
with the expected time after the move (`run_started`); realised, with the measured one
(`run_ended`). Epochs with a warm-up or with neighbours do not count.
Without data (`--data`; the default is EPOCH_SCHEDULER_DATA or ../shared/data) it exits with code 2.

    moves                   with both gains known
    share_as_predicted      of the moves, where the realised gain was at least the predicted one,
                            within 2 %, which is the noise of one epoch
    gain, predicted_gain    medians
    restarts                of all jobs, for any reason
    restarts_most           of one job
    restarts_per_job_hour   of all jobs, divided by the hours in which they had GPUs
    epochs_least            fewest epochs of a run that was asked to stop. Because it is 1 or more,
                            a job does not restart more often than it finishes an epoch: at most
                            3600 / (its epoch and its restart, in seconds) times in an hour
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
from simulator.flags import parse_cluster
from simulator.traces.loader import load
from simulator.trials.outcome import Result
from simulator.trials.trial import Trial

SLACK = 0.02
CASES = (("t4", T4, (1, 2)), ("mixed", MIXED, (1,)))
RULES = Rules(plan_every_seconds=60.0)


@dataclass(frozen=True, slots=True)
class Stay:
    """One run according to its facts."""

    placement: str
    expected: float | None
    measured: float | None  # seconds per epoch
    epochs: int
    stopped: bool  # on request


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
    """Collects runs from the facts of each step."""

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
    result = Trial(jobs, parse_cluster(gpus), gpu_sharing(RULES), RULES, listener=reader).run()
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
        sys.stderr.write(f"{given.data}: the folder has no traces\n")
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
