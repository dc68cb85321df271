"""What it means when canaries come back, or do not."""

from __future__ import annotations

import pytest

from scheduler.clusters.kubernetes.inspection.canary import CANARY
from scheduler.clusters.kubernetes.inspection.found import Refusal
from scheduler.clusters.kubernetes.pods import (
    ContainerState,
    ContainerStatus,
    Ending,
    KubePod,
    Meta,
    PodStatus,
)
from scheduler.core.model import Gpu, Node
from scheduler.doctor.canaries import judged, left_over
from tests.doctor.found import CARDS

CHOSEN = Node("n1", CARDS)
SLOTS = Node("n1", (Gpu("slot-0", 0, "a100", 81_920),))


def ended(code: int, message: str = "", reason: str = "") -> KubePod:
    state = ContainerState(terminated=Ending(code, reason, message))
    return KubePod(Meta(), status=PodStatus("Failed", container_statuses=[ContainerStatus(state)]))


TABLE: list[tuple[Node, KubePod | Refusal, str, str]] = [
    (CHOSEN, ended(0, "GPU-1\n"), "ok", "a pod sees only the GPU that it was given (GPU-1)"),
    (CHOSEN, ended(0, "GPU-1\nGPU-2\n"), "wrong", "was given GPU-1 sees GPU-1, GPU-2"),
    (CHOSEN, ended(0, "GPU-2\n"), "wrong", "was given GPU-1 sees GPU-2"),
    (CHOSEN, ended(0, ""), "wrong", "was given GPU-1 sees none"),
    (CHOSEN, ended(127, "sh: not found"), "wrong", "has no nvidia-smi"),
    (CHOSEN, ended(9, "no driver", "Error"), "wrong", "the pod failed: Error: no driver"),
    (SLOTS, ended(0, "GPU-7\n"), "ok", "a pod that was given one GPU sees one (GPU-7)"),
    (SLOTS, ended(0, "GPU-7\nGPU-8\n"), "wrong", "a pod that was given one GPU sees 2"),
    (
        CHOSEN,
        Refusal("its image is not available: none"),
        "wrong",
        "not created: its image is not available",
    ),
    (
        CHOSEN,
        Refusal("its pod cannot be scheduled: full"),
        "warning",
        "not tried: its pod cannot be scheduled",
    ),
    (
        CHOSEN,
        KubePod(Meta(), status=PodStatus("Failed", "UnexpectedAdmissionError", "no such card")),
        "wrong",
        "the node did not run the pod: UnexpectedAdmissionError: no such card",
    ),
]


@pytest.mark.parametrize(("on", "became", "level", "words"), TABLE)
def test_what_a_canary_saw_is_judged_in_one_line(
    on: Node, became: KubePod | Refusal, level: str, words: str
) -> None:
    (finding,) = judged({"n1": on}, {"n1": became})
    assert finding.level == level
    assert words in finding.line


def test_canaries_that_cannot_be_removed_come_with_the_command_that_does() -> None:
    (command,) = left_over("jobs").commands
    assert command == f"kubectl delete pods --namespace jobs --selector {CANARY}"
