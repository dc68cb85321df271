"""The claims in which projects keep what outlives their jobs. They are made once, and never
removed: neither by us, nor with a job."""

from __future__ import annotations

from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.pods import MANAGED_BY, OURS
from scheduler.core.errors import Impossible, Unavailable
from scheduler.core.job_volumes import Volume

SIZE = "40Gi"  # if the first job that needs a claim does not say another one


class ProjectStorage:
    """For any thread."""

    def __init__(
        self, server: KubernetesClient, claim: str, storage_class: str = "", access: str = ""
    ) -> None:
        """`claim`: its name in each namespace; empty class: the cluster's default."""
        self._server, self._claim, self._access = server, claim, access or "ReadWriteMany"
        self._class = {"storageClassName": storage_class} if storage_class else {}

    def ensure(self, namespace: str, size: str, dry_run: bool) -> None:
        """Makes the claim if there is none. Raises Impossible with the words of the cluster."""
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        try:
            if not self._exists(f"{claims}/{self._claim}"):
                query = {"dryRun": "All"} if dry_run else {}
                self._server.call("POST", claims, query, self._manifest(size or SIZE))
        except ApiError as error:
            if error.code == 409:  # another caller was faster
                return
            if error.passing:
                raise Unavailable(f"--storage: {error}") from error
            raise Impossible(f"--storage: {error}") from error

    def check(self, namespace: str, volume: Volume) -> None:
        """Raises Impossible if there is no such claim: its pods would wait for it for ever."""
        claim = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{volume.claim}"
        try:
            if not self._exists(claim):
                raise Impossible(f"{volume}: namespace {namespace} has no claim {volume.claim}")
        except ApiError as error:
            if error.passing:
                raise Unavailable(f"{volume}: {error}") from error
            raise Impossible(f"{volume}: {error}") from error

    def _exists(self, path: str) -> bool:
        """A quota that is used up would refuse a claim that is there already, so ask first."""
        try:
            self._server.call("GET", path)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    def _manifest(self, size: str) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self._claim, "labels": {MANAGED_BY: OURS}},
            "spec": {
                **self._class,
                "accessModes": [self._access],
                "resources": {"requests": {"storage": size}},
            },
        }
