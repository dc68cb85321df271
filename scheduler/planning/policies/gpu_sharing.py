"""This project's policy: how many GPUs of which type each job has, and beside which jobs, so that
users wait less.

Order. Jobs are in classes, by priority; a class has all it can use before the next one has
anything. Waiting lifts a job by one class for each 28 `ageing_seconds`, so that no job starves: in
the end it is above all jobs that come after it. Within a class a job has the more weight the less
work it has left (offer.py), and the less GPU time its user has recently had. With
`rules.fair_weight`, it has the more the further it is behind fair sharing (fair_share.py).

Allocation. The menu of a class is priced and chosen from (prices.py), single GPUs are shared where
two jobs make more of one than one job does (pairing.py), gangs that are left over join others of
their size (gang_sharing.py), the choice is placed on GPUs (placement.py), and single jobs that are
left over join gangs (single_guests.py). A run is moved only if its gain pays for the restart, and
never before it has finished an epoch where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from scheduler.core.learning import usage_now
from scheduler.core.memory import need_mib, takes_whole_gpu, usable_gpus
from scheduler.core.model import (
    GpuKey,
    Job,
    JobId,
    Placement,
    Plan,
    Reason,
    Rules,
    RunPhase,
    Share,
    Time,
    View,
)
from scheduler.core.ports import Policy
from scheduler.core.runs import gpu_keys, is_running, may_move, may_stop
from scheduler.estimates.arrays import Ints
from scheduler.estimates.measurements import Memo
from scheduler.estimates.next_try import NextTry
from scheduler.estimates.speed import Speeds
from scheduler.planning.leftovers import assign_leftovers
from scheduler.planning.optimizer.explained_tries import next_try
from scheduler.planning.optimizer.exploring import find_trying
from scheduler.planning.optimizer.gang_sharing import guests, join_gangs, worth_of_parting
from scheduler.planning.optimizer.groups import Neighbours
from scheduler.planning.optimizer.inventory import stocks
from scheduler.planning.optimizer.offer import LearnedSpeeds, Offer, build_offer
from scheduler.planning.optimizer.pairing import Allotment, Limits, shared
from scheduler.planning.optimizer.prices import Menu
from scheduler.planning.optimizer.single_guests import GangHost, SingleGuests, guests_of_gangs
from scheduler.planning.optimizer.slow_stocks import with_slow_types
from scheduler.planning.optimizer.speed_sources import JobSpeeds, SpeedSource
from scheduler.planning.placement import PlacedUnits, Unit, place_units
from scheduler.planning.postponing import count_late, postpone_moves
from scheduler.planning.reasons import blocked_reason, explained

PATIENCE = 28  # times `ageing_seconds`, a week: waiting so long lifts a job by a class
FAIR_MAX = 4.0  # limit of the factor on a job's worth by its user's past usage
LITTLE = 3600.0  # GPU-seconds that make little difference between users
MATCHED_WHOLE = 600  # jobs; above that, one plan matches only a number of blocks again
BLOCKS = 60
# How long a learned speed waits at most before a plan uses it: it triggers none by itself
# (core/decide.py). So each plan asks for the next one after this time while a running job could
# have more GPUs, or while jobs wait and others have to be measured alone before they can join.
AGAIN_SECONDS = 60.0
MOVES_MAX = 4  # runs moved by one plan, at most, so that another is on fewer nodes


def gpu_sharing(rules: Rules, speeds: SpeedSource | None = None) -> Policy:
    """`speeds`: None stands for what this scheduler has learned."""
    memo = Memo()  # measurements read before: they only save time

    def plan(view: View, now: Time) -> Plan:
        if speeds:
            return _SharingPlanner(view, view, now, rules, speeds).plan()
        return _planner(view, now, rules, memo).plan()

    return plan


def _planner(view: View, now: Time, rules: Rules, memo: Memo) -> _SharingPlanner:
    """With the speeds that were learned, of jobs and of GPUs."""
    live = [job for job in view.jobs.values() if job.outcome is None]
    speeds = Speeds(live, view.kinds, memo)
    source = partial(LearnedSpeeds, memo=memo, speeds=speeds)
    return _SharingPlanner(with_slow_types(view, speeds.slow, live), view, now, rules, source)


def offers(rules: Rules) -> Callable[[View, Time], list[Offer]]:
    """What a plan would choose from, class by class, with the speeds that were learned."""
    memo = Memo()

    def found(view: View, now: Time) -> list[Offer]:
        return list(_planner(view, now, rules, memo).offers())

    return found


def next_tries(rules: Rules) -> Callable[[Job, View, Time], NextTry | None]:
    """What a live job tries next, or why nothing; None: a plan would not choose for it."""
    memo = Memo()

    def found(job: Job, view: View, now: Time) -> NextTry | None:
        planner = _planner(view, now, rules, memo)
        offer = next((offer for offer in planner.offers() if job in offer.jobs), None)
        idle = Counter(gpu.type for key, gpu in planner.known.items() if not view.held.get(key))
        live = [job.id for job in view.jobs.values() if job.outcome is None]
        return next_try(offer, offer.jobs.index(job), idle, live) if offer else None

    return found


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the jobs of a class are to have."""

    offer: Offer
    choice: Ints  # [jobs] configuration, -1: none
    units: Sequence[Sequence[int]]  # jobs that have their GPUs together
    present: Sequence[int]  # single jobs that are beside gangs now

    def bound_guests(self, rows: Sequence[int]) -> set[JobId]:
        """The single jobs that cannot be asked to leave the gang of this unit, which stays."""
        offer = self.offer
        staying = [row for row in rows if self.choice[row] == offer.now[row]]
        keys = {key for row in staying for key in gpu_keys(offer.jobs[row])}
        beside = [offer.jobs[row] for row in self.present] if len(keys) > 1 else []
        return {job.id for job in beside if not may_stop(job.run) and {*gpu_keys(job)} <= keys}


