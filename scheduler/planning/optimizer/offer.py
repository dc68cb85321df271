"""What each configuration of GPUs would be worth to each job: the menu that a plan chooses from.

A second saved on a job is saved for all jobs that end after it. So a job's weight is its *rank*;
the job with the most work left has the least (but see fair_share.py). Only the order of the
remaining work must be known, not its amount. A configuration is worth its pace, measured in GPUs of
the slowest type that would be as fast by themselves, but a little less than in proportion, so that
many jobs get something before one gets a lot. (With equal laws of scaling, weighing pace by rank is
optimal: Berg et al., "heSRPT", 2020.) For a configuration that needs a restart, only the part of
its pace that remains after the time of the restart counts. What a run has is worth more to it than
to others, also as a part of a larger configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scheduler.core.memory import takes_whole_gpu
from scheduler.core.model import Gpu, GpuKey, Job, JobFamily, Placement, Rules, Time
from scheduler.core.runs import gpu_keys, is_running, may_move, may_stop
from scheduler.estimates.arrays import Bools, Floats, Ints
from scheduler.estimates.interference import Interference
from scheduler.estimates.measurements import Memo
from scheduler.estimates.slow_gpus import split_type
from scheduler.estimates.speed import Speeds
from scheduler.planning.optimizer.exploring import Known, Tries, find_tries
from scheduler.planning.optimizer.fair_share import fair_parts, lacking
from scheduler.planning.optimizer.growth import Tried, has_much_left
from scheduler.planning.optimizer.inventory import Stock, configs
from scheduler.planning.optimizer.pairing import Neighbours
from scheduler.planning.optimizer.prices import Menu
from scheduler.planning.optimizer.speed_sources import JobSpeeds

EXPONENT = 0.9  # of pace: below 1, so that many get something before one gets a lot
ALIKE = 1.25  # remaining work must differ by more than this factor to count as different
KEEP = 1.3  # what a run has is worth this factor more to it, so that jobs do not take turns
GAIN_MIN = 0.05  # a move must save this part of the remaining time, beyond the restart
STAYS = 100.0  # for each GPU, far more than one is worth: to a run that cannot be moved
STAYS_BOUND = 10 * STAYS  # the same for a run that cannot even be asked to stop
ENTITLED = 10.0  # for each GPU, more than one is worth: to one job of each user
MOVE_SPEED = 0.88  # factor on a pair's speeds if one of the two must move to the other
NEVER = 1e-6  # the same if neither can be moved to the other, or one must be alone first
APART_SPEED = 0.95  # the same if a job must be separated from its present neighbour
# Index: 1 if one job must move, plus 2 if it is separated from a neighbour, plus 4 if neither can
# be moved.
LEFT = np.array([1.0, MOVE_SPEED, APART_SPEED, MOVE_SPEED * APART_SPEED, *4 * [NEVER]])
ALONE_MAX = 0.1  # of what is left: an epoch alone plus a restart may cost at most this


class LearnedSpeeds:
    """What is known of the speeds of the jobs of all classes, alone and beside each other."""

    def __init__(
        self,
        jobs: Sequence[Job],
        kinds: Mapping[str, JobFamily],
        stocks: Sequence[Stock],
        memo: Memo,
        speeds: Speeds | None = None,
    ) -> None:
        """`speeds`: of these jobs and kinds, if they are known."""
        self.row = {job.id: row for row, job in enumerate(jobs)}
        self.speeds = speeds or Speeds(jobs, kinds, memo)
        beside = self.speeds.measured.beside
        # [jobs, kinds] whether it has had a neighbour for an epoch
        self.shared = np.zeros(len(self.speeds.measured.kind), bool)
        self.shared[beside.owner] = True
        types = [split_type(stock.type)[0] for stock in stocks]  # slow GPUs are like others here
        each = {type: Interference(jobs, kinds, type, self.speeds) for type in dict.fromkeys(types)}
        self.slowed = [each[type] for type in types]

    def rows(self, jobs: Sequence[Job]) -> Ints:
        return np.array([self.row[job.id] for job in jobs], np.intp)

    def seconds(self, configs: Sequence[Placement]) -> Floats:
        return self.speeds.estimate(configs)

    def doubt(self, configs: Sequence[Placement]) -> Floats:
        return self.speeds.uncertainty(configs)


@dataclass(frozen=True, slots=True)
class UnmeasuredJobs:
    """The jobs whose slowdown by a neighbour is unknown until they have had an epoch alone, if that
    epoch is worth its cost; and those of them that have had a neighbour. A job of the latter group
    is not put with another of the former: one of the two has its epoch alone first."""

    unseen: Bools  # [jobs]
    shared: Bools  # [jobs]

    def kept_apart(self, a: Ints, b: Ints) -> Bools:
        """Whether one of a and b has its epoch alone first. They broadcast."""
        return (self.unseen[a] & self.shared[b]) | (self.shared[a] & self.unseen[b])


@dataclass(frozen=True, slots=True)
class Offer:
    """What a set of jobs can have, and what it would be worth to them."""

    jobs: tuple[Job, ...]
    stocks: tuple[Stock, ...]
    configs: tuple[Placement, ...]
    learned: JobSpeeds
    seconds: Floats  # [jobs, configs] per epoch, alone; what may be tried counts with its chances
    expected: Floats  # [jobs, configs] the same without them
    tries: Tries | None  # None: nothing is tried, as the speeds are not learned
    left: Floats  # [jobs] epochs
    one: Floats  # [jobs] seconds per epoch on one GPU, of the slowest type
    possible: Bools  # [jobs, configs]
    now: Ints  # [jobs] the configuration that it has; -1: none
    more: Bools  # [jobs, configs] what it has, or more GPUs of that type
    fixed: Bools  # [jobs] the run cannot be moved
    where: Ints  # [jobs] its GPU, the first one for a gang; -1: none
    restart: Floats  # [jobs] seconds, with those of an epoch that would be lost
    weight: Floats  # [jobs]
    bonus: Floats  # [jobs] for having anything at all
    stuck: Bools  # [jobs] is on a GPU with another job, and neither can be moved
    blind: Mapping[str, UnmeasuredJobs]  # by type, where there are such jobs

    def worth(self, rows: npt.ArrayLike, columns: npt.ArrayLike, speed: npt.ArrayLike) -> Floats:
        """The worth of a configuration in which other jobs slow the job down to `speed`, relative
        to alone."""
        rows, columns, speed = np.asarray(rows), np.asarray(columns), np.asarray(speed)
        remaining = self.left[rows] * self.seconds[rows, columns] / speed
        paid = np.where(self.now[rows] == columns, 0.0, self.restart[rows])
        pace = self.one[rows] / self.seconds[rows, columns] * speed * remaining / (remaining + paid)
        worth = pace**EXPONENT
        more = self.more[rows, columns]
        # Powers are slow, so they are computed only where they are needed.
        if more.any():
            here = self.one[rows] / self.seconds[rows, self.now[rows]] * speed
            held = np.zeros(np.broadcast_shapes(here.shape, more.shape))
            np.power(here, EXPONENT, out=held, where=more)
            worth = worth + (KEEP - 1) * held
        apart, bonus = speed <= NEVER, self.bonus[rows]
        if apart.any():
            bonus = np.where(apart, 0.0, bonus)
        return np.asarray(self.weight[rows] * worth + bonus)

    def is_only_tried(self, row: int, column: int) -> bool:
        """Whether it may have this only in order to try it: by what is expected there, it would not
        be worth a restart."""
        if self.tries is None or not self.tries.may[row, column]:
            return False
        best = self.left[row] * self.tries.known.best[row]
        saved = best - self.left[row] * self.expected[row, column]
        return bool(saved <= self.restart[row] + GAIN_MIN * best)

    def menu(self, taken: Mapping[str, int]) -> Menu:
        """`taken`: GPUs of each type that are not available."""
        rows, columns = np.nonzero(self.possible)
        worth = np.full(self.possible.shape, -np.inf)
        worth[rows, columns] = self.worth(rows, columns, 1.0)
        worth[self.stuck] -= self.bonus[self.stuck, None] / 2  # they have no use for two GPUs
        index = {stock.type: at for at, stock in enumerate(self.stocks)}
        return Menu(
            worth=worth,
            count=np.array([config.gpus for config in self.configs], np.intp),
            type=np.array([index[config.type] for config in self.configs], np.intp),
            capacity=np.array([max(0, s.gpus - taken.get(s.type, 0)) for s in self.stocks]),
        )

    def neighbours(self, rules: Rules) -> Neighbours:
        single = [self.single(stock.type) for stock in self.stocks]
        slowed, known = self.learned.slowed, self.learned.rows(self.jobs)
        mates = self._mates()
        stay = self.fixed & (self.where >= 0)
        unseen = [self.blind.get(stock.type) for stock in self.stocks]

        def moved(a: Ints, b: Ints, type: int) -> Floats:
            """The factor on the speed of each a if it is to be with b. They broadcast."""
            factor = together(a, b)
            if (blind := unseen[type]) is None:
                return factor
            return np.where(blind.kept_apart(a, b), NEVER, factor)

        def together(a: Ints, b: Ints) -> Floats:
            here, there = self.where[a], self.where[b]
            if (here < 0).all():  # they have neither a place nor a neighbour to give up
                return LEFT[:1]
            elsewhere = here != there
            conflict = (here >= 0) & (there >= 0) & elsewhere
            parted = (mates[a] >= 0) & elsewhere
            never = conflict & stay[a] & stay[b]
            left: Floats = LEFT[conflict + np.uint8(2) * parted + np.uint8(4) * never]
            return left

        def speeds(a: Ints, b: Ints, type: int) -> Floats:
            speeds = slowed[type].speeds(known[a], known[b])
            speeds *= moved(a[:, None], b, type)
            return speeds

        def each(a: Ints, b: Ints, type: int) -> Floats:
            return np.asarray(slowed[type].each(known[a], known[b]) * moved(a, b, type))

        def worth(rows: Ints, type: int, speed: Floats) -> Floats:
            return self.worth(rows, single[type], speed)

        return Neighbours(
            shareable=np.array([not takes_whole_gpu(job) for job in self.jobs], bool),
            memory=np.array([j.memory_mib + rules.memory_margin_mib for j in self.jobs], float),
            capacity=np.array([stock.shared_mib for stock in self.stocks], float),
            speeds=speeds,
            each=each,
            worth=worth,
        )

    def leaving(self, rows: Sequence[int]) -> list[int]:
        """Which of the jobs on one GPU are to be stopped, so that one of them has its epoch
        alone."""
        blind = self.blind.get(self.configs[self.now[rows[0]]].type)
        if blind is None or not blind.shared[list(rows)].any():
            return []
        unseen = sorted((r for r in rows if blind.unseen[r]), key=lambda r: -self.weight[r])
        bound = [row for row in unseen if self.fixed[row]]
        stays = bound or unseen[:1]
        return [row for row in unseen if row not in stays]

    def single(self, type: str) -> int:
        """The configuration of one GPU of this type; -1: none."""
        return next((at for at, c in enumerate(self.configs) if c.type == type and c.gpus == 1), -1)

    def _mates(self) -> Ints:
        """[jobs] one of the jobs on the same GPU; -1: none."""
        on: dict[int, list[int]] = {}
        for row, gpu in enumerate(self.where.tolist()):
            if gpu >= 0:
                on.setdefault(gpu, []).append(row)
        mates = np.full(len(self.jobs), -1, np.intp)
        for rows in on.values():
            for row, mate in zip(rows, rows[1:] + rows[:1], strict=True):
                mates[row] = mate if mate != row else -1
        return mates


def build_offer(
    jobs: Sequence[Job],
    stocks: Sequence[Stock],
    known: Mapping[GpuKey, Gpu],
    learned: JobSpeeds,
    had: Callable[[str], float],
    rules: Rules,
    *,
    at: Time,
    gpus: int,
    trying: Ints | None = None,
) -> Offer:
    """`had`: the GPU time that each user has recently had, relative to the usual; `at`: the present
    time; `gpus`: how many there are for these jobs; `trying`: [kind] the owner that tries already,
    -1 for none; None: none of any kind does."""
    choices = configs(jobs, stocks)
    rows = learned.rows(jobs)
    seconds = learned.seconds(choices)[rows]
    unfinished = np.array([max(0, job.max_epochs - job.epochs_done) for job in jobs], float)
    left = np.maximum(1.0, unfinished)  # a job that should be over ends soon
    column = {(config.type, config.gpus): at for at, config in enumerate(choices)}
    now = np.array([_now(job, column, known) for job in jobs], np.intp)
    restart = np.array([job.restart_seconds or rules.restart_seconds for job in jobs], float)
    move = restart + _lost_by_stopping(jobs, seconds, now, rules.stop_grace_seconds, at)
    possible = _possible(jobs, choices, stocks)
    count = np.array([config.gpus for config in choices])
    remaining = left[:, None] * seconds
    fixed = np.array([not may_move(job) for job in jobs], bool)
    stays = fixed & (now >= 0)
    allowed, hopes, tries = np.full(possible.shape, True), seconds, None
    if learned.speeds:
        been = Known.of(seconds, learned.speeds.met(rows, choices))
        least = np.array([job.spec.gpus_min for job in jobs])
        used = np.maximum(np.where(been.met > 0.0, count, 0).max(axis=1, initial=0), least)
        there_are = sum(stock.gpus for stock in stocks)
        much = has_much_left(used, there_are, left, left * been.best, restart)
        places = [replace(each, type=split_type(each.type)[0]) for each in choices]
        allowed = Tried(learned.speeds.measured).allows(rows, places, least, much)
        if trying is None:
            trying = np.full(learned.speeds.measured.kinds, -1)
        can = possible & allowed
        tries = find_tries(seconds, been, left, move, trying, can, rows, choices, learned.speeds)
        hopes = tries.seconds
    possible = _worth_a_move(possible, unfinished[:, None] * hopes, count, now, move, stays)
    possible &= _within_reach(allowed, possible, count, now)
    indices = {key: at for at, key in enumerate(known)}
    weight = _weights(count, remaining, possible)
    if rules.fair_weight:
        lacks = _lacking(jobs, seconds, count, possible, gpus, at)
        weight = np.maximum(weight, rules.fair_weight * lacks)
    times = {user: had(user) for user in {job.spec.user for job in jobs}}
    weight /= np.array([times[job.spec.user] for job in jobs])
    where = np.array([_gpu_index(job, indices) for job in jobs], np.intp)
    usual = np.array([split_type(config.type)[1] == 1.0 for config in choices])
    single = (count == 1) & usual
    one = seconds[:, single if single.any() else count == 1].max(axis=1)
    worth_it = one + restart <= ALONE_MAX * left * one
    return Offer(
        jobs=tuple(jobs),
        stocks=tuple(stocks),
        configs=tuple(choices),
        learned=learned,
        seconds=hopes,
        expected=seconds,
        tries=tries,
        left=left,
        one=one,
        possible=possible,
        now=now,
        more=_more(now, choices),
        fixed=fixed,
        where=where,
        restart=move,
        weight=weight,
        bonus=_bonus(jobs, stays, now, weight),
        blind=dict(_blind(rows, worth_it, stocks, learned)),
        stuck=_stuck(stays & (np.append(count, 0)[now] == 1), where),
    )


def _lost_by_stopping(
    jobs: Sequence[Job], seconds: Floats, now: Ints, notice: float, at: Time
) -> Floats:
    """[jobs] the seconds of training that are lost if the run is asked to stop now: those of its
    epoch, if this does not end within the notice."""
    lost = np.zeros(len(jobs))
    for row in np.flatnonzero(now >= 0).tolist():
        run = jobs[row].run
        if run and run.epoch_at is not None:
            killed = at + notice - run.epoch_at
            lost[row] = killed if seconds[row, now[row]] > killed else 0.0
    return lost


def _bonus(jobs: Sequence[Job], stays: Bools, now: Ints, weight: Floats) -> Floats:
    """A bonus so that each user with work in a class has one job served before any user has a
    second one: the job that runs, or else the one with the most weight."""
    entitled: dict[str, int] = {}
    for row in np.lexsort((-weight, now < 0)).tolist():
        entitled.setdefault(jobs[row].spec.user, row)
    each = np.where(stays, STAYS, 0.0)
    each[[row for row in np.flatnonzero(stays).tolist() if not may_stop(jobs[row].run)]] = (
        STAYS_BOUND
    )
    each[list(entitled.values())] += ENTITLED
    return each * np.maximum(1, [job.spec.gpus_min for job in jobs])


def _blind(
    rows: Ints, worth_it: Bools, stocks: Sequence[Stock], learned: JobSpeeds
) -> Iterator[tuple[str, UnmeasuredJobs]]:
    had = learned.shared[rows]
    for stock, slowed in zip(stocks, learned.slowed, strict=True) if had.any() else ():
        unseen = slowed.unseen[rows] & worth_it
        if (had & unseen).any():
            yield stock.type, UnmeasuredJobs(unseen, had & unseen)


def _stuck(stays: Bools, where: Ints) -> Bools:
    on = Counter(where[stays].tolist())
    return np.asarray(stays & np.array([on[gpu] > 1 for gpu in where.tolist()], bool))


def _now(job: Job, column: Mapping[tuple[str, int], int], known: Mapping[GpuKey, Gpu]) -> int:
    if not (is_running(job) and job.run and job.run.shares):
        return -1
    types = [gpu.type for key in gpu_keys(job) if (gpu := known.get(key))]
    type = max(
        types, key=lambda name: split_type(name)[1], default=""
    )  # a gang waits for slow GPUs
    return column.get((type, len(job.run.shares)), -1)


def _more(now: Ints, choices: Sequence[Placement]) -> Bools:
    _, type = np.unique([config.type for config in choices], return_inverse=True)
    count = np.array([config.gpus for config in choices])
    same = type == type[now][:, None]
    return np.asarray((now >= 0)[:, None] & same & (count >= count[now][:, None]))


def _gpu_index(job: Job, indices: Mapping[GpuKey, int]) -> int:
    if not (is_running(job) and job.run and job.run.shares):
        return -1
    return indices.get(min(gpu_keys(job)), -1)


def _possible(jobs: Sequence[Job], choices: Sequence[Placement], stocks: Sequence[Stock]) -> Bools:
    count = np.array([config.gpus for config in choices])
    least = np.array([job.spec.gpus_min for job in jobs])
    most = np.array([job.spec.gpus_max for job in jobs])
    in_range = (least[:, None] <= count) & (count <= most[:, None])
    memory = np.array([job.memory_mib for job in jobs])
    images = [job.spec.image for job in jobs]
    there_are = {stock.type: stock.hold(memory, images) for stock in stocks}
    enough = np.column_stack([there_are[config.type] for config in choices]) >= count
    return np.asarray(in_range & enough)


def _within_reach(allowed: Bools, possible: Bools, count: Ints, now: Ints) -> Bools:
    """A job may always have the fewest GPUs that it can use, and what it has."""
    none = count.max(initial=0) + 1
    least = np.where(possible, count, none).min(axis=1, initial=none)
    own = np.arange(len(count)) == now[:, None]
    return np.asarray(allowed | (count == least[:, None]) | own)


def _worth_a_move(
    possible: Bools, remaining: Floats, count: Ints, now: Ints, restart: Floats, stays: Bools
) -> Bools:
    """A run may get fewer GPUs for the sake of others; it gets more, or other, GPUs only if it ends
    sooner by more than the restart takes."""
    rows = np.flatnonzero(now >= 0)
    here = remaining[rows, now[rows]]
    saved = here[:, None] - remaining[rows]
    pays = saved > (restart[rows] + GAIN_MIN * here)[:, None]
    allowed = (pays | (count < count[now[rows]][:, None])) & ~stays[rows][:, None]
    possible = possible.copy()
    possible[rows] &= allowed
    possible[rows, now[rows]] = True
    return possible


def _weights(count: Ints, remaining: Floats, possible: Bools) -> Floats:
    """Weights by rank of the remaining work: near 0 for the most, 1 for the least. They depend on
    the jobs with clearly less and those with clearly more work, so that among similar jobs none is
    far above another."""
    work = np.where(possible, remaining * count, np.inf).min(axis=1, initial=np.inf)
    ordered = np.sort(work)
    less = np.searchsorted(ordered, work / ALIKE, "left")
    more = len(work) - np.searchsorted(ordered, work * ALIKE, "right")
    rank: Floats = (1 + (more - less) / max(1, len(work))) / 2
    return rank


def _lacking(
    jobs: Sequence[Job], seconds: Floats, count: Ints, possible: Bools, gpus: int, at: Time
) -> Floats:
    """[job] the part of its training under fair sharing that it lacks."""
    could = np.where(possible, seconds, np.inf)
    best = could.argmin(axis=1)
    return lacking(
        age=np.array([at - job.submitted_at for job in jobs]),
        done=np.array([job.epochs_done for job in jobs]),
        seconds=could[np.arange(len(jobs)), best],
        part=fair_parts(count[best], gpus),
    )
