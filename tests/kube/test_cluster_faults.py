"""Whatever networks and servers do to requests, it only delays our port.

Each fault is injected before a real API server, under a real token of a service account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters.kubernetes.cluster import LaunchTimeouts
from scheduler.core.errors import Unavailable
from scheduler.core.model import Failure, Observed, PodState, Remove
from tests.kube.cluster import (
    StartedCluster,
    launch_on,
    pods_of,
    started_cluster,
    wait_until,
    wait_until_over,
    with_fields,
)
from tests.kube.control import ControlPlane, token_file
from tests.kube.kubelet import Kubelet
from tests.kube.proxy import Answer, Delay, Effect, Expire, Proxy, Reset, Silence
from tests.support import eventually

NAMESPACE = "faults"
FOR_EVER = 1_000_000  # times

PASSING = [
    Answer(429, retry_after=1),
    Answer(500),
    Answer(503, retry_after=1),
    Answer(504),
    Answer(401),
    Answer(409, "Conflict"),
    Delay(0.5),
    Reset(),
    Reset(late=True),
    Silence(),
    Silence(late=True),
]


def named(effect: Effect) -> str:
    return str(effect)


@pytest.fixture
def made(proxy: Proxy, kubeconfig: Path, kubelet: Kubelet) -> Iterator[StartedCluster]:
    with started_cluster(proxy.kubeconfig(kubeconfig), NAMESPACE, request_seconds=3.0) as made:
        made.observe()
        yield made


@pytest.fixture
def seen_until(
    made: StartedCluster, kubelet: Kubelet
) -> Callable[[Callable[[Observed], object]], Observed]:
    return lambda true: wait_until(made, kubelet, true)


Until = Callable[[Callable[[Observed], object]], Observed]


@pytest.mark.parametrize("what", ["configmaps", "secrets", "services", "pods"])
@pytest.mark.parametrize("effect", PASSING, ids=named)
def test_a_creation_that_fails_is_tried_again_and_is_one_creation(
    effect: Effect,
    what: str,
    made: StartedCluster,
    proxy: Proxy,
    kubelet: Kubelet,
    seen_until: Until,
) -> None:
    fault = proxy.inject(effect, "POST", f"/{what}")
    launch = with_fields(launch_on(made), ports=((31_347, 6006),))
    made.perform(launch)
    assert [pod.alive for pod in pods_of(launch, made.observe())] == [True]
    seen_until(lambda seen: [pod for pod in pods_of(launch, seen) if pod.state == "running"])
    assert fault.hit
    assert len(kubelet.pods()) == 1


@pytest.mark.parametrize("what", ["configmaps", "pods"])
@pytest.mark.parametrize("effect", [Answer(500), Answer(429), Silence()], ids=named)
def test_a_creation_that_always_fails_is_given_up_when_a_pod_should_have_started_long_ago(
    effect: Effect,
    what: str,
    proxy: Proxy,
    kubeconfig: Path,
    kubelet: Kubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.clusters.kubernetes.work_queue.BACKOFF_MAX_SECONDS", 0.5)
    now, words = [1.8e9], f"answers {effect.status}" if isinstance(effect, Answer) else "no answer"
    settings: dict[str, Any] = {
        "clock": lambda: now[0],
        "timeouts": LaunchTimeouts(start_seconds=900),
    }
    with started_cluster(proxy.kubeconfig(kubeconfig), NAMESPACE, **settings) as made:
        launch = launch_on(made)
        fault = proxy.inject(effect, "POST", f"/{what}", FOR_EVER)
        made.perform(launch)
        eventually(lambda: words in pods_of(launch, made.observe())[0].reason)
        now[0] += 890
        tries = len(fault.hit)
        eventually(lambda: len(fault.hit) > tries + 1)
        assert [pod.state for pod in pods_of(launch, made.observe())] == [PodState.PENDING]
        now[0] += 20
        ended = wait_until_over(made, launch)
        assert ended.reason == Failure.REFUSED, "which costs nothing, however often"
        assert ended.said.startswith("cannot start: ")
        assert words in ended.said
        assert not kubelet.pods()
        eventually(lambda: not kubelet.owners())


@pytest.mark.parametrize("what", ["configmaps", "pods"])
@pytest.mark.parametrize("effect", PASSING, ids=named)
def test_a_deletion_that_fails_is_tried_again(
    effect: Effect,
    what: str,
    made: StartedCluster,
    proxy: Proxy,
    kubelet: Kubelet,
    seen_until: Until,
) -> None:
    launch = launch_on(made)
    made.perform(launch)
    seen_until(lambda seen: [pod for pod in pods_of(launch, seen) if pod.state == "running"])
    fault = proxy.inject(effect, "DELETE", f"/{what}")
    made.perform(Remove(launch.job_id, 1))
    seen_until(lambda seen: not pods_of(launch, seen))
    assert not kubelet.pods(), "it was shown until it was gone"
    eventually(lambda: fault.hit and not kubelet.owners())


@pytest.mark.parametrize(
    "effect", [Expire(), Answer(410), Answer(500), Answer(401), Reset(), Silence()], ids=named
)
def test_a_watch_that_ends_badly_is_begun_again(
    effect: Effect, made: StartedCluster, proxy: Proxy, seen_until: Until
) -> None:
    fault = proxy.inject(effect, "GET", r"/pods\?.*watch=true")
    proxy.cut(r"/pods\?.*watch=true")
    eventually(lambda: fault.hit)
    launch = launch_on(made)
    made.perform(launch)
    seen_until(lambda seen: [pod for pod in pods_of(launch, seen) if pod.state == "running"])


@pytest.mark.parametrize(
    "effect", [Answer(410), Answer(429, retry_after=1), Answer(504), Reset(), Silence()], ids=named
)
def test_a_list_that_fails_is_asked_for_again(
    effect: Effect, made: StartedCluster, proxy: Proxy, seen_until: Until
) -> None:
    fault = proxy.inject(effect, "GET", r"/pods\?(?!.*watch=true)", times=2)
    proxy.cut(r"/pods\?.*watch=true")
    eventually(lambda: len(fault.hit) == 2)
    launch = launch_on(made)
    made.perform(launch)
    seen_until(lambda seen: [pod for pod in pods_of(launch, seen) if pod.state == "running"])


def test_what_a_silent_watch_misses_is_in_the_next_list(
    made: StartedCluster, proxy: Proxy, kubelet: Kubelet, seen_until: Until
) -> None:
    launch = launch_on(made)
    made.perform(launch)
    seen_until(lambda seen: [pod for pod in pods_of(launch, seen) if pod.state == "running"])
    fault = proxy.inject(Silence(), "GET", r"/pods\?.*watch=true", FOR_EVER)
    proxy.cut(r"/pods\?.*watch=true")
    eventually(lambda: fault.hit)
    (pod,) = kubelet.pods()
    kubelet.end(pod["metadata"]["name"], 1)
    eventually(lambda: pods_of(launch, made.observe())[0].state is PodState.FAILED)


def test_one_run_whose_requests_fail_keeps_no_other_waiting(
    made: StartedCluster, proxy: Proxy, seen_until: Until
) -> None:
    stuck, others = launch_on(made), [launch_on(made) for _ in range(6)]
    made.perform(stuck)
    seen_until(lambda seen: [pod for pod in pods_of(stuck, seen) if pod.state == "running"])
    proxy.inject(Silence(), "DELETE", f"/pods/gs-{stuck.job_id[:8]}", FOR_EVER)
    made.perform(Remove(stuck.job_id, 1))
    for launch in others:
        made.perform(launch)
    seen_until(lambda seen: sum(pod.state == "running" for pod in seen.pods) >= len(others))
    assert pods_of(stuck, made.observe())
    proxy.heal()
    seen_until(lambda seen: not pods_of(stuck, seen))


def test_a_token_that_is_refused_is_read_again(
    kubeconfig: Path, kubelet: Kubelet, proxy: Proxy
) -> None:
    file = token_file(kubeconfig)
    good = file.read_text()
    file.write_text("expired")
    try:
        with started_cluster(proxy.kubeconfig(kubeconfig), NAMESPACE) as made:
            eventually(lambda: len(proxy.seen) > 3)
            with pytest.raises(Unavailable):
                made.cluster.observe()
            file.write_text(good)
            launch = launch_on(made)
            made.perform(launch)
            wait_until(
                made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.RUNNING
            )
    finally:
        file.write_text(good)


def test_an_api_server_that_was_killed_finds_everything_asked_for(
    made: StartedCluster, control: ControlPlane, seen_until: Until
) -> None:
    running = launch_on(made)
    made.perform(running)
    seen_until(lambda seen: [pod for pod in pods_of(running, seen) if pod.state == "running"])
    control.api.kill()
    asked = replace(launch_on(made), attempt=7)
    made.perform(asked)
    assert {pod.job_id for pod in made.observe().pods} == {running.job_id, asked.job_id}
    control.start()
    seen_until(lambda seen: [pod for pod in pods_of(asked, seen) if pod.state == "running"])
    assert pods_of(running, made.observe())