@dataclass
class _SharingPlanner:
    view: View
    seen: View  # the same, with the types of GPUs as they are
    now: Time
    rules: Rules
    speeds: SpeedSource
    why: dict[JobId, Reason] = field(default_factory=dict)
    expected: dict[JobId, float] = field(default_factory=dict)
    apart: bool = False  # whether a job is to have an epoch alone before others join
    served: list[Job] = field(default_factory=list)  # class by class, the most weight first
    chosen: list[_Chosen] = field(default_factory=list)  # class by class
    bound: set[JobId] = field(default_factory=set)  # single jobs that have to stay beside a gang

    def __post_init__(self) -> None:
        self.known = usable_gpus(self.view.nodes)
        self.stocks = stocks(self.known)
        half_life = self.rules.fairness_half_life_seconds
        used = self.view.used.items()
        self.used = {user: usage_now(had, self.now, half_life) for user, had in used}
        for job in self.view.jobs.values():
            if job.run:
                held = len(job.run.shares) * max(0.0, self.now - job.run.started_at)
                self.used[job.spec.user] = self.used.get(job.spec.user, 0.0) + held
            elif job.waiting:
                self.used.setdefault(job.spec.user, 0.0)
        self.usual = sum(self.used.values()) / max(1, len(self.used))

    @cached_property
    def known_speeds(self) -> JobSpeeds:
        jobs = [job for job in self.view.jobs.values() if job.outcome is None]
        return self.speeds(jobs, self.view.kinds, self.stocks)

    @cached_property
    def trying(self) -> Ints | None:
        """[kind] the job that tries already; see find_trying. None: the speeds are not learned."""
        if self.known_speeds.speeds is None:
            return None
        running = [job for job in self.view.jobs.values() if is_running(job)]
        placed = [
            (job, place)
            for job in running
            if job.run and (place := Placement.parse(job.run.placement))
        ]
        owners = self.known_speeds.rows([job for job, _ in placed])
        return find_trying(owners, [place for _, place in placed], self.known_speeds.speeds)

    @cached_property
    def reached(self) -> set[str]:
        return {node.name for node in self.view.nodes if node.ready}

    def plan(self) -> Plan:
        jobs = [job for job in self.view.jobs.values() if self._takes_part(job)]
        without = [job for job in jobs if job.spec.gpus_max == 0]
        units = [Unit((job,), "", 0) for job in without]
        taken = {stock.type: 0 for stock in self.stocks}
        unseen = [job for job in jobs if not self._sees_gpus_of(job)]
        not_seen = {job.id for job in unseen}
        classes = self._classes([job for job in jobs if job.id not in not_seen])
        for number, members in enumerate(classes):
            later = [job for jobs in classes[number + 1 :] for job in jobs if not may_stop(job.run)]
            later += [job for job in unseen if not self._gives_way(job, members[0])]
            units += self._choose(members, taken, self._kept(members, later, units))
        done, leaving = self._place(units, unseen)
        # If several jobs on one GPU cannot be separated, they use less than was planned; and of the
        # GPUs of one type, not all may have the image of a job.
        if over := assign_leftovers(self.served, done, self.known, self.view, self.rules, _fewest):
            every = [*units, *over]
            done = place_units(every, self.view, self.rules, MOVES_MAX, leaving, self.bound)
        for chosen in self.chosen:
            self._place_single_guests(chosen, done)
        queue = self._queue(jobs)
        self._explain(queue, done)
        again = [j.eligible_at for j in self.view.jobs.values() if j.eligible_at > self.now]
        if any(job.run and job.spec.gpus_min < job.spec.gpus_max for job in jobs):
            again.append(self.now + AGAIN_SECONDS)
        if self.apart and any(job.waiting for job in jobs):
            again.append(self.now + AGAIN_SECONDS)
        return Plan(
            done.placements,
            self.why,
            self.expected,
            replan_at=min(again, default=None),
            queue=queue,
        )

    def offers(self) -> Iterator[Offer]:
        """What the jobs of each class could have."""
        jobs = [job for job in self.view.jobs.values() if self._takes_part(job)]
        for members in self._classes([job for job in jobs if self._sees_gpus_of(job)]):
            yield self._offer(members)

    def _takes_part(self, job: Job) -> bool:
        if job.outcome or job.cancelled:
            return False
        reason = blocked_reason(job, self.seen, self.now)
        leaves = job.run is None or may_stop(job.run) or job.run.phase is RunPhase.STOPPING
        if reason and leaves:
            self.why[job.id] = reason
            return False
        return True

    def _sees_gpus_of(self, job: Job) -> bool:
        """Whether the GPUs that the job has, if any, are visible."""
        if not self.stocks or job.run is None:
            return bool(self.stocks)
        return self.known.keys() >= set(gpu_keys(job))

    def _gives_way(self, job: Job, other: Job) -> bool:
        """Whether the job can be asked to leave those of its GPUs that are visible, for another job
        of a higher class. On a node that is not visible, it would not see the request."""
        if self._class(job) >= self._class(other) or not may_stop(job.run):
            return False
        return all(node in self.reached for node, _ in gpu_keys(job))

    def _place(
        self, units: list[Unit], unseen: Sequence[Job]
    ) -> tuple[PlacedUnits, frozenset[JobId]]:
        """Places the units, and chooses which of the unseen jobs are stopped, so that fewer jobs of
        higher classes are left out. If moves are postponed, `units` says so afterwards."""
        leaving = frozenset[JobId]()
        done = place_units(units, self.view, self.rules, MOVES_MAX, guests=self.bound)
        if staying := postpone_moves(units, done, self.known, self.view):
            late = count_late(units, done, self.view)
            other = place_units(staying, self.view, self.rules, MOVES_MAX, guests=self.bound)
            if count_late(staying, other, self.view) < late and other.left_out == done.left_out:
                done, units[:] = other, staying
        for job in sorted(unseen, key=self._class) if done.left_out else ():
            without = leaving | {job.id}
            if before := self._outranked(job, done):
                other = place_units(units, self.view, self.rules, MOVES_MAX, without, self.bound)
                if self._outranked(job, other) < before:
                    done, leaving = other, without
        return done, leaving

    def _outranked(self, job: Job, done: PlacedUnits) -> int:
        """How many jobs are left out for which it would have to be stopped."""
        return sum(self._gives_way(job, other) for unit in done.left_out for other in unit.jobs)

    def _class(self, job: Job) -> float:
        waited = self.now - job.submitted_at - job.ran_seconds
        if job.run:
            waited -= self.now - job.run.started_at
        return job.priority + waited // (PATIENCE * self.rules.ageing_seconds)

    def _classes(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """The classes of those that use GPUs, the one that is served first at the front."""
        found: dict[float, list[Job]] = {}
        for job in jobs:
            if job.spec.gpus_max == 0:
                continue
            found.setdefault(self._class(job), []).append(job)
        return [found[number] for number in sorted(found, reverse=True)]

    def _kept(
        self, jobs: Sequence[Job], others: Sequence[Job], before: Sequence[Unit]
    ) -> Counter[str]:
        """The GPUs of each type that these jobs cannot have because others cannot be asked to leave
        them. (Where the jobs themselves run, they stay.) GPUs that the classes before them have,
        and on which some of these jobs must stay as well, are subtracted: otherwise they would be
        counted twice."""
        stays = {key for job in others if is_running(job) for key in gpu_keys(job)}
        own = {key for job in jobs if is_running(job) for key in gpu_keys(job)}
        bound = {
            key for job in jobs if is_running(job) and not may_move(job) for key in gpu_keys(job)
        }
        taken = {
            key
            for unit in before
            for job in unit.jobs
            if is_running(job) and len(gpu_keys(job)) == unit.count
            for key in gpu_keys(job)
        }
        kept = Counter(self.known[key].type for key in stays - own - taken if key in self.known)
        kept.subtract(self.known[key].type for key in bound & taken)
        return kept

    def _choose(
        self, jobs: Sequence[Job], taken: dict[str, int], kept: Mapping[str, int]
    ) -> list[Unit]:
        less = {type: count + kept.get(type, 0) for type, count in taken.items()}
        offer = self._offer(jobs, less)
        self.served += [offer.jobs[row] for row in np.argsort(-offer.weight, kind="stable")]
        menu = offer.menu(less)
        present = guests_of_gangs(offer.jobs)
        neighbours = offer.neighbours(self.rules)
        joined = guests(offer.jobs)
        menu.worth[[*joined, *present]] = -np.inf
        for row, worth in worth_of_parting(offer, neighbours).items():
            menu.worth[row, offer.now[row]] = worth
        self.apart |= bool(offer.blind)
        allotted = self._allot(offer, menu, neighbours, joined, present)
        together = (*allotted.groups, *join_gangs(offer, neighbours, allotted.choice))
        served = np.flatnonzero(allotted.choice >= 0)
        seconds = offer.expected[served, allotted.choice[served]].tolist()
        self.expected |= {
            offer.jobs[row].id: each for row, each in zip(served, seconds, strict=True)
        }
        grouped = {row for group in together for row in group}
        alone = [(row,) for row, at in enumerate(allotted.choice.tolist()) if at >= 0]
        served_rows = [*together, *(rows for rows in alone if rows[0] not in grouped)]
        chosen = _Chosen(offer, allotted.choice, served_rows, present)
        self.chosen.append(chosen)
        units = []
        for rows in served_rows:
            config = offer.configs[allotted.choice[rows[0]]]
            taken[config.type] += config.gpus
            members = tuple(offer.jobs[row] for row in rows)
            bound = chosen.bound_guests(rows)
            self.bound |= bound
            units.append(Unit(members, config.type, config.gpus, stays=bool(bound)))
        return units

    def _offer(self, jobs: Sequence[Job], less: Mapping[str, int] | None = None) -> Offer:
        """What they could have. The classes ask in the order in which they are served. `less`: how
        many GPUs of each type these jobs cannot have."""
        gpus = sum(stock.gpus for stock in self.stocks) - sum((less or {}).values())
        offer = build_offer(
            jobs,
            self.stocks,
            self.known,
            self.known_speeds,
            self.usage_ratio,
            self.rules,
            at=self.now,
            gpus=max(0, gpus),
            trying=self.trying,
        )
        if offer.tries:
            self.trying = offer.tries.first
        return offer

    def _place_single_guests(self, chosen: _Chosen, done: PlacedUnits) -> None:
        """Single jobs that would have nothing are put beside gangs, where that pays."""
        offer = chosen.offer
        hosts = [host for rows in chosen.units if (host := self._gang_host(chosen, rows, done))]
        if not hosts:
            return

        def need(row: int, key: GpuKey) -> int:
            return need_mib(offer.jobs[row], self.known[key], self.rules)

        there = {row: gpu_keys(offer.jobs[row])[0] for row in chosen.present}
        idle = [
            row
            for row in np.flatnonzero(chosen.choice < 0).tolist()
            if (job := offer.jobs[row]).run is None
            and not takes_whole_gpu(job)
            and job.id not in done.placements
            and job.id not in done.claims
        ]
        spare = [key for key in done.unassigned(self.known) if not self.view.held.get(key)]
        guests = SingleGuests(offer, hosts, self.known, need)
        guests.keep(there, [row for row in there if offer.jobs[row].id in self.bound], spare)
        guests.add(np.array(idle, np.intp))
        for row, key in guests.leaving.items():
            job = offer.jobs[row]
            done.placements[job.id], done.claims[job.id] = (Share(*key, need(row, key)),), (key,)
        for row, key in guests.found.items():
            job = offer.jobs[row]
            shares = job.run.shares if job.run else (Share(*key, need(row, key)),)
            done.placements[job.id] = shares
            self.expected[job.id] = float(offer.expected[row, offer.single(self.known[key].type)])

    def _gang_host(
        self, chosen: _Chosen, rows: Sequence[int], done: PlacedUnits
    ) -> GangHost | None:
        """The gang or gangs of this unit, if they may have single jobs beside them."""
        offer, column = chosen.offer, int(chosen.choice[rows[0]])
        jobs = [offer.jobs[row] for row in rows]
        placed = [done.placements.get(job.id, ()) for job in jobs]
        whole = any(takes_whole_gpu(job) for job in jobs)
        keys = {share.key for shares in placed for share in shares}
        if offer.configs[column].gpus < 2 or whole or not all(map(len, placed)):
            return None
        members = {job.id for job in jobs}
        guests = {offer.jobs[row].id for row in chosen.present}
        room = {}
        for key in keys & self.known.keys():
            others = {job_id for job_id, _ in self.view.held.get(key, ())} - members
            if not self.known[key].whole and len(others) < 2 and others <= guests:
                taken = sum(share.memory_mib for s in placed for share in s if share.key == key)
                room[key] = self.known[key].capacity_mib - taken
        return GangHost(np.array(rows, np.intp), column, room)

    def _allot(
        self,
        offer: Offer,
        menu: Menu,
        neighbours: Neighbours,
        joined: Sequence[int],
        beside_gangs: Sequence[int],
    ) -> Allotment:
        """The present allocation, improved; a plan from nothing would move all jobs."""
        seed = int(self.now)
        if not (offer.now >= 0).any():
            return shared(menu, neighbours, seed)
        together: dict[int, list[int]] = {}
        for row, gpu in enumerate(offer.where.tolist()):
            single = gpu >= 0 and offer.configs[offer.now[row]].gpus == 1
            if single and row not in beside_gangs:
                together.setdefault(gpu, []).append(row)
        now, groups = offer.now.copy(), []
        now[joined] = -1
        for rows in (rows for rows in together.values() if len(rows) > 1):
            leaving = offer.leaving(rows)
            now[leaving] = -1
            groups.append(tuple(row for row in rows if row not in leaving))
        incumbent = Allotment(now, tuple(group for group in groups if len(group) > 1))
        limits = None
        if len(offer.jobs) > MATCHED_WHOLE:
            limits = Limits(np.flatnonzero(offer.now < 0), BLOCKS)
        return shared(menu, neighbours, seed, incumbent, limits)

    def usage_ratio(self, user: str) -> float:
        """The recent GPU time of a user, relative to the usual."""
        times = (self.used.get(user, self.usual) + LITTLE) / (self.usual + LITTLE)
        return min(max(times, 1 / FAIR_MAX), FAIR_MAX)

    def _queue(self, jobs: Sequence[Job]) -> tuple[JobId, ...]:
        """Jobs that may not start now come first: they hold up no other job."""
        served = (job.id for job in (*self.served, *jobs))
        return tuple(dict.fromkeys((*self.why, *served)))

    def _explain(self, queue: Sequence[JobId], done: PlacedUnits) -> None:
        jobs = [self.view.jobs[job_id] for job_id in queue if job_id not in self.why]
        self.why |= explained(jobs, done, self.seen, self.rules)


def _fewest(job: Job) -> int:
    return job.spec.gpus_min
