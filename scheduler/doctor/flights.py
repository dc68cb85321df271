"""Runs the canaries of one call and returns their findings.

On nodes where jobs name their GPUs, a canary must name one as well. Only the holders' agents know
these names, so a first canary asks for all GPUs and reports their names.
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
    seconds: float  # for canaries that run at the same time

    def findings(self, by_name: Collection[str]) -> list[Finding]:
        """`by_name`: the nodes on which pods name their GPUs."""
        chosen = {node.name: node for node in self.nodes if node.gpus and node.ready}
        nameless = {
            name: with_all_gpus(node)
            for name, node in chosen.items()
            if name in by_name and node.gpus[0].uuid.startswith(SLOT)
        }
        found: list[Finding] = []
        for name, result in self._flown(nameless, found).items():
            if names := _names(result):
                (gpu,) = nameless[name].gpus
                chosen[name] = replace(chosen[name], gpus=(replace(gpu, uuid=names[0]),))
            else:
                found += judged(nameless, {name: result})
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
        results = flock.run(made, self.seconds)
        if not flock.wait_until_gone():
            found.append(left_over(self.shape.namespace))
        return results


def _names(result: KubePod | Refusal) -> list[str]:
    return [] if isinstance(result, Refusal) else read_visible_gpus(result)[1]
