"""What each configuration of GPUs would be worth to each job: the menu that a plan chooses from.

The sum of completion times falls by as much as the jobs that are soon done are done sooner: a
second saved on a job is saved for all that end after it. So a job's weight is its *rank*, the one
with the most work left having 1, and only the order of what is left has to be known, not how much
it is. Worth grows with speed, but ever less (Sia's exponent), so that many get something before
one gets a lot. A configuration that needs a restart is worth what is left of its speed when the
time for the restart has been paid out of the work that remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler.learning import kind_of
from scheduler.model import Gpu, GpuKey, Job, Kind, Rules, RunPhase
from scheduler.packing import need_mib
from scheduler.placing import may_move
from scheduler.prices import Menu
from scheduler.speed import Config, estimate

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOTHING = 1.5  # what having nothing costs; having the slowest configuration costs 1
EXPONENT = 0.5
GAIN_MIN = 0.05  # a move must save this part of what is left, and the restart


@dataclass(frozen=True, slots=True)
class Stock:
    """The GPUs of one type."""

    type: str
    gpus: int
    node_size: int  # of the largest node
    capacity_mib: int  # of the smallest card


def stocks(known: Mapping[GpuKey, Gpu]) -> list[Stock]:
    found: dict[str, list[tuple[str, int]]] = {}
    for (node, _), gpu in known.items():
        found.setdefault(gpu.type, []).append((node, gpu.capacity_mib))
    made = []
    for type, cards in sorted(found.items()):
        nodes = [node for node, _ in cards]
        largest = max(nodes.count(node) for node in set(nodes))
        made.append(Stock(type, len(cards), largest, min(mib for _, mib in cards)))
    return made


def configs(jobs: Sequence[Job], stocks: Sequence[Stock]) -> list[Config]:
    """All that one of these jobs could have: each count up to a node, then whole nodes."""
    asked = {n for job in jobs for n in (job.spec.gpus_min, job.spec.gpus_max) if n}
    most = max(asked, default=1)
    made = []
    for stock in stocks:
        size = stock.node_size
        counts = {n for n in (*range(1, size + 1), *range(size, most + 1, size)) if n <= most}
        counts |= {n for n in asked if n > size}
        made += [
            Config(stock.type, count, -(-count // size))
            for count in sorted(counts)
            if count <= stock.gpus
        ]
    return made


@dataclass(frozen=True, slots=True)
class Offer:
    """What some jobs can have, and what they would make of it."""

    jobs: tuple[Job, ...]
    stocks: tuple[Stock, ...]
    configs: tuple[Config, ...]
    seconds: Floats  # [jobs, configs] per epoch, alone
    left: Floats  # [jobs] epochs
    possible: Bools  # [jobs, configs]
    now: npt.NDArray[np.intp]  # [jobs] the configuration that it has; -1: none
    weight: Floats  # [jobs]
    restart: Floats  # [jobs] seconds

    def worth(self, rows: npt.ArrayLike, columns: npt.ArrayLike, speed: npt.ArrayLike) -> Floats:
        """Of a configuration in which the job is slowed to `speed` by others, 1 being alone."""
        rows, columns = np.asarray(rows), np.asarray(columns)
        slowest = np.where(self.possible, self.seconds, 0.0).max(axis=1)
        remaining = self.left[rows] * self.seconds[rows, columns] / speed
        paid = np.where(self.now[rows] == columns, 0.0, self.restart[rows])
        pace = slowest[rows] / self.seconds[rows, columns] * speed * remaining / (remaining + paid)
        return np.asarray(self.weight[rows] * (NOTHING - pace**-EXPONENT))

    def menu(self, taken: Mapping[str, int]) -> Menu:
        rows, columns = np.nonzero(self.possible)
        worth = np.full(self.possible.shape, -np.inf)
        worth[rows, columns] = self.worth(rows, columns, 1.0)
        index = {stock.type: at for at, stock in enumerate(self.stocks)}
        return Menu(
            worth=worth,
            count=np.array([config.count for config in self.configs], np.intp),
            type=np.array([index[config.type] for config in self.configs], np.intp),
            capacity=np.array([stock.gpus - taken[stock.type] for stock in self.stocks], np.intp),
        )


def offered(
    jobs: Sequence[Job],
    stocks: Sequence[Stock],
    known: Mapping[GpuKey, Gpu],
    kinds: Mapping[str, Kind],
    shares: Mapping[str, float],
    rules: Rules,
) -> Offer:
    """`shares`: of each user, so many times the usual GPU time of late; 1 if left out."""
    choices = configs(jobs, stocks)
    seconds = estimate(jobs, kinds, choices)
    left = np.array([max(1, job.max_epochs - job.epochs_done) for job in jobs], float)
    now = np.array([_now(job, choices, known) for job in jobs], np.intp)
    restart = np.array([job.restart_seconds or rules.restart_seconds for job in jobs], float)
    possible = _possible(jobs, choices, stocks, known, rules)
    for row, job in enumerate(jobs):
        if now[row] >= 0:
            current = np.arange(len(choices)) == now[row]
            if may_move(job):
                saved = left[row] * (seconds[row, now[row]] - seconds[row])
                pays = saved > restart[row] + GAIN_MIN * left[row] * seconds[row, now[row]]
                count = np.array([config.count for config in choices])
                possible[row] &= current | pays | (count < count[now[row]])
                possible[row, now[row]] = True
            else:
                possible[row] = current
        elif not job.measured:
            possible[row] = _informative(job, choices, possible[row], kinds)
    return Offer(
        jobs=tuple(jobs),
        stocks=tuple(stocks),
        configs=tuple(choices),
        seconds=seconds,
        left=left,
        possible=possible,
        now=now,
        weight=_weights(jobs, choices, seconds * left[:, None], possible, shares),
        restart=restart,
    )


def _now(job: Job, choices: Sequence[Config], known: Mapping[GpuKey, Gpu]) -> int:
    run = job.run
    if run is None or run.phase is RunPhase.STOPPING or not run.shares:
        return -1
    gpu = known.get(run.shares[0].key)
    has = (gpu.type if gpu else "", len(run.shares))
    return next((at for at, config in enumerate(choices) if (config.type, config.count) == has), -1)


def _possible(
    jobs: Sequence[Job],
    choices: Sequence[Config],
    stocks: Sequence[Stock],
    known: Mapping[GpuKey, Gpu],
    rules: Rules,
) -> Bools:
    count = np.array([config.count for config in choices])
    least = np.array([job.spec.gpus_min for job in jobs])
    most = np.array([job.spec.gpus_max for job in jobs])
    in_range = (least[:, None] <= count) & (count <= most[:, None])
    smallest = {stock.type: _smallest(stock, known) for stock in stocks}
    holds = {
        type: np.array([need_mib(job, gpu, rules) <= gpu.capacity_mib for job in jobs])
        for type, gpu in smallest.items()
    }
    return np.asarray(in_range & np.column_stack([holds[config.type] for config in choices]))


def _smallest(stock: Stock, known: Mapping[GpuKey, Gpu]) -> Gpu:
    return min(
        (gpu for gpu in known.values() if gpu.type == stock.type), key=lambda gpu: gpu.capacity_mib
    )


def _informative(
    job: Job, choices: Sequence[Config], possible: Bools, kinds: Mapping[str, Kind]
) -> Bools:
    """Nobody knows yet how such a job scales: it begins with the fewest GPUs."""
    if kind_of(job.spec) in kinds or not possible.any():
        return possible
    count = np.array([config.count for config in choices])
    return np.asarray(possible & (count == count[possible].min()))


def _weights(
    jobs: Sequence[Job],
    choices: Sequence[Config],
    remaining: Floats,
    possible: Bools,
    shares: Mapping[str, float],
) -> Floats:
    """By rank of the work that is left, from 1 (most) down; more for whoever had less than usual."""
    count = np.array([config.count for config in choices])
    work = np.where(possible, remaining * count, np.inf).min(axis=1)
    order = np.argsort(-work, kind="stable")
    rank = np.empty(len(jobs))
    rank[order] = np.arange(1, len(jobs) + 1) / max(1, len(jobs))
    return rank / np.array([shares.get(job.spec.user, 1.0) for job in jobs])
