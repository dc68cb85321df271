"""What the daemon does on a Kubernetes cluster: each verb it uses, in this one list. Pure.

deploy/ grants these and no others, the tests' daemons run under them, scheduler-doctor asks for
each of them. Whoever sends a new kind of request adds it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    resource: str
    verbs: tuple[str, ...]
    group: str = ""

    def written(self) -> dict[str, list[str]]:
        """As a Role has it."""
        return {
            "apiGroups": [self.group],
            "resources": [self.resource],
            "verbs": list(self.verbs),
        }


# In each namespace where pods of jobs are.
IN_NAMESPACE: Sequence[Rule] = (
    Rule("pods", ("get", "list", "watch", "create", "delete", "deletecollection")),
    Rule("pods/log", ("get",)),
    Rule("configmaps", ("get", "list", "watch", "create", "delete")),
    Rule("services", ("get", "create", "delete")),
    Rule("secrets", ("create", "update")),
    Rule("events", ("list",)),
)
# In the one that the settings name, whoever has others: see lease.py.
FOR_THE_LEASE: Sequence[Rule] = (
    Rule("leases", ("get", "create", "update"), "coordination.k8s.io"),
)
IN_CLUSTER: Sequence[Rule] = (
    Rule("nodes", ("list", "watch")),
    Rule("tokenreviews", ("create",), "authentication.k8s.io"),
)
# Where holders are used: in the namespace where they are, and where there are mixed nodes.
FOR_HOLDERS: Sequence[Rule] = (Rule("pods", ("get", "list", "watch", "create", "delete")),)
FOR_MIXED_NODES: Sequence[Rule] = (Rule("pods", ("list",)),)
