"""What GPUs did in the last hours, from what the daemon has answered meanwhile. Pure.

The gateway has no token of its own: it can ask only while pages are open, with theirs. So what was
while nobody looked is not known here; for that, there is Prometheus.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from scheduler.v1 import scheduler_pb2 as pb

STEP_SECONDS = 60.0
KEPT_SECONDS = 6 * 3600.0
NUMBERS_MAX = 3_000_000  # kept in all: 12 MB. With thousands of GPUs, that is less than six hours

_KINDS = ("memory_mib", "granted_mib", "used_mib", "busy")
Key = tuple[str, str]  # a node, the uuid of a GPU


@dataclass(frozen=True, slots=True)
class Glance:
    at: float  # when it was asked
    keys: tuple[Key, ...]  # shared by moments with the same GPUs
    numbers: array[float]  # of each GPU, those of _KINDS; NaN: it was not known


@dataclass(frozen=True, slots=True)
class Sums:
    """Of some GPUs at one moment. None: it was not known of any of them."""

    at: float
    gpus: int
    memory_mib: float
    granted_mib: float
    used_mib: float | None
    busy: float | None  # of those of which it is known, the mean


class GpuHistory:
    def __init__(self) -> None:
        self._moments: deque[Glance] = deque()

    def is_due(self, now: float) -> bool:
        return not self._moments or now - self._moments[-1].at >= STEP_SECONDS

    def enter(self, cluster: pb.Cluster, now: float) -> None:
        """Takes the first answer of each step."""
        if self._moments and now < self._moments[-1].at:
            self._moments.clear()  # the clock was set back: its past is no past any more
        if not self.is_due(now):
            return
        keys = tuple((gpu.node, gpu.gpu) for gpu in cluster.gpus)
        if self._moments and self._moments[-1].keys == keys:
            keys = self._moments[-1].keys
        numbers = array("f")
        for gpu in cluster.gpus:
            numbers.append(gpu.memory_mib or gpu.capacity_mib)
            numbers.append(gpu.reserved_mib)
            numbers.append(gpu.used_mib if gpu.HasField("used_mib") else nan)
            numbers.append(gpu.busy if gpu.HasField("busy") else nan)
        self._moments.append(Glance(now, keys, numbers))
        kept = sum(len(moment.numbers) for moment in self._moments)
        while kept > NUMBERS_MAX or self._moments[0].at < now - KEPT_SECONDS:
            kept -= len(self._moments.popleft().numbers)
            if not self._moments:
                return

    def sums(self, node: str = "", gpu: str = "") -> list[Sums]:
        """Oldest first; of all GPUs, those of a node, or one of them."""
        found: list[Sums] = []
        chosen: list[int] = []
        keys: Sequence[Key] | None = None
        for moment in self._moments:
            if keys is not moment.keys:
                keys = moment.keys
                chosen = [
                    number
                    for number, (its_node, its_gpu) in enumerate(keys)
                    if node in ("", its_node) and gpu in ("", its_gpu)
                ]
            if chosen:
                found.append(_summed(moment, chosen))
        return found


def _summed(moment: Glance, chosen: list[int]) -> Sums:
    memory, granted, used, busy = (
        [moment.numbers[number * len(_KINDS) + kind] for number in chosen]
        for kind in range(len(_KINDS))
    )
    used = [each for each in used if not isnan(each)]
    busy = [each for each in busy if not isnan(each)]
    return Sums(
        at=moment.at,
        gpus=len(chosen),
        memory_mib=sum(memory),
        granted_mib=sum(granted),
        used_mib=sum(used) if used else None,
        busy=sum(busy) / len(busy) if busy else None,
    )
