"""What the nodes of a Kubernetes cluster report, and what it means for jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scheduler.clusters.kubernetes.inspection.found import Refusal, Survey, SurveyedNode
from scheduler.clusters.kubernetes.manifests import PodTemplate
from scheduler.clusters.kubernetes.pods import (
    DOMAIN,
    GPU_RESOURCE,
    GPUS,
    declared_gpus,
    gpus_of,
    is_ready,
)
from scheduler.core.errors import Rejected
from scheduler.core.model import Gpu, Time
from scheduler.doctor.findings import Finding, Level, fine, some, warning, wrong

MODE = f"{DOMAIN}/mode"  # a label: how the GPUs of the node are reserved
OWNED, MIXED, EXCLUSIVE = MODES = ("owned", "mixed", "exclusive")
PROPOSED = {
    OWNED: "On owned nodes, all GPUs are reserved for jobs, which start without delay",
    MIXED: "On mixed nodes, GPUs are reserved for jobs as needed; other pods can get the rest",
}
TOLERATED = frozenset({GPU_RESOURCE, f"{DOMAIN}/owned"})  # taints
OF_THE_CLUSTER = "node.kubernetes.io/"  # taints that repeat a condition of the node

# Labels that NVIDIA's discovery and operator write.
PRESENT, COUNT = "nvidia.com/gpu.present", "nvidia.com/gpu.count"
SHARING, REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
PRODUCT, SHARED = "nvidia.com/gpu.product", "-SHARED"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
MIG_STRATEGY, MIG_CONFIG = "nvidia.com/mig.strategy", "nvidia.com/mig.config"
MIG_RESOURCE = "nvidia.com/mig-"
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
UPGRADED = ("", "upgrade-done", "upgrade-required")  # the last: the upgrade has not begun yet

AHEAD_SECONDS = 5.0
BEHIND_SECONDS = 60.0  # a kubelet renews its lease every 10 s, and counts as dead after 50 s


def examine(found: Survey, shape: PodTemplate, mode: str) -> list[Finding]:
    """Returns one finding for all healthy nodes, and one for each problem. `mode`: of nodes without
    a label; "": there are no holders, so modes have no effect."""
    if isinstance(found.nodes, Refusal):
        return []
    everyone = sorted(found.nodes, key=lambda node: node.metadata.name)
    now = found.at if found.server_at is None else found.server_at
    renewed = {} if isinstance(found.lease_renewed_at, Refusal) else found.lease_renewed_at
    troubles = [
        trouble
        for node in everyone
        for trouble in (*_node(node, shape, mode), *_clock(node, renewed, now))
    ]
    ill = {trouble.where for trouble in troubles}
    well = [node for node in everyone if _title(node) not in ill]
    return [*_well(well, everyone), *troubles, *_modes(everyone, found.foreign_gpus, mode)]


def _title(node: SurveyedNode) -> str:
    return f"node {node.metadata.name}"


def _well(well: Sequence[SurveyedNode], everyone: Sequence[SurveyedNode]) -> Iterator[Finding]:
    if not everyone:
        yield warning("nodes", "", "there are no nodes")
    elif not any(_has_gpus(node) for node in everyone):
        advice = "Jobs that need one will wait; is NVIDIA's device plugin installed?"
        yield warning("nodes", "", f"none of {len(everyone)} has a GPU", advice)
    if well:
        count = sum(len(_gpus(node)) for node in well)
        names = some([node.metadata.name for node in well])
        yield fine("nodes", names, f"ready, {count} GPU{'' if count == 1 else 's'} in all")


def _gpus(node: SurveyedNode) -> Sequence[Gpu]:
    try:
        return gpus_of(node)
    except Rejected:
        return ()


# --- one node -----------------------------------------------------------------------------------


def _node(node: SurveyedNode, shape: PodTemplate, default: str) -> Iterator[Finding]:
    where, name = _title(node), node.metadata.name
    if not is_ready(node):
        why = next((c.message for c in node.status.conditions if c.type == "Ready"), "")
        yield warning("nodes", where, f"it is not ready{f' ({why})' if why else ''}")
    if node.spec.unschedulable:
        words, command = "it is cordoned, so no job starts there", f"kubectl uncordon {name}"
        yield warning("nodes", where, words, "Uncordon it when it is ready for jobs", command)
    if not _has_gpus(node):
        return
    yield from _taints(node, shape)
    sharing = list(_shared(node))
    yield from sharing
    yield from _mig(node)
    yield from _driver(node)
    if not sharing:
        yield from _offered(node, default)


def _has_gpus(node: SurveyedNode) -> bool:
    labels = node.metadata.labels
    return (
        GPUS in node.metadata.annotations
        or labels.get(PRESENT) == "true"
        or COUNT in labels
        or any(key.startswith("nvidia.com/") for key in node.status.capacity)
        or _number(node.status.allocatable.get(GPU_RESOURCE, "")) > 0
    )


def _taints(node: SurveyedNode, shape: PodTemplate) -> Iterator[Finding]:
    heeded = ("NoExecute", "NoSchedule") if shape.binding == "affinity" else ("NoExecute",)
    for taint in node.spec.taints:
        known = taint.key in TOLERATED or taint.key.startswith(OF_THE_CLUSTER)
        if taint.effect in heeded and not known:
            words = f"its taint {taint.key}:{taint.effect} keeps jobs away"
            command = f"kubectl taint node {node.metadata.name} {taint.key}:{taint.effect}-"
            yield warning(
                "nodes", _title(node), words, "Remove it if jobs should run there", command
            )


def _shared(node: SurveyedNode) -> Iterator[Finding]:
    """Slices of a GPU look like whole GPUs: we would put a whole job's memory on each."""
    labels = node.metadata.labels
    strategy, replicas = labels.get(SHARING, "none"), _number(labels.get(REPLICAS, ""))
    renamed = [key for key in node.status.allocatable if key.endswith(".shared")]
    named = strategy not in ("", "none")
    marked = labels.get(PRODUCT, "").endswith(SHARED)
    if not (named or replicas > 1 or renamed or marked):
        return
    how = strategy if named else "time-slicing"
    times = f", {replicas} times each" if replicas > 1 else ""
    commands = []
    if PLUGIN_CONFIG in labels:
        commands.append(f"kubectl label node {node.metadata.name} {PLUGIN_CONFIG}-")
    yield wrong(
        "plugin",
        _title(node),
        f"its device plugin offers every GPU several times ({how}{times})",
        "Slices would count as whole GPUs: remove `sharing` from the plugin's configuration",
        *commands,
    )


