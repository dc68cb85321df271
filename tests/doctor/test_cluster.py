"""What a look at a cluster means: each trouble by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.access.user_table import User
from scheduler.clusters.kubernetes.inspection.found import (
    KubeNamespace,
    Limit,
    LimitRange,
    LimitSpec,
    NamespaceStatus,
    Quota,
    QuotaStatus,
    Refusal,
    Survey,
    Version,
)
from scheduler.clusters.kubernetes.permissions import IN_NAMESPACE, Rule
from scheduler.clusters.kubernetes.pods import Meta
from scheduler.clusters.kubernetes.volumes import VolumeSource
from scheduler.doctor.cluster import ENFORCE, examine, unreachable
from scheduler.doctor.findings import Level
from tests.doctor.found import NOW, SHAPE, SPACE, WELL, bad, but, may

FORBIDDEN, SILENT = Refusal("not for you", 403), Refusal("no answer from the API server", 0)
ABSENT = Refusal("not found", 404)
WATCH, DELETE, LOG = Rule("pods", ("watch",)), Rule("pods", ("delete",)), Rule("pods/log", ("get",))
TOKENS = Rule("tokenreviews", ("create",), "authentication.k8s.io")


def space(**changed: Any) -> Survey:
    return but(spaces=(replace(SPACE, **changed),))


def level(name: str) -> KubeNamespace:
    return KubeNamespace(Meta(name="jobs", labels={ENFORCE: name}))


def default(**limits: str) -> LimitRange:
    return LimitRange(Meta(name="l"), LimitSpec((Limit("Container", default=limits),)))


def test_of_a_cluster_of_which_all_is_well_nothing_else_is_said() -> None:
    findings = examine(WELL, SHAPE, "owned")
    assert bad(findings) == []
    assert [each.what for each in findings] == [
        *("server", "clock", "permissions", "namespace", "runtime", "nodes")
    ]


LEVEL = f"kubectl label namespace jobs {ENFORCE}=privileged --overwrite"
TABLE: list[tuple[Survey, str, str, str]] = [
    (but(version=Version("v1.29.9", "1", "29")), "wrong", "v1.29.9. It must be 1.30 or newer", ""),
    (but(version=Version("v1.31.2+k3s1", "1", "31+")), "ok", "Kubernetes v1.31.2+k3s1", ""),
    (but(version=Version("v1.37.0", "1", "37")), "warning", "newer than the newest tested one", ""),
    (but(version=Refusal("its answer is none")), "wrong", "Is this the address of an API", ""),
    (but(at=NOW + 30.5), "warning", "ours is 30 s ahead of the API server's", ""),
    (but(at=NOW - 29.5), "warning", "ours is 30 s behind the API server's", ""),
    (but(server_at=None), "ok", "", ""),
    (
        but(permissions={"jobs": may(IN_NAMESPACE) | {DELETE: False, WATCH: False}}),
        "wrong",
        "namespace jobs: ada may not watch, delete pods. Add this rule to its Role: "
        '{apiGroups: [""], resources: [pods], verbs: [watch, delete]}',
        'kubectl patch role epoch-scheduler --namespace jobs --type json --patch \'[{"op":',
    ),
    (
        but(permissions={"jobs": {LOG: False}}),
        "wrong",
        'its Role: {apiGroups: [""], resources: [pods/log], verbs: [get]}',
        "kubectl patch role epoch-scheduler --namespace jobs",
    ),
    (
        but(permissions={"agents": {DELETE: False}}),
        "wrong",
        "namespace agents: ada may not delete pods",
        "kubectl patch role epoch-scheduler-holders --namespace agents",
    ),
    (
        but(permissions={"": {TOKENS: False}}),
        "wrong",
        'its ClusterRole: {apiGroups: ["authentication.k8s.io"], resources: [tokenreviews]',
        "kubectl patch clusterrole epoch-scheduler --type json",
    ),
    (but(permissions={"": SILENT}), "wrong", "they could not be read: no answer", ""),
    (space(namespace=ABSENT), "wrong", "jobs: it does not exist", "kubectl create namespace jobs"),
    (
        space(namespace=FORBIDDEN, trial_refusal=Refusal('namespaces "jobs" not found', 404)),
        "wrong",
        "jobs: it does not exist",
        "kubectl create namespace jobs",
    ),
    (
        space(namespace=KubeNamespace(Meta(name="jobs"), NamespaceStatus("Terminating"))),
        "wrong",
        "it is being deleted",
        "",
    ),
    (space(namespace=level("restricted")), "ok", "restricted, admits jobs", ""),
    (space(namespace=level("baseline")), "ok", "baseline, admits jobs", ""),
    (
        space(trial_refusal=Refusal("violates PodSecurity", 403)),
        "wrong",
        "a pod like those of jobs is refused: violates PodSecurity. Set a Pod Security level",
        "",
    ),
    (
        space(trial_refusal=Refusal("failed quota: q: must specify limits.cpu for: main", 403)),
        "wrong",
        "Set it with a LimitRange",
        "",
    ),
    (
        space(trial_refusal=Refusal("exceeded quota: q, limited: pods=1", 403)),
        "wrong",
        "Raise the quota",
        "",
    ),
    (
        space(trial_refusal=Refusal("maximum memory usage per Container is 1Gi", 403)),
        "wrong",
        "Change kubernetes.cpu",
        "",
    ),
    (
        space(trial_refusal=Refusal("the webhook says no", 400)),
        "wrong",
        "refused: the webhook says no",
        "",
    ),
    (
        space(
            quotas=(Quota(Meta(name="q"), status=QuotaStatus({"requests.nvidia.com/gpu": "4"})),)
        ),
        "warning",
        "quota q of jobs: it limits nvidia.com/gpu, which jobs that share GPUs do not request",
        "",
    ),
    (
        space(limits=(default(memory="512Mi"),)),
        "warning",
        "killed when it uses more than 512Mi",
        "",
    ),
    (space(limits=(default(cpu="500m"),)), "warning", "limited to 500m CPUs", ""),
    (but(runtime_class=ABSENT), "wrong", "RuntimeClass nvidia: it does not exist", ""),
    (
        but(accounts={"held/agent": ABSENT}),
        "wrong",
        "service account held/agent: it does not exist, and holders run under it",
        "kubectl create serviceaccount agent --namespace held",
    ),
    (
        but(accounts={"held/agent": FORBIDDEN}),
        "warning",
        "because the permission is missing: service account held/agent",
        "",
    ),
    (but(accounts={"held/agent": None}), "ok", "Kubernetes v1.36.1", ""),
    (but(nodes=()), "warning", "nodes        there are no nodes", ""),
    (
        but(nodes=FORBIDDEN, lease_renewed_at=FORBIDDEN),
        "warning",
        "missing: nodes, the nodes' leases",
        "",
    ),
    (but(lease_renewed_at=SILENT), "wrong", "the nodes' leases: cannot be read", ""),
    (
        space(quotas=FORBIDDEN),
        "warning",
        "because the permission is missing: quotas of jobs. Run this once",
        "",
    ),
]


@pytest.mark.parametrize(("found", "how", "words", "command"), TABLE)
def test_each_trouble_is_one_line(found: Survey, how: str, words: str, command: str) -> None:
    findings = examine(found, SHAPE, "owned")
    if how == "ok":
        assert bad(findings) == []
        assert any(words in each.line for each in findings)
        return
    (trouble,) = (each for each in findings if each.level is not Level.OK)
    assert trouble.level == how
    assert words in trouble.line
    assert "\n" not in trouble.line
    assert any(each.startswith(command) for each in trouble.commands) or not command


SHAPES: list[tuple[dict[str, Any], str, str]] = [
    ({"data": VolumeSource.parse("host:/srv")}, "baseline", "node paths (kubernetes.data)"),
    (
        {"custom": VolumeSource.parse("host:/home")},
        "restricted",
        "node paths (kubernetes.custom)",
    ),
    ({"inject": "volume"}, "baseline", "GPUs that are chosen by mounts"),
    ({"users": {"bo": User(uid=0, root=True)}}, "restricted", "jobs of bo, which run as root"),
]


@pytest.mark.parametrize(("shape", "strict", "why"), SHAPES)
def test_a_level_that_refuses_what_the_settings_ask_for_is_told_once(
    shape: dict[str, Any], strict: str, why: str
) -> None:
    refused = Refusal(f'violates PodSecurity "{strict}:latest"', 403)
    found = space(namespace=level(strict), trial_refusal=refused)
    (trouble,) = bad(examine(found, replace(SHAPE, **shape), "owned"))
    assert trouble == ("wrong", "jobs", f"its Pod Security level, {strict}, refuses {why}") or (
        trouble[2].startswith(f"its Pod Security level, {strict}, refuses {why}")
    )
    well = space(namespace=level("privileged"))
    assert bad(examine(well, replace(SHAPE, **shape), "owned")) == []


def test_claims_and_small_settings_are_admitted_everywhere() -> None:
    shape = replace(SHAPE, data=VolumeSource.parse("pvc:data"), users={"ada": User(uid=5)})
    assert bad(examine(space(namespace=level("restricted")), shape, "owned")) == []


def test_a_job_with_memory_of_its_own_is_not_bound_by_a_default() -> None:
    found = space(limits=(default(memory="512Mi"),))
    assert bad(examine(found, replace(SHAPE, memory="16Gi"), "owned")) == []


def test_a_class_that_is_not_wanted_is_not_missed() -> None:
    findings = examine(WELL, replace(SHAPE, runtime_class=""), "owned")
    assert "runtime" not in {each.what for each in findings}


def test_a_priority_class_that_is_missing_comes_with_its_command() -> None:
    found, shape = but(priority_class=ABSENT), replace(SHAPE, priority_class="jobs")
    (trouble,) = (each for each in examine(found, shape, "owned") if each.level is not Level.OK)
    assert trouble.commands == (
        "kubectl create priorityclass jobs --value 0 --preemption-policy Never",
    )


def test_rejected_credentials_are_not_reported_as_an_unreachable_server() -> None:
    assert "has expired" in unreachable("https://api", "Unauthorized", 401).line
    assert "can this machine reach" in unreachable("https://api", "Connection refused", 0).line
