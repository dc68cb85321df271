"""The objects of a run on a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.access.user_table import User
from scheduler.clusters import step_wrapping
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.host_ports import AllowedPorts
from scheduler.clusters.kubernetes.manifests import (
    Manifest,
    PodTemplate,
    manifests,
    owned,
)
from scheduler.clusters.kubernetes.pods import KubePod
from scheduler.clusters.kubernetes.relay_sidecar import RelayTemplate
from scheduler.clusters.kubernetes.volumes import VolumeSource
from scheduler.core.errors import Impossible
from scheduler.core.model import Gpu, JobId, JobSpec, Launch, Node, Share

SHAPE = PodTemplate("scheduler:7070", "jobs", "trainer:1")
LIBRARY = {"__init__.py": "", "kubeprofiler.py": "KubeProfiler = print\n"}
NODES = (
    Node("n1", (Gpu("GPU-1", 0, "t4", 16_384), Gpu("GPU-2", 1, "t4", 16_384))),
    Node("n2", (Gpu("GPU-3", 0, "t4", 16_384),)),
    Node("n3", (Gpu("slot-0", 0, "t4", 16_384), Gpu("slot-1", 1, "t4", 16_384))),
)
SPEC = JobSpec(name="j", user="ada", script_path="/custom/train.py", max_epochs=3)
LAUNCH = Launch(
    JobId("0badcafe-0000-4000-8000-000000000000"),
    2,
    SPEC,
    (Share("n1", "GPU-2", 9216),),
    epochs_done=1,
    max_epochs=3,
    token="secret-of-the-job",
)
SLOTS = (Share("n3", "slot-0", 16_000), Share("n3", "slot-1", 16_000))
GANG = (Share("n1", "GPU-1", 9216), Share("n1", "GPU-2", 8000), Share("n2", "GPU-3", 9216))


def of_kind(kind: str, launch: Launch = LAUNCH, shape: PodTemplate = SHAPE) -> list[Manifest]:
    return [made for made in manifests(launch, NODES, shape) if made["kind"] == kind]


def pod(launch: Launch = LAUNCH, **shape: Any) -> Manifest:
    return of_kind("Pod", launch, replace(SHAPE, **shape))[0]


def container(launch: Launch = LAUNCH, **shape: Any) -> dict[str, Any]:
    (only,) = pod(launch, **shape)["spec"]["containers"]
    return dict(only)


def environ(launch: Launch = LAUNCH, **shape: Any) -> dict[str, Any]:
    """As its processes have it."""
    made = container(launch, **shape)
    (source,), (secret,) = made["envFrom"], of_kind("Secret", launch, replace(SHAPE, **shape))
    assert source == {"secretRef": {"name": secret["metadata"]["name"]}}
    return {**secret["stringData"], **{each["name"]: each["value"] for each in made["env"]}}


def of_job(**fields: Any) -> Launch:
    return replace(LAUNCH, spec=replace(SPEC, **fields))


# --- names, and what is read back ---------------------------------------------------------------


def test_all_that_is_of_an_attempt_carries_its_name_and_its_labels() -> None:
    for made in manifests(replace(LAUNCH, shares=GANG), NODES, SHAPE):
        assert made["metadata"]["name"].startswith("gs-0badcafe-a2")
        assert pods.labels_of((LAUNCH.job_id, 2)).items() <= made["metadata"]["labels"].items()


def test_a_run_with_an_old_library_finds_that_of_today_before_its_images_own() -> None:
    shape = replace(SHAPE, library=LIBRARY, http="scheduler:7080")
    old = replace(of_job(command=("python", "t.py", "$x")), renew_library=True)
    owner, _, library, made = manifests(old, NODES, shape)
    assert library["data"] == LIBRARY
    assert pods.JOB not in library["metadata"]["labels"], "else it would be held for an owner"
    assert library["metadata"]["name"] == owner["metadata"]["name"] + "-library"
    (only,) = made["spec"]["containers"]
    *_, source = made["spec"]["volumes"]
    assert source["configMap"]["name"] == library["metadata"]["name"]
    paths = {item["key"]: item["path"] for item in source["configMap"]["items"]}
    assert paths == {name: f"kubernetesdlprofile/{name}" for name in LIBRARY}
    *_, mount = only["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (source["name"], True)
    assert only["command"][:2] == ["sh", "-c"]
    assert only["command"][3:] == [mount["mountPath"], "python", "t.py", "$$x"]
    told = {var["name"]: var.get("value") for var in only["env"]}
    assert told["KUBEPROFILER_RENEWED"] == "TRUE"
    assert "PYTHONPATH" not in told, "the image's own would be lost"


@pytest.mark.parametrize(
    ("renew", "more"),
    [(False, {"library": LIBRARY, "http": "h:80"}), (True, {"library": LIBRARY}), (True, {})],
)
def test_whoever_has_no_old_library_or_would_not_be_heard_keeps_its_own(
    renew: bool, more: dict[str, Any]
) -> None:
    launch = replace(LAUNCH, renew_library=renew)
    shape = replace(SHAPE, **more)
    assert len(of_kind("ConfigMap", launch, shape)) == 1
    assert "sh" not in container(launch, **more)["command"]
    assert "KUBEPROFILER_RENEWED" not in environ(launch, **more)


def test_the_owner_comes_first_and_owns_the_others() -> None:
    owner, *others = manifests(LAUNCH, NODES, SHAPE)
    assert owner["kind"] == "ConfigMap"
    there = {"metadata": {"name": owner["metadata"]["name"], "uid": "u1"}}
    for made in others:
        (reference,) = owned(made, there)["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"]) == ("ConfigMap", "u1")


shares = st.lists(
    st.builds(
        Share, st.sampled_from(["n1"]), st.sampled_from(["GPU-1", "GPU-2"]), st.integers(1, 80_000)
    ),
    max_size=2,
    unique_by=lambda share: share.gpu,
).map(tuple)


@given(shares=shares, attempt=st.integers(1, 10**6))
def test_a_run_is_known_by_its_pod_alone(shares: tuple[Share, ...], attempt: int) -> None:
    launch = replace(LAUNCH, shares=shares, attempt=attempt)
    kube = msgspec.convert(json.loads(json.dumps(pod(launch))), KubePod)
    assert pods.claim(kube.metadata) == pods.Claim((LAUNCH.job_id, attempt), 0, shares)


def test_a_gang_has_a_pod_for_each_node_with_that_nodes_shares() -> None:
    made = of_kind("Pod", replace(LAUNCH, shares=GANG))
    claims = [pods.claim(msgspec.convert(each, KubePod).metadata) for each in made]
    assert [claim and claim.rank for claim in claims] == [0, 1]
    assert [claim and claim.shares for claim in claims] == [GANG[:2], GANG[2:]]


# --- what is executed ---------------------------------------------------------------------------


def expanded(text: str, known: dict[str, str]) -> str:
    """Expands a word as the kubelet does: third_party/forked/golang/expansion in its sources."""
    made, at = "", 0
    while at < len(text):
        rest = text[at + 1 :]
        if text[at] != "$" or not rest:
            made, at = made + text[at], at + 1
        elif rest[0] == "$":
            made, at = made + "$", at + 2
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            made, at = made + known.get(name, f"$({name})"), at + len(name) + 3
        else:
            made, at = made + "$" + rest[0], at + 2
    return made


@given(word=st.text(st.sampled_from("$()Ab"), max_size=12))
def test_a_word_arrives_as_it_was_given(word: str) -> None:
    launch = of_job(command=("sh", "-c", word), env=(("MINE", word),))
    known = {"A": "replaced", "b": "replaced", "MINE": "replaced"}
    words = [expanded(each, known) for each in container(launch)["command"]]
    assert words == ["sh", "-c", word]
    assert environ(launch)["MINE"] == word, "the kubelet expands nothing in a Secret"


def test_a_pod_cannot_change_its_user_and_speaks_to_no_api_server() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["restartPolicy"] == "Never"
    assert container()["securityContext"]["allowPrivilegeEscalation"] is False


def test_it_runs_as_its_user() -> None:
    def context(**ada: Any) -> dict[str, Any]:
        found: dict[str, Any] = pod(users={"ada": User(**ada)})["spec"]["securityContext"]
        return found

    everybody = pod()["spec"]["securityContext"]
    assert [everybody[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [1000] * 3
    assert pod(users={"eve": User(uid=7)})["spec"]["securityContext"] == everybody
    assert context() == everybody
    alone = context(uid=1001)
    assert [alone[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [1001] * 3
    assert "supplementalGroups" not in alone
    together = context(uid=1001, groups=(500, 501))
    assert [together[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [1001, 500, 500]
    assert together["supplementalGroups"] == [501]
    root = context(uid=0, root=True)
    assert (root["runAsUser"], root["runAsNonRoot"]) == (0, False)


def test_an_image_of_its_own_is_taken_before_the_clusters() -> None:
    assert container()["image"] == "trainer:1"
    assert container(of_job(image="mine:2"))["image"] == "mine:2"


# --- where it runs, on which GPUs ---------------------------------------------------------------


def test_it_is_held_on_the_node_that_was_decided() -> None:
    affinity = pod()["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert "nodeName" not in pod()["spec"]
    bound = pod(binding="node_name")["spec"]
    assert bound["nodeName"] == "n1"
    assert "affinity" not in bound


def test_a_claim_is_bound_by_the_clusters_own_scheduler_whatever_the_settings_say() -> None:
    """It may wait for its first consumer, which only the cluster's scheduler announces."""
    claim = VolumeSource.parse("pvc:data")
    bound = pod(binding="node_name", data=claim)["spec"]
    assert "nodeName" not in bound
    assert bound["affinity"] == pod()["spec"]["affinity"]
    assert "nodeName" in pod(binding="node_name", data=VolumeSource.parse("host:/data"))["spec"]


