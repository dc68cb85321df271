"""The GPUs of each type, and the counts in which jobs could have them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from scheduler.core.fast_replace import replace
from scheduler.core.images import has
from scheduler.core.memory import count_makes, fewest_nodes
from scheduler.core.model import Gpu, GpuKey, Job, Placement
from scheduler.estimates.arrays import Ints


@dataclass(frozen=True, slots=True)
class Stock:
    """The GPUs of one type."""

    type: str
    gpus: int
    node_sizes: tuple[int, ...]  # the number of GPUs of each node, the largest first
    makes: tuple[tuple[Gpu, int], ...]  # one GPU of each size, and their number; smallest first

    @property
    def shared_mib(self) -> int:
        """The capacity that several jobs may share on any of them."""
        return min(0 if gpu.whole else gpu.capacity_mib for gpu, _ in self.makes)

    def hold(self, memory_mib: Ints, images: Sequence[str]) -> Ints:
        """How many of them can have jobs that use this much memory and are made from these images
        (see packing.need_mib)."""
        held = [
            n * (memory_mib <= gpu.memory_mib) * _having(gpu.images, images)
            for gpu, n in self.makes
        ]
        return np.asarray(np.sum(held, axis=0))


def _having(there: frozenset[str] | None, images: Sequence[str]) -> Ints | bool:
    if there is None:
        return True
    found = {image: has(there, image) for image in dict.fromkeys(images)}
    return np.array([found[image] for image in images], np.intp)


def stocks(known: Mapping[GpuKey, Gpu]) -> list[Stock]:
    found: dict[str, list[tuple[str, Gpu]]] = {}
    for (node, _), gpu in known.items():
        found.setdefault(gpu.type, []).append((node, gpu))
    made = []
    for type, of_type in sorted(found.items()):
        on = Counter(node for node, _ in of_type)
        makes = count_makes(gpu for _, gpu in of_type)
        alike = [(replace(gpu, uuid="", index=0), count) for gpu, count in makes]
        smallest_first = sorted(alike, key=lambda make: make[0].capacity_mib)
        sizes = tuple(sorted(on.values(), reverse=True))
        made.append(Stock(type, len(of_type), sizes, tuple(smallest_first)))
    return made


def configs(jobs: Sequence[Job], stocks: Sequence[Stock]) -> list[Placement]:
    """All that any of these jobs could have: each count up to a node, then whole nodes."""
    asked = {n for job in jobs for n in (job.spec.gpus_min, job.spec.gpus_max) if n}
    most = max(asked, default=1)
    made = []
    for stock in stocks:
        largest = stock.node_sizes[0]
        counts = {*range(1, largest + 1), *accumulate(stock.node_sizes)}
        counts = {n for n in counts if n <= most} | {n for n in asked if n > largest}
        made += [
            Placement(stock.type, count, fewest_nodes(stock.node_sizes, count))
            for count in sorted(counts)
            if count <= stock.gpus
        ]
    return made
