"""Finds the node of an agent by its token. Such a token permits reports of that node, and nothing
else; no token of a user permits any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scheduler.access.authentication import TokenCheck
from scheduler.access.reviewed_tokens import ReviewedTokens
from scheduler.core.errors import Forbidden, Unauthenticated

AUDIENCE = "epoch-scheduler-agent"  # of the tokens that Kubernetes issues to agents
# While the API server does not answer, an agent is heard by its last token: without reports, GPUs
# that processes still use would count as free.
UNANSWERED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class AgentAuthenticator:
    """For any thread."""

    ways: Sequence[TokenCheck]  # each returns the name of a node

    def node(self, token: str | None) -> str:
        if token is None:
            raise Unauthenticated("no token: an agent must send a token of its node")
        for way in self.ways:
            if node := way(token):
                return node
        raise Unauthenticated(
            "this is not a token of a node: an agent needs one that Kubernetes has issued to its "
            "pod, or one of `scheduler-daemon token issue --node NAME`"
        )


@dataclass(frozen=True, slots=True)
class KubernetesAgents:
    """Agents in pods. Kubernetes issues a token to each, bound to the pod, and says on which node
    that is."""

    reviewed: ReviewedTokens
    accounts: Collection[str]  # their service accounts, as NAMESPACE/NAME

    def node(self, token: str) -> str | None:
        owner = self.reviewed.owner(token)
        if owner is None:
            return None
        if owner.name not in {_name_of(account) for account in self.accounts}:
            raise Forbidden(
                f"{owner.name[:100]!a} is not the service account of agents "
                f"({' or '.join(sorted(self.accounts))})"
            )
        if not owner.node:
            raise Forbidden(
                "this token is not bound to a pod on a node; it must be mounted by the agent's "
                "pod, and Kubernetes must be 1.30 or newer"
            )
        return owner.node


def _name_of(account: str) -> str:
    return f"system:serviceaccount:{account.replace('/', ':')}"
