"""Users with a token of Kubernetes: a real API server reviews it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.access.reviewed_tokens import TokenOwner
from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.token_review import review
from scheduler.core.errors import Unavailable
from tests.kube.cluster import RULES
from tests.kube.control import ControlPlane
from tests.kube.proxy import Answer, Effect, Proxy, Reset, Silence
from tests.support import Daemon

OURS = "epoch-scheduler"
ADA = "ada"


@pytest.fixture
def ada(control: ControlPlane, namespace: str) -> str:
    """A service account for a user. Returns its name in the cluster."""
    control.account(namespace, ADA)
    return f"system:serviceaccount:{namespace}:{ADA}"


@pytest.fixture
def daemon(kubeconfig: Path, namespace: str, ada: str, tmp_path: Path) -> Iterator[Daemon]:
    settings = tmp_path / "scheduler.toml"
    settings.write_text(f"""
        cluster = "kubernetes"
        [kubernetes]
        kubeconfig = "{kubeconfig}"
        namespace = "{namespace}"
        service = "127.0.0.1:7070"
        request_seconds = 2
        [users.ada]
        kubernetes = "{ada}"
    """)
    made = Daemon(tmp_path / "state", "0", "--config", str(settings)).start()
    yield made
    made.end()


def test_a_token_that_was_made_for_us_tells_who_made_it(
    control: ControlPlane, namespace: str, kubeconfig: Path, ada: str
) -> None:
    server = KubernetesClient(kubeconfig, 5.0)
    assert review(server, OURS, control.token(namespace, ADA, OURS)) == TokenOwner(ada)
    both = control.token(namespace, ADA, "others", OURS)
    assert review(server, OURS, both) == TokenOwner(ada)


def test_a_token_for_somebody_else_tells_us_nothing(
    control: ControlPlane, namespace: str, kubeconfig: Path, ada: str
) -> None:
    """Above all one for the API server: a service that gets it could use it there."""
    server = KubernetesClient(kubeconfig, 5.0)
    assert review(server, OURS, control.token(namespace, ADA)) is None
    assert review(server, OURS, control.token(namespace, ADA, "others")) is None


def test_what_is_no_token_tells_nothing(
    control: ControlPlane, namespace: str, kubeconfig: Path, ada: str
) -> None:
    server = KubernetesClient(kubeconfig, 5.0)
    good = control.token(namespace, ADA, OURS)
    head, claims, signature = good.split(".")
    for token in ("a.b.c", "x", f"{head}.{claims}.", f"{head}.{claims}.{signature[::-1]}"):
        assert review(server, OURS, token) is None


def test_a_token_of_an_account_that_is_gone_is_not_good_any_more(
    control: ControlPlane, namespace: str, kubeconfig: Path, ada: str
) -> None:
    server = KubernetesClient(kubeconfig, 5.0)
    token = control.token(namespace, ADA, OURS)
    control.kubectl("delete", "serviceaccount", ADA, "--namespace", namespace)
    assert review(server, OURS, token) is None


@pytest.mark.parametrize("effect", [Answer(500), Answer(429), Reset(), Silence()], ids=str)
def test_a_server_that_cannot_tell_is_no_denial(
    control: ControlPlane, namespace: str, proxy: Proxy, kubeconfig: Path, ada: str, effect: Effect
) -> None:
    server = KubernetesClient(proxy.kubeconfig(kubeconfig), 1.0)
    token = control.token(namespace, ADA, OURS)
    proxy.inject(effect, path="tokenreviews")
    with pytest.raises(Unavailable, match="Kubernetes cannot review this token: ") as told:
        review(server, OURS, token)
    assert "\n" not in str(told.value)
    assert review(server, OURS, token) == TokenOwner(ada)


def test_a_daemon_that_may_not_ask_says_so(control: ControlPlane, namespace: str, ada: str) -> None:
    server = KubernetesClient(control.account(namespace, "modest", RULES), 5.0)
    with pytest.raises(Unavailable, match=r"tokenreviews.* is forbidden: .*cannot create resource"):
        review(server, OURS, control.token(namespace, ADA, OURS))


# --- with a daemon, and the commands ------------------------------------------------------------


def test_a_person_comes_with_a_token_of_kubernetes(
    control: ControlPlane, namespace: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_TOKEN", control.token(namespace, ADA, OURS))
    words = ("--image", "none:1", "--num_gpus", "0", "--hold", "mine", "--", "true")
    done = daemon.run("run-scheduler", *words)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(daemon.run("scheduler-state", "--output", "json").stdout)["jobs"]
    assert (job["name"], job["user"]) == ("mine", "ada")

    monkeypatch.setenv("SCHEDULER_TOKEN", control.token(namespace, ADA))
    done = daemon.run("scheduler-state")
    assert (done.returncode, done.stderr) == (
        4,
        "scheduler-state: Kubernetes does not accept this token, "
        "or it was not issued for the audience epoch-scheduler\n",
    )


def test_while_the_api_server_is_away_nobody_is_denied(
    control: ControlPlane, namespace: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = control.token(namespace, ADA, OURS)
    control.api.kill()
    monkeypatch.setenv("SCHEDULER_TOKEN", token)
    done = daemon.run("scheduler-state")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    cannot = (
        f"scheduler-state: cannot reach scheduler at {daemon.address}: Kubernetes cannot review"
    )
    assert done.stderr.startswith(cannot), done.stderr
    mine = daemon.run("scheduler-state", "--output", "json", user="root")
    assert mine.returncode == 0, "our own tokens need nobody else"
    control.start()
    assert daemon.run("scheduler-state", "--output", "json").returncode == 0
