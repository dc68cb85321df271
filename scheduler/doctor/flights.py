"""The canaries of a visit, from what is to be tried to what it means.

On nodes where jobs have cards by their names, a canary must name one as well. Only the holders'
agents know these names, so one goes before it that asks for all cards, and tells what they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.inspection.canaries import Canaries
from scheduler.clusters.kubernetes.inspection.canary import canary, read_visible_gpus, with_all_gpus
from scheduler.clusters.kubernetes.inspection.found import Refusal
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.pods import SLOT, KubePod
from scheduler.core.model import Node
from scheduler.doctor.canaries import judged, left_over
from scheduler.doctor.findings import Finding


@dataclass(frozen=True, slots=True)
class Flights:
    server: KubernetesClient
    shape: PodTemplate
    nodes: Sequence[Node]
    seconds: float  # for those that go together

    def findings(self, by_name: Collection[str]) -> list[Finding]:
        """`by_name`: the nodes on which cards are chosen by their names."""
        chosen = {node.name: node for node in self.nodes if node.gpus and node.ready}
        nameless = {
            name: with_all_gpus(node)
            for name, node in chosen.items()
            if name in by_name and node.gpus[0].uuid.startswith(SLOT)
        }
        found: list[Finding] = []
        for name, told in self._flown(nameless, found).items():
            if names := _names(told):
                (card,) = nameless[name].gpus
                chosen[name] = replace(chosen[name], gpus=(replace(card, uuid=names[0]),))
            else:
                found += judged(nameless, {name: told})
                del chosen[name]
        last = judged(chosen, self._flown(chosen, found))
        return sorted([*found, *last], key=lambda finding: finding.where)

    def _flown(
        self, nodes: Mapping[str, Node], found: list[Finding]
    ) -> Mapping[str, KubePod | Refusal]:
        if not nodes:
            return {}
        visit = secrets.token_hex(4)
        all_nodes = [nodes.get(node.name, node) for node in self.nodes]
        made = {
            name: canary(
                node, all_nodes, self.shape, f"gs-canary-{visit}-{number}", visit, self.seconds
            )
            for number, (name, node) in enumerate(sorted(nodes.items()))
        }
        flock = Canaries(self.server, self.shape.namespace, visit)
        told = flock.run(made, self.seconds)
        if not flock.wait_until_gone():
            found.append(left_over(self.shape.namespace))
        return told


def _names(told: KubePod | Refusal) -> list[str]:
    return [] if isinstance(told, Refusal) else read_visible_gpus(told)[1]
