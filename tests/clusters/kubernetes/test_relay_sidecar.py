"""The container of a relay, in the pod of a training that stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scheduler.clusters.kubernetes import pods, relay_sidecar
from scheduler.clusters.kubernetes.pods import KubeNode
from scheduler.clusters.kubernetes.relay_sidecar import PORT, SETTINGS, RelayTemplate, know_sidecars
from scheduler.clusters.kubernetes.volumes import VolumeSource
from scheduler.core.model import Launch
from scheduler.relay import program, sidecar
from tests.clusters.kubernetes.test_manifests import LAUNCH, SHAPE, of_job, of_kind, pod

RELAY = RelayTemplate("scheduler:1", "https://gateway:7071", certificate="-----BEGIN $(X)")


def relay_of(launch: Launch = LAUNCH, relay: RelayTemplate = RELAY, **shape: Any) -> dict[str, Any]:
    spec = pod(launch, relay=relay, **shape)["spec"]
    (found,) = [
        each
        for each in [*spec["containers"], *spec.get("initContainers", ())]
        if each["name"] == pods.RELAY
    ]
    return dict(found)


def settings_of(container: dict[str, Any]) -> dict[str, Any]:
    told = {each["name"]: each.get("value") for each in container["env"]}
    settings: dict[str, Any] = json.loads(told[SETTINGS].replace("$$", "$"))
    return settings


def test_the_training_is_as_without_but_for_its_variables() -> None:
    bare, tracked = pod()["spec"], pod(relay=RELAY)["spec"]
    ours = tracked["containers"][0]
    added = [each for each in ours["env"] if each not in bare["containers"][0]["env"]]
    names = {each["name"] for each in added}
    assert {"MLFLOW_TRACKING_URI", "KUBEPROFILER_RELAY", "JOBMONITOR_TELEGRAF_PORT"} < names
    kept = [each for each in ours["env"] if each not in added]
    assert bare == {
        **{name: value for name, value in tracked.items() if name != "initContainers"},
        "containers": [{**ours, "env": kept}],
    }


def test_it_is_a_sidecar_where_the_kubelets_know_them() -> None:
    tracked = pod(relay=RELAY)["spec"]
    assert [each["restartPolicy"] for each in tracked["initContainers"]] == ["Always"]
    assert [each["name"] for each in tracked["containers"]] == [pods.TRAINING]
    plain = pod(relay=replace(RELAY, is_sidecar=False))["spec"]
    assert [each["name"] for each in plain["containers"]] == [pods.TRAINING, pods.RELAY]
    assert "initContainers" not in plain
    assert "restartPolicy" not in plain["containers"][1]


def test_a_job_that_is_not_tracked_has_none() -> None:
    launch = of_job(no_tracking=True)
    assert pod(launch, relay=RELAY) == pod(launch)


def test_the_token_is_in_the_secret_alone() -> None:
    shape = replace(SHAPE, relay=RELAY)
    for kind in ("Pod", "ConfigMap"):
        assert LAUNCH.token not in json.dumps(of_kind(kind, shape=shape))
    (secret,) = of_kind("Secret", shape=shape)
    key = {"name": secret["metadata"]["name"], "key": "KUBEPROFILER_TOKEN"}
    reference = {"valueFrom": {"secretKeyRef": key}}
    assert {"name": "KUBEPROFILER_TOKEN", **reference} in relay_of()["env"]
    (training,) = pod(relay=RELAY)["spec"]["containers"]
    assert {"name": "MLFLOW_TRACKING_TOKEN", **reference} in training["env"]
    assert secret["stringData"]["KUBEPROFILER_TOKEN"] == LAUNCH.token


def test_its_settings_are_those_that_the_program_reads() -> None:
    told = settings_of(relay_of(of_job(experiment="mnist"), grace_seconds=30))
    assert {*told, "token"} >= {"job_id", "attempt", "token", "gateway", "folder"}
    assert {*told} - {"made", "port"} <= set(program.Settings._fields)
    assert (told["experiment"], told["port"]) == ("mnist", PORT)
    assert told["certificate"] == RELAY.certificate, "no variable is put into it"
    assert told["linger_seconds"] == 28.0, "within the grace of the pod"
    assert (SETTINGS, *relay_sidecar.COMMAND[-1:]) == (sidecar.SETTINGS, sidecar.__name__)


def test_both_have_the_folder_in_which_it_waits() -> None:
    for shape in ({}, {"snapshots": VolumeSource.parse("pvc:claim/home")}):
        tracked = pod(of_job(snapshots_dir="/home/ada" if shape else ""), relay=RELAY, **shape)
        (training,), (relay,) = tracked["spec"]["containers"], tracked["spec"]["initContainers"]
        (mount,) = relay["volumeMounts"]
        assert mount in training["volumeMounts"]
        told = {each["name"]: each.get("value") for each in training["env"]}
        folder = settings_of(relay)["folder"]
        assert folder.startswith(f"{mount['mountPath']}/")
        assert told["WANDB_DIR"] == folder
        made = settings_of(relay)["made"]
        assert made == [told["TENSORBOARD_DIR"], told["JOBMONITOR_RESULTS_DIR"]]
        assert {*made} < {*settings_of(relay)["folders"]}


def test_it_sees_no_gpu_and_may_do_nothing_but_write_there() -> None:
    relay = relay_of(pull_policy="Never")
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in relay["env"]
    assert relay["securityContext"]["readOnlyRootFilesystem"]
    assert relay["imagePullPolicy"] == "Never"
    assert "cpu" not in relay["resources"]["limits"]


@pytest.mark.parametrize(
    ("versions", "known"),
    [
        ([], False),
        (["v1.29.0"], True),
        (["v1.36.2", "v1.34.1-gke.100"], True),
        (["v1.36.2", "v1.28.15"], False),
        (["v2.0.0"], True),
        (["v1.36.2", ""], False),
    ],
)
def test_every_kubelet_must_know_sidecars(versions: list[str], known: bool) -> None:
    nodes = [
        msgspec.convert(
            {"metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": version}}},
            KubeNode,
        )
        for version in versions
    ]
    assert know_sidecars(nodes) is known
