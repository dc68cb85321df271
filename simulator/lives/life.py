"""One life of the scheduler from one seed: first with faults (safety), then without (liveness)."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import msgspec

from scheduler.core.errors import InvariantError, Unavailable
from scheduler.core.loop import Scheduler
from scheduler.core.memory import need_mib, usable_gpus
from scheduler.core.model import (
    Fact,
    Job,
    JobId,
    Node,
    Plan,
    Rules,
    Share,
    Time,
    View,
)
from scheduler.core.ports import Policy, Step
from scheduler.planning.policies import POLICIES
from scheduler.store.journal import Decider
from scheduler.store.writer import SqliteStore
from simulator.lives.advice import RemedyChecker
from simulator.lives.checkers import Violation, basic_checkers, unfinished_jobs
from simulator.lives.class_order import class_order_checkers
from simulator.lives.estimate_checkers import LearnedSpeedsMatch, UsedTimeMatches
from simulator.lives.fairness import fairness_checkers
from simulator.lives.faults import (
    NO_FAULTS,
    Crash,
    Faults,
    draw_faults,
    with_gpu_faults,
    with_gpus_to_be_left,
    with_refusals,
)
from simulator.lives.graphs import Graphs, with_graphs
from simulator.lives.growing_jobs import draw_growing_jobs, growth_checkers
from simulator.lives.missing_epochs import MissingEpochs
from simulator.lives.observed_memory import memory_checkers
from simulator.lives.owners import Owner
from simulator.lives.scripts import with_habits
from simulator.lives.sweep_jobs import Sweeps, with_sweeps
from simulator.lives.time_limits import TimeLimits, with_time_limits
from simulator.lives.workload import TrueJob, draw_jobs, draw_nodes
from simulator.lives.world import World

LIFE_POLICIES = ("fifo_sharing", "gpu_sharing")
POLICY_WEIGHTS = (3, 2)  # a life under the second takes as long as twelve under the first
ADVICE = ("some", "all")
STEPS_MAX = 20_000  # far more than any life needs that makes progress


@dataclass(frozen=True)
class LifeOptions:
    """What a seed decides before the life begins."""

    seed: int
    faults: Faults
    rules: Rules
    nodes: tuple[Node, ...]
    truths: tuple[TrueJob, ...]
    safety_seconds: float
    observe_every_seconds: float
    lag_seconds: float
    keeps_dead: bool
    policy: str
    agents: bool  # agents measure how much of each GPU processes use

    def lines(self) -> list[str]:
        lines = [f"seed {self.seed}"]
        for part in (self.faults, self.rules):
            values = (f"{f.name}={getattr(part, f.name)!r}" for f in fields(part))
            lines.append(f"{type(part).__name__}: {' '.join(values)}")
        lines += [str(node) for node in self.nodes]
        lines += [str(truth) for truth in self.truths]
        lines.append(
            f"safety_seconds={self.safety_seconds}"
            f" observe_every_seconds={self.observe_every_seconds}"
            f" lag_seconds={self.lag_seconds} keeps_dead={self.keeps_dead} policy={self.policy}"
            f" agents={self.agents}"
        )
        return lines


@dataclass(frozen=True)
class LifeReport:
    seed: int
    steps: int
    crashes: int
    virtual_seconds: float
    fingerprint: str
    violation: str = ""
    seconds: float = field(default=0.0, compare=False)  # that the simulation took


def draw_options(
    seed: int, jobs: int, rng: random.Random, policy: str | None = None
) -> LifeOptions:
    nodes = draw_nodes(rng)
    margin_mib = rng.choice([0, 200])
    return LifeOptions(
        seed=seed,
        faults=with_gpus_to_be_left(
            with_refusals(
                with_gpu_faults(draw_faults(rng), random.Random(f"cards {seed}")),
                random.Random(f"refusals {seed}"),
            ),
            random.Random(f"resets {seed}"),
        ),
        rules=Rules(
            plan_every_seconds=rng.choice([0.0, 1.0, 5.0]),
            stop_grace_seconds=rng.choice([60.0, 300.0]),
            memory_margin_mib=margin_mib,
            backoff_max_seconds=60.0,
            ageing_seconds=rng.choice([10.0, 100.0, 1000.0, 21600.0]),
            remember_seconds=rng.choice([0.0, 60.0]),
            fairness_half_life_seconds=rng.choice([300.0, 3600.0, 7 * 86400.0]),
        ),
        nodes=tuple(nodes),
        # The numbers are such that lives that alone notice a planted bug (tests/lives/mutants.py)
        # have neither sweeps nor graphs, and are what they were.
        truths=with_graphs(
            with_sweeps(
                with_time_limits(
                    with_habits(
                        draw_jobs(rng, rng.randint(max(1, jobs // 2), jobs), nodes, margin_mib),
                        random.Random(f"scripts {seed}"),
                    ),
                    random.Random(f"time limits {seed}"),
                ),
                random.Random(f"sweeps 65 {seed}"),
            ),
            random.Random(f"graphs 1116 {seed}"),
        ),
        safety_seconds=rng.uniform(100.0, 900.0),
        observe_every_seconds=rng.choice([30.0, 60.0, 120.0]),
        lag_seconds=rng.choice([0.0, 0.5, 3.0]),
        keeps_dead=rng.random() < 0.5,
        # Drawn from its own generator, so that all else is as it was before there was a choice.
        policy=policy or random.Random(f"policy {seed}").choices(LIFE_POLICIES, POLICY_WEIGHTS)[0],
        agents=random.Random(f"agents {seed}").random() < 0.6,
    )


def _with_growing_jobs(options: LifeOptions) -> LifeOptions:
    """Other nodes and jobs, in a few lives under the policy that lets jobs grow."""
    growing = draw_growing_jobs(random.Random(f"growing {options.seed}"))
    if options.policy != "gpu_sharing" or growing is None:
        return options
    nodes, truths = growing
    faults = replace(options.faults, plan_nonsense=0.0, plan_stale=0.0)
    return replace(options, nodes=nodes, truths=truths, faults=faults)


def _with_memory(options: LifeOptions) -> LifeOptions:
    """A job that follows others may end in the step of its submission. A daemon remembers it for
    longer than a second submission can be on its way, and so do these lives."""
    if not any(truth.spec.after for truth in options.truths):
        return options
    remembered = max(options.rules.remember_seconds, options.lag_seconds + 2.0)
    return replace(options, rules=replace(options.rules, remember_seconds=remembered))


def live(
    seed: int,
    jobs: int = 10,
    tell: Callable[[str], None] | None = None,
    policy: str | None = None,
    advice: str = ADVICE[0],
) -> LifeReport:
    """Simulates one life. `tell` gets the options first, and then each fact. `policy`: None: drawn.
    `advice`: which waiting jobs have their remedies checked."""
    started = time.perf_counter()
    rng = random.Random(seed)
    options = _with_memory(_with_growing_jobs(draw_options(seed, jobs, rng, policy)))
    if tell:
        for line in options.lines():
            tell(line)
    life = Life(options, rng, tell, advice)
    try:
        life.run()
        violation = ""
    except (Violation, InvariantError) as error:
        violation = str(error) if isinstance(error, Violation) else f"Invariants: {error}"
    except Exception as error:  # noqa: BLE001 - any error that would end the daemon
        violation = f"Exception: {type(error).__name__}: {error}"
    return LifeReport(
        seed,
        life.steps,
        life.crashes,
        life.world.time,
        life.fingerprint.hexdigest(),
        violation,
        time.perf_counter() - started,
    )


class Life:
    def __init__(
        self,
        options: LifeOptions,
        rng: random.Random,
        tell: Callable[[str], None] | None,
        advice: str = ADVICE[0],
    ) -> None:
        self.options, self.tell = options, tell
        truths = {truth.job_id: truth for truth in options.truths}
        self.world = World(
            rng,
            options.faults,
            options.nodes,
            truths,
            options.observe_every_seconds,
            options.lag_seconds,
            options.keeps_dead,
            options.agents,
        )
        self.owners = {truth.job_id: Owner(self.world, truth) for truth in options.truths}
        self.fingerprint = hashlib.sha256()
        self.steps = self.crashes = 0
        honest = options.faults.honest
        self.policy = POLICIES[options.policy](options.rules)
        if not honest:
            self.policy = UnreliablePolicy(self.policy, self.world, options.rules)
        decider = Decider(options.policy, options.rules)
        self.store = Recorder(self.world, self._record, decider)
        self.scheduler = self._new_scheduler()
        self.world.read = lambda: self.scheduler.view
        self.world.witnesses = basic_checkers(self.world, self.owners)
        self.world.witnesses += memory_checkers(self.world)
        self.world.witnesses += [
            TimeLimits(self.world),
            Sweeps(self.world, options.rules),
            Graphs(self.world),
        ]
        self.world.witnesses += [
            LearnedSpeedsMatch(self.world),
            UsedTimeMatches(self.world, options.rules),
            MissingEpochs(self.world),
        ]
        if honest:
            self.world.witnesses += fairness_checkers(self.world, options.policy, options.rules)
            remedy_policy = POLICIES[options.policy](options.rules)
            self.world.witnesses += [
                RemedyChecker(self.world, remedy_policy, options.rules, advice == "all")
            ]
            if options.policy == "gpu_sharing":
                self.world.witnesses += class_order_checkers(self.world, options.rules)
                self.world.witnesses += growth_checkers(self.world, options.rules)

    def run(self) -> None:
        self.world.after(self.options.safety_seconds, self.world.heal)
        bound = self.options.safety_seconds + seconds_to_end(self.options)
        while not self._is_over():
            self._step()
            if self.world.time > bound or self.steps > STEPS_MAX:
                left = "; ".join(unfinished_jobs(tuple(self.owners), self.world))
                raise Violation(f"Liveness: not over after {self.world.time:.0f} s, {left}")
        for witness in self.world.witnesses:
            witness.on_end()

    def _step(self) -> None:
        self.steps += 1
        before = self.scheduler.view
        try:
            self.scheduler.step()
        except Crash:
            self._restart()
            return
        except Unavailable:
            if not self.world.disk_full:
                raise
            self._restart()
            return
        after = self.scheduler.view
        for witness in self.world.witnesses:
            witness.on_step(before, after)

    def _restart(self) -> None:
        """Simulates a crash without a process: a new scheduler gets the same store and world."""
        self.crashes += 1
        self.world.kill_daemon()
        self.world.start_daemon()
        self.scheduler = self._new_scheduler()
        for witness in self.world.witnesses:
            witness.on_restart(self.scheduler.view)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self.world, self.store, self.world, self.policy, self.options.rules)

    def _is_over(self) -> bool:
        stored = self.world.stored
        return (
            self.world.faults is NO_FAULTS
            and not self.world.runs
            and all(owner.settled for owner in self.owners.values())
            and all(id in stored and stored[id].outcome for id in self.owners)
        )

    def _record(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            for witness in self.world.witnesses:
                witness.on_fact(fact)
            self.fingerprint.update(repr(fact).encode())
            if self.tell:
                data = " ".join(f"{key}={value}" for key, value in fact.data.items())
                who = f"{fact.job_id} {fact.attempt or ''}"
                self.tell(f"{fact.at:10.2f} {fact.kind:18} {who:10} {data}")


class Recorder:
    """The real store, which crashes at times, with a record of what was committed."""

    def __init__(
        self, world: World, record: Callable[[Sequence[Fact]], None], decider: Decider
    ) -> None:
        self.world, self.record = world, record
        self.inner = SqliteStore(None, world.before_write, decider)
        self.jobs: dict[JobId, Job] = {}
        world.stored = self.jobs

    def load(self) -> View:
        return self.inner.load()

    def commit(self, step: Step) -> None:
        self.world.maybe_crash()
        self.inner.commit(step)
        self.jobs.update(step.after.jobs)
        self.world.learned = step.after.kinds, step.after.used
        self.record(step.facts)
        self.world.maybe_crash()


def seconds_to_end(options: LifeOptions) -> float:
    """Enough time to run all jobs again, one after the other, with a reserve."""
    rules = options.rules
    each = (
        truth.epoch_seconds * (max(truth.spec.max_epochs, 6) + 2)
        + rules.stop_grace_seconds
        + rules.backoff_max_seconds
        + 60.0
        for truth in options.truths
    )
    return 3.0 * sum(each) + 2000.0


class UnreliablePolicy:
    """A policy that, while there are faults, at times returns a random plan or its last plan again.

    These plans ask to be called again, as a solver does that has run out of time.
    """

    def __init__(self, policy: Policy, world: World, rules: Rules) -> None:
        self.policy, self.world, self.rules = policy, world, rules
        self.last = Plan()
        self._plans: dict[bytes, Plan] = {}

    def __call__(self, view: View, now: Time) -> Plan:
        plan = self._plans[_view_key(view, now)] = self._plan(view, now)
        return plan

    def again(self, view: View, now: Time) -> Plan:
        """The plan that it made for this view then: a replay cannot draw the same."""
        return self._plans[_view_key(view, now)]

    def _plan(self, view: View, now: Time) -> Plan:
        faults = self.world.faults
        if self.world.chance(faults.plan_stale):
            return replace(self.last, optimal=False, replan_at=now + 20.0)
        if self.world.chance(faults.plan_nonsense):
            self.last = random_plan(view, now, self.world, self.rules)
        else:
            self.last = self.policy(view, now)
        return self.last


def _view_key(view: View, now: Time) -> bytes:
    # A set has no fixed order for encoding, and the jobs contain the same information.
    return msgspec.msgpack.encode((replace(view, stopping=frozenset()), now))


def random_plan(view: View, now: Time, world: World, rules: Rules) -> Plan:
    """A plan that may be nonsense, but often nearly fits: no safety property rests on a policy."""
    rng, gpu_by_key = world.rng, usable_gpus(world.nodes)
    gpus = [*gpu_by_key, ("no-such-node", "gpu0"), (world.nodes[0].name, "no-such-gpu")]

    def shares(job: Job | None) -> tuple[Share, ...]:
        if job and len(gpu_by_key) >= job.spec.gpus_min and rng.random() < 0.6:
            count = rng.randint(job.spec.gpus_min, min(job.spec.gpus_max, len(gpu_by_key)))
            chosen = rng.sample(list(gpu_by_key), count)
            return tuple(Share(*key, need_mib(job, gpu_by_key[key], rules)) for key in chosen)
        mib = rng.choice([-1, 0, 1, 1000, 5000, 7900, 15872, 10**9])
        return tuple(Share(*rng.choice(gpus), mib) for _ in range(rng.choice([0, 1, 2, 3])))

    return Plan(
        {
            job_id: shares(view.jobs.get(job_id))
            for job_id in [*view.jobs, JobId("nobody")]
            if rng.random() < 0.7
        },
        replan_at=now + 20.0,
    )
