"""Worlds that break what the scheduler believes of jobs: whether it learns from what it measures,
or loses by what it expects.

The prior of estimates/scaling.py has no cliffs, nothing that scales better than perfectly, epochs
that stay the same, GPUs of one type that are alike, and jobs of one kind that are. Each world here
breaks one of these. In all of them two jobs hardly ever fit on one GPU, so that only the speeds
alone matter; interference is measured elsewhere (benchmarks/interference.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler.core.model import Gpu, JobSpec, Node
from simulator.traces.behaviour import HONEST, STEADY, Course, Lie, MeasuredTruth, Pairs, TraceJob

GPU_MIB, MEMORY_MIB = 16_384, 10_240
FAST, SLOW = "a100", "rtx"  # types of GPU
HOUR = 3600.0
EPOCHS = 30, 120  # of a job, drawn evenly
NO_PAIRS = Pairs({})


@dataclass(frozen=True, slots=True)
class WorldTimes:
    """The true law of a kind."""

    one_seconds: float  # of an epoch on one GPU of the fast type
    serial: float  # the part that more GPUs do not shorten
    across: float = 1.0  # factor on several nodes
    cache: float = 1.0  # divisor on several GPUs: each one's part fits into its cache
    slow_type: float = 1.0  # factor on the slow type

    def seconds(self, type: str, count: int, nodes: int) -> float:
        seconds = self.one_seconds * (self.serial + (1.0 - self.serial) / max(1, count))
        if nodes > 1:
            seconds *= self.across
        if count > 1:
            seconds /= self.cache
        return seconds * self.slow_type if type == SLOW else seconds


@dataclass(frozen=True, slots=True)
class StrangeWorld:
    jobs: tuple[TraceJob, ...]
    nodes: tuple[Node, ...]
    slowness: Mapping[str, float] = field(default_factory=dict)  # of nodes; see Trial
    liars: tuple[str, ...] = ()  # projects of jobs that lie

    def is_liar(self, name: str) -> bool:
        """Whether the job with this name lies."""
        return name.rpartition("-")[0] in self.liars

    @property
    def told_nodes(self) -> tuple[Node, ...]:
        """The nodes for a policy that knows which ones are slow: their GPUs are a type of their
        own."""
        return tuple(
            replace(node, gpus=tuple(replace(gpu, type=gpu.type + SLOWED) for gpu in node.gpus))
            if node.name in self.slowness
            else node
            for node in self.nodes
        )

    @property
    def type_slowness(self) -> dict[str, float]:
        """How many times longer everything takes on the types of `told_nodes`."""
        types = {node.name: node.gpus[0].type for node in self.nodes}
        return {types[node] + SLOWED: times for node, times in self.slowness.items()}


SLOWED = "-slowed"


def build_world(name: str, seed: int) -> StrangeWorld:
    """One of WORLDS. The same seed gives the same world."""
    return WORLDS[name](np.random.default_rng((seed, *name.encode())))


# --- what all worlds are made of ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrawnKind:
    """The jobs of one project."""

    project: str
    times: tuple[WorldTimes, ...]  # more than one: its jobs are different programs
    course: Course = STEADY
    lie: Lie = HONEST


@dataclass(frozen=True, slots=True)
class Demand:
    """How many jobs there are, what they ask for and how much they have to do."""

    jobs: int = 36
    hours: float = 12.0  # in which they arrive
    work_hours: tuple[float, float] = (0.3, 30.0)  # on one GPU; the logarithm is drawn evenly
    gpus_max: tuple[int, ...] = (4, 8, 16, 32)


def cluster(nodes: int, gpus: int, type: str = FAST) -> tuple[Node, ...]:
    each = tuple(Gpu(f"gpu{index}", index, type, GPU_MIB) for index in range(gpus))
    return tuple(Node(f"{type}-{number:02}", each) for number in range(nodes))


def draw_jobs(
    chance: np.random.Generator, kinds: Sequence[DrawnKind], demand: Demand
) -> list[TraceJob]:
    """Their kinds come in turn, in a drawn order; they arrive independently of each other."""
    order = np.arange(demand.jobs) % len(kinds)
    chance.shuffle(order)
    arrivals = np.sort(chance.uniform(0.0, demand.hours * HOUR, demand.jobs))
    least, most = np.log(demand.work_hours)
    return [
        draw_job(
            chance,
            kinds[kind],
            number,
            float(at),
            HOUR * float(np.exp(chance.uniform(least, most))),
            int(chance.choice(demand.gpus_max)),
        )
        for number, (kind, at) in enumerate(zip(order.tolist(), arrivals.tolist(), strict=True))
    ]


def draw_job(
    chance: np.random.Generator,
    kind: DrawnKind,
    number: int,
    at: float,
    work_seconds: float,
    gpus_max: int,
    gpus_min: int = 1,
) -> TraceJob:
    """A job with so many epochs that it has this much to do, on one GPU of the fast type. Jobs of
    one kind have samples of the same length, but epochs with different numbers of them."""
    times = kind.times[int(chance.integers(len(kind.times)))]
    epochs = int(chance.integers(*EPOCHS, endpoint=True))
    samples = max(1, round(SAMPLES * work_seconds / epochs / times.one_seconds))
    truth = MeasuredTruth(kind.project, MEMORY_MIB, 0.9, _sized(times, samples / SAMPLES), NO_PAIRS)
    spec = JobSpec(
        name=f"{kind.project}-{number}",
        user="trace",
        project=kind.project,
        max_epochs=epochs,
        batch_size=256,
        training_set_size=samples,
        gpus_min=gpus_min,
        gpus_max=gpus_max,
        memory_mib=MEMORY_MIB,
    )
    return TraceJob(round(at, 3), spec, truth, kind.course, kind.lie)


SAMPLES = 100_000  # in an epoch that takes as long as the law of its kind says


def _sized(times: WorldTimes, factor: float) -> WorldTimes:
    return replace(times, one_seconds=times.one_seconds * factor)


def draw_times(chance: np.random.Generator, **law: float) -> WorldTimes:
    """Scales well, unless `law` says otherwise."""
    seconds = float(np.exp(chance.uniform(*np.log((120.0, 1200.0)))))
    usual = {"one_seconds": seconds, "serial": float(chance.uniform(0.005, 0.04))}
    return WorldTimes(**(usual | law))


# --- the worlds ---------------------------------------------------------------------------------


def _usual_world(chance: np.random.Generator, kinds: Sequence[DrawnKind]) -> StrangeWorld:
    return StrangeWorld(tuple(draw_jobs(chance, kinds, Demand())), cluster(8, 4))


def cliff(chance: np.random.Generator) -> StrangeWorld:
    """Several nodes make every other kind four times slower, and the others not at all."""
    kinds = [
        DrawnKind(f"kind-{number}", (draw_times(chance, across=(1.0, 4.0)[number % 2]),))
        for number in range(6)
    ]
    return _usual_world(chance, kinds)


def cache(chance: np.random.Generator) -> StrangeWorld:
    """For every other kind two GPUs are 2.6 times as fast as one."""
    kinds = [
        DrawnKind(f"kind-{number}", (draw_times(chance, cache=(1.0, 1.3)[number % 2]),))
        for number in range(6)
    ]
    return _usual_world(chance, kinds)


def tuning(chance: np.random.Generator) -> StrangeWorld:
    """Each run is six times slower while it looks for its best batch, for five minutes."""
    course = Course(tuning=6.0, tuning_seconds=300.0)
    kinds = [DrawnKind(f"kind-{number}", (draw_times(chance),), course) for number in range(6)]
    return _usual_world(chance, kinds)


def drift(chance: np.random.Generator) -> StrangeWorld:
    """The epochs of a third of the kinds shrink threefold, those of another third grow as much."""
    courses = Course(first=1.5, last=0.5), Course(first=0.5, last=1.5), STEADY
    kinds = [
        DrawnKind(f"kind-{number}", (draw_times(chance),), courses[number % 3])
        for number in range(6)
    ]
    return _usual_world(chance, kinds)


def bad_node(chance: np.random.Generator) -> StrangeWorld:
    """On one of eight nodes every run is five times slower."""
    kinds = [DrawnKind(f"kind-{number}", (draw_times(chance),)) for number in range(6)]
    world = _usual_world(chance, kinds)
    return replace(world, slowness={world.nodes[int(chance.integers(8))].name: 5.0})


def mixed_kinds(chance: np.random.Generator) -> StrangeWorld:
    """The jobs of one kind are one of two programs: one is four times slower, and hardly scales."""
    kinds = []
    for number in range(4):
        fast = draw_times(chance)
        slow = replace(fast, one_seconds=4.0 * fast.one_seconds, serial=0.4)
        kinds.append(DrawnKind(f"kind-{number}", (fast, slow)))
    return _usual_world(chance, kinds)


def poisoned(chance: np.random.Generator) -> StrangeWorld:
    """A kind is measured once on almost the whole cluster, where it is slower than on one GPU. A
    long job of another kind comes later, and most GPUs are idle."""
    poison = DrawnKind("poison", (WorldTimes(75.0, 0.4, across=20.0),))
    demand = Demand(jobs=24, work_hours=(0.2, 2.0), gpus_max=(1, 2, 4))
    others = [DrawnKind(f"kind-{number}", (draw_times(chance),)) for number in range(4)]
    long = DrawnKind("long", (draw_times(chance, serial=0.005),))
    jobs = draw_jobs(chance, others, demand)
    jobs += [
        _with_epochs(draw_job(chance, poison, number, 0.0, 3600.0, gpus, gpus), 3)
        for number, gpus in enumerate((1, 28))
    ]
    jobs.append(draw_job(chance, long, 0, 4.0 * HOUR, 200.0 * HOUR, 32))
    jobs.sort(key=lambda job: job.submit_at)
    return StrangeWorld(tuple(jobs), cluster(8, 4))


def _with_epochs(job: TraceJob, epochs: int) -> TraceJob:
    return replace(job, spec=replace(job.spec, max_epochs=epochs))


def liars(chance: np.random.Generator) -> StrangeWorld:
    """One kind reports that it scales well, and does not; one reports 0, 10 times as long and a
    tenth in turn."""
    poor = draw_times(chance, serial=0.5)
    kinds = [
        *(DrawnKind(f"kind-{number}", (draw_times(chance),)) for number in range(4)),
        DrawnKind("greedy", (poor,), lie=Lie(per_gpu=0.6)),
        DrawnKind("erratic", (poor,), lie=Lie(factors=(0.0, 10.0, 0.1))),
    ]
    return replace(_usual_world(chance, kinds), liars=("greedy", "erratic"))


def clock_jumps(chance: np.random.Generator) -> StrangeWorld:
    """The clocks of a third of the kinds are set within every other epoch, forward or back by a
    minute; those of another third by an hour, now and then."""
    lies = Lie(jumps=(0.0, 60.0, 0.0, -60.0)), Lie(jumps=(0.0, 0.0, -3600.0, 0.0, 3600.0)), HONEST
    kinds = [
        DrawnKind(f"kind-{number}", (draw_times(chance),), lie=lies[number % 3])
        for number in range(6)
    ]
    return _usual_world(chance, kinds)


def two_types(chance: np.random.Generator) -> StrangeWorld:
    """There are few GPUs of the fast type. Half of the kinds are almost as fast on the other one,
    the others five times slower."""
    kinds = [
        DrawnKind(f"kind-{number}", (draw_times(chance, slow_type=(1.15, 5.0)[number % 2]),))
        for number in range(6)
    ]
    jobs = draw_jobs(chance, kinds, Demand(gpus_max=(4, 8, 16)))
    return StrangeWorld(tuple(jobs), (*cluster(3, 4), *cluster(6, 4, SLOW)))


WORLDS: Mapping[str, Callable[[np.random.Generator], StrangeWorld]] = {
    world.__name__: world
    for world in (
        cliff,
        cache,
        tuning,
        drift,
        bad_node,
        mixed_kinds,
        poisoned,
        liars,
        clock_jumps,
        two_types,
    )
}
