"""An agent may speak for its own node, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.access import issued_tokens
from scheduler.access.agent_tokens import AUDIENCE, AgentAuthenticator, KubernetesAgents
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.access.reviewed_tokens import ReviewedTokens, TokenOwner
from scheduler.core.errors import Forbidden, Unauthenticated
from scheduler.store import database

NOW = 1_800_000_000.0
OURS = "system:serviceaccount:agents:agent"
OWNERS = {
    "of.n.1": TokenOwner(OURS, "n1"),
    "of.no.pod": TokenOwner(OURS),
    "of.ada.0": TokenOwner("ada", "n1"),
    "of.job.0": TokenOwner("system:serviceaccount:jobs:agent", "n1"),
}


def kubernetes() -> KubernetesAgents:
    def ask(audience: str, token: str) -> TokenOwner | None:
        assert audience == AUDIENCE
        return OWNERS.get(token)

    return KubernetesAgents(ReviewedTokens(ask, AUDIENCE, lambda: NOW), ["agents/agent"])


def test_a_pod_of_the_agents_account_speaks_for_the_node_that_it_is_on() -> None:
    agents = kubernetes()
    assert agents.node("of.n.1") == "n1"
    assert agents.node("est_x") is None, "another kind of token"
    for token in ("of.ada.0", "of.job.0"):
        with pytest.raises(Forbidden, match=r"is not the service account of agents \(agents/agent"):
            agents.node(token)
    with pytest.raises(Forbidden, match="not bound to a pod on a node"):
        agents.node("of.no.pod")
    with pytest.raises(Unauthenticated, match="issued for the audience epoch-scheduler-agent"):
        agents.node("of.who.knows")


def test_a_token_of_a_node_is_no_user_s_and_a_user_s_is_no_node_s(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.db"
    database.open_or_create(path).close()
    issued = IssuedTokens(path, lambda: NOW)
    of_node = issued_tokens.issue_for_node(path, "n1", "", NOW, 10.0)[1]
    of_user = issued_tokens.issue(path, "agent", "", NOW, 10.0)[1]
    agents = AgentAuthenticator([issued.node, kubernetes().node])
    assert agents.node(of_node) == "n1"
    assert agents.node("of.n.1") == "n1"
    for token in (of_user, "agent.0123"):
        with pytest.raises(Unauthenticated, match="this is not a token of a node: an agent needs"):
            agents.node(token)
    with pytest.raises(Unauthenticated, match="no token: an agent must send a token of its node"):
        agents.node(None)
    assert issued.user(of_user) == "agent"
    with pytest.raises(Unauthenticated, match="this token is of the agent on n1, and of no user"):
        issued.user(of_node)
    issued.close()
