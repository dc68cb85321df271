"""What the results of canaries mean: whether a pod sees the GPU that it was given. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.clusters.kubernetes.inspection.canary import (
    EVERY,
    NO_SUCH_PROGRAM,
    read_visible_gpus,
)
from scheduler.clusters.kubernetes.inspection.found import Refusal
from scheduler.clusters.kubernetes.pods import SLOT, UNSCHEDULABLE, KubePod
from scheduler.core.model import Node
from scheduler.doctor.findings import Finding, fine, warning, wrong

INJECTION = (
    "Does NVIDIA's toolkit on the node allow kubernetes.gpu_injection? Is the RuntimeClass right?"
)


def judged(nodes: Mapping[str, Node], flown: Mapping[str, KubePod | Refusal]) -> list[Finding]:
    return [_one(nodes[name], flown[name]) for name in sorted(flown)]


def left_over(namespace: str) -> Finding:
    words = "the canaries could not be removed; they end by themselves"
    command = f"kubectl delete pods --namespace {namespace} --selector epoch-scheduler.io/canary"
    return wrong("canary", f"namespace {namespace}", words, "Remove them", command)


def _one(node: Node, became: KubePod | Refusal) -> Finding:
    where = f"node {node.name}"
    if isinstance(became, Refusal):
        if became.message.startswith(UNSCHEDULABLE):
            return warning(
                "canary", where, f"not tried: {became.message}", "Try again when it is idle"
            )
        return wrong("canary", where, f"the pod was not created: {became.message}")
    given = node.gpus[0].uuid
    code, gpus, message = read_visible_gpus(became)
    if code is None:
        words = f"the node did not run the pod: {message or 'it gave no reason'}"
        return wrong("canary", where, words)
    if code == NO_SUCH_PROGRAM:
        words = "a pod that was given a GPU has no nvidia-smi: nothing was injected"
        return wrong("canary", where, words, INJECTION)
    if code:
        return wrong(
            "canary", where, f"the pod failed: {message or f'exit code {code}'}", INJECTION
        )
    if given.startswith(SLOT):
        if len(gpus) == 1:
            return fine("canary", where, f"a pod that was given one GPU sees one ({gpus[0]})")
        return wrong("canary", where, f"a pod that was given one GPU sees {len(gpus)}", INJECTION)
    if gpus == [given]:
        return fine("canary", where, f"a pod sees only the GPU that it was given ({given})")
    seen = ", ".join(gpus) or "none"
    given = "all GPUs" if given == EVERY else given
    return wrong("canary", where, f"a pod that was given {given} sees {seen}", INJECTION)
