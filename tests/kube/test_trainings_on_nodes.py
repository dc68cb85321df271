"""Real trainings in real pods, from a command to the last epoch, even if nodes fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scheduler.v1 import scheduler_pb2
from tests.kube.conftest import IMAGE, ROOT
from tests.kube.images import python_image
from tests.kube.network import HOST
from tests.kube.nodes import Nodes
from tests.kube.processes import free_port
from tests.kube.trainings import SLOW_SECONDS, Lab, epochs
from tests.nvml import machine as nvml
from tests.support import eventually

LOGS = ROOT / "tests" / "e2e" / "logs.py"
AGENT = "docker.io/epoch-scheduler/agent:test"


@pytest.fixture
def lab(nodes: Nodes, namespace: str, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(nodes, namespace, tmp_path)
    yield lab
    lab.end()


def test_two_share_a_gpu_and_both_end(lab: Lab) -> None:
    lab.offer(lab.nodes.nodes[0], "GPU-shared")
    daemon = lab.start()
    first, _ = two_share(lab, "GPU-shared")
    assert daemon.run("scheduler-get-logs", first).stdout.endswith("epoch 2 done\n")
    eventually(lambda: not lab.remaining_objects())


def two_share(lab: Lab, gpu: str) -> list[str]:
    """The ids of the jobs."""
    gates = [lab.gate("a"), lab.gate("b")]
    two = "--max_epochs", "2", "--estimated_memory"
    jobs = [lab.train(gates[0], "a", *two, "6000"), lab.train(gates[1], "b", *two, "7000")]
    for job_id in jobs:
        (container,) = lab.wait_until_running(job_id)["spec"]["containers"]
        told = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert told["NVIDIA_VISIBLE_DEVICES"] == gpu
    for gate in gates:
        gate.open(2)
    for job_id in jobs:
        assert lab.wait_until_ended(job_id, epochs=2) == 1
        lab.wait_until_logged(job_id, *epochs(1, 2))
    return jobs


def test_two_share_a_gpu_that_a_holder_keeps_and_whose_agent_tells_of_it(
    lab: Lab, tmp_path: Path
) -> None:
    node = lab.nodes.nodes[0]
    node.load(agent_image(nvml.build(tmp_path)))
    node.give("GPU-held")
    lab.create_account_of_agents()
    daemon = lab.start(node_mode="owned", holder_image=AGENT)
    eventually(lambda: daemon.state_of("--cluster")["gpus"], SLOW_SECONDS)
    two_share(lab, "GPU-held")


def agent_image(library: Path) -> Path:
    packages = ("click", "google", "grpc", "grpc_health", "grpc_reflection", "msgspec", "pynvml.py")
    ours: list[str | Path] = [*packages, "structlog", "typing_extensions.py", ROOT / "scheduler"]
    files = {
        "/usr/local/bin/scheduler-agent": Path(__file__).with_name("agent.sh"),
        f"/nvml/{library.name}": library,
    }
    return python_image(AGENT, ours, files, command=["scheduler-agent"])


def test_what_one_logs_is_heard_beside_it_and_reaches_the_gateway_once(lab: Lab) -> None:
    """A pod is deleted in the midst of an epoch, which the next one repeats."""
    lab.nodes.nodes[0].load(agent_image_without_gpus())
    lab.offer(lab.nodes.nodes[0], "GPU-only")
    shutil.copy(LOGS, lab.shared / "logs.py")
    gateway, gate = f"{HOST}:{free_port()}", lab.gate("logs")
    lab.daemon.environment = {
        "SCHEDULER_GATEWAY__LISTEN": gateway,
        "SCHEDULER_GATEWAY__PLAIN_HTTP": "true",
        "SCHEDULER_GATEWAY__HOSTS": HOST,
        "SCHEDULER_GATEWAY__USER": "root",
    }
    lab.start(relay_image=AGENT, relay_gateway=f"http://{gateway}")
    job_id = lab.train(gate, "logs", "--max_epochs", "3", command=("python3", "/custom/logs.py"))
    gate.await_ring(SLOW_SECONDS)
    spec = lab.pod(job_id)["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["relay"]
    gate.open()
    gate.await_ring()

    def losses() -> list[float]:
        told = {"db": "x", "epoch": "ns", "q": "SELECT loss FROM metrics"}
        (result,) = httpx.get(
            f"http://{gateway}/query",
            params=told,
            headers={"authorization": f"Bearer {lab.daemon.token('root')}"},
            trust_env=False,
        ).json()["results"]
        return [value for series in result.get("series", ()) for _, value in series["values"]]

    eventually(lambda: len(losses()) == 20, SLOW_SECONDS)
    lab.delete(job_id)
    gate.await_ring(SLOW_SECONDS)
    gate.open(2)
    assert lab.wait_until_ended(job_id, epochs=3) == 2
    eventually(lambda: losses() == [1 / n for n in range(1, 31)], SLOW_SECONDS)
    eventually(lambda: not lab.remaining_objects(), SLOW_SECONDS)


def agent_image_without_gpus() -> Path:
    return python_image(AGENT, ["msgspec", ROOT / "scheduler"])


def test_one_that_makes_room_after_an_epoch_loses_nothing(lab: Lab) -> None:
    lab.offer(lab.nodes.nodes[0], "GPU-only")
    lab.start()
    long, short = lab.gate("long"), lab.gate("short")
    most = "--estimated_memory", "9000"
    preempted = lab.train(long, "long", "--max_epochs", "4", *most)
    long.open()
    long.await_ring(SLOW_SECONDS)
    long.await_ring()  # it is in its second epoch
    urgent = lab.train(short, "urgent", "--max_epochs", "1", "--priority", "10", *most)
    lab.wait_until(preempted, lambda job: job.state == "STOPPING")
    long.open()
    lab.wait_until_running(urgent)
    made_room = lab.wait_until(preempted, lambda job: job.state == "QUEUED")
    assert (made_room.preempted, made_room.epochs_done) == (True, 2)
    short.open()
    assert lab.wait_until_ended(urgent, epochs=1) == 1
    long.open(2)
    assert lab.wait_until_ended(preempted, epochs=4) == 2
    lab.wait_until_logged(preempted, *epochs(1, 4))
    lab.wait_until_logged(urgent, *epochs(1, 1))


def test_a_gang_over_two_nodes_goes_on_after_one_of_its_pods_was_deleted(lab: Lab) -> None:
    for node in lab.nodes.nodes:
        lab.offer(node, f"GPU-of-{node.name}")
    lab.start()
    gate = lab.gate("gang")
    two = "--num_gpus", "2", "--max_epochs", "3", "--estimated_memory", "9000"
    gang = lab.train(gate, "gang", *two, command=("python3", "-c", GANG))
    gate.open()
    lab.wait_until_logged(gang, *ranks(1, 1))
    homes = {lab.pod(gang, rank=rank)["spec"]["nodeName"] for rank in (0, 1)}
    assert homes == {node.name for node in lab.nodes.nodes}
    lab.delete(gang, rank=1)
    lab.wait_until_running(gang, attempt=2)
    gate.open(2)
    assert lab.wait_until_ended(gang, epochs=3) == 2
    lab.wait_until_logged(gang, *ranks(1, 3))
    eventually(lambda: not lab.remaining_objects())


def test_each_gpu_of_two_nodes_has_a_process(lab: Lab) -> None:
    for node in lab.nodes.nodes:
        lab.offer(node, f"GPU-a-{node.name}", f"GPU-b-{node.name}")
    lab.start()
    told = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $NUM_GPUS on $NODE_RANK, done"'
    each = "--num_gpus", "4", "--processes_per_node", "gpu", "--estimated_memory", "9000"
    gang = lab.train(lab.gate("none"), "gang", *each, command=("sh", "-c", told))
    assert lab.wait_until(gang, lambda job: bool(job.ended_at)).state == "FINISHED"
    lab.wait_until_logged(
        gang, *(f"{rank} of 4, {rank % 2} of 2 on {rank // 2}, done" for rank in range(4))
    )


def test_a_pod_that_was_deleted_by_hand_costs_no_retry(lab: Lab) -> None:
    lab.offer(lab.nodes.nodes[0], "GPU-only")
    daemon, gate = lab.start(), lab.gate("deleted")
    job_id = lab.train(gate, "deleted", "--max_epochs", "3", "--retries", "0")
    gate.open()
    lab.wait_until_logged(job_id, *epochs(1, 1))
    for attempt in (1, 2):
        lab.delete(job_id, attempt)
        lab.wait_until_running(job_id, attempt + 1)
    gate.open(2)
    assert lab.wait_until_ended(job_id, epochs=3) == 3
    lab.wait_until_logged(job_id, *epochs(1, 3))
    ends = [fact.data_json for fact in daemon.story(job_id) if fact.kind == "run_ended"]
    assert all("its pod was" in told for told in ends[:2])


@pytest.mark.parametrize(
    ("taken", "refusal"), [("nvidia.com/gpu", "UnexpectedAdmissionError"), ("cpu", "OutOfcpu")]
)
def test_what_a_kubelet_refuses_is_tried_again(lab: Lab, taken: str, refusal: str) -> None:
    node = lab.nodes.nodes[0]
    node.give("GPU-only")
    daemon, gate = lab.start(binding="node_name", cpu="600m"), lab.gate("refused")
    cores = int(lab.control.get("node", node.name)["status"]["allocatable"]["cpu"])
    lab.add_foreign_pod(node, **{taken: "1" if taken != "cpu" else f"{cores * 1000 - 500}m"})
    job_id = lab.train(gate, "refused", "--max_epochs", "1", "--retries", "0")
    lab.wait_until(job_id, lambda job: job.attempt >= 2)
    lab.delete_foreign_pod()
    gate.open()
    lab.wait_until_ended(job_id, epochs=1)
    lab.wait_until_logged(job_id, *epochs(1, 1))
    first = next(fact for fact in daemon.story(job_id) if fact.kind == "run_ended")
    assert refusal in first.data_json


def test_what_a_kubelet_cannot_start_says_why(lab: Lab) -> None:
    lab.offer(lab.nodes.nodes[0], "GPU-only")
    lab.start(image_pull_policy="IfNotPresent", image_deadline_seconds=1.0)
    gate = lab.gate("never")
    small = "--estimated_memory", "4000", "--retries", "0"
    no_image = lab.train(gate, "no-image", *small, "--image_name", "nowhere.invalid/none:1")
    no_folder = lab.train(gate, "no-folder", *small, "--snapshots_dir", "/proc/none")
    failed = lab.wait_until(no_image, lambda job: job.state == "FAILED")
    assert "its image is not available from nowhere.invalid: " in failed.reason
    assert "nowhere.invalid/none:1" in failed.reason
    failed = lab.wait_until(no_folder, lambda job: job.state == "FAILED")
    assert "failed to create subPath directory" in failed.reason
    eventually(lambda: not lab.remaining_objects())


def over(job: scheduler_pb2.Job) -> bool:
    return job.state in ("FAILED", "FINISHED")


def test_a_link_that_a_job_makes_leads_no_other_job_out_of_the_folder_of_jobs(lab: Lab) -> None:
    outside = lab.shared.with_name("outside")
    outside.mkdir(mode=0o777)
    (outside / "secret").write_text("of the node\n")
    place = f"host:{lab.shared}"
    lab.start(custom=place, snapshots=place, data=place, image_deadline_seconds=1.0)
    few = "--image_name", IMAGE, "--num_gpus", "0", "--retries", "0"
    links = {"out": str(outside), "in": "own", "root": "/"}
    made = (f"os.symlink('{to}', '/data/{name}')" for name, to in links.items())
    script = f"import os; os.mkdir('/data/own'); {'; '.join(made)}"
    makes = lab.daemon.submit(*few, "makes", "--", "python3", "-c", script)
    assert lab.wait_until(makes, over).state == "FINISHED"
    assert (lab.shared / "out" / "secret").exists(), "on the node, the link leads there"

    within = "--custom_dir", str(lab.shared / "in"), "within"
    kept = lab.daemon.submit(*few, *within, "--", "python3", "-c", "open('/custom/seen', 'w')")
    assert lab.wait_until(kept, over).state == "FINISHED"
    assert (lab.shared / "own" / "seen").exists()
    for flag, folder in (
        ("--custom_dir", "out"),
        ("--snapshots_dir", "out"),
        ("--custom_dir", f"root{outside}"),
    ):
        name = f"escapes{flag}-{folder.partition('/')[0]}"
        words = flag, str(lab.shared / folder), name, "--", "python3", "-c"
        path = "/snapshots/secret" if flag == "--snapshots_dir" else "/custom/secret"
        told = lab.daemon.submit(*few, *words, f"print(open('{path}').read())")
        failed = lab.wait_until(told, over)
        assert "of the node" not in lab.daemon.run("scheduler-get-logs", told).stdout
        assert "failed to prepare subPath" in failed.reason
    eventually(lambda: not lab.remaining_objects())


def test_a_training_goes_on_while_the_programs_of_its_node_are_killed(lab: Lab) -> None:
    node = lab.nodes.nodes[0]
    lab.offer(node, "GPU-only")
    lab.start()
    gate = lab.gate("unhurt")
    job_id = lab.train(gate, "unhurt", "--max_epochs", "4")
    gate.open()
    lab.wait_until_logged(job_id, *epochs(1, 1))
    for epoch, program in ((2, node.kubelet), (3, node.containerd)):
        program.kill()
        gate.open()
        lab.wait_until_counted(job_id, epoch)
        lab.nodes.start()
    gate.open()
    assert lab.wait_until_ended(job_id, epochs=4) == 1
    lab.wait_until_logged(job_id, *epochs(1, 4))


def test_a_training_goes_on_elsewhere_when_its_node_is_gone_for_good(lab: Lab) -> None:
    for node in lab.nodes.nodes:
        lab.offer(node, f"GPU-of-{node.name}")
    lab.start()
    gate = lab.gate("moved")
    job_id = lab.train(gate, "moved", "--max_epochs", "3")
    gate.open()
    lab.wait_until_logged(job_id, *epochs(1, 1))
    home = lab.pod(job_id)["spec"]["nodeName"]
    lab.lose(next(node for node in lab.nodes.nodes if node.name == home))
    assert lab.wait_until_running(job_id, attempt=2)["spec"]["nodeName"] != home
    gate.open(2)
    assert lab.wait_until_ended(job_id, epochs=3) == 2
    lab.wait_until_logged(job_id, *epochs(1, 3))


def ranks(first: int, last: int) -> list[str]:
    return [f"rank {rank} {line}" for rank in (0, 1) for line in epochs(first, last)]


# Two ranks that exchange their progress after each epoch. A gate controls the first one.
GANG = """
import os, socket, time
from kubernetesdlprofile import kubeprofiler

prof = kubeprofiler.KubeProfiler()
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if prof.RANK == 0:
    peer, _ = socket.create_server(("", where[1])).accept()
    gate = os.open(os.environ["GATE"], os.O_RDONLY)
while prof.RANK == 1:
    try:
        peer = socket.create_connection(where)
        break
    except OSError:
        time.sleep(0.1)
for epoch in range(prof.EPOCHS_DONE, prof.EPOCHS):
    prof.start_epoch()
    prof.measure()
    if prof.RANK == 0:
        os.read(gate, 1)
    peer.sendall(bytes([epoch, prof.RANK]))
    heard = peer.recv(2, socket.MSG_WAITALL)
    assert heard == bytes([epoch, 1 - prof.RANK]), heard
    prof.end_epoch()
    print(f"rank {prof.RANK} epoch {epoch + 1} done", flush=True)
prof.end()
"""
