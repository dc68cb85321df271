"""Each line that pods print is kept once: a real API server, with simulated logs of a kubelet.

For real nodes see test_logs_on_nodes.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from scheduler import run_logs
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import KubernetesClient
from scheduler.clusters.kubernetes.cluster import LaunchTimeouts
from scheduler.clusters.kubernetes.logs import MISSED, Logs
from scheduler.clusters.kubernetes.pods import KubePod
from scheduler.core.model import Launch, PodState, Remove
from tests.kube.cluster import StartedCluster, launch_on, pods_of, started_cluster, wait_until
from tests.kube.container_logs import ContainerLogs
from tests.kube.control import LOOPBACK, ControlPlane
from tests.kube.kubelet import Kubelet
from tests.kube.proxy import Answer, Proxy, Reset, Silence
from tests.support import eventually

NAMESPACE = "logs"
FOR_EVER = 1_000_000  # times
LOGS = r"/pods/[^/]+/log"


@pytest.fixture
def node(control: ControlPlane) -> Iterator[ContainerLogs]:
    with ContainerLogs(control).running() as node:
        yield node


@pytest.fixture
def kubelet(control: ControlPlane, node: ContainerLogs) -> Iterator[Kubelet]:
    with Kubelet(control, NAMESPACE).at_work() as kubelet:
        server, path = KubernetesClient(control.admin, 10.0), f"/api/v1/nodes/{kubelet.node}"
        there = json.loads(server.call("GET", path))
        there["status"] |= {
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
        }
        server.call("PUT", f"{path}/status", body=there)
        yield kubelet


@pytest.fixture
def made(
    proxy: Proxy, kubeconfig: Path, kubelet: Kubelet, tmp_path: Path
) -> Iterator[StartedCluster]:
    with started_cluster(proxy.kubeconfig(kubeconfig), NAMESPACE, logs=tmp_path) as made:
        yield made


def running(made: StartedCluster, kubelet: Kubelet) -> tuple[Launch, str]:
    """A launch that runs, and its pod's name."""
    launch = launch_on(made)
    made.perform(launch)
    wait_until(made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.RUNNING)
    return launch, name_of(launch)


def name_of(launch: Launch) -> str:
    return pods.pod_name((launch.job_id, launch.attempt), 0)


def kept(root: Path, launch: Launch) -> bytes:
    found = run_logs.files(root, launch.job_id)
    return b"".join(data for file in found for data in run_logs.chunks(file))


def whole(node: ContainerLogs, root: Path, launch: Launch) -> bool:
    """Whether the kept log is exactly what it printed."""
    return kept(root, launch) == node.text_of(name_of(launch))


def until_whole(node: ContainerLogs, root: Path, launches: list[Launch]) -> None:
    """One after the other, so that reading all of them does not block the writers."""
    for launch in launches:
        eventually(partial(whole, node, root, launch))
    assert all(whole(node, root, launch) for launch in launches), "nothing came a second time"


def say(node: ContainerLogs, pod: str, first: int, last: int) -> None:
    for number in range(first, last):
        node.say(pod, b"line %d" % number)


def test_what_a_pod_says_is_in_its_attempts_file_while_it_runs(
    made: StartedCluster, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    launch, pod = running(made, kubelet)
    for words in (b"hello", b"", b"\r 10%\r 20%", b"\x00\xff", b"x" * 300_000):
        node.say(pod, words)
    node.say(pod, b"no end", partial=True)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    (file,) = run_logs.files(tmp_path, launch.job_id, 1)
    assert file.name == "attempt-1/rank0.log"
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_a_stream_that_breaks_goes_on_without_a_gap_or_a_line_twice(
    made: StartedCluster, kubelet: Kubelet, node: ContainerLogs, proxy: Proxy, tmp_path: Path
) -> None:
    launch, pod = running(made, kubelet)
    for number in range(0, 60, 20):
        say(node, pod, number, number + 10)
        eventually(lambda: node.text_of(pod) in kept(tmp_path, launch))
        say(node, pod, number + 10, number + 15)
        node.cut()
        say(node, pod, number + 15, number + 20)
        proxy.inject(Reset(), "GET", LOGS)
        proxy.cut(LOGS)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))


