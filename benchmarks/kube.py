"""2,000 jobs on a daemon with an API server: `python -m benchmarks.kube --json`.

There is a real control plane, and kwok simulates 250 nodes of 8 GPUs: the cluster's own scheduler
binds pods, which run for some seconds and succeed. The jobs come in waves. Needs what `make kube`
builds; without it, it prints that and measures nothing.

    p50_seconds, p99_seconds  from the submission of a job until the daemon knows that it runs
    requests_per_job  to the API server, without those for logs, which kwok does not have
    requests          the same by verb and resource
    cpu_seconds       of the daemon for all jobs
    rss_mib           the daemon's peak memory
    left              objects of ours that remain when all jobs have ended
"""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import options, show
from scheduler.clusters.kubernetes import pods
from scheduler.core.model import Gpu
from scheduler.v1 import scheduler_pb2
from tests.kube.build import BuildError, program
from tests.kube.cluster import daemon_kubeconfig
from tests.kube.control import ControlPlane
from tests.kube.processes import free_port
from tests.support import Daemon, eventually

NAMESPACE = "bench"
GPUS = 8  # of a node
CARD_MIB = 16_384
CLIENTS = 8
RUNS_SECONDS = (20, 40)  # at least and at most
READY_SECONDS, ENDED_SECONDS, LEFT_SECONDS = 300.0, 900.0, 120.0
GLANCE_SECONDS = 0.2
OURS = f"{pods.MANAGED_BY}={pods.OURS}"
SETTINGS = """
cluster = "kubernetes"
[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "{namespace}"
service = "{address}"
image = "none:1"
runtime_class = ""
stop_grace_seconds = 1
"""
# kwok does not end pods that are not deleted; this stage does.
ENDS: Mapping[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-ends"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchLabels": {pods.MANAGED_BY: pods.OURS},
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
            ],
        },
        "delay": {
            "durationMilliseconds": RUNS_SECONDS[0] * 1000,
            "jitterDurationMilliseconds": RUNS_SECONDS[1] * 1000,
        },
        "next": {
            "statusTemplate": """
phase: Succeeded
containerStatuses:
- {name: main, image: "none:1", ready: false, restartCount: 0, state: {
   terminated: {exitCode: 0, reason: Completed, finishedAt: {{ Now | Quote }}}}}
"""
        },
    },
}


def main() -> None:
    given = options(__doc__, nodes=250, jobs=2_000, waves=4, every_seconds=30.0, seed=1)
    if why := missing():
        show(not_measured=why)
        return
    os.environ.setdefault("SCHEDULER_RULES__PLAN_EVERY_SECONDS", "1")  # a daemon's default
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ends = folder / "ends.json"
        ends.write_text(json.dumps(ENDS))
        user = f"system:serviceaccount:{NAMESPACE}:scheduler"
        control = ControlPlane(folder / "kube", audited=user, played=[ends])
        try:
            _started(control, given.nodes)
            daemon = daemon_on(control, NAMESPACE, folder)
            try:
                _say("the cluster is ready")
                taken = _waves(daemon, given.jobs, given.waves, given.every_seconds, given.seed)
                process = psutil.Process(daemon.pid)
                times, most = process.cpu_times(), _most_mib(daemon.pid)
                objects = left(control, NAMESPACE, LEFT_SECONDS)
            finally:
                daemon.end()
            requests = _requests(control)
        finally:
            control.stop()
    show(
        nodes=given.nodes,
        gpus=given.nodes * GPUS,
        jobs=given.jobs,
        waves=given.waves,
        p50_seconds=round(statistics.median(taken), 2),
        p99_seconds=round(statistics.quantiles(taken, n=100)[98], 2),
        requests_per_job=round(sum(requests.values()) / given.jobs, 2),
        requests=dict(requests.most_common()),
        cpu_seconds=round(times.user + times.system, 1),
        rss_mib=round(most),
        left=objects,
    )


# --- for benchmarks and tests of a daemon on a cluster ------------------------------------------


def missing() -> str:
    """Why there can be no cluster on this machine; empty if there can."""
    try:
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
            program(name)
    except BuildError as error:
        return str(error)
    return ""


