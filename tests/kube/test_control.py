"""The cluster of the tests is a real one: what it must be able to do for the other tests."""

from __future__ import annotations

from tests.kube.control import ControlPlane


def test_an_object_that_is_applied_is_there(control: ControlPlane, namespace: str) -> None:
    control.apply(POD, namespace)
    (pod,) = control.get("pods", "--namespace", namespace)["items"]
    assert pod["metadata"]["name"] == "alone"


POD = """
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  containers: [{name: main, image: "none:1"}]
"""
