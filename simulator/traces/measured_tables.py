"""The measured tables of a data folder, with interpolation between their points and beyond.

Step times come from Sia and Pollux, rates and pairs by GPU type from Gavel, profiles and pairs on
one GPU from Lucid. Assumptions, where no table has a value, are in `assumptions.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from simulator.traces.assumptions import SPREAD_LIKE
from simulator.traces.behaviour import Pairs
from simulator.traces.text_rows import Row, with_header

# The GPU types of Sia's and Pollux's measurements, and the clusters that name their tables.
CLUSTERS = {"t4": "aws", "rtx": "rtx", "a100": "dgx", "quad": "quad", "azure": "azure"}
# Where other batches were measured as well, which matter to adaptive jobs only.
MORE_BATCHES = {"a100": "dgx-ext"}

# Gavel's column for V100s contradicts itself, so that type is left out.
GAVEL_TYPES = ("p100", "k80")
GAVEL_SOURCE = "simulation"  # the figures that Gavel's own simulator uses

# Lower speeds, at which a job would never end, are not believed.
SPEED_MIN = 0.01


# --- Sia and Pollux: the time of a step ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    batch: float  # per GPU
    step_seconds: float
    sync_seconds: float  # the part of a step that exchanges gradients


@dataclass(frozen=True)
class StepTable:
    """One application on one type of GPU, by (nodes, GPUs in all)."""

    points: Mapping[tuple[int, int], Sequence[Point]]

    def seconds(self, count: int, nodes: int, batch: float) -> float:
        """Seconds of one step of `batch` samples over all GPUs together.

        Interpolates in the number of GPUs for a number of nodes, then in the number of nodes. Above
        the largest measured number of nodes, that number counts.
        """
        known = sorted({nodes for nodes, _ in self.points})
        around = [n for n in known if n <= nodes][-1:] + [n for n in known if n >= nodes][:1]
        return interpolate(around, [self._on_nodes(n, count, batch / count) for n in around], nodes)

    @property
    def on_one_node(self) -> bool:
        """Whether it was never measured on several nodes."""
        return {nodes for nodes, _ in self.points} == {1}

    def _on_nodes(self, nodes: int, count: int, local: float) -> float:
        counts = sorted(count for n, count in self.points if n == nodes)
        if count in counts:
            return _step_seconds(self.points[nodes, count], local)
        seconds = [_step_seconds(self.points[nodes, c], local) for c in counts]
        return interpolate(counts, seconds, count)


def _step_seconds(points: Sequence[Point], local: float) -> float:
    """Divides a batch larger than all measured ones into equal parts; only the last is followed by
    an exchange of gradients. A smaller one takes as long as the smallest: the GPU idles anyway."""
    parts = math.ceil(local / points[-1].batch - 1e-9)
    batches = [point.batch for point in points]
    step = interpolate(batches, [point.step_seconds for point in points], local / max(parts, 1))
    sync = interpolate(batches, [point.sync_seconds for point in points], local / max(parts, 1))
    return step + max(parts - 1, 0) * (step - sync)


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Interpolates linearly. Below the first point its value counts. Above the last the slope of
    the last doubling continues, because the slope of two neighbours is noise; it never falls."""
    if x <= xs[0] or len(xs) == 1:
        return ys[0]
    if x > xs[-1]:
        half = next(i for i, known in enumerate(xs) if 2 * known >= xs[-1] or i == len(xs) - 2)
        slope = (ys[-1] - ys[half]) / (xs[-1] - xs[half])
        return ys[-1] + max(slope, 0.0) * (x - xs[-1])
    right = next(i for i, known in enumerate(xs) if x <= known)
    part = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + part * (ys[right] - ys[right - 1])


@cache
def step_table(data: Path, application: str, cluster: str) -> StepTable | None:
    """None: this application was not measured there."""
    folder = data / "scaling" / application
    placements = folder / f"placements-{cluster}.csv"
    if not placements.exists():
        return None
    points = _points(placements, ("placement",))
    scalability = folder / f"scalability-{cluster}.csv"
    if scalability.exists():
        points = _points(scalability, ("num_nodes", "num_replicas")) | points
    return StepTable(points)


