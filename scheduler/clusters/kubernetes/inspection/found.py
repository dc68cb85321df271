"""What was found of a Kubernetes cluster when it was looked at as a whole, not to run jobs. Pure.

Much of it a daemon may not see, and an administrator may: what was refused is kept as such.
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
    """Why something could not be had, in the server's words."""

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
    minor: str  # in some clouds with a plus behind it


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
    """A namespace where pods of jobs are to be. `trial` is what the server made of a pod such as
    ours, which it was asked to admit, but not to keep: the refusal, or None."""

    name: str
    namespace: KubeNamespace | Refusal
    quotas: Sequence[Quota] | Refusal
    limits: Sequence[LimitRange] | Refusal
    trial_refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it. `at` is our time when the server was first asked, `server_at` its own."""

    url: str
    at: Time
    server_at: Time | None
    version: Version | Refusal
    user: str  # who asked; or whose permissions were asked for
    permissions: Mapping[str, Permissions | Refusal]  # by namespace; "" is the cluster as a whole
    spaces: Sequence[SurveyedNamespace]
    runtime_class: Refusal | None  # None: it is there, or none is wanted
    priority_class: Refusal | None
    nodes: Sequence[SurveyedNode] | Refusal
    lease_renewed_at: (
        Mapping[str, Time] | Refusal
    )  # when each node last said that it is there, by its clock
    foreign_gpus: (
        Mapping[str, int] | Refusal
    )  # cards of each node that pods which are not ours have
