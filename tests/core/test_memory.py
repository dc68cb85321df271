from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.memory import (
    best_fit,
    explain_lack,
    fewest_nodes,
    free_mib,
    keys_by_type,
    need_mib,
    placement,
    usable_gpus,
)
from scheduler.core.model import Gpu, Job, Rules, Share
from scheduler.core.reason_text import line
from tests.builders import CAPACITY, RULES, job, make_gpu, node, pod, share, view, with_run


def test_gpus_of_nodes_that_are_not_ready_are_not_usable() -> None:
    known = usable_gpus([node(2), node(name="n2", ready=False), node(name="n3")])
    assert list(known) == [("n1", "gpu0"), ("n1", "gpu1"), ("n3", "gpu0")]


@pytest.mark.parametrize(
    ("total", "reserved", "capacity"),
    [
        (16384, 512, 15872),
        (4096, 0, 3840),  # 256 at least
        (81920, 0, 79463),  # 3 % at least
        (100, 512, 0),
    ],
)
def test_some_of_each_gpu_is_kept_back(total: int, reserved: int, capacity: int) -> None:
    assert Gpu("gpu0", 0, "t4", total, reserved).capacity_mib == capacity


@pytest.mark.parametrize(
    ("wants", "margin", "needs"),
    [
        (job("a", 4000), 0, 4000),
        (job("a", 4000), 200, 4200),
        (job("a", 0), 200, CAPACITY),  # its need is unknown
        (job("a", 100, shareable=False), 200, CAPACITY),
        (job("a", 15800), 200, CAPACITY),  # its margin does not keep it from a GPU on which it fits
        (job("a", 16000), 0, CAPACITY),  # measured to use part of the headroom: it gets all
        (job("a", 16000, shareable=False), 0, CAPACITY),
        (job("a", 20000), 0, 20000),
        (job("a", 20000, shareable=False), 0, 20000),
    ],
)
def test_what_a_job_needs_of_a_gpu(wants: Job, margin: int, needs: int) -> None:
    assert need_mib(wants, make_gpu(), Rules(memory_margin_mib=margin)) == needs


@pytest.mark.parametrize(("wants", "needs"), [(4000, CAPACITY), (0, CAPACITY), (20000, 20000)])
def test_of_a_gpu_that_is_not_shared_a_job_needs_all(wants: int, needs: int) -> None:
    gpu = replace(make_gpu(), whole=True)
    assert need_mib(job("a", wants), gpu, Rules(memory_margin_mib=200)) == needs


def test_what_a_job_needs_of_each_of_many_gpus_is_what_it_was_seen_to_take_there() -> None:
    known = job("a", 2000, gpus=(1, 8))
    known = replace(known, memory_mib=9000, peaks=((1, 9000), (4, 3000), (8, 1500)))
    needs = {gpus: need_mib(known, make_gpu(), RULES, gpus) for gpus in (0, 1, 2, 4, 8)}
    assert needs == {0: 9000, 1: 9000, 2: 9000, 4: 3000, 8: 2000}, "no less than was asked for"
    large = replace(known, memory_mib=20000, peaks=((1, 20000), (4, 3000)))
    assert need_mib(large, make_gpu(), Rules(memory_margin_mib=500), 4) == 3500
    assert (
        need_mib(replace(large, spec=job("a", shareable=False).spec), make_gpu(), RULES, 4)
        == CAPACITY
    )


def test_what_runs_and_leftover_pods_hold_is_not_free() -> None:
    ghost = pod(with_run(job("ghost"), share(1000, 1)))
    seen = view(with_run(job("a", 4000), share(4000)), nodes=[node(3)], pods=[ghost])
    assert list(free_mib(seen).values()) == [CAPACITY - 4000, CAPACITY - 1000, CAPACITY]


def test_best_fit_leaves_the_least() -> None:
    known = usable_gpus([node(3)])
    free = dict(zip(known, (9000, 5000, 6000), strict=True))
    assert best_fit(job("a", 5500), 1, known, free, RULES) == (("n1", "gpu2"),)


def test_best_fit_of_equal_gpus_is_the_first() -> None:
    known = usable_gpus([node(2), node(2, name="n0")])
    free = dict.fromkeys(known, 9000)
    assert best_fit(job("a", 5500), 1, known, free, RULES) == (("n0", "gpu0"),)


def test_a_gang_is_on_one_node_where_one_has_room_for_it() -> None:
    known = usable_gpus([node(1), node(2, name="n2"), node(1, name="n3")])
    free = dict.fromkeys(known, CAPACITY)
    assert best_fit(job("a", gpus=2), 2, known, free, RULES) == (("n2", "gpu0"), ("n2", "gpu1"))
    assert best_fit(job("a", gpus=(1, 4)), 4, known, free, RULES) == (
        ("n2", "gpu0"),
        ("n2", "gpu1"),
    )