def daemon_on(control: ControlPlane, namespace: str, folder: Path) -> Daemon:
    """A running daemon with an address that pods know."""
    address = f"127.0.0.1:{free_port()}"
    kubeconfig = daemon_kubeconfig(control, namespace)
    file = folder / "settings.toml"
    file.write_text(SETTINGS.format(kubeconfig=kubeconfig, namespace=namespace, address=address))
    daemon = Daemon(folder / "state", "0", "--config", str(file))
    daemon.address = address
    return daemon.start()


def left(control: ControlPlane, namespace: str, seconds: float) -> int:
    """The number of objects of ours, once it is 0 or after this time."""
    until = time.monotonic() + seconds
    while True:
        kinds = "pods,configmaps,secrets,services"
        found = control.get(kinds, "--namespace", namespace, "--selector", OURS)["items"]
        if not found or time.monotonic() > until:
            return len(found)
        time.sleep(GLANCE_SECONDS)


# --- the cluster --------------------------------------------------------------------------------


def _started(control: ControlPlane, nodes: int) -> None:
    control.start()
    for process in (control.controllers, control.scheduler, control.kwok):
        process.start()
    control.namespace(NAMESPACE)
    control.apply({"apiVersion": "v1", "kind": "List", "items": [*map(_node, range(nodes))]})
    eventually(lambda: sum(map(_ready, control.get("nodes")["items"])) == nodes, READY_SECONDS)


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    gpus = [Gpu(f"GPU-{number}-{index}", index, "t4", CARD_MIB) for index in range(GPUS)]
    meta = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {"kwok.x-k8s.io/node": "fake", pods.GPUS: pods.gpus_annotation(gpus)},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def _ready(node: Mapping[str, Any]) -> bool:
    """Whether it is ready and has no taint that keeps pods away."""
    told = node.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in told)
    return ready and not node["spec"].get("taints")


# --- the load -----------------------------------------------------------------------------------


def _waves(daemon: Daemon, jobs: int, waves: int, every_seconds: float, seed: int) -> list[float]:
    """Seconds until each job ran; returns when all have ended."""
    chance, sent = random.Random(seed), dict[str, float]()
    specs = [_spec(chance) for _ in range(jobs)]
    began = time.monotonic()
    with daemon.stub() as (stub, metadata), ThreadPoolExecutor(CLIENTS) as clients:

        def submit(spec: scheduler_pb2.JobSpec) -> None:
            job_id = str(uuid.uuid4())
            sent[job_id] = time.time()
            request = scheduler_pb2.SubmitRequest(job_id=job_id, spec=spec)
            stub.Submit(request, metadata=metadata, timeout=120)

        for wave in range(waves):
            time.sleep(max(0.0, began + wave * every_seconds - time.monotonic()))
            list(clients.map(submit, specs[wave::waves]))
            _say(f"wave {wave + 1} of {waves} is submitted")
    database = daemon.state / "scheduler.db"
    eventually(lambda: _ended(database) >= jobs, ENDED_SECONDS)
    ran = _ran(database)
    return [ran[job_id] - at for job_id, at in sent.items()]


def _spec(chance: random.Random) -> scheduler_pb2.JobSpec:
    """Most jobs share a GPU; some take several."""
    gpus = chance.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 4))
    return scheduler_pb2.JobSpec(
        name="job",
        command=["train"],
        gpus_min=gpus,
        gpus_max=gpus,
        memory_mib=chance.choice((2_000, 4_000, 7_000, 15_000)),
    )


# --- what came of it ----------------------------------------------------------------------------


def _ended(database: Path) -> int:
    with closing(sqlite3.connect(database)) as db:
        (count,) = db.execute("select count(*) from jobs where outcome = 'succeeded'").fetchone()
    return int(count)


def _ran(database: Path) -> dict[str, float]:
    """When the daemon first knew that a job runs."""
    query = "select job_id, min(at) from facts where kind = 'run_running' group by job_id"
    with closing(sqlite3.connect(database)) as db:
        return dict(db.execute(query))


def _requests(control: ControlPlane) -> Counter[str]:
    """Requests by verb and resource, without logs."""
    counted: Counter[str] = Counter()
    with control.requests.open() as lines:
        for line in lines:
            request = json.loads(line)
            about = request["objectRef"]
            if about.get("subresource") != "log":
                counted[f"{request['verb']} {about['resource']}"] += 1
    return counted


def _most_mib(pid: int) -> float:
    """The peak memory of the process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


if __name__ == "__main__":
    main()
