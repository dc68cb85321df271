"""The set-up of a node, and the settings of its programs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.network import HOST

CNI_PLUGINS = Path("/usr/lib/cni")

# Folders that a kubelet and a containerd always write to are private to the node. The images are
# in memory, because to write and remove their files would take half a minute.
INIT = """
set -e
mount -t overlay overlay -o lowerdir=/var/lib,upperdir={folder}/lib,workdir={folder}/work /var/lib
mkdir -p /var/lib/kubelet
mount --bind {folder}/kubelet /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs {folder}/containerd
echo 1 > /proc/sys/net/ipv4/ip_forward  # before it has a pod as well: it passes services on
touch {folder}/ready
while :; do sleep 1000 & wait; done  # and reap what others leave behind
"""

CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
"""

NAMES = """
. {{
    bind {address}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""


def write(folder: Path, pods: str, image: str, control_group: str) -> None:
    """`pods` are the addresses of its pods; the image is that of a pod's sandbox."""
    for name in ("cni", "containerd", "kubelet/device-plugins", "lib", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "init.sh").write_text(INIT.format(folder=folder))
    told = CONTAINERD.format(folder=folder, plugins=CNI_PLUGINS, image=image)
    (folder / "containerd.toml").write_text(told)
    (folder / "cni" / "pods.conflist").write_text(json.dumps(_pod_network(pods)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(control_group)))


def write_names(path: Path, kubeconfig: Path) -> None:
    """The settings of CoreDNS, which knows only the names of the cluster's services."""
    path.write_text(NAMES.format(address=HOST, kubeconfig=kubeconfig))


def _pod_network(pods: str) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _kubelet(control_group: str) -> dict[str, object]:
    """A kubelet that uses little of the machine, and reports its state often."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": control_group,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 5,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [HOST],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
    }