def test_a_job_without_gpus_runs_anywhere_and_sees_none() -> None:
    launch = replace(LAUNCH, shares=())
    assert not {"affinity", "nodeName", "runtimeClassName"} & pod(launch)["spec"].keys()
    assert environ(launch)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_job_without_gpus_goes_where_its_image_is_if_that_is_not_everywhere() -> None:
    launch = replace(of_job(image="lab/x:1"), shares=())
    names = frozenset({"docker.io/lab/x:1"})

    def affinity(*images: frozenset[str] | None) -> Any:
        nodes = [Node(f"n{number}", (), images=each) for number, each in enumerate(images)]
        *_, made = manifests(launch, nodes, SHAPE)
        return made["spec"].get("affinity")

    assert affinity(None, names) is None
    required = affinity(names, frozenset(), None)["nodeAffinity"]
    (terms,) = required["requiredDuringSchedulingIgnoredDuringExecution"].values()
    fields = [field for term in terms for field in term["matchFields"]]
    assert [field["values"] for field in fields] == [["n0"], ["n2"]]


def test_a_chosen_gpu_gets_in_as_the_nodes_allow() -> None:
    assert environ(inject="env")["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert pod(inject="env", runtime_class="nvidia")["spec"]["runtimeClassName"] == "nvidia"
    devices = "/var/run/nvidia-container-devices"
    assert environ(inject="volume")["NVIDIA_VISIBLE_DEVICES"] == devices
    mounts = [mount["mountPath"] for mount in container(inject="volume")["volumeMounts"]]
    assert f"{devices}/GPU-2" in mounts
    assert environ(inject="annotation")["NVIDIA_VISIBLE_DEVICES"] == "void"
    annotations = pod(inject="annotation")["metadata"]["annotations"]
    assert annotations["nvidia.cdi.k8s.io/container.main"].endswith("/gpu=GPU-2")


def test_where_the_kubelet_chooses_it_is_asked_for_so_many() -> None:
    launch = replace(LAUNCH, shares=SLOTS)
    assert container(launch)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert not {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & environ(launch).keys()
    assert "nvidia.com/gpu" not in container()["resources"]["limits"]


def test_its_share_is_told_to_the_driver() -> None:
    assert environ()["NVIDIA_GPU_MEMORY_LIMIT"] == environ()["RESERVED_MEM"] == "9216"


def test_the_ranks_of_a_gang_find_each_other_by_name() -> None:
    launch = replace(LAUNCH, shares=GANG)
    first, second = of_kind("Pod", launch)
    (service,) = of_kind("Service", launch)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert (first["spec"]["hostname"], second["spec"]["hostname"]) == ("r0", "r1")
    assert first["spec"]["subdomain"] == service["metadata"]["name"] == "gs-0badcafe-a2"
    assert environ(launch)["MASTER_ADDR"] == "r0.gs-0badcafe-a2"


def test_a_gpu_that_is_gone_makes_a_launch_impossible() -> None:
    with pytest.raises(Impossible, match="GPU-9"):
        manifests(replace(LAUNCH, shares=(Share("n1", "GPU-9", 1),)), NODES, SHAPE)


# --- ports and folders --------------------------------------------------------------------------


def test_a_port_is_opened_on_all_nodes_or_on_its_own() -> None:
    launch, ports = (
        of_job(ports=((31_346, 6006), (33_000, 3000))),
        AllowedPorts.parse("30000-40000"),
    )
    (service,) = of_kind("Service", launch, replace(SHAPE, host_ports=ports))
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"] == [{"name": "p31346", "port": 6006, "nodePort": 31_346}]
    opened = container(launch, host_ports=ports)["ports"]
    assert opened == [{"containerPort": 3000, "hostPort": 33_000}]


@pytest.mark.parametrize("host", [22, 6443, 10_250, 29_999, 32_768])
def test_a_port_that_may_be_a_node_s_own_is_refused(host: int) -> None:
    with pytest.raises(Impossible) as refused:
        pod(of_job(ports=((30_000, 80), (host, 80))))
    said = "this cluster opens only the ports 30000-32767 (kubernetes.host_ports)"
    assert str(refused.value) == f"--port_mapping {host}:80: {said}"


HOMES, SHARED = VolumeSource.parse("host:/home"), VolumeSource.parse("pvc:shared/users")


@pytest.mark.parametrize(
    ("place", "wanted", "volume", "below"),
    [
        (HOMES, "/home/ada/x", {"hostPath": {"path": "/home", "type": "Directory"}}, "ada/x"),
        (HOMES, "/home/.x", {"hostPath": {"path": "/home", "type": "Directory"}}, ".x"),
        (HOMES, "/home", {"hostPath": {"path": "/home", "type": "Directory"}}, None),
        (SHARED, "/users/ada", {"persistentVolumeClaim": {"claimName": "shared"}}, "users/ada"),
        (VolumeSource.parse("pvc:own"), "/", {"persistentVolumeClaim": {"claimName": "own"}}, None),
    ],
)
def test_a_folder_comes_from_a_node_or_a_claim(
    place: VolumeSource, wanted: str, volume: dict[str, Any], below: str | None
) -> None:
    launch = of_job(custom_dir=wanted)
    (source,) = (v for v in pod(launch, custom=place)["spec"]["volumes"] if v["name"] == "custom")
    assert source == {"name": "custom", **volume}
    mounts = {m["mountPath"]: m for m in container(launch, custom=place)["volumeMounts"]}
    assert mounts["/custom"].get("subPath") == below


@pytest.mark.parametrize("wanted", ["/etc", "/home/../etc", "/homes", "home/ada", "/"])
def test_nothing_outside_of_the_place_can_be_mounted(wanted: str) -> None:
    with pytest.raises(Impossible, match="only folders in /home"):
        pod(of_job(custom_dir=wanted), custom=HOMES)


def test_a_cluster_without_a_place_has_none() -> None:
    with pytest.raises(Impossible, match="--snapshots_dir"):
        pod(of_job(snapshots_dir="/home/ada/snapshots"))


@pytest.mark.parametrize("text", ["/home", "host:home", "pvc:", "pvc:/x", "nfs:/x", "host:/a/../b"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:/PATH"):
        VolumeSource.parse(text)


# --- packages of code ---------------------------------------------------------------------------

CODE = "sha256:" + "ab" * 32


def test_a_package_is_fetched_before_the_training_which_cannot_change_it() -> None:
    launch = of_job(code=CODE, folders=(("data", "/data/cifar"),), custom_dir="")
    spec = pod(launch, code_image="scheduler:1", run_as_user=1234)["spec"]
    (fetcher,), (training,) = spec["initContainers"], spec["containers"]
    assert fetcher["image"] == "scheduler:1"
    assert {each["name"] for each in spec["volumes"]} >= {"code"}
    assert training["workingDir"] == "/code"
    mount = {"name": "code", "mountPath": "/code", "subPath": "tree", "readOnly": True}
    assert mount in training["volumeMounts"]
    assert fetcher["volumeMounts"] == [{"name": "code", "mountPath": "/code"}]
    told = {each["name"]: each for each in fetcher["env"]}
    assert json.loads(told["EPOCH_SCHEDULER_CODE"]["value"]) == {
        "server": "scheduler:7070",
        "package": CODE,
        "folders": {"data": "/data/cifar"},
        "folder": "/code/tree",
    }
    assert "secretKeyRef" in told["KUBEPROFILER_TOKEN"]["valueFrom"]
    assert "secret-of-the-job" not in json.dumps(spec)
    assert environ(launch, code_image="scheduler:1")["CODE_DIR"] == "/code"


def test_a_step_of_a_workflow_is_run_by_its_wrapper_and_keeps_what_it_gives() -> None:
    step = of_job(step='{"workflow": "w"}')
    with pytest.raises(Impossible, match=r"set kubernetes.snapshots, or give --store"):
        manifests(step, NODES, SHAPE)
    claim = VolumeSource.parse("pvc:snap")
    made = container(step, snapshots=claim)
    assert made["command"][:2] == ["sh", "-c"]
    assert made["command"][3:7] == [
        "/opt/epoch-scheduler/step",
        "/snapshots/workflows",
        '{"workflow": "w"}',
        "python",
    ]
    mount = next(each for each in made["volumeMounts"] if each["name"] == "step")
    assert mount["readOnly"]
    source = next(
        each for each in pod(step, snapshots=claim)["spec"]["volumes"] if each["name"] == "step"
    )
    (told,) = (
        each
        for each in of_kind("ConfigMap", step, replace(SHAPE, snapshots=claim))
        if each["metadata"]["name"] == source["configMap"]["name"]
    )
    items = {each["path"]: told["data"][each["key"]] for each in source["configMap"]["items"]}
    assert items == step_wrapping.files()
    stored = replace(step, spec=replace(step.spec, storage="/storage"))
    assert "/storage/workflows" in container(stored, storage_claim="s")["command"]


def test_a_relay_begins_after_the_package_is_there() -> None:
    relay = RelayTemplate("scheduler:1", "http://gateway:7071")
    made = pod(of_job(code=CODE), code_image="scheduler:1", relay=relay)["spec"]
    assert [each["name"] for each in made["initContainers"]] == ["code", "relay"]
    assert [each["name"] for each in made["containers"]] == ["main"]


def test_without_an_image_for_it_no_job_has_a_package() -> None:
    with pytest.raises(Impossible, match=r"--code: this cluster has no image .*code_image"):
        pod(of_job(code=CODE))
    assert "initContainers" not in pod(code_image="scheduler:1")["spec"]
