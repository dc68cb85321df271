"""Only one daemon changes a cluster, on a real API server, even if requests fail."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.lease import NAME, Lease
from scheduler.clusters.kubernetes.permissions import FOR_THE_LEASE, Rule
from scheduler.core.errors import InUseError
from tests.kube.cluster import launch_on, pods_of, started_cluster, wait_until
from tests.kube.control import ControlPlane
from tests.kube.kubelet import Kubelet
from tests.kube.proxy import Answer, Effect, Proxy, Reset, Silence
from tests.support import DEADLINE_SECONDS, Daemon, eventually

NAMESPACE = "lease"
LONG = 300  # seconds: a test that waited so long would time out
LEASES = "/leases"
FOR_EVER = 1_000_000  # times

SETTINGS = """
cluster = "kubernetes"
[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "lease"
service = "scheduler.jobs.svc:7070"
image = "none:1"
runtime_class = ""
request_seconds = 5
lease_seconds = {seconds}
"""


class There:
    """The lease as an administrator reads and writes it."""

    def __init__(self, control: ControlPlane, namespace: str) -> None:
        self._server = KubernetesClient(control.admin, 10.0)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def spec(self) -> dict[str, Any]:
        """Its content; empty if there is none."""
        return dict(self._found().get("spec", {}))

    def holder(self) -> str | None:
        holder: str | None = self.spec().get("holderIdentity")
        return holder

    def put(self, holder: str, seconds: int = LONG) -> None:
        """Writes it as another daemon that is dead since."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        spec |= {"acquireTime": now, "renewTime": now}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}

        def written() -> bool:
            metadata = self._found().get("metadata")
            body["metadata"] = metadata or {"name": NAME}
            method, path = ("PUT", f"/{NAME}") if metadata else ("POST", "")
            with suppress(ApiError):  # its holder was faster
                self._server.call(method, self._path + path, body=body)
                return True
            return False

        eventually(written)

    def delete(self) -> None:
        with suppress(ApiError):  # there may be none
            self._server.call("DELETE", f"{self._path}/{NAME}")

    def _found(self) -> dict[str, Any]:
        with suppress(ApiError):
            found: dict[str, Any] = json.loads(self._server.call("GET", f"{self._path}/{NAME}"))
            return found
        return {}


@pytest.fixture(autouse=True)
def there(control: ControlPlane, namespace: str) -> There:
    """Deletes it."""
    there = There(control, namespace)
    there.delete()
    return there


class Holder:
    """A daemon that holds the lease, or tries to."""

    def __init__(self, kubeconfig: Path, name: str, seconds: int, request_seconds: float) -> None:
        server = KubernetesClient(kubeconfig, request_seconds)
        self.lease = Lease(server, NAMESPACE, name, seconds, time.time)
        self.lost: list[InUseError] = []

    def holds(self) -> bool:
        return self.lacks() == ""

    def lacks(self) -> str:
        try:
            self.lease.check()
        except ApiError as error:
            return str(error)
        return ""


@contextmanager
def held(
    kubeconfig: Path, name: str = "here_1", seconds: int = LONG, request_seconds: float = 10.0
) -> Iterator[Holder]:
    made = Holder(kubeconfig, name, seconds, request_seconds)
    with made.lease.held(made.lost.append):
        yield made


# --- the holder ---------------------------------------------------------------------------------


def test_it_is_given_up_at_the_end_and_then_anybody_s_at_once(
    kubeconfig: Path, there: There
) -> None:
    with held(kubeconfig, "one_1") as one:
        assert one.holds()
        assert one.lease.is_held
        assert there.holder() == "one_1"
    assert there.holder() is None
    assert not one.lease.is_held
    assert "it was released" in one.lacks()
    with held(kubeconfig, "two_2") as two:
        assert two.holds()
        assert there.holder() == "two_2"
        assert there.spec()["leaseTransitions"] == 2


def test_a_second_one_is_refused_and_told_who_has_it_since_when_and_what_to_do(
    kubeconfig: Path, there: There
) -> None:
    with held(kubeconfig, "one_1", 30) as one:
        since = there.spec()["acquireTime"][:19].replace("T", " ")
        words = (
            f"another scheduler-daemon uses this cluster: one, since {since} UTC "
            rf"\(Lease {NAMESPACE}/{NAME}\); stop it first"
        )
        with pytest.raises(InUseError, match=words), held(kubeconfig, "two_2", 30):
            pass
        assert one.holds()
    assert not one.lost


def test_one_that_nobody_renews_is_taken_when_its_time_is_over(
    kubeconfig: Path, proxy: Proxy, there: There
) -> None:
    there.put("dead_1", seconds=2)
    with held(proxy.kubeconfig(kubeconfig), "two_2") as two:
        assert two.holds()
        assert there.holder() == "two_2"
    looks = [request for request in proxy.seen if request.method == "GET"]
    assert len(looks) > 1, "not at the first look, whatever it says of when it was renewed"


def test_the_next_daemon_of_the_same_state_need_not_wait(kubeconfig: Path, there: There) -> None:
    there.put("elsewhere_1")
    with held(kubeconfig, "here_1") as here:
        assert here.holds()
        assert there.holder() == "here_1"


@pytest.mark.parametrize("thief", ["thief_2", "elsewhere_1", "here_1"])
def test_who_finds_that_another_has_it_does_nothing_any_more(
    thief: str, kubeconfig: Path, there: There
) -> None:
    """Even if the other daemon has the same state, or also the same name."""
    with held(kubeconfig, "here_1", 6) as here:
        there.put(thief)
        eventually(lambda: here.lost)
        place = thief.partition("_")[0]
        words = f"another scheduler-daemon has taken over the cluster: {place}, since "
        assert words in str(here.lost[0])
        assert words in here.lacks()
    assert there.holder() == thief, "it is not given up for them"


def test_one_that_somebody_deleted_is_made_again(kubeconfig: Path, there: There) -> None:
    with held(kubeconfig, "here_1", 6) as here:
        there.delete()
        eventually(lambda: there.holder() == "here_1")
        eventually(here.holds)
        assert not here.lost


# --- what goes wrong ----------------------------------------------------------------------------


ONCE = [
    Answer(401),
    Answer(409, "Conflict"),
    Answer(429, retry_after=1),
    Answer(500),
    Reset(),
    Reset(late=True),
    Silence(),
    Silence(late=True),
]


@pytest.mark.parametrize("effect", ONCE, ids=str)
def test_a_renewal_that_fails_is_tried_again(
    effect: Effect, kubeconfig: Path, proxy: Proxy, there: There
) -> None:
    with held(proxy.kubeconfig(kubeconfig), "here_1", 12, 2.0) as here:
        fault = proxy.inject(effect, "PUT", LEASES)
        eventually(lambda: fault.hit)
        before = there.spec()["renewTime"]
        eventually(lambda: there.spec()["renewTime"] > before)
        assert not here.lost
        assert there.holder() == "here_1"


@pytest.mark.parametrize("effect", [Answer(503), Reset(late=True), Silence()], ids=str)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_cannot_ask_at_the_start_has_it_later(
    effect: Effect, method: str, kubeconfig: Path, proxy: Proxy
) -> None:
    fault = proxy.inject(effect, method, LEASES)
    with (
        structlog.testing.capture_logs() as logs,
        held(proxy.kubeconfig(kubeconfig), "here_1", LONG, 2.0) as here,
    ):
        assert fault.hit
        eventually(here.holds)
        eventually(lambda: [line["event"] for line in logs] == ["lease_not_held", "lease_held"])


def test_who_could_not_ask_at_the_start_ends_when_another_lives(
    kubeconfig: Path, proxy: Proxy
) -> None:
    with held(kubeconfig, "one_1", 30) as one:
        proxy.inject(Answer(503), "GET", LEASES)
        with held(proxy.kubeconfig(kubeconfig), "two_2", 30) as two:
            eventually(lambda: two.lost)
            assert "uses this cluster: one, since " in str(two.lost[0])
            assert not two.holds()
        assert one.holds()


def test_while_it_cannot_be_renewed_nothing_is_created_or_deleted_and_then_all_goes_on(
    kubeconfig: Path, proxy: Proxy, kubelet: Kubelet
) -> None:
    with (
        structlog.testing.capture_logs() as logs,
        held(proxy.kubeconfig(kubeconfig), "here_1", 9, 2.0) as here,
        started_cluster(kubeconfig, NAMESPACE, before_changes=here.lease.check) as made,
    ):
        first, second = launch_on(made), launch_on(made)
        made.perform(first)
        wait_until(made, kubelet, lambda seen: pods_of(first, seen)[0].state == "running")
        proxy.inject(Silence(), path=LEASES, times=FOR_EVER)
        eventually(lambda: not here.holds())
        made.perform(second)
        eventually(lambda: "does not hold the Lease" in pods_of(second, made.observe())[0].reason)
        assert [pod.state for pod in pods_of(first, made.observe())] == ["running"]
        assert len(kubelet.pods()) == 1
        eventually(lambda: "lease_not_held" in {line["event"] for line in logs})
        proxy.heal()
        wait_until(made, kubelet, lambda seen: pods_of(second, seen)[0].state == "running")
        eventually(lambda: "lease_held" in {line["event"] for line in logs})
        assert not here.lost


VERBS = [(verb, rule.resource) for rule in FOR_THE_LEASE for verb in rule.verbs]


@pytest.mark.parametrize(("verb", "resource"), VERBS)
def test_a_verb_that_is_missing_is_named(verb: str, resource: str, control: ControlPlane) -> None:
    def without(rules: Sequence[Rule]) -> list[dict[str, list[str]]]:
        written = [rule.written() for rule in rules]
        return [
            {**each, "verbs": [kept for kept in each["verbs"] if kept != verb]} for each in written
        ]

    modest = control.account(NAMESPACE, f"cannot-{verb}", without(FOR_THE_LEASE))
    with held(modest, "here_1", 3) as here:
        eventually(lambda: f'cannot {verb} resource "{resource}"' in here.lacks())


# --- daemons ------------------------------------------------------------------------------------


class Daemons:
    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder, self._values = folder, {"kubeconfig": kubeconfig}
        self.all: list[Daemon] = []

    def of(self, state: str, seconds: int = LONG, **values: Path) -> Daemon:
        file = self._folder / f"{state}.toml"
        file.write_text(SETTINGS.format(**{**self._values, **values}, seconds=seconds))
        self.all.append(Daemon(self._folder / state, "0", "--config", str(file)))
        return self.all[-1]


@pytest.fixture
def daemons(kubeconfig: Path, kubelet: Kubelet, tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(tmp_path, kubeconfig)
    yield made
    for daemon in made.all:
        daemon.end()


def ended(daemon: Daemon) -> tuple[int, str]:
    """Returns the exit code, and the one line for users."""
    assert daemon.process
    code = daemon.process.wait(2 * DEADLINE_SECONDS)
    lines = [line for line in daemon.said().splitlines() if not line.startswith("{")]
    (words,) = lines
    return code, words


def test_a_second_daemon_refuses_and_the_first_goes_on(daemons: Daemons, kubelet: Kubelet) -> None:
    first, second = daemons.of("first", 30).start(), daemons.of("second", 30)
    second.spawn()
    code, words = ended(second)
    assert code == 1
    host = socket.gethostname()
    assert words.startswith(
        f"scheduler-daemon: another scheduler-daemon uses this cluster: {host}, since "
    )
    first.submit("j", "--", "sleep", "1000")
    eventually(kubelet.pods)


def test_a_daemon_that_was_killed_keeps_nobody_waiting_for_long(
    daemons: Daemons, there: There
) -> None:
    first = daemons.of("first").start()
    first.kill()
    first.start()
    assert "lease_of_another" not in first.said(), "of the same state, so at once"
    assert first.stop() == 0
    assert there.holder() is None

    third = daemons.of("third", 3).start()
    third.kill()
    fourth = daemons.of("fourth").start()
    assert "lease_of_another" in fourth.said()


def test_a_daemon_whose_lease_was_taken_ends_and_leaves_its_pods(
    daemons: Daemons, kubelet: Kubelet, there: There
) -> None:
    daemon = daemons.of("first", 6).start()
    daemon.submit("j", "--", "sleep", "1000")
    eventually(kubelet.pods)
    there.put("thief_2")
    code, words = ended(daemon)
    assert code == 1
    assert words.startswith(
        "scheduler-daemon: another scheduler-daemon has taken over the cluster: thief, since "
    )
    (pod,) = kubelet.pods()
    assert "deletionTimestamp" not in pod["metadata"]


def test_a_daemon_serves_also_while_the_api_server_is_silent(
    daemons: Daemons, kubelet: Kubelet, proxy: Proxy, kubeconfig: Path
) -> None:
    proxy.inject(Silence(), times=FOR_EVER)
    daemon = daemons.of("first", kubeconfig=proxy.kubeconfig(kubeconfig)).start()
    daemon.submit("--num_gpus", "0", "j", "--", "sleep", "1000")
    assert not kubelet.pods()
    proxy.heal()
    eventually(kubelet.pods)


# --- what is on its way when it ends ------------------------------------------------------------


def test_no_change_is_waited_for_beyond_the_end_of_the_lease(
    kubeconfig: Path, proxy: Proxy
) -> None:
    with held(kubeconfig, seconds=6) as here:
        eventually(here.holds)
        server = KubernetesClient(proxy.kubeconfig(kubeconfig), 60.0, here.lease.check)
        fault = proxy.inject(Silence(), "POST", "/configmaps")
        began_at = time.monotonic()
        with pytest.raises(ApiError, match="no answer"):
            server.call("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", body={})
        assert fault.hit
        assert time.monotonic() - began_at < 30, "not the 60 s that a change may take"


def test_a_change_that_a_new_token_is_needed_for_is_asked_about_again(
    kubeconfig: Path, proxy: Proxy
) -> None:
    checks = iter([10.0])

    def check() -> float:
        try:
            return next(checks)
        except StopIteration:
            raise ApiError("this daemon does not hold the lease") from None

    server = KubernetesClient(proxy.kubeconfig(kubeconfig), 10.0, check)
    fault = proxy.inject(Answer(401), "POST", "/configmaps", FOR_EVER)
    with pytest.raises(ApiError, match="does not hold the lease"):
        server.call("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", body={})
    assert len(fault.hit) == 1
