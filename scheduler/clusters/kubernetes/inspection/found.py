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

May = Mapping[Rule, bool]  # of rules with one verb each


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something could not be had, in the server's words."""

    words: str
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


class RefusalStatus(Struct, frozen=True):
    phase: str = ""


class KubeNamespace(Struct, frozen=True):
    metadata: Meta
    status: RefusalStatus = RefusalStatus()


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


class FoundSpec(NodeSpec, frozen=True):
    taints: tuple[Taint, ...] = ()


class Heartbeat(Condition, frozen=True):
    last_heartbeat_time: datetime | None = None


class FoundStatus(NodeStatus, frozen=True):
    capacity: Mapping[str, str] = {}
    conditions: tuple[Heartbeat, ...] = ()  # type: ignore[assignment]  # read alone


class FoundNode(KubeNode, frozen=True):
    spec: FoundSpec = FoundSpec()
    status: FoundStatus = FoundStatus()


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace where pods of jobs are to be. `trial` is what the server made of a pod such as
    ours, which it was asked to admit, but not to keep: the refusal, or None."""

    name: str
    namespace: KubeNamespace | Refusal
    quotas: Sequence[Quota] | Refusal
    limits: Sequence[LimitRange] | Refusal
    trial: Refusal | None


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it. `at` is our time when the server was first asked, `server_at` its own."""

    url: str
    at: Time
    server_at: Time | None
    version: Version | Refusal
    user: str  # who asked; or whose permissions were asked for
    may: Mapping[str, May | Refusal]  # by namespace; "" is the cluster as a whole
    spaces: Sequence[Space]
    runtime_class: Refusal | None  # None: it is there, or none is wanted
    priority_class: Refusal | None
    nodes: Sequence[FoundNode] | Refusal
    renewed: Mapping[str, Time] | Refusal  # when each node last said that it is there, by its clock
    foreign: Mapping[str, int] | Refusal  # cards of each node that pods which are not ours have
