"""The output of `kubectl kustomize` for the folders in deploy/kubernetes, as Python objects."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with the client, without types

from tests.kube.build import program

KUBERNETES = Path(__file__).parent.parent.parent / "deploy" / "kubernetes"
FOLDERS = ("base", "overlays/lab", "overlays/test")
DAEMON, JOBS = "epoch-scheduler", "epoch-scheduler-jobs"  # the namespaces

Manifest = dict[str, Any]


@functools.cache
def text(folder: str) -> str:
    words: list[str | Path] = [program("kubectl"), "kustomize", KUBERNETES / folder]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def manifests(folder: str) -> list[Manifest]:
    return list(yaml.safe_load_all(text(folder)))


def one(folder: str, kind: str, name: str = DAEMON) -> Manifest:
    """The only object of this kind and name; kustomize may have added a hash to the name."""
    (found,) = (
        manifest
        for manifest in manifests(folder)
        if manifest["kind"] == kind
        and re.fullmatch(rf"{name}(-[a-z0-9]{{10}})?", manifest["metadata"]["name"])
    )
    return found


def containers(manifest: Manifest) -> Iterator[Manifest]:
    yield from manifest["spec"]["template"]["spec"]["containers"]


def container(manifest: Manifest, name: str = "daemon") -> Manifest:
    (found,) = (each for each in containers(manifest) if each["name"] == name)
    return found
