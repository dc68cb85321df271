"""The permissions of the daemon on a Kubernetes cluster: every verb that it uses. Pure.

deploy/ grants these and no others, the tests' daemons run under them, and scheduler-doctor checks
each of them. A new kind of request must be added here.
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
        """The rule as it is written in a Role."""
        return {
            "apiGroups": [self.group],
            "resources": [self.resource],
            "verbs": list(self.verbs),
        }


# In each namespace with pods of jobs.
IN_NAMESPACE: Sequence[Rule] = (
    Rule("pods", ("get", "list", "watch", "create", "delete", "deletecollection")),
    Rule("pods/log", ("get",)),
    Rule("pods/exec", ("get", "create")),  # for scheduler-connect; a WebSocket begins with GET
    Rule("pods/portforward", ("get", "create")),
    Rule("configmaps", ("get", "list", "watch", "create", "delete")),
    Rule("services", ("get", "create", "delete")),
    Rule("secrets", ("create",)),  # no update: that could not be limited to ours
    Rule("events", ("list",)),
)
# If projects have storage: in each of these namespaces, too. No delete: it is the projects' own.
FOR_STORAGE: Sequence[Rule] = (Rule("persistentvolumeclaims", ("get", "create")),)
# If jobs may mount claims of the cluster: in each of these namespaces, too.
FOR_VOLUMES: Sequence[Rule] = (Rule("persistentvolumeclaims", ("get",)),)
# In the namespace that the settings name, even if users have others: see lease.py.
FOR_THE_LEASE: Sequence[Rule] = (
    Rule("leases", ("get", "create", "update"), "coordination.k8s.io"),
)
IN_CLUSTER: Sequence[Rule] = (
    Rule("nodes", ("list", "watch")),
    Rule("tokenreviews", ("create",), "authentication.k8s.io"),
)
# If holders are used: in their namespace, and in the cluster if there are mixed nodes.
FOR_HOLDERS: Sequence[Rule] = (Rule("pods", ("get", "list", "watch", "create", "delete")),)
FOR_MIXED_NODES: Sequence[Rule] = (Rule("pods", ("list",)),)