def test_another_daemon_goes_on_where_the_one_before_it_was(
    kubeconfig: Path, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path) as made:
        launch, pod = running(made, kubelet)
        say(node, pod, 0, 10)
        eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    (file,) = run_logs.files(tmp_path, launch.job_id)
    place = file.path.with_suffix(".place")
    early = place.read_bytes()
    say(node, pod, 10, 20)
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path):
        eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    place.write_bytes(early)  # as after a kill before it wrote the last one
    with file.path.open("ab") as half:
        half.write(b"line 2")
    say(node, pod, 20, 30)
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path):
        eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))


def test_a_pod_that_has_ended_is_deleted_when_all_that_it_said_is_kept(
    made: StartedCluster, kubelet: Kubelet, node: ContainerLogs, proxy: Proxy, tmp_path: Path
) -> None:
    launch, pod = running(made, kubelet)
    say(node, pod, 0, 10)
    fault = proxy.inject(Answer(503), "GET", LOGS, times=3)
    proxy.cut(LOGS)
    say(node, pod, 10, 20)
    node.end(pod)
    kubelet.end(pod, 0)
    wait_until(made, kubelet, lambda seen: pods_of(launch, seen)[0].state is PodState.SUCCEEDED)
    made.perform(Remove(launch.job_id, 1))
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))
    assert fault.hit
    assert kept(tmp_path, launch) == node.text_of(pod)


def test_what_a_pod_says_in_its_grace_is_kept(
    made: StartedCluster, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    launch, pod = running(made, kubelet)
    say(node, pod, 0, 10)
    made.perform(Remove(launch.job_id, 1))
    eventually(lambda: "deletionTimestamp" in kubelet.pods()[0]["metadata"])
    say(node, pod, 10, 20)
    node.cut()
    say(node, pod, 20, 30)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    say(node, pod, 30, 31)
    node.end(pod)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    wait_until(made, kubelet, lambda seen: not pods_of(launch, seen))


@pytest.mark.parametrize("effect", [Answer(403), Answer(500), Silence()], ids=str)
def test_a_log_that_cannot_be_had_keeps_nobody_waiting_for_ever(
    effect: Answer | Silence, kubeconfig: Path, kubelet: Kubelet, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.inject(effect, "GET", LOGS, FOR_EVER)
    with started_cluster(
        proxy.kubeconfig(kubeconfig),
        NAMESPACE,
        logs=tmp_path,
        timeouts=LaunchTimeouts(log_seconds=1.0),
    ) as made:
        runs, ended = running(made, kubelet)[0], running(made, kubelet)
        kubelet.end(ended[1], 1)
        for launch in (runs, ended[0]):
            made.perform(Remove(launch.job_id, 1))
        wait_until(
            made, kubelet, lambda seen: not pods_of(runs, seen) and not pods_of(ended[0], seen)
        )


def test_what_cannot_be_written_is_written_later(
    made: StartedCluster, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    launch, pod = running(made, kubelet)
    say(node, pod, 0, 10)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))
    folder = tmp_path / launch.job_id
    aside = folder.rename(tmp_path / "aside")
    with capture_logs() as told:
        folder.write_text("no folder")
        say(node, pod, 10, 20)
        eventually(lambda: [event for event in told if event["event"] == "log_not_kept"])
    folder.unlink()
    aside.rename(folder)
    eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))


def test_lines_that_the_node_has_put_away_are_told_to_be_missing(
    kubeconfig: Path, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path) as made:
        launch, pod = running(made, kubelet)
        say(node, pod, 0, 10)
        before = node.text_of(pod)
        eventually(lambda: kept(tmp_path, launch) == before)
    say(node, pod, 10, 20)
    node.rotate(pod)
    say(node, pod, 20, 21)
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path) as made:
        eventually(lambda: kept(tmp_path, launch) == before + MISSED + b"line 20\n")
        say(node, pod, 21, 22)
        eventually(lambda: kept(tmp_path, launch).endswith(MISSED + b"line 20\nline 21\n"))
        assert made.cluster.log_gaps == 1


