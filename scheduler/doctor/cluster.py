"""What a survey of a Kubernetes cluster means for a daemon. Pure. (Its nodes: nodes.py.)"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from scheduler.clusters.kubernetes.host_ports import NODE_PORTS
from scheduler.clusters.kubernetes.inspection.found import (
    Permissions,
    Refusal,
    Survey,
    SurveyedNamespace,
)
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.permissions import Rule
from scheduler.clusters.kubernetes.pods import GPU_RESOURCE
from scheduler.doctor import nodes
from scheduler.doctor.findings import Finding, fine, warning, wrong

# All of deploy/ needs this version: its guard is a ValidatingAdmissionPolicy.
OLDEST = (1, 30)
TESTED = (1, 36)
SKEW_SECONDS = 5.0  # more than a request takes, and more than synchronised clocks differ
ROLE = "epoch-scheduler"  # its name in deploy/; the holders' role has a suffix
LEVELS = ("privileged", "baseline", "restricted")  # of Pod Security; each admits less
ENFORCE = "pod-security.kubernetes.io/enforce"


def examine(found: Survey, shape: PodTemplate, mode: str) -> list[Finding]:
    """`mode`: of nodes without a label; "": there are no holders."""
    return [
        _version(found),
        *_clock(found),
        *_permissions(found),
        *(finding for space in found.spaces for finding in _space(space, shape)),
        *_classes(found, shape),
        *_accounts(found),
        *nodes.examine(found, shape, mode),
        *_unseen(found),
    ]


def unreachable(url: str, words: str, code: int) -> Finding:
    """The finding if the API server cannot be asked."""
    if code == 401:
        advice = (
            "The token or certificate has expired, or belongs to another cluster: get a new one"
        )
        return wrong("server", url, f"it does not accept our credentials ({words})", advice)
    advice = "Is this the right kubeconfig, and can this machine reach that address?"
    return wrong("server", url, words, advice)


def _version(found: Survey) -> Finding:
    version = found.version
    if isinstance(version, Refusal):
        return wrong("server", found.url, version.message, "Is this the address of an API server?")
    numbers = [re.match(r"\d+", text) for text in (version.major, version.minor)]
    here = tuple(int(number[0]) for number in numbers if number)
    words = f"Kubernetes {version.git_version}"
    oldest, tested = (f"{major}.{minor}" for major, minor in (OLDEST, TESTED))
    if here < OLDEST:
        return wrong("server", found.url, words, f"It must be {oldest} or newer: upgrade it")
    if here > TESTED:
        return warning("server", found.url, f"{words}, newer than the newest tested one ({tested})")
    return fine("server", found.url, words)


def _clock(found: Survey) -> Iterator[Finding]:
    if found.server_at is None:
        return
    skew = found.at - found.server_at - 0.5  # the server's time is in whole seconds
    if abs(skew) <= SKEW_SECONDS:
        yield fine("clock", "", f"ours and the API server's differ by less than {SKEW_SECONDS:g} s")
        return
    which = "ahead of" if skew > 0 else "behind"
    words = f"ours is {abs(skew):.0f} s {which} the API server's"
    advice = "Deadlines and the expiry of tokens would be wrong: run NTP on both machines"
    yield warning("clock", "", words, advice)


# --- permissions --------------------------------------------------------------------------------


def _permissions(found: Survey) -> Iterator[Finding]:
    count, lacking = 0, False
    for namespace, may in found.permissions.items():
        if isinstance(may, Refusal):
            lacking = True
            yield wrong("permissions", namespace, f"they could not be read: {may.message}")
            continue
        count += len(may)
        for rule in _missing(may):
            lacking = True
            holders = namespace and namespace not in {space.name for space in found.spaces}
            role = f"{ROLE}-holders" if holders else ROLE
            yield _lacks(found.user, namespace, role, rule)
    if not lacking:
        words = f"{found.user} has all permissions that the daemon needs ({count} verbs)"
        yield fine("permissions", "", words)


def _missing(may: Permissions) -> Iterator[Rule]:
    """Returns what is not allowed, with all verbs of a resource in one rule."""
    missing: dict[tuple[str, str], tuple[str, ...]] = {}
    for rule, allowed in may.items():
        if not allowed:
            key = rule.resource, rule.group
            missing[key] = (*missing.get(key, ()), *rule.verbs)
    return (Rule(resource, verbs, group) for (resource, group), verbs in missing.items())


def _lacks(user: str, namespace: str, role: str, rule: Rule) -> Finding:
    kind = "role" if namespace else "clusterrole"
    where = f"namespace {namespace}" if namespace else "cluster"
    words = f"{user} may not {', '.join(rule.verbs)} {rule.resource}"
    group, verbs = json.dumps(rule.group), ", ".join(rule.verbs)
    text = f"{{apiGroups: [{group}], resources: [{rule.resource}], verbs: [{verbs}]}}"
    patch = json.dumps([{"op": "add", "path": "/rules/-", "value": rule.written()}])
    within = f" --namespace {namespace}" if namespace else ""
    command = f"kubectl patch {kind} {role}{within} --type json --patch '{patch}'"
    title = "Role" if namespace else "ClusterRole"
    return wrong("permissions", where, words, f"Add this rule to its {title}: {text}", command)


# --- a namespace --------------------------------------------------------------------------------


def _space(space: SurveyedNamespace, shape: PodTemplate) -> Iterator[Finding]:
    if _is_missing(space):
        command = f"kubectl create namespace {space.name}"
        yield wrong("namespace", space.name, "it does not exist", "Create it", command)
        return
    if not isinstance(space.namespace, Refusal) and space.namespace.status.phase == "Terminating":
        yield wrong("namespace", space.name, "it is being deleted", "Wait, then create it again")
        return
    level = list(_level(space, shape))
    yield from level
    yield from _quotas(space)
    yield from _limits(space, shape)
    refused = space.trial_refusal
    already_reported = (
        refused and "violates PodSecurity" in refused.message and level and level[0].advice
    )
    if refused and not already_reported and "cannot create resource" not in refused.message:
        yield _refused(space.name, refused)
    elif refused is None:
        yield fine("namespace", space.name, "a pod like those of jobs is admitted")


def _is_missing(space: SurveyedNamespace) -> bool:
    """A daemon may not read a namespace, but a failed creation in it says that it is missing."""
    seen, trial = space.namespace, space.trial_refusal
    if isinstance(seen, Refusal) and seen.absent:
        return True
    return trial is not None and trial.absent and f'namespaces "{space.name}"' in trial.message


def _level(space: SurveyedNamespace, shape: PodTemplate) -> Iterator[Finding]:
    if isinstance(space.namespace, Refusal):
        return
    level, ports = space.namespace.metadata.labels.get(ENFORCE, ""), shape.host_ports
    needed, why = _needed(shape)
    if level in LEVELS and LEVELS.index(level) > LEVELS.index(needed):
        yield wrong(
            "namespace",
            space.name,
            f"its Pod Security level, {level}, refuses {why}",
            f"Set it to {needed}",
            f"kubectl label namespace {space.name} {ENFORCE}={needed} --overwrite",
        )
    elif level in LEVELS[1:]:
        own = any(each[0] not in NODE_PORTS or each[-1] not in NODE_PORTS for each in ports.ranges)
        limit = ", but none with --port_mapping outside 30000-32767" if own else ""
        words = f"its Pod Security level, {level}, admits jobs{limit}"
        yield fine("namespace", space.name, words)


def _needed(shape: PodTemplate) -> tuple[str, str]:
    """Returns the strictest level under which jobs run, and what a stricter one would refuse."""
    places = {"custom": shape.custom, "snapshots": shape.snapshots, "data": shape.data}
    if of_node := [f"kubernetes.{name}" for name, place in places.items() if place.kind == "host"]:
        return "privileged", f"node paths ({', '.join(of_node)})"
    if shape.inject == "volume":
        return "privileged", "GPUs that are chosen by mounts (kubernetes.gpu_injection)"
    roots = [name for name, user in sorted(shape.users.items()) if 0 in (user.uid, *user.groups)]
    return ("baseline", f"jobs of {roots[0]}, which run as root") if roots else ("restricted", "")


def _quotas(space: SurveyedNamespace) -> Iterator[Finding]:
    for quota in () if isinstance(space.quotas, Refusal) else space.quotas:
        name = f"quota {quota.metadata.name} of {space.name}"
        if any(GPU_RESOURCE in key for key in quota.status.hard):
            yield warning(
                "quota",
                name,
                f"it limits {GPU_RESOURCE}, which jobs that share GPUs do not request",
                "It does not count these jobs, so do not rely on it",
            )


def _limits(space: SurveyedNamespace, shape: PodTemplate) -> Iterator[Finding]:
    every = () if isinstance(space.limits, Refusal) else space.limits
    for range_ in every:
        name = f"limit range {range_.metadata.name} of {space.name}"
        for limit in range_.spec.limits:
            memory, cpu = limit.default.get("memory"), limit.default.get("cpu")
            if limit.type != "Container":
                continue
            if memory and not shape.memory:
                words = f"every job is killed when it uses more than {memory} of memory"
                yield warning("limits", name, words, "Set kubernetes.memory to what jobs need")
            if cpu:
                yield warning("limits", name, f"every job is limited to {cpu} CPUs")


ADVICE = (
    (r"violates PodSecurity", "Set a Pod Security level that admits such pods"),
    (
        r"must specify ([\w./,-]+)",
        "Set it with a LimitRange in that namespace, or with kubernetes.memory",
    ),
    (r"exceeded quota", "Raise the quota, or wait until other pods have ended"),
    (r"(maximum|minimum) \w+ usage per", "Change kubernetes.cpu, kubernetes.memory, or the limits"),
    (r"RuntimeClass", "Set kubernetes.runtime_class to one that exists, or leave it empty"),
    (r"PriorityClass", "Create it, or leave kubernetes.priority_class empty"),
    (r"service account", "Is the controller manager running?"),
)


def _refused(namespace: str, refused: Refusal) -> Finding:
    words = f"a pod like those of jobs is refused: {refused.message}"
    advice = next((text for pattern, text in ADVICE if re.search(pattern, refused.message)), "")
    return wrong("namespace", namespace, words, advice)


# --- the cluster as a whole ---------------------------------------------------------------------


def _classes(found: Survey, shape: PodTemplate) -> Iterator[Finding]:
    if found.runtime_class and found.runtime_class.absent:
        yield wrong(
            "runtime",
            f"RuntimeClass {shape.runtime_class}",
            "it does not exist, and pods with chosen GPUs name it",
            "Install NVIDIA's GPU operator; or, if the nodes need no RuntimeClass, set "
            'kubernetes.runtime_class = ""',
        )
    elif shape.runtime_class and found.runtime_class is None:
        yield fine("runtime", f"RuntimeClass {shape.runtime_class}", "it exists")
    if found.priority_class and found.priority_class.absent:
        name, advice = (
            shape.priority_class,
            "Create it, or leave kubernetes.priority_class empty",
        )
        command = f"kubectl create priorityclass {name} --value 0 --preemption-policy Never"
        yield wrong("priority", f"PriorityClass {name}", "it does not exist", advice, command)


def _accounts(found: Survey) -> Iterator[Finding]:
    for account, refusal in found.accounts.items():
        if refusal and refusal.absent:
            namespace, _, name = account.partition("/")
            yield wrong(
                "holders",
                f"service account {account}",
                "it does not exist, and holders run under it",
                "Create it, or set kubernetes.holder_account",
                f"kubectl create serviceaccount {name} --namespace {namespace}",
            )


def _unseen(found: Survey) -> Iterator[Finding]:
    parts: list[tuple[str, object]] = [
        ("nodes", found.nodes),
        ("the nodes' leases", found.lease_renewed_at),
        ("foreign pods", found.foreign_gpus),
        ("RuntimeClasses", found.runtime_class),
        ("PriorityClasses", found.priority_class),
        *((f"service account {name}", seen) for name, seen in found.accounts.items()),
    ]
    for space in found.spaces:
        missing = _is_missing(space)
        parts += (
            []
            if missing
            else [
                (f"namespace {space.name}", space.namespace),
                (f"quotas of {space.name}", space.quotas),
                (f"limit ranges of {space.name}", space.limits),
            ]
        )
    refusals = [(name, seen) for name, seen in parts if isinstance(seen, Refusal)]
    for name, refusal in refusals:
        if not (refusal.forbidden or refusal.absent):
            yield wrong("server", name, f"cannot be read: {refusal.message}", "Try again")
    hidden = [name for name, refusal in refusals if refusal.forbidden]
    if hidden:
        yield _hidden(hidden)


def _hidden(names: Sequence[str]) -> Finding:
    words = f"not checked, because the permission is missing: {', '.join(names)}"
    advice = (
        "Run this once as an administrator, with --kubeconfig FILE and --account NAMESPACE/NAME"
    )
    return warning("rest", "", words, advice)
