"""The cost and the accuracy of learning: `python -m benchmarks.fit --json [--data DIR]`.

As for each plan, speeds and interference are learned for 10,000 jobs of 300 kinds with 4
measurements each (2 alone, 2 beside another) on 3 types of GPU. Between two rounds 1 % of the jobs
change. CPU seconds, the median of the rounds:

    cpu_seconds               a round: speed_seconds and interference_seconds together
    speed_seconds             the fit of all jobs, and 18 configurations of each
    interference_seconds      of all three types
    cold_seconds              the first round, in which every job is read

The other figures need measured tables (`--data`, the default is EPOCH_SCHEDULER_DATA or
../shared/data; without tables they are left out). Relative error of the throughput at placements
that were not measured, the median over the jobs, in per cent, of 298 jobs of Sia's tables with a
batch that grows with the GPUs (see spec/optimizer.md, section 4):

    error_SEEN_WHERE_KNOWN    SEEN: the job was measured on 1, on 1_2, or on 1_4 GPUs
                              WHERE: one_node, or nodes for several
                              KNOWN: nothing, others (on the same type of GPU), or kind (the same
                              application with other batches)

Mean absolute error of the speed of a pair that was not measured, relative to alone, when k partners
of each job were (section 5), in Lucid's table, with speeds clipped at 1 in both:

    pair_error_K              K = 0, 1, 3 partners; mean of 5 draws
"""

from __future__ import annotations

import csv
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.figures import options, show
from scheduler.core.model import Job, JobFamily, JobId, JobSpec, Measured, Placement
from scheduler.estimates.interference import Interference
from scheduler.estimates.measurements import Memo
from scheduler.estimates.speed import Speeds

TYPES = ("t4", "v100", "a100")
PLACES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 2), (32, 4))
APPLICATIONS = ("bert", "cifar10", "imagenet", "yolov3", "deepspeech2", "ncf")
CLUSTERS = ("aws", "rtx", "dgx", "azure", "quad")
DRAWS = 5

Place = tuple[int, int]  # GPUs, nodes
Table = Mapping[tuple[str, str, float], Mapping[Place, float]]  # application, cluster, batch


def main() -> None:
    given = os.environ.get("EPOCH_SCHEDULER_DATA", "../shared/data")
    flags = options(__doc__, jobs=10_000, rounds=15, data=given)
    figures = costs(flags.jobs, flags.rounds)
    if Path(flags.data).is_dir():
        figures |= scaling_errors(Path(flags.data) / "scaling")
        figures |= pair_errors(Path(flags.data) / "colocation")
    show(**figures)


def job(name: str, measured: Sequence[Measured], kind: str, util: float = 0.0) -> Job:
    spec = JobSpec(name=name, user="ann", project=kind, training_set_size=1000)
    return Job(JobId(name), spec, 0.0, measured=tuple(measured), gpu_util=util)


# --- what it costs ------------------------------------------------------------------------------


