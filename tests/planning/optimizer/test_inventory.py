"""GPUs by type, and the counts in which jobs could have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scheduler.core.memory import usable_gpus
from scheduler.core.model import Gpu, GpuKey, Job, Node
from scheduler.planning.optimizer.inventory import Stock, configs, stocks
from tests.builders import job


def known(**types: tuple[int, ...]) -> Mapping[GpuKey, Gpu]:
    """Of each type, the number of GPUs of each of its nodes."""
    nodes = [
        Node(
            f"{type}-{number}",
            tuple(Gpu(f"g{i}", i, type, 16384, reserved_mib=512) for i in range(size)),
        )
        for type, sizes in types.items()
        for number, size in enumerate(sizes)
    ]
    return usable_gpus(nodes)


def offered(stocks: list[Stock], *jobs: Job) -> list[tuple[str, int, int]]:
    return [(config.type, config.gpus, config.nodes) for config in configs(jobs, stocks)]


def test_there_is_one_stock_for_each_type() -> None:
    a100, t4 = stocks(known(t4=(2, 4), a100=(8,)))
    assert (a100.type, a100.gpus, a100.node_sizes) == ("a100", 8, (8,))
    assert (t4.type, t4.gpus, t4.node_sizes) == ("t4", 6, (4, 2))


def test_gpus_that_differ_only_in_their_number_are_one_make() -> None:
    (stock,) = stocks(known(t4=(2, 4)))
    ((gpu, count),) = stock.makes
    assert (gpu.uuid, gpu.index, count) == ("", 0, 6)


def test_several_jobs_may_have_of_any_gpu_what_the_smallest_has() -> None:
    gpus = dict(known(t4=(3,)))
    first, second, _ = gpus
    gpus[first] = replace(gpus[first], memory_mib=8192)
    (stock,) = stocks(gpus)
    assert stock.shared_mib == 8192 - 512
    gpus[second] = replace(gpus[second], whole=True)
    (stock,) = stocks(gpus)
    assert stock.shared_mib == 0, "one is given to one job at a time"


def test_only_gpus_with_the_memory_and_the_image_can_hold_a_job() -> None:
    gpus = dict(known(t4=(3,)))
    first, second, _ = gpus
    gpus[first] = replace(gpus[first], memory_mib=8192)
    gpus[second] = replace(gpus[second], images=frozenset({"docker.io/lab/x:1"}))
    (stock,) = stocks(gpus)
    memory = np.array([1000, 10_000, 1000, 99_000])
    images = ["lab/x:1", "lab/x:1", "lab/y:1", "lab/x:1"]
    assert stock.hold(memory, images).tolist() == [3, 2, 2, 0]


def test_a_job_can_have_any_count_on_a_node_and_then_whole_nodes() -> None:
    there = stocks(known(t4=(4, 4, 2)))
    assert offered(there, job("a", gpus=(1, 10))) == [
        *(("t4", count, 1) for count in (1, 2, 3, 4)),
        ("t4", 8, 2),
        ("t4", 10, 3),
    ]


def test_no_more_is_offered_than_any_job_asks_for_or_the_cluster_has() -> None:
    there = stocks(known(t4=(4, 4)))
    assert [count for _, count, _ in offered(there, job("a", gpus=(1, 2)))] == [1, 2]
    assert [count for _, count, _ in offered(there, job("a", gpus=(1, 99)))] == [1, 2, 3, 4, 8]


def test_a_job_that_asks_for_a_number_other_than_whole_nodes_is_offered_it() -> None:
    there = stocks(known(t4=(4, 4)))
    assert ("t4", 6, 2) in offered(there, job("a", gpus=6))