def _mig(node: SurveyedNode) -> Iterator[Finding]:
    strategy = node.metadata.labels.get(MIG_STRATEGY, "none")
    cut = "-MIG-" in node.metadata.labels.get(PRODUCT, "")
    slices = sum(
        _number(count)
        for resource, count in node.status.allocatable.items()
        if resource.startswith(MIG_RESOURCE)
    )
    command = f"kubectl label node {node.metadata.name} {MIG_CONFIG}=all-disabled --overwrite"
    advice = "Disable MIG to let jobs share whole GPUs"
    if strategy == "single" and cut:
        words = "its GPUs are divided by MIG, and each slice counts as a GPU"
        yield warning("plugin", _title(node), words, advice, command)
    elif slices:
        words = f"jobs cannot use its {slices} MIG slices, because they request {GPU_RESOURCE}"
        yield warning("plugin", _title(node), words, advice, command)


def _driver(node: SurveyedNode) -> Iterator[Finding]:
    state = node.metadata.labels.get(UPGRADE, "")
    if state == "upgrade-failed":
        advice = "See the driver's pod there"
        yield wrong("driver", _title(node), "the upgrade of its driver failed", advice)
    elif state not in UPGRADED:
        yield warning(
            "driver",
            _title(node),
            f"its driver is being upgraded ({state})",
            "No job is started there, running jobs are preempted, and holders are removed after "
            "them: scheduler-state --cluster shows what is still there",
        )


