"""Installs and removes deploy/kubernetes on the tests' API server, as the documents say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.deploy.manifests import DAEMON, KUBERNETES
from tests.kube.control import ControlPlane
from tests.support import eventually

# Objects outside of namespaces, and the namespaces; these are deleted with their content.
KINDS = (
    "namespaces,clusterroles,clusterrolebindings,priorityclasses,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@contextmanager
def installed(control: ControlPlane, folder: str) -> Iterator[None]:
    """Installs it, once nothing of an earlier installation is left."""
    eventually(lambda: not left(control))
    control.kubectl("apply", "--server-side", "--kustomize", KUBERNETES / folder)
    try:
        yield
    finally:
        uninstall(control, folder)


def uninstall(control: ControlPlane, folder: str) -> None:
    words = ("--ignore-not-found", "--wait=false", "--kustomize", KUBERNETES / folder)
    control.kubectl("delete", *words)


def left(control: ControlPlane) -> list[Any]:
    found = control.get(KINDS, "--selector", f"app.kubernetes.io/part-of={DAEMON}")
    return list(found["items"])
