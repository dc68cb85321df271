"""What a look at a Kubernetes cluster means for a daemon. Pure. (Its nodes: nodes.py.)"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

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

# From here on deploy/ can be installed whole: its guard is a ValidatingAdmissionPolicy.
OLDEST = (1, 30)
TESTED = (1, 36)
SKEW_SECONDS = 5.0  # more than a request takes, and more than clocks that are kept differ
ROLE = "epoch-scheduler"  # as deploy/ calls it; of holders with a word behind it
LEVELS = ("privileged", "baseline", "restricted")  # of security, each admits less
ENFORCE = "pod-security.kubernetes.io/enforce"


def examine(found: Survey, shape: PodTemplate, mode: str) -> list[Finding]:
    """`mode`: of nodes that say none; "": no cards are held for us."""
    return [
        _version(found),
        *_clock(found),
        *_permissions(found),
        *(finding for space in found.spaces for finding in _space(space, shape)),
        *_classes(found, shape),
        *nodes.examine(found, shape, mode),
        *_unseen(found),
    ]


def unreachable(url: str, words: str, code: int) -> Finding:
    """Nobody can be asked."""
    if code == 401:
        advice = "Its token or certificate has expired, or is another cluster's: get a new one"
        return wrong("server", url, f"it does not know who we are ({words})", advice)
    advice = "Is this the right kubeconfig, and can this machine reach that address?"
    return wrong("server", url, words, advice)


def _version(found: Survey) -> Finding:
    version = found.version
    if isinstance(version, Refusal):
        return wrong("server", found.url, version.message, "Is this the address of an API server?")
    numbers = [re.match(r"\d+", text) for text in (version.major, version.minor)]
    here = tuple(int(number[0]) for number in numbers if number)
    told = f"Kubernetes {version.git_version}"
    oldest, tested = (f"{major}.{minor}" for major, minor in (OLDEST, TESTED))
    if here < OLDEST:
        return wrong("server", found.url, told, f"It must be {oldest} or newer: upgrade it")
    if here > TESTED:
        return warning("server", found.url, f"{told}, newer than all that was tested ({tested})")
    return fine("server", found.url, told)


def _clock(found: Survey) -> Iterator[Finding]:
    if found.server_at is None:
        return
    skew = found.at - found.server_at - 0.5  # it tells whole seconds
    if abs(skew) <= SKEW_SECONDS:
        yield fine("clock", "", f"ours and the API server's are within {SKEW_SECONDS:g} s")
        return
    which = "ahead of" if skew > 0 else "behind"
    words = f"ours is {abs(skew):.0f} s {which} the API server's"
    yield warning("clock", "", words, "Deadlines and tokens would be misjudged: run NTP on both")


# --- permissions --------------------------------------------------------------------------------


def _permissions(found: Survey) -> Iterator[Finding]:
    count, lacking = 0, False
    for namespace, may in found.permissions.items():
        if isinstance(may, Refusal):
            lacking = True
            yield wrong("permissions", namespace, f"could not be asked for: {may.message}")
            continue
        count += len(may)
        for rule in _missing(may):
            lacking = True
            holders = namespace and namespace not in {space.name for space in found.spaces}
            role = f"{ROLE}-holders" if holders else ROLE
            yield _lacks(found.user, namespace, role, rule)
    if not lacking:
        yield fine("permissions", "", f"{found.user} may do all that is needed ({count} verbs)")


def _missing(may: Permissions) -> Iterator[Rule]:
    """All verbs of a resource in one rule."""
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
        yield wrong("namespace", space.name, "there is none", "Create it", command)
        return
    if not isinstance(space.namespace, Refusal) and space.namespace.status.phase == "Terminating":
        yield wrong("namespace", space.name, "it is being deleted", "Wait, then create it anew")
        return
    level = list(_level(space, shape))
    yield from level
    yield from _quotas(space)
    yield from _limits(space, shape)
    refused = space.trial_refusal
    told_already = (
        refused and "violates PodSecurity" in refused.message and level and level[0].advice
    )
    if refused and not told_already and "cannot create resource" not in refused.message:
        yield _refused(space.name, refused)
    elif refused is None:
        yield fine("namespace", space.name, "a pod such as those of jobs is admitted")


def _is_missing(space: SurveyedNamespace) -> bool:
    """A daemon may not look at a namespace itself, but is told when it creates something there."""
    seen, trial = space.namespace, space.trial_refusal
    if isinstance(seen, Refusal) and seen.absent:
        return True
    return trial is not None and trial.absent and f'namespaces "{space.name}"' in trial.message


def _level(space: SurveyedNamespace, shape: PodTemplate) -> Iterator[Finding]:
    if isinstance(space.namespace, Refusal):
        return
    level = space.namespace.metadata.labels.get(ENFORCE, "")
    needed, why = _needed(shape)
    if level in LEVELS and LEVELS.index(level) > LEVELS.index(needed):
        yield wrong(
            "namespace",
            space.name,
            f"its level of security, {level}, refuses {why}",
            f"Set it to {needed}",
            f"kubectl label namespace {space.name} {ENFORCE}={needed} --overwrite",
        )
    elif level in LEVELS[1:]:
        words = f"its level of security, {level}, admits jobs, but none with --ports below 30000"
        yield fine("namespace", space.name, words)


def _needed(shape: PodTemplate) -> tuple[str, str]:
    """The strictest level under which jobs run, and what would be refused by a stricter one."""
    places = {"custom": shape.custom, "snapshots": shape.snapshots, "data": shape.data}
    if of_node := [f"kubernetes.{name}" for name, place in places.items() if place.kind == "host"]:
        return "privileged", f"folders of nodes ({', '.join(of_node)})"
    if shape.inject == "volume":
        return "privileged", "cards that are chosen by mounts (kubernetes.gpu_injection)"
    roots = [name for name, user in sorted(shape.users.items()) if 0 in (user.uid, *user.groups)]
    return ("baseline", f"jobs of {roots[0]}, who runs as root") if roots else ("restricted", "")


def _quotas(space: SurveyedNamespace) -> Iterator[Finding]:
    for quota in () if isinstance(space.quotas, Refusal) else space.quotas:
        name = f"quota {quota.metadata.name} of {space.name}"
        if any(GPU_RESOURCE in key for key in quota.status.hard):
            yield warning(
                "quota",
                name,
                f"it bounds {GPU_RESOURCE}, which jobs that share cards do not ask for",
                "It does not see them, so do not count on it",
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
                words = f"every job is killed at {memory} of the machine's memory"
                yield warning("limits", name, words, "Set kubernetes.memory to what jobs need")
            if cpu:
                yield warning("limits", name, f"every job is slowed down to {cpu} CPUs")


ADVICE = (
    (r"violates PodSecurity", "Set a level of security that admits them"),
    (
        r"must specify ([\w./,-]+)",
        "Set it by a LimitRange of that namespace, or by kubernetes.memory",
    ),
    (r"exceeded quota", "Raise it, or wait until something has ended"),
    (r"(maximum|minimum) \w+ usage per", "Change kubernetes.cpu, kubernetes.memory, or the limits"),
    (r"RuntimeClass", "Set kubernetes.runtime_class to one that there is, or to nothing"),
    (r"PriorityClass", "Create it, or set kubernetes.priority_class to nothing"),
    (r"service account", "Is the controller manager running?"),
)


def _refused(namespace: str, refused: Refusal) -> Finding:
    words = f"a pod such as those of jobs is refused: {refused.message}"
    advice = next((text for pattern, text in ADVICE if re.search(pattern, refused.message)), "")
    return wrong("namespace", namespace, words, advice)


# --- the cluster as a whole ---------------------------------------------------------------------


def _classes(found: Survey, shape: PodTemplate) -> Iterator[Finding]:
    if found.runtime_class and found.runtime_class.absent:
        yield wrong(
            "runtime",
            f"RuntimeClass {shape.runtime_class}",
            "there is none, and pods with chosen cards name it",
            "Install NVIDIA's GPU operator; or, where nodes need none, set "
            'kubernetes.runtime_class = ""',
        )
    elif shape.runtime_class and found.runtime_class is None:
        yield fine("runtime", f"RuntimeClass {shape.runtime_class}", "it is there")
    if found.priority_class and found.priority_class.absent:
        name, advice = (
            shape.priority_class,
            "Create it, or set kubernetes.priority_class to nothing",
        )
        command = f"kubectl create priorityclass {name} --value 0 --preemption-policy Never"
        yield wrong("priority", f"PriorityClass {name}", "there is none", advice, command)


def _unseen(found: Survey) -> Iterator[Finding]:
    parts: list[tuple[str, object]] = [
        ("nodes", found.nodes),
        ("the nodes' leases", found.lease_renewed_at),
        ("pods of others", found.foreign_gpus),
        ("RuntimeClasses", found.runtime_class),
        ("PriorityClasses", found.priority_class),
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
            yield wrong("server", name, f"could not be asked for: {refusal.message}", "Try again")
    hidden = [name for name, refusal in refusals if refusal.forbidden]
    if hidden:
        yield _hidden(hidden)


def _hidden(names: Sequence[str]) -> Finding:
    words = f"not looked at, because we may not: {', '.join(names)}"
    advice = (
        "Run this once as an administrator, with --kubeconfig FILE and --account NAMESPACE/NAME"
    )
    return warning("rest", "", words, advice)