def _points(path: Path, where: Sequence[str]) -> dict[tuple[int, int], list[Point]]:
    """Averages placements with the same numbers of GPUs and nodes, such as "13" and "22"."""
    found: dict[tuple[int, int], dict[float, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for row in with_header(path, (*where, "local_bsz", "step_time", "sync_time")):
        step = row.positive("step_time")
        point = Point(row.positive("local_bsz"), step, row.number("sync_time", 0.0, step))
        found[_placement(row)][point.batch].append(point)
    return {
        key: [_mean(same) for _, same in sorted(by_batch.items())]
        for key, by_batch in sorted(found.items())
    }


def _placement(row: Row) -> tuple[int, int]:
    if "placement" not in row.values:
        return row.whole("num_nodes", 1), row.whole("num_replicas", 1)
    digits = str(row.whole("placement", 1))
    return len(digits), sum(map(int, digits))


def _mean(points: Sequence[Point]) -> Point:
    return Point(
        points[0].batch,
        sum(point.step_seconds for point in points) / len(points),
        sum(point.sync_seconds for point in points) / len(points),
    )


@dataclass(frozen=True)
class StepTimes:
    """An application with the same *global* batch on any number of GPUs."""

    data: Path
    application: str
    batch: int
    steps: float  # of an epoch
    more_batches: bool = False  # see MORE_BATCHES
    cached: dict[tuple[str, int, int], float] = field(
        default_factory=dict, compare=False, repr=False
    )

    def seconds(self, type: str, count: int, nodes: int) -> float:
        key = type, count, nodes
        seconds = self.cached.get(key)
        if seconds is None:
            seconds = self.cached[key] = self._seconds(type, count, nodes)
        return seconds

    def _seconds(self, type: str, count: int, nodes: int) -> float:
        table = self._table(type)
        if table is None:
            return math.inf
        if nodes > 1 and table.on_one_node:
            return self.steps * table.seconds(count, 1, self.batch) * self._spread(count, nodes)
        return self.steps * table.seconds(count, nodes, self.batch)

    def _spread(self, count: int, nodes: int) -> float:
        """The ratio of its time on several nodes to its time on one."""
        like = self._table(SPREAD_LIKE)
        if like is None:
            return 1.0
        on_one = like.seconds(count, 1, self.batch)
        return max(1.0, like.seconds(count, nodes, self.batch) / on_one)

    def _table(self, type: str) -> StepTable | None:
        clusters = CLUSTERS | MORE_BATCHES if self.more_batches else CLUSTERS
        cluster = clusters.get(type)
        return step_table(self.data, self.application, cluster) if cluster else None


@dataclass(frozen=True)
class LikeTimes:
    """Fixed seconds on the GPUs asked for, of any type; elsewhere scaled as `law` on `type`."""

    asked_seconds: float
    asked: tuple[int, int]  # (GPUs, nodes)
    law: StepTimes
    type: str

    def seconds(self, type: str, count: int, nodes: int) -> float:
        if (count, nodes) == self.asked:
            return self.asked_seconds
        return self.asked_seconds * self.relative(count, nodes)

    def relative(self, count: int, nodes: int) -> float:
        """The time there, relative to the time on the GPUs asked for."""
        asked = self.law.seconds(self.type, *self.asked)
        return self.law.seconds(self.type, count, nodes) / asked


# --- Gavel: steps per second, and pairs by GPU type ---------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Steps per second, over all GPUs together, by (type, on one node, model)."""

    points: Mapping[tuple[str, bool, str], Sequence[tuple[int, float]]]

    def rate(self, type: str, model: str, count: int, nodes: int) -> float:
        """0: it cannot run there, that is, it was not measured on one GPU and on several. A model
        not measured on several nodes is as fast there as on one node, like almost all others."""
        points = self.points.get((type, nodes == 1, model), ())
        if len(points) < 2:
            points = self.points.get((type, True, model), ())
        counts, rates = [point[0] for point in points], [point[1] for point in points]
        if count in counts:
            return rates[counts.index(count)]
        return interpolate(counts, rates, count) if len(points) > 1 else 0.0


@cache
def gavel_rates(data: Path) -> Rates:
    found: dict[tuple[str, bool, str], list[tuple[int, float]]] = defaultdict(list)
    columns = "source", "gpu", "model", "scale_factor", "steps_per_s"
    for row in with_header(data / "scaling" / "gavel_scaling.csv", columns):
        type, _, spread = row.text("gpu").partition("_")
        rate = row.number("steps_per_s")
        if row.text("source") == GAVEL_SOURCE and type in GAVEL_TYPES and rate > 0.0:
            key = type, not spread, row.text("model")
            found[key].append((row.whole("scale_factor", 1), rate))
    return Rates({key: sorted(points) for key, points in found.items()})


@dataclass(frozen=True)
class RateTimes:
    """A model with a fixed batch *per GPU*: more GPUs take more samples in a step."""

    rates: Rates
    model: str
    steps: float  # of an epoch, each of one GPU's batch
    cached: dict[tuple[str, int, int], float] = field(
        default_factory=dict, compare=False, repr=False
    )

    def seconds(self, type: str, count: int, nodes: int) -> float:
        key = type, count, nodes
        seconds = self.cached.get(key)
        if seconds is None:
            rate = self.rates.rate(type, self.model, count, nodes)
            seconds = self.cached[key] = self.steps / rate if rate else math.inf
        return seconds


@cache
def gavel_pairs(data: Path) -> Pairs:
    """Pairs that did not fit together have no speed; on larger GPUs the rule applies."""
    speeds: dict[tuple[str, str, str], float] = {}
    columns = "source", "gpu", "job_a", "job_b", "norm_a", "norm_b", "fits"
    for row in with_header(data / "colocation" / "gavel_pairs.csv", columns):
        if row.text("source") != GAVEL_SOURCE or not row.flag("fits"):
            continue
        type, a, b = row.text("gpu"), row.text("job_a"), row.text("job_b")
        speeds[type, a, b] = _speed(row.number("norm_a"))
        speeds[type, b, a] = _speed(row.number("norm_b"))
    return Pairs(speeds)


def _speed(measured: float) -> float:
    """Clips values above 1, which are noise."""
    return min(1.0, max(SPEED_MIN, measured))


# --- Lucid: profiles alone, and pairs, on one RTX 3090 ------------------------------------------


@dataclass(frozen=True, slots=True)
class Profiled:
    model: str  # with its data, its batch size, and whether in mixed precision
    project: str  # the same without the batch size
    batch: int
    samples_per_second: float
    gpu_util: float
    memory_mib: int


@cache
def lucid_profiles(data: Path) -> tuple[Profiled, ...]:
    columns = "model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem"
    return tuple(
        Profiled(
            model=_lucid_model(row, ""),
            project=_lucid_project(row, ""),
            batch=row.whole("batchsize", 1),
            samples_per_second=row.positive("speed"),
            gpu_util=row.number("gpu_util", 0.0, 100.0) / 100.0,
            memory_mib=math.ceil(row.positive("gmem")),
        )
        for row in with_header(data / "colocation" / "lucid_single.csv", columns)
    )


@cache
def lucid_pairs(data: Path) -> Pairs:
    """Measured on one type of GPU, and used for all."""
    speeds: dict[tuple[str, str, str], float] = {}
    names = "model", "dataset", "batchsize", "amp", "speed"
    columns = [f"{name}{i}" for i in "12" for name in names]
    for row in with_header(data / "colocation" / "lucid_pairs.csv", columns):
        a, b = _lucid_model(row, "1"), _lucid_model(row, "2")
        first, second = _speed(row.number("speed1")), _speed(row.number("speed2"))
        # A model beside itself has two measured speeds: take their mean.
        speeds["rtx3090", a, b] = first if a != b else (first + second) / 2.0
        speeds["rtx3090", b, a] = second if a != b else (first + second) / 2.0
    return Pairs(speeds, "rtx3090")


def _lucid_model(row: Row, suffix: str) -> str:
    return f"{_lucid_project(row, suffix)}-{row.whole(f'batchsize{suffix}', 1)}"


def _lucid_project(row: Row, suffix: str) -> str:
    precision = "-amp" if row.flag(f"amp{suffix}") else ""
    return f"{row.text(f'model{suffix}')}-{row.text(f'dataset{suffix}')}{precision}"
