"""What an agent in a holder sees of real processes in real pods, and what follows from it. Only the
memory that each uses of a GPU is simulated, because there is no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from scheduler.clusters.kubernetes.holders.holder import OWNED, Hold
from scheduler.gpus.usage import WATCHDOG
from tests.kube.images import python_image
from tests.kube.nodes import Nodes
from tests.kube.test_trainings_on_nodes import AGENT, agent_image
from tests.kube.trainings import SLOW_SECONDS, Lab, epochs
from tests.nvml import machine as nvml
from tests.support import BIN, eventually

CARD = "GPU-held"
CANARY = "docker.io/epoch-scheduler/canary:test"
WRITE = "import os, sys; open('new', 'w').write(sys.stdin.read()); os.rename('new', 'machine')"


class Watched(Lab):
    """A GPU that a holder reserves; the agent in it sees all processes of its node."""

    def __init__(self, nodes: Nodes, namespace: str, folder: Path) -> None:
        super().__init__(nodes, namespace, folder)
        self.node = nodes.nodes[0]
        self._holder = Hold(self.node.name, 0, 1).name, "--namespace", namespace
        self._machine = nvml.Machine(folder / "machine")
        self._machine.gpu(CARD, 16_384, 300)  # between 15,893 and 16,084 MiB it is more than shared
        self._machine.mortal()
        self.node.load(agent_image(nvml.build(folder)))
        self.node.give(CARD)
        self.create_account_of_agents()
        self.start(node_mode=OWNED, holder_image=AGENT, holder_host_pid=True)
        eventually(lambda: self.daemon.state_of("--cluster")["gpus"], SLOW_SECONDS)
        self._tell()

    def takes(self, training: psutil.Process, mib: int) -> int:
        """Makes the simulated driver report it. Returns its pid on the node."""
        _, pid, _ = _pids(training)  # on this machine, on the node, in its container
        self._machine.process(0, pid, mib)
        self._tell()
        return pid

    def card(self) -> dict[str, Any]:
        (card,) = self.daemon.state_of("--cluster")["gpus"]
        return dict(card)

    def _tell(self) -> None:
        words = ("exec", "--stdin", *self._holder, "--", "sh", "-c")
        script = f'cd /dev/shm && exec python3 -c "{WRITE}"'
        self.control.kubectl(*words, script, text=self._machine.path.read_text())


def process_of(pod: dict[str, Any]) -> psutil.Process:
    """The training's process in it."""
    uid = pod["metadata"]["uid"]
    names = uid, uid.replace("-", "_")
    (found,) = (
        process
        for process in psutil.process_iter(["name"])
        if process.info["name"].startswith("python") and any(n in _cgroup(process) for n in names)
    )
    return found


def _cgroup(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except OSError:  # it has ended
        return ""


def _pids(process: psutil.Process) -> list[int]:
    """Its pids, one for each namespace that it is in."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("NSpid:"))
    return [int(pid) for pid in line.split()[1:]]


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Watched]:
    lab = Watched(nodes, namespace, tmp_path)
    yield lab
    lab.end()


def test_a_canary_sees_the_card_that_it_names_though_a_holder_has_all(
    lab: Watched, tmp_path: Path
) -> None:
    program = {"/usr/local/bin/nvidia-smi": Path(__file__).with_name("nvidia-smi.sh")}
    lab.node.load(python_image(CANARY, (), program, command=["sleep", "infinity"]))
    words = ("--config", str(tmp_path / "settings.toml"), "--canary", "--json")
    done = subprocess.run(
        [BIN / "scheduler-doctor", *words],
        env={**os.environ, "SCHEDULER_KUBERNETES__IMAGE": CANARY},
        capture_output=True,
        text=True,
    )
    (told,) = (each for each in json.loads(done.stdout) if each["what"] == "canary")
    assert told["where"] == f"node {lab.node.name}"
    assert told["words"] == f"a pod sees only the GPU that it was given ({CARD})"


def test_a_card_is_taken_while_a_process_of_a_pod_that_is_gone_is_seen_there(lab: Watched) -> None:
    gate, most = lab.gate("left"), ("--estimated_memory", "9000")
    job_id = lab.train(gate, "left", "--max_epochs", "2", *most)
    training = process_of(lab.wait_until_running(job_id))
    gate.open()
    lab.wait_until_logged(job_id, *epochs(1, 1))
    pid = lab.takes(training, 9000)
    seen = {"pid": pid, "memory_mib": 9000, "name": training.name(), "job": job_id, "attempt": 1}
    eventually(lambda: lab.card()["processes"] == [seen])
    assert lab.card()["keeps"] == WATCHDOG
    lab.control.controllers.kill()  # the cluster does not notice that the node does not answer
    lab.node.kubelet.kill()
    lab.force_delete(job_id)
    lab.wait_until(
        job_id, lambda job: job.why.detail == "waits for the pods of its last run to be gone"
    )
    later = lab.train(lab.gate("later"), "later", "--num_gpus", "0")
    lab.wait_until(later, lambda job: job.attempt == 1)  # so a plan was made again
    assert lab.wait_until(job_id, lambda job: True).attempt == 1
    assert lab.card()["ready"]
    assert lab.card()["processes"] == [seen]
    assert training.is_running()
    lab.nodes.start()  # its kubelet finds a container that should not exist
    lab.wait_until(job_id, lambda job: job.attempt == 2)
    assert not training.is_running()
    gate.open()
    assert lab.wait_until_ended(job_id, epochs=2) == 2
    lab.wait_until_logged(job_id, *epochs(1, 2))


def test_who_takes_more_than_its_share_leaves_after_its_epoch(lab: Watched) -> None:
    gates, memory = [lab.gate("greedy"), lab.gate("other")], "--estimated_memory"
    greedy = lab.train(gates[0], "greedy", "--max_epochs", "4", memory, "6000")
    other = lab.train(gates[1], "other", "--max_epochs", "2", memory, "7000")
    training = process_of(lab.wait_until_running(greedy))
    lab.wait_until_running(other)
    for gate in gates:
        gate.await_ring(SLOW_SECONDS)
    lab.takes(training, 9000)  # of 6,000: together they use more than can be shared
    lab.wait_until(greedy, lambda job: job.state == "STOPPING")
    gates[0].open()
    lab.wait_until(greedy, lambda job: job.state == "QUEUED" and job.epochs_done == 1)
    (over,) = (fact for fact in lab.daemon.story(greedy) if fact.kind == "run_over_share")
    told = json.loads(over.data_json)
    assert (told["used_mib"], told["share_mib"], told["at_once"]) == (9000, 6000, False)
    gates[1].open(2)
    assert lab.wait_until_ended(other, epochs=2) == 1
    gates[0].open(3)
    assert lab.wait_until_ended(greedy, epochs=4) == 2
    lab.wait_until_logged(greedy, *epochs(1, 4))
