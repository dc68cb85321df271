"""The volumes for a job's folders on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clusters.kubernetes.volumes import PATHS, VolumeSource, volumes
from scheduler.core.errors import Impossible
from tests.builders import spec

NOWHERE = VolumeSource()
HOST, CLAIM = VolumeSource.parse("host:/srv"), VolumeSource.parse("pvc:lab/jobs")


def mounted(
    custom: VolumeSource = NOWHERE,
    snapshots: VolumeSource = NOWHERE,
    data: VolumeSource = NOWHERE,
    **fields: Any,
) -> dict[str, tuple[dict[str, Any], str]]:
    """By the path in the container: the volume, and the path in it."""
    sources, mounts = volumes(spec("a", **fields), custom, snapshots, data)
    by_name = {source.pop("name"): source for source in sources}
    return {each["mountPath"]: (by_name[each["name"]], each.get("subPath", "")) for each in mounts}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", VolumeSource()),
        ("host:/srv/jobs", VolumeSource("host", "", "/srv/jobs")),
        ("host:/", VolumeSource("host", "", "/")),
        ("pvc:lab", VolumeSource("pvc", "lab", "/")),
        ("pvc:lab/a/b", VolumeSource("pvc", "lab", "/a/b")),
    ],
)
def test_a_place_is_a_path_of_nodes_or_a_claim(text: str, meant: VolumeSource) -> None:
    assert VolumeSource.parse(text) == meant


@pytest.mark.parametrize(
    "text", ["host:srv", "host:", "pvc:", "pvc:/a", "nfs:/a", "/srv", "host:/a/../b"]
)
def test_what_is_no_place_is_refused_with_the_right_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:/PATH, pvc:CLAIM, pvc:CLAIM/PATH, or empty"):
        VolumeSource.parse(text)


def test_without_any_place_snapshots_live_as_long_as_the_pod() -> None:
    assert mounted() == {PATHS.snapshots: ({"emptyDir": {}}, "")}


def test_of_a_node_only_the_path_in_the_settings_is_a_volume() -> None:
    """The kubelet follows links in a volume's own path, and refuses those that leave a volume."""
    found = mounted(HOST, HOST, HOST, custom_dir="/srv/ann", snapshots_dir="/srv/ann/x")
    volume = {"hostPath": {"path": "/srv", "type": "Directory"}}
    assert found[PATHS.custom] == (volume, "ann")
    assert found[PATHS.snapshots] == (volume, "ann/x")
    assert found[PATHS.data] == (volume, "")


def test_of_a_claim_the_folder_that_was_asked_for_is_mounted() -> None:
    found = mounted(snapshots=CLAIM, data=CLAIM, snapshots_dir="/jobs/ann")
    claim = {"persistentVolumeClaim": {"claimName": "lab"}}
    assert found[PATHS.snapshots] == (claim, "jobs/ann")
    assert found[PATHS.data] == (claim, "jobs"), (
        "the whole volume, because no part of it is requested"
    )


@pytest.mark.parametrize("wanted", ["/etc", "/srvother", "/srv/../etc", "srv"])
def test_nothing_outside_of_the_place_can_be_mounted(wanted: str) -> None:
    with pytest.raises(Impossible, match="only folders in /srv can be mounted"):
        mounted(HOST, custom_dir=wanted)


def test_a_folder_for_which_the_cluster_has_no_place_is_refused() -> None:
    with pytest.raises(Impossible, match="--custom_dir /a: this cluster has no volume for it"):
        mounted(custom_dir="/a")
    with pytest.raises(Impossible, match="--snapshots_dir /a: this cluster has no volume"):
        mounted(snapshots_dir="/a")
