from __future__ import annotations

import pytest

from cli.command import CommandError
from cli.slurm.sbatch import flags, notes
from cli.slurm.slurm_settings import SlurmSettings
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"


def asked(spec: pb.JobSpec, **settings: str) -> str:
    return " ".join(flags(ID, spec, SlurmSettings(**settings)))  # type: ignore[arg-type]


def test_a_job_asks_for_what_its_context_and_its_flags_say() -> None:
    told = asked(
        pb.JobSpec(name="demo", gpus_min=2, gpus_max=2),
        partition="gpu",
        account="lab",
        qos="high",
        resources="cpu=4 mem=16G time=4h",
        flags="--constraint='a b' -x n7",
    )
    assert f"--comment=epoch-scheduler:{ID} --job-name=demo" in told
    assert "-p gpu -A lab --qos=high -t 240 --nodes=1 --ntasks-per-node=1 --gres=gpu:2" in told
    assert told.endswith("-c 4 --mem=16384M --constraint=a b -x n7")
    assert "--signal=B:USR1@120" in told
    assert "--requeue" in told


@pytest.mark.parametrize(
    ("spec", "settings", "gpus"),
    [
        ({}, {}, "--nodes=1 --ntasks-per-node=1 --gres=gpu:1"),
        ({}, {"resources": "gpu=a100:3"}, "--gres=gpu:a100:3"),
        ({"gpus_min": 1, "gpus_max": 1}, {"resources": "gpu=a100:3"}, "--gres=gpu:a100:1"),
        ({}, {"resources": "gpu=2", "gpu_flag": "gpus"}, "--gpus=2 --gpus-per-node=2"),
        ({"gpus_min": 16}, {}, "--nodes=2 --ntasks-per-node=1 --gres=gpu:8"),
        ({"gpus_min": 8}, {"resources": "gpus_per_node=2"}, "--nodes=4 --ntasks-per-node=1 --gres"),
        ({"is_single_gpu": True}, {"resources": "gpu=2"}, "--gres=gpu:1"),
    ],
)
def test_gpus_are_typed_or_not_and_the_same_on_each_node(
    spec: dict[str, int], settings: dict[str, str], gpus: str
) -> None:
    assert gpus in asked(pb.JobSpec(name="j", **spec), **settings)  # type: ignore[arg-type]


def test_a_job_without_gpus_asks_for_none() -> None:
    told = asked(pb.JobSpec(name="j", gpus_min=0, gpus_max=0), resources="gpu=2")
    assert "gres" not in told
    assert "gpus" not in told


def test_a_run_is_no_longer_than_its_context_or_the_limit_of_its_job() -> None:
    limited = pb.JobSpec(name="j", time_limit_seconds=90)
    assert " -t 2 " in asked(limited)
    assert " -t 2 " in asked(limited, resources="time=4h")
    assert " -t 1 " in asked(limited, resources="time=30s")
    assert " -t " not in asked(pb.JobSpec(name="j"))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (pb.JobSpec(gpus_min=1, gpus_max=4), "slurm: --min_gpus 1 --max_gpus 4: Slurm gives a fix"),
        (pb.JobSpec(gpus_min=9), "slurm: --num_gpus 9 cannot be divided evenly among 2 nodes"),
        (pb.JobSpec(priority=5), "slurm: --priority 5: Slurm orders jobs by its own rules"),
        (pb.JobSpec(prune="asha"), "slurm: --prune: Slurm does not compare jobs"),
        (pb.JobSpec(code="abc"), "slurm: --code needs a scheduler"),
        (pb.JobSpec(ports=[pb.PortMapping(host=1, container=1)]), "slurm: --port_mapping: Slurm"),
        (
            pb.JobSpec(volumes=["/a:/b"]),
            "slurm: --volume: jobs on Slurm see the paths of their nodes",
        ),
        (pb.JobSpec(after=[pb.After(job="a")]), "slurm: --after: is not possible there yet"),
    ],
)
def test_what_slurm_cannot_do_is_refused_by_name(spec: pb.JobSpec, told: str) -> None:
    with pytest.raises(CommandError) as refused:
        asked(spec)
    assert str(refused.value).startswith(told)
    assert refused.value.exit_code == 4


def test_what_is_not_used_is_said() -> None:
    said = notes(pb.JobSpec(image="img:1", memory_mib=4000))
    assert said == [
        "image img:1 is not used: Slurm runs the command directly on a node",
        "--estimated_memory is not used: on Slurm, jobs have whole GPUs",
    ]