def costs(count: int, rounds: int) -> dict[str, float]:
    chance = np.random.default_rng(0)
    jobs = [_drawn(number, count, chance) for number in range(count)]
    shown = (Measured("t4x1", (), 0.1, 3), Measured("t4x4", (), 0.05, 3))
    kinds = {f"over-{number}": JobFamily(3, shown, gpu_util=0.5) for number in range(300)}
    memo = Memo()
    spent = [_round(jobs, kinds, memo)]
    for _ in range(rounds):
        for number in chance.choice(count, max(1, count // 100), replace=False):
            jobs[number] = replace(jobs[number], epochs_done=jobs[number].epochs_done + 1)
        spent.append(_round(jobs, kinds, memo))
    speed, interference = (statistics.median(part) for part in zip(*spent[1:], strict=True))
    total = statistics.median(sum(parts) for parts in spent[1:])
    return {
        "cpu_seconds": round(total, 4),
        "speed_seconds": round(speed, 4),
        "interference_seconds": round(interference, 4),
        "cold_seconds": round(sum(spent[0]), 4),
    }


def _drawn(number: int, count: int, chance: np.random.Generator) -> Job:
    seconds, serial = 100.0 * chance.lognormal(), chance.uniform(0.0, 0.6)
    type = TYPES[chance.integers(len(TYPES))]
    measured = [
        Measured(f"{type}x{gpus}", (), float(seconds * (1 / gpus + serial * (1 - 1 / gpus))), 3)
        for gpus in chance.choice([1, 2, 4, 8], 2, replace=False)
    ]
    for other in chance.integers(count, size=2):
        slowed = float(seconds / chance.uniform(0.5, 1.0))
        measured.append(Measured(f"{type}x1", (JobId(f"job-{other}"),), slowed, 2))
    return job(f"job-{number}", measured, f"kind-{chance.integers(500)}", float(chance.random()))


def _round(jobs: list[Job], kinds: Mapping[str, JobFamily], memo: Memo) -> tuple[float, float]:
    configs = [Placement(type, *place) for type in TYPES for place in PLACES]
    start = time.process_time()
    speeds = Speeds(jobs, kinds, memo)
    speeds.estimate(configs)
    between = time.process_time()
    for type in TYPES:
        Interference(jobs, kinds, type, speeds)
    return between - start, time.process_time() - between


# --- accuracy: Sia's tables ----------------------------------------------------------------------


def scaling_errors(folder: Path) -> dict[str, float]:
    table = {
        (application, cluster, batch): times
        for application in APPLICATIONS
        for cluster in CLUSTERS
        for batch, times in _times(folder / application / f"placements-{cluster}.csv").items()
        if len(times) >= 4 and (1, 1) in times
    }
    whole = {key: _measured(key, times, list(times)) for key, times in table.items()}
    memo, errors = Memo(), {}
    for name, seen in (("1", [(1, 1)]), ("1_2", [(1, 1), (2, 1)]), ("1_4", [(1, 1), (4, 1)])):
        for known in ("nothing", "others", "kind"):
            found: dict[str, list[float]] = {"one_node": [], "nodes": []}
            for key in table:
                if all(place in table[key] for place in seen):
                    others = [whole[other] for other in table if _knows(known, key, other)]
                    for where, error in _errors(key, table[key], seen, others, memo):
                        found[where].append(error)
            for where, values in found.items():
                errors[f"error_{name}_{where}_{known}"] = round(100 * statistics.median(values), 1)
    return errors


def _knows(known: str, key: tuple[str, str, float], other: tuple[str, str, float]) -> bool:
    if known == "nothing" or key[1] != other[1] or key == other:
        return False
    return (key[0] == other[0]) == (known == "kind")


def _times(path: Path) -> dict[float, dict[Place, float]]:
    """Seconds per sample by batch per GPU, and then by place."""
    steps: dict[tuple[float, Place], list[float]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            place = sum(map(int, row["placement"])), len(row["placement"])
            steps[float(row["local_bsz"]), place].append(float(row["step_time"]))
    times: dict[float, dict[Place, float]] = defaultdict(dict)
    for (batch, place), values in steps.items():
        times[batch][place] = statistics.median(values) / (batch * place[0])
    return times


def _measured(
    key: tuple[str, str, float], times: Mapping[Place, float], places: Sequence[Place]
) -> Job:
    application, cluster, batch = key
    shown = [
        Measured(str(Placement(cluster, *place)), (), times[place] * 1e4, 3)
        for place in sorted(places)
    ]
    return job(f"{application}-{batch}", shown, application)


def _errors(
    key: tuple[str, str, float],
    times: Mapping[Place, float],
    seen: Sequence[Place],
    others: Sequence[Job],
    memo: Memo,
) -> Iterator[tuple[str, float]]:
    unseen = [place for place in sorted(times) if place not in seen]
    speeds = Speeds([_measured(key, times, seen), *others], {}, memo)
    predicted = speeds.estimate([Placement(key[1], *place) for place in unseen])[0]
    errors = [
        abs(times[place] * 1e4 / seconds - 1)
        for place, seconds in zip(unseen, predicted, strict=True)
    ]
    for where, several in (("one_node", False), ("nodes", True)):
        there = [
            error for error, place in zip(errors, unseen, strict=True) if (place[1] > 1) is several
        ]
        if there:
            yield where, statistics.fmean(there)


# --- accuracy: Lucid's pairs ---------------------------------------------------------------------


def pair_errors(folder: Path) -> dict[str, float]:
    util, speeds = _lucid(folder)
    return {
        f"pair_error_{partners}": round(
            statistics.fmean(_pair_error(util, speeds, partners, seed) for seed in range(DRAWS)), 4
        )
        for partners in (0, 1, 3)
    }


def _lucid(folder: Path) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Utilisations, and the speed of each job beside each other, relative to alone."""
    columns = ("model", "dataset", "batchsize", "amp")
    with (folder / "lucid_single.csv").open() as file:
        util = {
            tuple(row[name] for name in columns): float(row["gpu_util"]) / 100
            for row in csv.DictReader(file)
        }
    number = {model: place for place, model in enumerate(util)}
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    with (folder / "lucid_pairs.csv").open() as file:
        for row in csv.DictReader(file):
            pair = [number.get(tuple(row[f"{name}{side}"] for name in columns)) for side in (1, 2)]
            a, b = pair
            if a is not None and b is not None and row["gpu_num1"] == row["gpu_num2"] == "1":
                found[a, b].append(float(row["speed1"]))
                found[b, a].append(float(row["speed2"]))
    return list(util.values()), {
        pair: min(1.0, statistics.fmean(speeds)) for pair, speeds in found.items()
    }


def _pair_error(
    util: Sequence[float], speeds: Mapping[tuple[int, int], float], partners: int, seed: int
) -> float:
    met: dict[int, list[int]] = defaultdict(list)
    chance = np.random.default_rng(seed)
    pairs = sorted(pair for pair in speeds if pair[0] <= pair[1])
    for place in chance.permutation(len(pairs)):
        a, b = pairs[place]
        fewest, most = sorted((len(met[a]), len(met[b])))
        if most < partners or fewest < partners / 2:
            met[a].append(b)
            met[b].append(a)
    jobs = [
        job(
            str(one),
            [
                Measured("gpux1", (), 100.0, 5),
                *(
                    Measured("gpux1", (JobId(str(other)),), 100.0 / speeds[one, other], 5)
                    for other in dict.fromkeys(met[one])
                ),
            ],
            f"kind-{one}",
            util[one],
        )
        for one in range(len(util))
    ]
    everyone = np.arange(len(jobs))
    predicted = Interference(jobs, {}, "gpu").speeds(everyone, everyone)
    return statistics.fmean(
        abs(predicted[pair] - speed)
        for pair, speed in speeds.items()
        if pair[1] not in met[pair[0]]
    )


if __name__ == "__main__":
    main()