def test_a_gang_is_on_as_few_nodes_as_have_room_for_the_fewest_gpus_it_needs() -> None:
    known = usable_gpus([node(1), node(2, name="n2"), node(3, name="n3")])
    free = dict.fromkeys(known, CAPACITY)
    four = best_fit(job("a", gpus=4), 4, known, free, RULES)
    assert four == (("n3", "gpu0"), ("n3", "gpu1"), ("n3", "gpu2"), ("n1", "gpu0"))
    five = best_fit(job("a", gpus=(4, 9)), 9, known, free, RULES)
    assert five is not None
    assert sorted(five) == sorted(key for key in known if key[0] != "n1")
    assert best_fit(job("a", gpus=7), 7, known, free, RULES) is None


def test_a_gang_is_on_gpus_of_one_type() -> None:
    other = replace(
        node(2, name="n2"), gpus=tuple(replace(make_gpu(i), type="a100") for i in (0, 1))
    )
    known = usable_gpus([node(2), other, node(1, name="n3")])
    free = dict.fromkeys(known, CAPACITY)
    three = best_fit(job("a", gpus=3), 3, known, free, RULES)
    assert three == (("n1", "gpu0"), ("n1", "gpu1"), ("n3", "gpu0"))
    assert best_fit(job("a", gpus=4), 4, known, free, RULES) is None


def test_the_fewest_nodes_that_together_have_enough_gpus() -> None:
    assert [fewest_nodes([1, 4, 2], count) for count in (0, 1, 4, 5, 6, 7, 8)] == [
        *(1, 1, 1),
        *(2, 2, 3),
        0,
    ]


def test_a_job_without_gpus_fits_anywhere_even_where_there_are_none() -> None:
    assert best_fit(job("a", gpus=0), 0, {}, {}, RULES) == ()


def test_gpus_are_grouped_by_their_type_and_node() -> None:
    mixed = replace(node(2, name="n2"), gpus=(make_gpu(0), replace(make_gpu(1), type="a100")))
    groups = keys_by_type(usable_gpus([node(3), mixed]))
    sizes = {type: [len(keys) for keys in nodes] for type, nodes in groups.items()}
    assert sizes == {"pretended": [3, 1], "a100": [1]}


@pytest.mark.parametrize(
    ("wants", "free", "words"),
    [
        (
            job("c", 4000),
            (2872, 100),
            "memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)",
        ),
        (
            job("c", 4000),
            (100, 2872),
            "memory (needs 4,000 MiB; gpu1 has the most free: 2,872 MiB)",
        ),
        (
            job("c", 4000, shareable=False),
            (9000, 9000),
            "gpus (needs a whole GPU because it shares with no other job; no GPU large"
            " enough is empty)",
        ),
        (
            job("c"),
            (9000, 9000),
            "gpus (needs a whole GPU because its memory use is not known yet"
            " (--estimated_memory); no GPU is empty)",
        ),
        (
            job("c", 4000, gpus=2),
            (9000, 100),
            "gpus (needs 2 empty GPUs with 4,000 MiB on one node; empty now: 1)",
        ),
        (
            job("c", gpus=2),
            (0, 0),
            "gpus (needs 2 whole GPUs on one node because its memory use is not known yet"
            " (--estimated_memory); no GPU is empty)",
        ),
    ],
)
def test_what_a_job_lacks_is_said_in_numbers(wants: Job, free: tuple[int, int], words: str) -> None:
    known = usable_gpus([node(2)])
    assert line(explain_lack(wants, known, dict(zip(known, free, strict=True)), RULES)) == words


def test_what_a_gang_over_nodes_lacks_is_said_with_how_many_it_takes() -> None:
    known = usable_gpus([node(2), node(2, name="n2"), node(1, name="n3")])
    free = dict(zip(known, (CAPACITY, 0, CAPACITY, CAPACITY, 0), strict=True))
    words = (
        "gpus (needs 4 whole GPUs on 2 or more nodes because its memory use is not known"
        " yet (--estimated_memory); empty now: 3)"
    )
    assert line(explain_lack(job("a", gpus=4), known, free, RULES)) == words
    words = "gpus (needs 2 empty GPUs with 9,000 MiB; empty now: 1)"
    assert (
        line(
            explain_lack(
                job("a", 9000, gpus=2), known, free | {("n2", "gpu1"): 0, ("n1", "gpu0"): 0}, RULES
            )
        )
        == words
    )


def test_a_gpu_is_named_with_its_node_where_there_are_several() -> None:
    known = usable_gpus([node(1), node(1, name="n2")])
    free = dict(zip(known, (5, 7), strict=True))
    assert (
        line(explain_lack(job("a", 9), known, free, RULES))
        == "memory (needs 9 MiB; n2/gpu0 has the most free: 7 MiB)"
    )


def test_without_any_gpu_that_is_what_lacks() -> None:
    assert line(explain_lack(job("a"), {}, {}, RULES)) == "gpus (there is no GPU)"


def test_a_placement_is_told_by_types_counts_and_nodes() -> None:
    known = usable_gpus([node(4), node(name="n2")])
    assert placement((), known) == "cpu"
    assert placement((share(gpu=0), share(gpu=3)), known) == "pretendedx2"
    assert placement((share(), share(node="n2")), known) == "pretendedx2/2"
    assert placement((Share("gone", "gpu0", 1),), known) == ""
