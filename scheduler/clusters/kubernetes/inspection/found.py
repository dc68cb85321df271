"""The findings of an inspection of a Kubernetes cluster. Pure data.

Much of it an administrator may read, but a daemon may not: refusals are kept as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduler.clusters.kubernetes.permissions import Rule
from scheduler.clusters.kubernetes.pods import (
    Condition,
    KubeNode,
    Meta,
    NodeSpec,
    NodeStatus,
    Struct,
)
from scheduler.core.model import Time

Permissions = Mapping[Rule, bool]  # of rules with one verb each


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something could not be read or created: the server's message."""

    message: str
    code: int = 0  # 0: no answer came

    @property
    def forbidden(self) -> bool:
        return self.code == 403

    @property
    def absent(self) -> bool:
        return self.code == 404


class Version(Struct, frozen=True):
    git_version: str
    major: str
    minor: str  # in some clouds with a plus at the end


class NamespaceStatus(Struct, frozen=True):
    phase: str = ""


class KubeNamespace(Struct, frozen=True):
    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()


class QuotaSpec(Struct, frozen=True):
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, Any] | None = None  # only whether there is one


class QuotaStatus(Struct, frozen=True):
    hard: Mapping[str, str] = {}
    used: Mapping[str, str] = {}


class Quota(Struct, frozen=True):
    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class Limit(Struct, frozen=True):
    type: str = ""  # "Container", "Pod", ...
    max: Mapping[str, str] = {}
    min: Mapping[str, str] = {}
    default: Mapping[str, str] = {}  # limits of a container that says none
    default_request: Mapping[str, str] = {}


class LimitSpec(Struct, frozen=True):
    limits: tuple[Limit, ...] = ()


class LimitRange(Struct, frozen=True):
    metadata: Meta
    spec: LimitSpec = LimitSpec()


class Taint(Struct, frozen=True):
    key: str
    effect: str
    value: str = ""


class SurveyedNodeSpec(NodeSpec, frozen=True):
    taints: tuple[Taint, ...] = ()


class Heartbeat(Condition, frozen=True):
    last_heartbeat_time: datetime | None = None


class SurveyedNodeStatus(NodeStatus, frozen=True):
    capacity: Mapping[str, str] = {}
    conditions: tuple[Heartbeat, ...] = ()  # type: ignore[assignment]  # read alone


class SurveyedNode(KubeNode, frozen=True):
    spec: SurveyedNodeSpec = SurveyedNodeSpec()
    status: SurveyedNodeStatus = SurveyedNodeStatus()


@dataclass(frozen=True, slots=True)
class SurveyedNamespace:
    """A namespace for pods of jobs. `trial_refusal` is the server's refusal of a dry run that
    creates a pod like those of jobs; None if it was admitted."""

    name: str
    namespace: KubeNamespace | Refusal
    quotas: Sequence[Quota] | Refusal
    limits: Sequence[LimitRange] | Refusal
    trial_refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Survey:
    """All findings. `at` is our time of the first request, `server_at` the server's."""

    url: str
    at: Time
    server_at: Time | None
    version: Version | Refusal
    user: str  # the account with these permissions
    permissions: Mapping[str, Permissions | Refusal]  # by namespace; "" is the cluster as a whole
    spaces: Sequence[SurveyedNamespace]
    runtime_class: Refusal | None  # None: it is there, or none is wanted
    priority_class: Refusal | None
    accounts: Mapping[str, Refusal | None]  # of holders, as NAMESPACE/NAME; None: it is there
    nodes: Sequence[SurveyedNode] | Refusal
    lease_renewed_at: (
        Mapping[str, Time] | Refusal
    )  # the last heartbeat of each node, by the node's clock
    foreign_gpus: Mapping[str, int] | Refusal  # GPUs of each node that foreign pods have