def _offered(node: SurveyedNode, default: str) -> Iterator[Finding]:
    where, status = _title(node), node.status
    try:
        listed = declared_gpus(node)
    except Rejected as error:
        yield wrong("nodes", where, str(error), "Correct this value")
        return
    offered = _number(status.allocatable.get(GPU_RESOURCE, ""))
    there = _number(status.capacity.get(GPU_RESOURCE, ""))
    slices = any(resource.startswith(MIG_RESOURCE) for resource in status.allocatable)
    if not offered and not listed and not slices:
        words = "it has GPUs, but its device plugin offers none"
        yield wrong("plugin", where, words, "See the plugin's pod there")
    elif offered < there:
        yield warning("plugin", where, f"{there - offered} of its {there} GPUs are unhealthy")
    if listed and there and node.metadata.labels.get(MODE, default) != OWNED:
        words = f"its annotation {GPUS} is ignored: its device plugin gives GPUs to other pods too"
        yield warning("nodes", where, words, "Remove it", _without(node))
    elif listed and there and len(listed) != there:
        words = f"its annotation {GPUS} lists {len(listed)} GPUs, its device plugin {there}"
        yield wrong("nodes", where, words, "Remove it", _without(node))


def _without(node: SurveyedNode) -> str:
    """Returns a command that removes the annotation."""
    return f"kubectl annotate node {node.metadata.name} {GPUS}-"


def _clock(node: SurveyedNode, renewed: Mapping[str, Time], now: Time) -> Iterator[Finding]:
    """Reads the clock from the node's lease, which is at most ten seconds old; without a lease,
    from its heartbeats, which are rare."""
    lease_at = renewed.get(node.metadata.name)
    beats = [c.last_heartbeat_time for c in node.status.conditions if c.last_heartbeat_time]
    newest = lease_at if lease_at is not None else max((b.timestamp() for b in beats), default=None)
    if newest is None or not is_ready(node):
        return
    advice = "Run NTP on it"
    if newest > now + AHEAD_SECONDS:
        words = f"its clock is {newest - now:.0f} s ahead of the API server's"
        yield warning("clock", _title(node), words, advice)
    elif lease_at is not None and lease_at < now - BEHIND_SECONDS:
        words = f"its clock is {now - lease_at:.0f} s behind the API server's"
        yield warning("clock", _title(node), words, advice)


# --- modes --------------------------------------------------------------------------------------


def _modes(
    everyone: Sequence[SurveyedNode], foreign: Mapping[str, int] | Refusal, default: str
) -> Iterator[Finding]:
    """Checks the mode labels, and proposes one for nodes without."""
    if not default:
        words = "there are no holders, so jobs request whole GPUs"
        yield Finding(Level.OK, "modes", "", words, "Set kubernetes.holder_image to share GPUs")
        return
    unsaid: dict[str, list[str]] = {OWNED: [], MIXED: []}
    for node in everyone:
        mode, name = node.metadata.labels.get(MODE), node.metadata.name
        if mode is not None and mode not in MODES:
            words = f"its label {MODE} is {mode!r}, but must be one of {', '.join(MODES)}"
            command = f"kubectl label node {name} {MODE}={OWNED} --overwrite"
            yield wrong("modes", _title(node), words, "Set it to one of them", command)
        elif _gpus(node) and mode is None and not isinstance(foreign, Refusal):
            unsaid[MIXED if foreign.get(name) else OWNED].append(name)
    for mode, names in unsaid.items():
        if names and mode != default:
            pods = "foreign pods" if mode == MIXED else "no foreign pods"
            words = f"{pods} have GPUs there, and no mode is set, so it is {default}"
            commands = tuple(f"kubectl label node {name} {MODE}={mode}" for name in names)
            yield Finding(Level.OK, "modes", some(names), words, PROPOSED[mode], commands)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
