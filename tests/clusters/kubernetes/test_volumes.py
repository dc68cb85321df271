"""The volumes for a job's folders on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.clusters.kubernetes.volumes import PATHS, AllowedVolume, VolumeSource, volumes
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


# --- volumes that a job names -------------------------------------------------------------------


def given(text: str, *allowed: str, **settings: Any) -> dict[str, Any]:
    """The source and the mount of this --volume, as one."""
    sources, mounts = volumes(
        spec("a", volumes=(text,)),
        *(NOWHERE, NOWHERE, settings.get("data", NOWHERE), settings.get("storage", "")),
        [AllowedVolume.parse(each) for each in allowed],
    )
    (mount,) = (each for each in mounts if each["name"] == "volume-0")
    (source,) = (each for each in sources if each["name"] == "volume-0")
    return source | mount


@pytest.mark.parametrize(
    ("text", "allowed", "what"),
    [
        ("data:/d", "pvc:data", {"persistentVolumeClaim": {"claimName": "data"}}),
        (
            "data/a:/d",
            "pvc:data/a",
            {"persistentVolumeClaim": {"claimName": "data"}, "subPath": "a"},
        ),
        (
            "data/a/b:/d:ro",
            "pvc:data/a",
            {
                "persistentVolumeClaim": {"claimName": "data", "readOnly": True},
                "subPath": "a/b",
                "readOnly": True,
            },
        ),
        (
            "data:/d",
            "pvc:data:ro",
            {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}, "readOnly": True},
        ),
        ("/srv/lab:/d", "host:/srv/lab", {"hostPath": {"path": "/srv/lab", "type": "Directory"}}),
        (
            "/srv/lab/x:/d",
            "host:/srv/lab:ro",
            {
                "hostPath": {"path": "/srv/lab", "type": "Directory"},
                "subPath": "x",
                "readOnly": True,
            },
        ),
    ],
)
def test_a_job_gets_what_the_settings_allow(text: str, allowed: str, what: dict[str, Any]) -> None:
    """A link in the volume cannot lead out of it: only the path in the settings is a volume's."""
    assert given(text, "pvc:other", allowed) == {"name": "volume-0", "mountPath": "/d", **what}


@pytest.mark.parametrize(
    ("text", "allowed", "advice"),
    [
        ("data:/d", "", "pvc:data"),
        ("data:/d", "pvc:datasets", "pvc:data"),
        ("data:/d", "pvc:data/a", "pvc:data"),
        ("data/ab:/d", "pvc:data/a", "pvc:data/ab"),
        ("/srv/lab:/d", "", "host:/srv/lab"),
        ("/srv/lab:/d", "host:/srv/lab/x", "host:/srv/lab"),
        ("/srv/labs:/d", "host:/srv/lab", "host:/srv/labs"),
        ("/:/d", "pvc:data", "host:/"),
    ],
)
def test_anything_else_is_refused_with_what_an_admin_can_do(
    text: str, allowed: str, advice: str
) -> None:
    with pytest.raises(Impossible, match=rf"^--volume {text}: .* {advice} in kubernetes.volumes$"):
        given(text, *([allowed] if allowed else []))


def test_of_several_that_allow_it_the_innermost_counts() -> None:
    for order in (("pvc:data:ro", "pvc:data/scratch"), ("pvc:data/scratch", "pvc:data:ro")):
        assert "readOnly" not in given("data/scratch/x:/d", *order)
        assert given("data/sets:/d", *order)["readOnly"]


def test_the_storage_of_a_project_is_a_volume_too() -> None:
    found = given("storage/out:/out", storage="storage")
    assert found["persistentVolumeClaim"] == {"claimName": "storage"}
    assert found["subPath"] == "out"


def test_a_volume_takes_the_place_of_the_clusters_data() -> None:
    sources, mounts = volumes(
        spec("a", volumes=("data:/data",)),
        *(NOWHERE, NOWHERE, CLAIM, ""),
        [AllowedVolume.parse("pvc:data")],
    )
    assert [each["mountPath"] for each in mounts] == ["/snapshots", "/data"]
    assert len(sources) == 2


def test_what_the_settings_cannot_mean_is_refused() -> None:
    for text in ("data", "", "pvc:data:rw", "host:srv", "pvc:data:ro:ro"):
        with pytest.raises(ValueError, match=r"is not host:/PATH|must not be empty"):
            AllowedVolume.parse(text)