def test_of_a_long_log_the_begin_and_the_end_are_kept(
    kubeconfig: Path, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path, log_mib=1) as made:
        launch, pod = running(made, kubelet)
        for number in range(40):
            node.say(pod, b"%d " % number + b"x" * 100_000)
        said = node.text_of(pod)

        def is_read() -> bool:
            return any(file.size == len(said) for file in run_logs.files(tmp_path, launch.job_id))

        eventually(is_read)
        (file,) = run_logs.files(tmp_path, launch.job_id)
        assert file.path.stat().st_blocks * 512 < 2 * 2**20
        log = file.path.read_bytes()
        assert log[: 2**16] == said[: 2**16]
        assert log[-(2**18) :] == said[-(2**18) :]


@contextmanager
def followed(control: ControlPlane, root: Path, streams: int) -> Iterator[Logs]:
    server = KubernetesClient(control.admin, 10.0)
    followed = Logs(server, NAMESPACE, root, streams)
    try:
        yield followed
    finally:
        followed.stop()


def test_more_pods_than_streams_are_caught_up_with_in_turn(
    control: ControlPlane, kubeconfig: Path, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    with started_cluster(kubeconfig, NAMESPACE) as made:
        runs = [running(made, kubelet) for _ in range(5)]
        with followed(control, tmp_path, streams=2) as few:
            there = {pod["metadata"]["name"]: _read(pod) for pod in kubelet.pods()}
            few.follow(there)
            for _, pod in runs:
                say(node, pod, 0, 10)
            eventually(lambda: all(kept(tmp_path, run) == node.text_of(pod) for run, pod in runs))
            assert node.open <= 2
            launch, pod = runs[-1]
            eventually(lambda: few.are_drained([there[pod]], 60.0))
            say(node, pod, 10, 20)
            eventually(lambda: kept(tmp_path, launch) == node.text_of(pod))


def _read(pod: dict[str, Any]) -> KubePod:
    return msgspec.convert(pod, KubePod)


def ten_running(made: StartedCluster, kubelet: Kubelet) -> list[Launch]:
    """A busy machine cannot handle more of hundreds within the deadline of a wait."""
    launches = [launch_on(made) for _ in range(10)]
    for launch in launches:
        made.perform(launch)
    wait_until(
        made, kubelet, lambda seen: all(pods_of(e, seen)[0].state == "running" for e in launches)
    )
    return launches


def test_of_two_hundred_pods_that_leave_while_they_print_no_line_is_lost_or_there_twice(
    kubeconfig: Path, kubelet: Kubelet, node: ContainerLogs, tmp_path: Path
) -> None:
    """Deleted by us or by other clients, at random, with broken streams and killed daemons."""
    chance = random.Random(5)
    with started_cluster(kubeconfig, NAMESPACE) as made:
        launches = [each for _ in range(20) for each in ten_running(made, kubelet)]
    printing = {name_of(each): each for each in launches}
    leaving: set[str] = set()
    while printing:
        with started_cluster(kubeconfig, NAMESPACE, logs=tmp_path) as made:
            for number in range(10):
                if cut := chance.random() < 0.2:
                    node.cut()
                for name in printing:
                    say(node, name, 0, chance.randint(1, 5))
                if cut or number == 0:  # the grace period is long enough for a new stream
                    until_whole(node, tmp_path, launches)
                for name in leaving:  # its grace period is over
                    node.end(name)
                    kubelet.forget(name)
                    del printing[name]
                leaving = {
                    pod["metadata"]["name"]
                    for pod in kubelet.pods()
                    if "deletionTimestamp" in pod["metadata"]
                }
                left = sorted(printing.keys() - leaving)
                for name in chance.sample(left, min(8, len(left))):
                    if chance.random() < 0.5:
                        made.perform(Remove(printing[name].job_id, 1))
                    else:
                        kubelet.delete(name)
            until_whole(node, tmp_path, launches)
