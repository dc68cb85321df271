"""What canaries that came back mean: whether a pod sees the card that it was given. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.clusters.kubernetes.inspection.canary import (
    EVERY,
    NO_SUCH_PROGRAM,
    read_visible_gpus,
)
from scheduler.clusters.kubernetes.inspection.found import Refusal
from scheduler.clusters.kubernetes.pods import SLOT, KubePod
from scheduler.core.model import Node
from scheduler.doctor.findings import Finding, fine, warning, wrong

INJECTION = "Does the toolkit there allow kubernetes.gpu_injection, and is the RuntimeClass right?"


def judged(nodes: Mapping[str, Node], flown: Mapping[str, KubePod | Refusal]) -> list[Finding]:
    return [_one(nodes[name], flown[name]) for name in sorted(flown)]


def left_over(namespace: str) -> Finding:
    words = "its canaries could not be removed; they end by themselves"
    command = f"kubectl delete pods --namespace {namespace} --selector epoch-scheduler.io/canary"
    return wrong("canary", f"namespace {namespace}", words, "Remove them", command)


def _one(node: Node, became: KubePod | Refusal) -> Finding:
    where = f"node {node.name}"
    if isinstance(became, Refusal):
        if became.message.startswith("no place"):
            return warning(
                "canary", where, f"not tried: {became.message}", "Try again when it is idle"
            )
        return wrong("canary", where, f"it was not run: {became.message}")
    given = node.gpus[0].uuid
    code, cards, said = read_visible_gpus(became)
    if code is None:
        return wrong("canary", where, f"its node did not run it: {said or 'no reason was given'}")
    if code == NO_SUCH_PROGRAM:
        words = "there is no nvidia-smi in a pod that was given a card: nothing was injected"
        return wrong("canary", where, words, INJECTION)
    if code:
        return wrong("canary", where, f"it failed: {said or f'exit code {code}'}", INJECTION)
    if given.startswith(SLOT):
        if len(cards) == 1:
            return fine("canary", where, f"a pod that was given one card sees one ({cards[0]})")
        return wrong("canary", where, f"a pod that was given one card sees {len(cards)}", INJECTION)
    if cards == [given]:
        return fine("canary", where, f"a pod sees just the card that it was given ({given})")
    seen = ", ".join(cards) or "none"
    given = "all cards" if given == EVERY else given
    return wrong("canary", where, f"a pod that was given {given} sees {seen}", INJECTION)
