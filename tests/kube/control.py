"""A real Kubernetes control plane for tests: etcd, the API server, and more if a test needs it.

It does not need root, and listens on 127.0.0.1 by default. Every user has a token of its own; the
administrator's is for the tests, `account` makes the one for the product.
"""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kube.build import program, stages
from tests.kube.certificates import Authority
from tests.kube.processes import Process, free_port
from tests.support import eventually

LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/16"
READY_SECONDS = 180.0  # two seconds on an idle machine
ISSUER = "https://kubernetes.default.svc"
NOWHERE = "192.0.2.1"  # an address for documentation: the API server must advertise one
RBAC = "rbac.authorization.k8s.io/v1"

# A rule of a Role: {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
Rule = Mapping[str, Sequence[str]]


class ControlPlane:
    def __init__(
        self,
        folder: Path,
        address: str = LOOPBACK,
        nodes: Sequence[str] = (),
        node_grace_seconds: int = 50,
        audited: str = "",
        played: Sequence[Path] = (),
    ) -> None:
        """`audited`: the requests of this user are written to `requests`, one JSON object a line.
        `played`: stages for kwok, in addition to those that it always has."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"https://{address}:{free_port()}"
        self.authority = Authority(folder / "certificates")
        self._groups = {
            "admin": "system:masters",
            "system:kube-controller-manager": "",
            "system:kube-proxy": "",
            "system:kube-scheduler": "",
            **{f"system:node:{node}": "system:nodes" for node in nodes},
        }
        self._secrets = {user: secrets.token_urlsafe(16) for user in self._groups}
        self._trust = ssl.create_default_context(cafile=self.authority.certificate)
        self.admin = self.kubeconfig_of("admin")
        self.requests = folder / "requests.jsonl"
        self.etcd, etcd_url = self._etcd()
        self.api = self._api(address, etcd_url, audited)
        self.controllers = self._controllers(node_grace_seconds)
        self.scheduler = self._scheduler()
        self.kwok = self._kwok([*stages(), *played])

    # --- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Starts etcd and the API server if they are not alive, and waits until both serve."""
        self.etcd.start()
        self.api.start()
        eventually(self._ready, READY_SECONDS)

    def stop(self) -> None:
        for process in (self.kwok, self.scheduler, self.controllers, self.api, self.etcd):
            process.kill()  # nothing of it is kept, so it need not exit cleanly
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)  # the logs are kept

    # --- requests  --------------------------------------------------------------------------

    def kubectl(self, *words: str | Path, text: str | None = None) -> str:
        """Runs kubectl as the administrator. Returns its output; it must succeed."""
        done = subprocess.run(
            [
                *(program("kubectl"), "--kubeconfig", self.admin),
                *("--cache-dir", self.folder / "kubectl", *words),
            ],
            input=text,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        assert done.returncode == 0, f"kubectl {' '.join(map(str, words))}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """The result of `kubectl get …`, decoded from JSON."""
        return json.loads(self.kubectl("get", *words, "--output", "json"))

    def apply(self, manifest: str | Mapping[str, Any], namespace: str = "default") -> None:
        """Applies objects (YAML or a mapping) as the administrator."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        words = ("apply", "--server-side", "--force-conflicts", "--namespace", namespace)
        self.kubectl(*words, "--filename", "-", text=text)

    def namespace(self, name: str, **labels: str) -> None:
        """Creates it, with the default service account of pods even if no controller runs."""
        metadata = {"name": name, "labels": labels}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.apply(_list(namespace, _object("v1", "ServiceAccount", "default")), name)

    # --- accounts ---------------------------------------------------------------------------

    def account(
        self,
        namespace: str,
        name: str,
        rules: Sequence[Rule] = (),
        cluster_rules: Sequence[Rule] = (),
    ) -> Path:
        """A kubeconfig of this service account, which is made if it does not exist.

        It has the permissions of the rules, of the former in its namespace, of the latter
        everywhere, and those it had before. Its token is real, and in a file of its own beside the
        kubeconfig (`token_file`), which clients read again when it changes.
        """
        made = [_object("v1", "ServiceAccount", name)]
        who = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        for kind, given, title in (
            ("Role", rules, name),
            ("ClusterRole", cluster_rules, f"{namespace}-{name}"),
        ):
            if given:
                reference = {"apiGroup": RBAC.partition("/")[0], "kind": kind, "name": title}
                made += [
                    _object(RBAC, kind, title, rules=given),
                    _object(RBAC, f"{kind}Binding", title, subjects=[who], roleRef=reference),
                ]
        self.apply(_list(*made), namespace)
        path = self.kubeconfig(f"{namespace}-{name}")
        token_file(path).write_text(self.token(namespace, name))
        return path

    def token(self, namespace: str, name: str, *audiences: str, minutes: int = 60) -> str:
        """A new token of this service account."""
        words = [f"--audience={audience}" for audience in audiences]
        words += [f"--duration={minutes}m", f"--namespace={namespace}"]
        return self.kubectl("create", "token", name, *words).strip()

    def kubeconfig(self, name: str, server: str = "") -> Path:
        """A kubeconfig for one user, with the token in a file beside it."""
        path = self.folder / f"{name.replace(':', '-')}.kubeconfig"
        cluster = {
            "server": server or self.url,
            "certificate-authority": str(self.authority.certificate),
        }
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"tokenFile": str(token_file(path))}}],
        }
        path.write_text(json.dumps(told))
        return path

    # --- its programs -----------------------------------------------------------------------

    def _process(self, name: str, *words: str | Path) -> Process:
        return Process(name, [program(name), *words], self.folder / f"{name}.log")

    def _etcd(self) -> tuple[Process, str]:
        client, peer = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
        process = self._process(
            "etcd",
            *("--data-dir", self.folder / "etcd", "--unsafe-no-fsync"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--log-level", "warn"),
        )
        return process, client

    def _api(self, address: str, etcd_url: str, audited: str) -> Process:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(
            "".join(
                f'{self._secrets[user]},{user},{user},"{groups}"\n'
                for user, groups in self._groups.items()
            )
        )
        names = (address, "10.96.0.1", "localhost", "kubernetes.default.svc")
        certificate, key = self.authority.issue("apiserver", *names)
        signs, signed = self.authority.issue("accounts", "accounts")
        return self._process(
            "kube-apiserver",
            *("--etcd-servers", etcd_url),
            *("--bind-address", address, "--secure-port", self.url.rpartition(":")[2]),
            *("--advertise-address", NOWHERE if address == LOOPBACK else address),
            *("--tls-cert-file", certificate, "--tls-private-key-file", key),
            *("--token-auth-file", tokens, "--authorization-mode", "Node,RBAC"),
            *("--enable-admission-plugins", "NodeRestriction", "--allow-privileged"),
            *("--service-cluster-ip-range", SERVICES, "--service-account-issuer", ISSUER),
            *("--service-account-key-file", signs, "--service-account-signing-key-file", signed),
            *("--kubelet-preferred-address-types", "InternalIP"),
            *(self._audit(audited) if audited else ()),
        )

    def _audit(self, user: str) -> list[str | Path]:
        """Logs one line for each request when it has been answered."""
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
        }
        file = self.folder / "audit.json"
        file.write_text(json.dumps(policy))
        return ["--audit-policy-file", file, "--audit-log-path", self.requests]

    def _controllers(self, node_grace_seconds: int) -> Process:
        return self._process(
            "kube-controller-manager",
            *self._as("system:kube-controller-manager"),
            *("--use-service-account-credentials", "--root-ca-file", self.authority.certificate),
            *("--service-account-private-key-file", self.folder / "certificates" / "accounts.key"),
            *("--node-monitor-period", "1s", "--node-monitor-grace-period"),
            f"{node_grace_seconds}s",
        )

    def _scheduler(self) -> Process:
        return self._process("kube-scheduler", *self._as("system:kube-scheduler"))

    def kubeconfig_of(self, user: str) -> Path:
        path = self.kubeconfig(user)
        token_file(path).write_text(self._secrets[user])
        return path

    def _as(self, user: str) -> list[str | Path]:
        """The flags that the controllers and the scheduler have in common."""
        kubeconfig = self.kubeconfig_of(user)
        return [
            *("--kubeconfig", kubeconfig, "--leader-elect=false", "--bind-address", LOOPBACK),
            *("--secure-port", str(free_port()), "--cert-dir", kubeconfig.with_suffix(".tls")),
        ]

    def _kwok(self, played: Sequence[Path]) -> Process:
        """It simulates each node with the annotation `kwok.x-k8s.io/node: fake`, as a kubelet that
        answers, but has no logs."""
        words: list[str | Path] = []
        for stage in played:
            words += ["--config", stage]
        certificate, key = self.authority.issue("kwok", LOOPBACK)
        port = str(free_port())
        return self._process(
            "kwok",
            *("--kubeconfig", self.admin, *words),
            *("--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
            *("--node-ip", LOOPBACK, "--node-port", port),
            *("--server-address", f"{LOOPBACK}:{port}"),
            *("--tls-cert-file", certificate, "--tls-private-key-file", key),
        )

    def _ready(self) -> bool:
        self.etcd.check()
        self.api.check()
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._secrets['admin']}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._trust) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def token_file(kubeconfig: Path) -> Path:
    """The file with the token of its user."""
    return kubeconfig.with_suffix(".token")


def _object(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def _list(*objects: Mapping[str, Any]) -> dict[str, Any]:
    """Objects to create in this order, by one command, because a start of kubectl takes as long as
    its work."""
    return {"apiVersion": "v1", "kind": "List", "items": objects}
