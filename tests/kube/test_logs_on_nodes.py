"""On real nodes each line that a pod prints is kept once, however and whenever it is deleted."""

from __future__ import annotations

import random
import uuid
from contextlib import AbstractContextManager
from pathlib import Path

from scheduler import run_logs
from scheduler.clusters.kubernetes import pods
from scheduler.core.model import JobId, JobSpec, Launch, Remove
from tests.kube.cluster import StartedCluster, daemon_kubeconfig, pods_of, started_cluster
from tests.kube.conftest import IMAGE
from tests.kube.control import ControlPlane
from tests.kube.nodes import Nodes
from tests.support import eventually

PODS = 8
SLOW_SECONDS = 60.0  # nodes are slow on a single processor

# The last line has no end, and contains the number of lines before it, so that lines missing there
# are noticed too. Some are so long that the container's runtime splits them; it has a thread for
# each of the two outputs.
TRAINING = """
import itertools, os, signal, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append("to end"))
for n in itertools.count():
    long = "x" * (40_000 if n > 150 and n % 50 == 0 else 0)
    os.write(2 if n < 100 else 1, f"{n} {long}\\n".encode())
    time.sleep(0.01)
    if asked:
        break
for n in range(n + 1, n + 101):
    os.write(1, f"{n} \\n".encode())
os.write(1, f"{n + 1} lines".encode())
"""


def launch() -> Launch:
    command = ("python3", "-c", TRAINING)
    spec = JobSpec(name="j", user="ada", command=command, max_epochs=3, image=IMAGE)
    return Launch(JobId(str(uuid.uuid4())), 1, spec, (), 0, 3, "secret-of-the-job")


def kept(root: Path, launch: Launch) -> bytes:
    return b"".join(file.path.read_bytes() for file in run_logs.files(root, launch.job_id))


def numbers(root: Path, launch: Launch) -> list[int]:
    """Sorted: what goes to two outputs at a time may come in any order."""
    return sorted(int(line.split()[0]) for line in kept(root, launch).splitlines())


def says_more(root: Path, launch: Launch, size: int) -> None:
    wanted = len(kept(root, launch)) + size
    eventually(lambda: len(kept(root, launch)) > wanted)


def has_left(made: StartedCluster, launch: Launch) -> None:
    eventually(lambda: not pods_of(launch, made.observe()), 2 * SLOW_SECONDS)


def test_no_line_is_lost_and_none_is_there_twice(
    nodes: Nodes, control: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    chance, kubeconfig = random.Random(1), daemon_kubeconfig(control, namespace)

    def follower() -> AbstractContextManager[StartedCluster]:
        return started_cluster(kubeconfig, namespace, logs=tmp_path, shape={"cpu": "1m"})

    launches = [launch() for _ in range(PODS)]
    with follower() as made:
        for each in launches:
            made.perform(each)
        eventually(lambda: all(kept(tmp_path, each) for each in launches), 5 * SLOW_SECONDS)
    chance.shuffle(launches)
    while launches:
        # What was kept since the position was last saved comes again, as after a `kill -9`.
        places = {path: path.read_bytes() for path in tmp_path.glob("*/*/*.place")}
        with follower() as made:
            leaving, launches = launches[:2], launches[2:]
            for each in leaving:
                says_more(tmp_path, each, chance.randint(100, 2_000))
                if chance.random() < 0.5:
                    made.perform(Remove(each.job_id, 1))
                else:
                    name = pods.pod_name((each.job_id, 1), 0)
                    control.kubectl("delete", "pod", name, "-n", namespace, "--wait=false")
            for each in leaving:
                has_left(made, each)
        for each in leaving:
            assert numbers(tmp_path, each) == list(range(len(numbers(tmp_path, each))))
            assert kept(tmp_path, each).endswith(b" lines")
        for path, early in places.items():
            path.write_bytes(early)
