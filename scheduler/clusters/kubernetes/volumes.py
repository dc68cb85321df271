"""The volumes for a job's /custom, /snapshots and /data on a cluster, and for --volume: paths of
nodes, or claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from scheduler.clusters.environment import Paths
from scheduler.core.errors import Impossible
from scheduler.core.job_volumes import Volume, is_below, parse_all
from scheduler.core.model import JobSpec

PATHS = Paths()  # in the container


@dataclass(frozen=True, slots=True)
class VolumeSource:
    """The source of one of a job's folders: a path of the node, a claim, or none ("")."""

    kind: str = ""  # "host", "pvc"
    claim: str = ""
    root: str = "/"

    @classmethod
    def parse(cls, text: str) -> VolumeSource:
        kind, _, rest = text.partition(":")
        claim, slash, root = ("", "/", rest[1:]) if kind == "host" else rest.partition("/")
        whole = text.startswith("host:/") or (kind == "pvc" and claim)
        if text and (not whole or ":" in rest or ".." in root.split("/")):
            raise ValueError(f"{text!r} is not host:/PATH, pvc:CLAIM, pvc:CLAIM/PATH, or empty")
        return cls(kind, claim, slash + root or "/") if text else cls()


@dataclass(frozen=True, slots=True)
class AllowedVolume:
    """What jobs may mount, and all below it; the settings list these."""

    source: VolumeSource
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> AllowedVolume:
        read_only = text.endswith(":ro")
        source = VolumeSource.parse(text.removesuffix(":ro"))
        if not source.kind:
            raise ValueError("a volume must not be empty")
        return cls(source, read_only)

    def has(self, volume: Volume) -> bool:
        claim, slash, below = volume.source.partition("/")
        return claim == self.source.claim and is_below(slash + below or "/", self.source.root)


def volumes(
    spec: JobSpec,
    custom: VolumeSource,
    snapshots: VolumeSource,
    data: VolumeSource,
    storage_claim: str = "",
    allowed: Sequence[AllowedVolume] = (),
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the volumes of a pod, and their mounts. Raises Impossible."""
    folders: dict[str, tuple[dict[str, Any], str]] = {
        PATHS.snapshots: ({"emptyDir": {}}, "")  # the library needs one, even if it is not kept
    }
    if spec.snapshots_dir or snapshots.kind:
        folders[PATHS.snapshots] = _folder("--snapshots_dir", snapshots, spec.snapshots_dir)
    if spec.custom_dir:
        folders[PATHS.custom] = _folder("--custom_dir", custom, spec.custom_dir)
    given = parse_all(spec.volumes)
    if data.kind and PATHS.data not in [volume.path for volume in given]:
        folders[PATHS.data] = _folder("data", data, "")
    if spec.storage:
        if not storage_claim:
            raise Impossible(
                f"--storage {spec.storage}: this cluster has none: kubernetes.storage_claim is not"
                " set"
            )
        folders[spec.storage] = _folder("--storage", VolumeSource("pvc", storage_claim), "")
    sources, mounts = [], []
    for path, (source, below) in folders.items():
        name = "storage" if path == spec.storage else path.strip("/")
        sources.append({"name": name, **source})
        mount = {"name": name, "mountPath": path}
        mounts.append({**mount, "subPath": below} if below else mount)
    for number, volume in enumerate(given):
        source, mount = _given(volume, allowed, storage_claim)
        sources.append({"name": f"volume-{number}", **source})
        mounts.append({"name": f"volume-{number}", "mountPath": volume.path, **mount})
    return sources, mounts


def _given(
    volume: Volume, allowed: Sequence[AllowedVolume], storage_claim: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The source of what a job asks for, and what its mount has beside the path."""
    fitting = [each for each in allowed if each.has(volume)]
    found = max(fitting, key=lambda each: len(each.source.root), default=None)
    own = AllowedVolume(VolumeSource("pvc", storage_claim))
    if found is None and storage_claim and own.has(volume):
        found = own  # of the project of the job
    if found is None:
        listed = f"host:{volume.source}" if volume.is_folder else f"pvc:{volume.source}"
        where = " (a folder of the cluster's nodes, not of yours)" if volume.is_folder else ""
        raise Impossible(
            f"{volume}: jobs may not mount {volume.source}{where}: an admin can allow it with"
            f" {listed} in kubernetes.volumes"
        )
    path = volume.source if volume.is_folder else volume.source.partition("/")[2]
    wanted = path if volume.is_folder else f"/{path}"
    source, below = _folder("--volume", found.source, wanted)
    mount: dict[str, Any] = {"subPath": below} if below else {}
    if volume.read_only or found.read_only:
        mount["readOnly"] = True
        if claim := source.get("persistentVolumeClaim"):
            claim["readOnly"] = True  # so that its files are not given to the pod's group
    return source, mount


def _folder(asked: str, place: VolumeSource, wanted: str) -> tuple[dict[str, Any], str]:
    """Returns a volume and the path in it. The wanted folder must be below the source's root.

    Users can make links there. The kubelet refuses a path in a volume that a link leads out of it;
    a volume's own path it would follow anywhere, so that is always what the settings say.
    """
    if not place.kind:
        raise Impossible(f"{asked} {wanted}: this cluster has no volume for it")
    path = PurePosixPath(wanted or place.root)
    if not path.is_relative_to(place.root) or ".." in path.parts:
        raise Impossible(f"{asked} {wanted}: only folders in {place.root} can be mounted")
    if place.kind == "host":
        below = "/".join(path.relative_to(place.root).parts)
        return {"hostPath": {"path": place.root, "type": "Directory"}}, below
    return {"persistentVolumeClaim": {"claimName": place.claim}}, "/".join(path.parts[1:])
