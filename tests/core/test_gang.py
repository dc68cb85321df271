"""Which pod of a run ended it."""

from __future__ import annotations

import pytest

from scheduler.core.gang import by_run, culprit, is_broken
from scheduler.core.model import Failure, Job, Pod, PodState, Run
from tests.builders import job, pod, share, with_run


def run(of: Job) -> Run:
    assert of.run
    return of.run


GANG = with_run(job("a", gpus=2), share(), share(node="n2"))
RUN = run(GANG)
WORKS, LEAVES = pod(GANG), pod(GANG, PodState.TERMINATING)
LOST = pod(GANG, PodState.FAILED, exit_code=137, reason=Failure.LOST)
FULL = pod(GANG, PodState.FAILED, exit_code=1, reason=Failure.OUT_OF_MEMORY)
FAILS = pod(GANG, PodState.FAILED, exit_code=1)
NEVER_STARTED = pod(GANG, PodState.FAILED, reason="its image is not available")


def test_a_run_is_whole_while_each_of_its_pods_is_there_and_none_has_failed() -> None:
    assert not is_broken(RUN, [WORKS, LEAVES])
    assert not is_broken(run(with_run(job("cpu", gpus=0))), [WORKS])
    assert is_broken(RUN, [WORKS])
    assert is_broken(RUN, [WORKS, FAILS])


@pytest.mark.parametrize(
    ("pods", "ended_by"),
    [
        ([FAILS, WORKS], FAILS),
        ([FAILS, LOST], LOST),
        ([FAILS, FULL], FULL),
        ([FULL, LOST], LOST),
        ([FAILS, LEAVES], None),
        ([FAILS], None),
        ([WORKS], None),
        ([NEVER_STARTED], NEVER_STARTED),
        ([LOST, LEAVES], LOST),
    ],
)
def test_a_pod_that_fails_because_another_is_gone_is_not_the_cause(
    pods: list[Pod], ended_by: Pod | None
) -> None:
    assert culprit(RUN, pods) is ended_by


def test_the_pods_of_a_run_are_in_the_order_of_their_ranks() -> None:
    second, other = pod(GANG, rank=1), pod(with_run(job("b"), share()))
    runs = by_run((second, other, WORKS))
    assert runs == {("a", 1): (WORKS, second), ("b", 1): (other,)}
