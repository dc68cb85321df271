"""The files are those that the documents of mrunner, SkyPilot and ACT show."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import UsageError
from cli.contexts import importing
from cli.contexts.keys import of_contexts

MRUNNER = """\
contexts:
  gke.sandbox:
    name: gke.sandbox
    type: kubernetes
    registry_url: https://gcr.io
    resources: cpu=4 tpu=1
    neptune: true
    google_project_id: gke-sandbox-200208
    registry_username: ada
    registry_password: topsecret
  plgrid.agents:
    backend_type: slurm
    context_name: plgrid.agents
    slurm_url: chnorris@pro.cyfronet.pl
    storage_dir: /storage
    partition: plgrid-testing
    account: agents
    user_id: pz
    resources: {cpu: 4, gpu: 1, mem: 8G}
    modules_to_load: plgrid/tools/python/3.6.0 plgrid/tools/ffmpeg/3.2.2
    after_module_load_cmd: export A=1
    venv: /net/people/ppo_env
    time: 90
    neptune: true
    tags: [agents]
    env: {OMP_NUM_THREADS: 1}
current_context: gke.sandbox
"""

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: arn:aws:eks:eu-west-1:1234:cluster/lab
contexts:
- name: arn:aws:eks:eu-west-1:1234:cluster/lab
  context: {cluster: lab, user: ada, namespace: vision}
- name: kind-kind
  context: {cluster: kind-kind, user: kind-kind}
clusters: []
users:
- name: ada
  user: {token: topsecret}
"""

SKY = """\
# Slurm
Host mycluster
    HostName login.mycluster1.myorg.com
    User myusername
    IdentityFile ~/.ssh/id_rsa

host=other
  hostname 10.0.0.1

Host *
    ForwardAgent yes
"""

ACT = """\
azure_blob_config_file: null # no need to specify, legacy option
aml_config: aux_data/aml/config.json
config_param:
   data_folder:
       path: path/to/data
use_custom_docker: true
compute_target: NC24RSV3
aks_compute: false
docker:
    image: amsword/setup:py36pt16
experiment_name: alias_1
use_cli_auth: True
multi_process: True
gpu_per_node: 4
env:
   NCCL_IB_DISABLE: '0'
"""


def read(folder: Path, text: str, name: str = "file.yaml") -> importing.ImportedContexts:
    (folder / name).write_text(text)
    return importing.read(str(folder / name), set(of_contexts()))


def test_contexts_of_mrunner(tmp_path: Path) -> None:
    found = read(tmp_path, MRUNNER)
    assert found.current == "gke.sandbox"
    assert found.contexts["gke.sandbox"] == {
        "type": "server",
        "registry_url": "https://gcr.io",
        "resources": "cpu=4 tpu=1",
    }
    agents = found.contexts["plgrid.agents"]
    assert agents["type"] == "slurm"
    assert agents["storage"] == "/storage"
    assert agents["resources"] == "cpu=4 gpu=1 mem=8G time=90m"
    assert agents["slurm"] == {
        "partition": "plgrid-testing",
        "account": "agents",
        "host": "chnorris@pro.cyfronet.pl",
        "setup": "module load plgrid/tools/python/3.6.0; module load plgrid/tools/ffmpeg/3.2.2; "
        "export A=1; . /net/people/ppo_env/bin/activate",
    }
    assert (agents["tags"], agents["env"]) == (["agents"], {"OMP_NUM_THREADS": "1"})


def test_what_of_mrunner_has_no_meaning_here_is_said(tmp_path: Path) -> None:
    remarks = read(tmp_path, MRUNNER).remarks
    assert [each for each in remarks if "neptune" in each] == [
        "neptune is not used: the scheduler itself keeps what jobs log"
    ]
    assert "gke.sandbox: passwords are not copied: an admin keeps them in a Secret" in remarks
    assert "topsecret" not in str(remarks)
    assert any("not imported: google_project_id, " in each for each in remarks)


def test_contexts_of_kubectl_lack_only_where_the_scheduler_listens(tmp_path: Path) -> None:
    found = read(tmp_path, KUBECONFIG)
    assert found.contexts == {
        "lab": {"type": "server", "project": "vision"},
        "kind-kind": {"type": "server"},
    }
    assert found.current == "lab"
    assert "lab: where does its scheduler listen? " in found.remarks[0]
    assert "topsecret" not in str(found)


def test_hosts_of_sky_are_contexts_of_slurm_and_keys_stay_with_ssh(tmp_path: Path) -> None:
    found = read(tmp_path, SKY, "config")
    assert found.contexts == {
        "mycluster": {"type": "slurm", "slurm": {"host": "myusername@login.mycluster1.myorg.com"}},
        "other": {"type": "slurm", "slurm": {"host": "10.0.0.1"}},
    }
    assert found.remarks == [
        "mycluster: ssh needs to know identityfile: keep them in ~/.ssh/config"
    ]


def test_a_file_of_act_is_a_context_with_the_name_of_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, ACT, "c1.yaml")
    assert found.contexts == {
        "c1": {
            "type": "server",
            "image": "amsword/setup:py36pt16",
            "experiment": "alias_1",
            "num_gpus": "4",
            "processes_per_node": "gpu",
            "env": {"NCCL_IB_DISABLE": "0"},
        }
    }
    assert found.remarks == ["c1: not imported: compute_target, config_param"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1", "neither mrunner's config.yaml, a kubeconfig, "),
        ("- a", "neither mrunner's config.yaml, a kubeconfig, "),
        ("a: {", "not YAML"),
        ("contexts: {'a b/': {}, '///': {}}", "'///' cannot be made a context's name"),
        ("contexts: [{context: {}}]", "a context of the kubeconfig has no name"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nope: No such file or directory"):
        importing.read(f"{tmp_path}/nope", set())
