"""A workflow whose steps run on two real nodes and give each other files by a claim."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.conftest import IMAGE
from tests.kube.nodes import Nodes
from tests.kube.trainings import SLOW_SECONDS, Lab
from tests.support import Daemon, eventually

FLOW = """\
metadata: {name: flow}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: make, template: make}
      - name: use
        template: use
        dependencies: [make]
        arguments:
          parameters: [{name: n, value: "{{tasks.make.outputs.parameters.n}}"}]
          artifacts: [{name: model, from: "{{tasks.make.outputs.artifacts.model}}"}]
      - {name: never, template: use, dependencies: [use], when: "{{tasks.use.outputs.result}} == x",
         arguments: {parameters: [{name: n, value: 0}]}}
  - name: make
    outputs:
      parameters: [{name: n, valueFrom: {path: /tmp/n}}]
      artifacts: [{name: model, path: /tmp/model}]
    container:
      image: IMAGE
      command: [sh, -c]
      args:
      - |
        mkdir /tmp/model; echo weights > /tmp/model/w; echo 7 > /tmp/n; echo ready
        until [ -e /snapshots/go ]; do sleep 0.2; done
      resources: {limits: {nvidia.com/gpu: 1}}
  - name: use
    inputs:
      parameters: [{name: n}]
      artifacts: [{name: model, path: /tmp/in/model, optional: true}]
    container:
      image: IMAGE
      command: [sh, -c, "cat /tmp/in/model/w; echo {{inputs.parameters.n}}"]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


def test_what_a_step_gives_on_one_node_is_there_on_the_other(
    lab: Lab, namespace: str, tmp_path: Path
) -> None:
    _make_claim(lab, namespace)
    for number, node in enumerate(lab.nodes.nodes):
        lab.offer(node, f"GPU-{number}")
    daemon = lab.start(snapshots="pvc:results")
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.replace("IMAGE", IMAGE))
    done = daemon.run("scheduler-run-workflow", str(file))
    assert done.returncode == 0, done.stderr
    eventually(lambda: "ready" in daemon.run("scheduler-get-logs", "make").stdout, SLOW_SECONDS)
    first = _node_of(daemon, "make")
    lab.control.kubectl("cordon", first)
    try:
        (lab.shared / "go").touch()
        states = daemon.wait(lambda jobs: jobs["never"].state == "SKIPPED", SLOW_SECONDS)
    finally:
        lab.control.kubectl("uncordon", first)
    assert daemon.run("scheduler-get-logs", "use").stdout == "weights\n7\n"
    assert states["use"].state == "FINISHED"
    assert states["never"].reason == "its condition is false: weights 7 == x"
    assert {path.name for path in lab.shared.glob("workflows/*/*")} == {"make", "use"}
    eventually(lambda: not lab.remaining_objects())


def _node_of(daemon: Daemon, name: str) -> str:
    (job,) = daemon.state_of(name)["jobs"]
    return str(job["shares"][0]["node"])


def _make_claim(lab: Lab, namespace: str) -> None:
    """Bound to a folder that all nodes have."""
    size = {"storage": "1Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-results"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "hostPath": {"path": str(lab.shared)},
            "claimRef": {"namespace": namespace, "name": "results"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "results"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"{namespace}-results",
            "resources": {"requests": size},
        },
    }
    lab.control.apply(volume, "")
    lab.control.apply(claim, namespace)
    words = ("get", "pvc", "results", "--namespace", namespace, "--output", "json")
    eventually(
        lambda: json.loads(lab.control.kubectl(*words))["status"].get("phase") == "Bound",
        SLOW_SECONDS,
    )
