"""Jobs and a cluster to draw. `python -m tests.cli.samples` writes the golden files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler.presentation import comparison_view, metrics_view, views
from scheduler.presentation.comparison_view import Sections
from scheduler.presentation.render import Screen
from scheduler.v1 import scheduler_pb2 as pb

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
GOLDEN = Path(__file__).with_name("golden")
WIDTHS = (60, 80, 140)


def job(end: str, name: str, state: str, user: str = "ada", **given: Any) -> pb.Job:
    asked: dict[str, Any] = {"gpus_min": 1, "gpus_max": 1, "priority": 1, "max_epochs": 30}
    spec = pb.JobSpec(
        name=name, user=user, script_path="/custom/train.py", **(asked | given.pop("spec", {}))
    )
    given = {"max_epochs": 30, "priority": 1, **given}
    return pb.Job(id=f"0f3c0e8e-56d5-4a6a-9a3e-0000{end}", spec=spec, state=state, **given)


JOBS = (
    job(
        "60ce2fc7",
        "demo",
        "RUNNING",
        epochs_done=3,
        submitted_at=NOW - 200,
        started_at=NOW - 190,
        run_started_at=NOW - 190,
        heard_at=NOW - 12,
        attempt=1,
        epoch_seconds=41,
        eta_seconds=1107,
        memory_mib=6000,
        shares=[pb.Share(node="westworld", gpu="gpu0", memory_mib=6000)],
    ),
    job(
        "99ce2fc7",
        "resnet50-imagenet-lr0.1-seed7",
        "QUEUED",
        submitted_at=NOW - 60,
        reason="memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)",
        memory_mib=4000,
        spec={
            "memory_mib": 4000,
            "image": "pytorch:2",
            "args": ["--note", "a b"],
            "project": "vision",
            "experiment": "e1",
            "labels": [pb.KeyValue(key="sweep", value="7")],
            "env": [pb.KeyValue(key="LR", value="0.1")],
            "ports": [pb.PortMapping(host=31346, container=6006)],
        },
    ),
    job(
        "12345678",
        "grid-2",
        "QUEUED",
        epochs_done=3,
        attempt=1,
        submitted_at=NOW - 4000,
        started_at=NOW - 3000,
        preempted=True,
        reason="turn (what is free is reserved for urgent)",
    ),
    job(
        "abcdef01",
        "vit",
        "UNRESPONSIVE",
        user="bartholomew",
        epochs_done=12,
        attempt=2,
        submitted_at=NOW - 90_000,
        started_at=NOW - 80_000,
        shares=[pb.Share(node="westworld", gpu=f"gpu{i}", memory_mib=15872) for i in range(4)],
        reason="no report for more than two heartbeats",
    ),
    job(
        "0000beef",
        "好的名字",
        "FAILED",
        attempt=3,
        submitted_at=NOW - 400_000,
        started_at=NOW - 300_000,
        ended_at=NOW - 200_000,
        reason="exit code 1, 3 times",
    ),
    job(
        "0000bee0",
        "old",
        "FINISHED",
        epochs_done=30,
        attempt=1,
        submitted_at=NOW - 400_000,
        started_at=NOW - 300_000,
        ended_at=NOW - 200_000,
        reason="finished",
    ),
)

CLUSTER = pb.Cluster(
    gpus=[
        pb.GpuState(
            node="westworld",
            gpu=f"gpu{index}",
            index=index,
            type=kind,
            memory_mib=16384,
            capacity_mib=15872,
            reserved_mib=sum(mib for _, mib in held),
            ready=True,
            jobs=[pb.GpuJob(name=name, user="ada", memory_mib=mib) for name, mib in held],
        )
        for index, (kind, held) in enumerate(
            (
                ("pretended", [("demo", 6000), ("grid-2", 7000)]),
                ("Tesla V100-SXM2-16GB", [("vit", 15872)]),
                ("pretended", []),
            )
        )
    ],
    users=[
        pb.UserTotal(user="ada", running=2, waiting=2, gpus=0.819, memory_mib=13000),
        pb.UserTotal(user="bartholomew", running=1, gpus=1, memory_mib=15872),
    ],
)

# With agents on the nodes: a job over its share, foreign processes, a lost GPU, and an unknown one.
WATCHED = pb.Cluster(
    gpus=[
        pb.GpuState(
            node="n1",
            index=0,
            type="t4",
            memory_mib=16384,
            capacity_mib=15872,
            reserved_mib=13000,
            used_mib=13900,
            busy=0.97,
            keeps="watchdog",
            ready=True,
            jobs=[
                pb.GpuJob(name="demo", user="ada", memory_mib=6000, used_mib=7100),
                pb.GpuJob(name="grid-2", user="ada", memory_mib=7000, used_mib=6800),
            ],
        ),
        pb.GpuState(
            node="n1",
            index=1,
            type="t4",
            memory_mib=16384,
            capacity_mib=15872,
            used_mib=9000,
            busy=0.05,
            strange_mib=9024,
            fault="foreign processes use 9024 MiB",
            keeps="watchdog",
            ready=True,
            processes=[pb.GpuProcess(pid=4711, name="python", memory_mib=9000)],
        ),
        pb.GpuState(
            node="n2",
            index=0,
            type="t4",
            memory_mib=16384,
            capacity_mib=15872,
            reserved_mib=8000,
            used_mib=0,
            busy=0.0,
            fault="XID 79",
            lost=True,
            keeps="library",
            ready=True,
            jobs=[pb.GpuJob(name="vit", user="ada", memory_mib=8000, used_mib=0)],
        ),
        pb.GpuState(
            node="n2",
            index=1,
            type="t4",
            memory_mib=16384,
            capacity_mib=15872,
            ready=True,
            slow=pb.SlowGpu(speed=0.21, doubt=0.05, epochs=12, jobs=4),
        ),
        pb.GpuState(node="n3", index=0, type="t4", memory_mib=16384, capacity_mib=15872),
    ]
)


def foreseen() -> Iterator[tuple[pb.Job, pb.Learned]]:
    """A run slowed down by a neighbour, and a waiting job."""
    runs = pb.Job()
    runs.CopyFrom(JOBS[0])
    slowed = "0.78 of its speed alone, measured beside grid-2"
    runs.why.CopyFrom(pb.Why(kind="slowed", detail=slowed))
    runs.eta.CopyFrom(pb.Eta(ends_low=NOW + 900, ends_at=NOW + 1150, ends_high=NOW + 1900))
    yield (
        runs,
        pb.Learned(
            speeds=[
                pb.Speed(gpus="t4x1", measured_seconds=32, predicted_seconds=32),
                pb.Speed(gpus="t4x2", predicted_seconds=19, doubt=0.25),
                pb.Speed(gpus="t4x16/4"),
            ],
            beside=[
                pb.Beside(jobs=[pb.JobName(name="grid-2")], gpus="t4x1", speed=0.78, measured=True),
                pb.Beside(jobs=[pb.JobName(id="0000beef")], gpus="t4x1", speed=0.9),
            ],
            memory_asked_mib=6000,
            memory_mib=7100,
            gpu_util=0.83,
            restart_seconds=12.5,
            peaks=[pb.Peak(gpus=1, memory_mib=7100), pb.Peak(gpus=4, memory_mib=2900)],
            profiles_ignored=2,
            next_try=pb.NextTry(
                kind="next", gpus="t4x4", than="t4x2", speed=1.306, doubt=0.2, waits_for=3
            ),
        ),
    )
    waits = pb.Job()
    waits.CopyFrom(JOBS[2])
    waits.last_run = PREEMPTED
    waits.why.CopyFrom(
        pb.Why(
            kind="turn",
            until=[pb.JobName(name=f"grid-{number}") for number in (3, 4, 5, 6)],
            ahead=[pb.JobName(name="urgent")],
            instead="with --min_gpus 1",
        )
    )
    eta = pb.Eta(starts_low=NOW + 1800, starts_at=NOW + 2460, starts_high=NOW + 3300)
    eta.MergeFrom(pb.Eta(ends_low=NOW + 9000, ends_at=NOW + 12_000, ends_high=NOW + 100_000))
    waits.eta.CopyFrom(eta)
    yield waits, pb.Learned()


def not_as_wished() -> Iterator[pb.Job]:
    """Jobs that failed, do not report, or wait for one that does not."""
    failed = pb.Job()
    failed.CopyFrom(JOBS[4])
    failed.log_line = "ValueError: the learning rate must be positive, but it is -0.1"
    yield failed
    silent = pb.Job()
    silent.CopyFrom(JOBS[3])
    silent.eta.CopyFrom(pb.Eta(deadline=NOW + 3600))
    yield silent
    beside = "gpus (6,872 MiB are free beside vit on gpu0; sharing with it is expected to cost more"
    waits = job("77ce2fc7", "small", "QUEUED", reason=f"{beside} than waiting)", submitted_at=NOW)
    waits.why.until.add(name="vit", stopping=True, silent=True, deadline=NOW + 3600)
    yield waits


def fact(age: float, kind: str, attempt: int = 0, **data: Any) -> pb.Fact:
    return pb.Fact(at=NOW - age, kind=kind, attempt=attempt, data_json=json.dumps(data))


def came_to(least: float, step: int) -> dict[str, Any]:
    spread = {"last": 1.2 * least, "min": least, "max": 3 * least}
    return spread | {"last_step": 9000, "min_step": step, "max_step": 1, "points": 9000}


def compared(jobs: int = 4) -> dict[str, Any]:
    """As the gateway answers. The last job has logged nothing."""
    ids = [f"0f3c0e8e-56d5-4a6a-9a3e-00000000000{number}" for number in range(jobs)]
    rates = {job: 10.0**-number for number, job in enumerate(ids)}
    losses = {job: came_to(0.7 / (number + 1), 40 + number) for number, job in enumerate(ids[:-1])}
    accuracies = {job: came_to(0.1 * number, 90) for number, job in enumerate(ids[:-1])}
    return {
        "jobs": [
            {
                "id": job,
                "name": f"resnet50-imagenet-lr{number}" if number else "好的名字",
                "user": "bartholomew" if number == 2 else "ada",
                "state": "RUNNING" if number == 1 else "FINISHED",
            }
            for number, job in enumerate(ids)
        ],
        "config": [
            {"key": "option.max_epochs", "differs": False, "values": dict.fromkeys(ids, 30)},
            {"key": "param.lr", "differs": True, "values": rates},
            {"key": "param.optimizer", "differs": True, "values": {ids[0]: "adam", ids[1]: "1"}},
            {
                "key": "param.a.key.of.a.deep.and.careful.configuration",
                "differs": True,
                "values": {job: [64, 128, 256 * len(job[-1:])] for job in ids[1:]},
            },
        ],
        "equal": 1031,
        "metrics": [
            {"name": "loss", "rises": False, "values": losses},
            {"name": "val_acc", "rises": True, "values": accuracies},
        ],
        "code": "no package",
    }


def logged() -> list[dict[str, Any]]:
    """As the gateway answers."""
    about = {"measurement": "metrics", "field": "", "kind": "float", "attempts": [1, 2]}
    told = {**about, "tags": {"host": "gpu1"}, "last_at": NOW - 30}
    return [
        {
            **{key: job[key] for key in ("name", "user")},
            "job": job["id"],
            "job_name": job["name"],
            "series": [
                {**told, "name": "loss", **came_to(0.7 / (number + 1), 40)},
                {**told, "name": "validation/accuracy/top-5", **came_to(0.1, 90)},
            ],
        }
        for number, job in enumerate(compared(2)["jobs"])
    ]


def curves() -> list[dict[str, Any]]:
    return [
        {
            "job": job["job"],
            "name": "loss",
            "times": [NOW + step for step in range(200)],
            "steps": list(range(200)),
            "values": [(2 - number) * 0.98**step for step in range(200)],
        }
        for number, job in enumerate(logged())
    ]


PREEMPTED = "preempted (for urgent)"
STORY = (
    fact(90_000, "job_submitted", name="demo", user="ada"),
    fact(190, "run_started", 1, gpus="gpu0 (6000 MiB)", epochs_done=0),
    fact(187, "run_running", 1, seconds=3.2),
    fact(150, "memory_learned", 1, from_mib=6000, to_mib=7100),
    fact(120, "run_asked_to_stop", 1, reason=PREEMPTED, stop_at_epoch=3),
    fact(99, "run_ended", 1, reason=f"{PREEMPTED}, after epoch 3", epochs_done=3, seconds=91.0),
    fact(50, "run_started", 2, gpus="gpu1 (7100 MiB)", epochs_done=3),
    fact(3, "job_finished", 2, reason="finished", epochs_done=30),
)


def drawn(columns: int) -> Iterator[str]:
    """Everything that can be drawn, on a terminal with this many columns."""
    screen = Screen(columns)
    yield from views.jobs(JOBS, NOW, screen, users=False)
    yield ""
    yield from views.jobs(JOBS, NOW, screen, users=True)
    yield ""
    yield from views.cluster(CLUSTER, screen)
    yield ""
    yield from views.cluster(WATCHED, screen)
    yield ""
    yield from views.record(pb.GetJobReply(job=JOBS[0], story=STORY), NOW, screen, extended=False)
    yield ""
    yield from views.record(pb.GetJobReply(job=JOBS[1]), NOW, screen, extended=True)
    for told in not_as_wished():
        yield ""
        yield from views.record(pb.GetJobReply(job=told), NOW, screen, extended=False)
    for told, learned in foreseen():
        yield ""
        yield from views.record(
            pb.GetJobReply(job=told, learned=learned), NOW, screen, extended=True
        )
    yield ""
    yield from comparison_view.comparison(compared(), Sections(), screen)
    yield ""
    yield from metrics_view.summary(logged(), metrics_view.STATISTICS, NOW, screen)
    yield ""
    yield from metrics_view.plots(logged(), curves(), screen)


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    for columns in WIDTHS:
        (GOLDEN / f"{columns}.txt").write_text("\n".join(drawn(columns)) + "\n")
