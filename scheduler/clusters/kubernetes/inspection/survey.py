"""Inspects a whole Kubernetes cluster for scheduler-doctor. Changes nothing there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.gpu_requests import RequestingPod, requested_gpus
from scheduler.clusters.kubernetes.inspection.canary import canary, readable_nodes
from scheduler.clusters.kubernetes.inspection.found import (
    KubeNamespace,
    LimitRange,
    Permissions,
    Quota,
    Refusal,
    Survey,
    SurveyedNamespace,
    SurveyedNode,
    Version,
)
from scheduler.clusters.kubernetes.listing import Lister
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.permissions import Rule
from scheduler.clusters.kubernetes.pods import MANAGED_BY, OURS, Meta, Struct
from scheduler.core.errors import Impossible
from scheduler.core.model import Time

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

T = TypeVar("T")


class _NodeLeaseSpec(Struct, frozen=True):
    renew_time: datetime | None = None


class _Lease(Struct, frozen=True):
    metadata: Meta
    spec: _NodeLeaseSpec = _NodeLeaseSpec()


class _Verdict(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _Verdict


class _UserInfo(Struct, frozen=True):
    username: str = ""


class _Self(Struct, frozen=True):
    user_info: _UserInfo


class _SelfReview(Struct, frozen=True):
    status: _Self


class Surveyor:
    """Reads the cluster with the caller's account. The permissions that it reads are those of the
    service account `account` (NAMESPACE/NAME), or the caller's if that is empty."""

    def __init__(
        self,
        server: KubernetesClient,
        shape: PodTemplate,
        clock: Callable[[], Time],
        account: str = "",
        holders: str = "",
    ) -> None:
        """`holders` is the service account of holders; empty: there are none."""
        self._server, self._shape, self._clock = server, shape, clock
        self._holders = holders
        self._user = ":".join(["system:serviceaccount", *account.split("/")]) if account else ""
        self._groups = ["system:serviceaccounts", "system:authenticated"]
        self._groups.append(f"system:serviceaccounts:{account.partition('/')[0]}")

    def survey(
        self,
        namespaces: Sequence[str],
        rules: Callable[[Sequence[SurveyedNode]], Mapping[str, Sequence[Rule]]],
    ) -> Survey:
        """`namespaces` are those of jobs. `rules` returns the permissions that these nodes require,
        by namespace; "" is the cluster. Raises ApiError if the server does not answer at all."""
        asked = self._clock()
        headers = self._server.headers("/version")
        at = (asked + self._clock()) / 2
        renewed = self._read_lease_times()  # immediately, because they are compared with `at`
        nodes = self._list("/api/v1/nodes", SurveyedNode)
        there = () if isinstance(nodes, Refusal) else nodes
        return Survey(
            self._server.url,
            at,
            _date(headers.get("Date", "")),
            self._read("/version", Version),
            self._user or self._own_name(),
            {name: self._read_permissions(name, needed) for name, needed in rules(there).items()},
            [self._read_namespace(name, nodes) for name in namespaces],
            self._check_exists("/apis/node.k8s.io/v1/runtimeclasses", self._shape.runtime_class),
            self._check_exists(
                "/apis/scheduling.k8s.io/v1/priorityclasses", self._shape.priority_class
            ),
            self._find_accounts(),
            nodes,
            renewed,
            self._count_foreign_gpus(),
        )

    def _read_namespace(
        self, name: str, nodes: Sequence[SurveyedNode] | Refusal
    ) -> SurveyedNamespace:
        here = f"/api/v1/namespaces/{name}"
        return SurveyedNamespace(
            name,
            self._read(here, KubeNamespace),
            self._list(f"{here}/resourcequotas", Quota),
            self._list(f"{here}/limitranges", LimitRange),
            self._trial(name, nodes),
        )

    def _trial(self, namespace: str, nodes: Sequence[SurveyedNode] | Refusal) -> Refusal | None:
        shape = replace(self._shape, namespace=namespace, image=self._shape.image or "none")
        there = [] if isinstance(nodes, Refusal) else readable_nodes(nodes)
        with_gpus = next((node for node in there if node.gpus), None)
        try:
            made = canary(with_gpus, there, shape, "gs-trial", "trial", 0)
            path = f"/api/v1/namespaces/{namespace}/pods"
            self._server.call("POST", path, {"dryRun": "All"}, made)
        except Impossible as error:
            return Refusal(str(error), 422)
        except ApiError as error:
            return _refusal(error)
        return None

    # --- one kind of request each ---------------------------------------------------------------

    def _read_permissions(self, namespace: str, rules: Sequence[Rule]) -> Permissions | Refusal:
        single = {
            Rule(rule.resource, (verb,), rule.group): None for rule in rules for verb in rule.verbs
        }
        try:
            return {rule: self._review(rule, namespace) for rule in single}
        except ApiError as error:
            return _refusal(error)
        except msgspec.MsgspecError as error:
            return Refusal(f"its answer cannot be understood: {error}")

    def _review(self, rule: Rule, namespace: str) -> bool:
        resource, _, part = rule.resource.partition("/")
        asked = {"verb": rule.verbs[0], "group": rule.group, "resource": resource}
        asked |= {"subresource": part, "namespace": namespace}
        spec: dict[str, Any] = {"resourceAttributes": asked}
        if self._user:
            spec |= {"user": self._user, "groups": self._groups}
        kind = "SubjectAccessReview" if self._user else "SelfSubjectAccessReview"
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = self._server.call("POST", f"{AUTHORIZATION}/{kind.lower()}s", body=body)
        return msgspec.json.decode(answer, type=_AccessReview).status.allowed

    def _own_name(self) -> str:
        """The name of the caller's account. Servers before 1.28 do not return it."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self._server.call("POST", path, body=body)
            return msgspec.json.decode(answer, type=_SelfReview).status.user_info.username
        except (ApiError, msgspec.MsgspecError):
            return "this account"

    def _check_exists(self, path: str, name: str) -> Refusal | None:
        seen = self._read(f"{path}/{name}", Struct) if name else None
        return seen if isinstance(seen, Refusal) else None

    def _find_accounts(self) -> Mapping[str, Refusal | None]:
        namespace, _, name = self._holders.partition("/")
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        return {self._holders: self._check_exists(path, name)} if name else {}

    def _read_lease_times(self) -> Mapping[str, Time] | Refusal:
        leases = self._list(LEASES, _Lease)
        if isinstance(leases, Refusal):
            return leases
        return {
            lease.metadata.name: lease.spec.renew_time.timestamp()
            for lease in leases
            if lease.spec.renew_time
        }

    def _count_foreign_gpus(self) -> Mapping[str, int] | Refusal:
        alive = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="}
        found = self._list("/api/v1/pods", RequestingPod, alive)
        if isinstance(found, Refusal):
            return found
        gpus: dict[str, int] = {}
        for pod in found:
            if pod.metadata.labels.get(MANAGED_BY) != OURS:
                gpus[pod.spec.node_name] = gpus.get(pod.spec.node_name, 0) + requested_gpus(pod)
        return gpus

    def _read(self, path: str, kind: type[T]) -> T | Refusal:
        try:
            return msgspec.json.decode(self._server.call("GET", path), type=kind)
        except ApiError as error:
            return _refusal(error)
        except msgspec.MsgspecError:
            return Refusal("its answer is not that of a Kubernetes API server")

    def _list(
        self, path: str, kind: type[T], selector: Mapping[str, str] | None = None
    ) -> list[T] | Refusal:
        try:
            return Lister(self._server, path, kind).read(selector).items
        except ApiError as error:
            return _refusal(error)
        except msgspec.MsgspecError as error:
            return Refusal(f"its answer cannot be understood: {error}")


def _refusal(error: ApiError) -> Refusal:
    return Refusal(str(error), error.code)


def _date(text: str) -> Time | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
