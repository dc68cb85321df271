"""The environment contract, as a table; the translation of commands; notes for users."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scheduler.clusters.environment import (
    PORTS,
    RESERVED_ENVIRONMENT,
    Paths,
    command,
    environment,
    notes,
)
from scheduler.core.errors import Impossible
from scheduler.core.model import Gpu, JobId, JobSpec, Launch, Share

ID = JobId("123e4567-e89b-12d3-a456-426614174000")
PRETENDED = tuple(Gpu(f"gpu{i}", i, "pretended", 16384, 512) for i in range(4))
REAL = tuple(Gpu(f"GPU-{i}{i}", i, "t4", 15360, 400) for i in range(4))
PATHS = Paths("/home/ada/tests", "/home/ada/snap", "/home/ada/datasets")
SPEC = JobSpec(
    "demo",
    "ada",
    script_path="/custom/train.py",
    max_epochs=3,
    batch_size=32,
    training_set_size=1000,
)
LAUNCH = Launch(ID, 1, SPEC, (Share("w", "gpu1", 4000),), 0, 3, "secret")
ON_TWO_CARDS = replace(LAUNCH, shares=(Share("w", "gpu0", 15872), Share("w", "gpu2", 15872)))
ON_REAL_CARDS = replace(LAUNCH, shares=(Share("w", "GPU-33", 9000), Share("w", "GPU-11", 8000)))
WITHOUT = replace(LAUNCH, shares=())
ON_TWO_NODES = replace(LAUNCH, shares=(Share("n2", "gpu0", 5000), Share("n1", "gpu0", 5000)))


def told(
    launch: Launch = LAUNCH, gpus: tuple[Gpu, ...] = PRETENDED, rank: int = 0
) -> dict[str, str]:
    return environment(launch, gpus, "127.0.0.1:7070", PATHS, node="w", rank=rank)


def test_where_reports_are_heard_by_http_is_told_if_they_are() -> None:
    assert "KUBEPROFILER_HTTP" not in told()
    there = environment(LAUNCH, PRETENDED, "h:7070", PATHS, node="w", http="h:7080")
    assert there["KUBEPROFILER_HTTP"] == "h:7080"


def test_a_script_of_an_older_library_is_told_that_it_has_another() -> None:
    assert "KUBEPROFILER_RENEWED" not in told()
    renewed = environment(LAUNCH, PRETENDED, "h:7070", PATHS, node="w", renewed=True)
    assert renewed["KUBEPROFILER_RENEWED"] == "TRUE"


def test_a_job_on_one_pretended_gpu_is_told_all_of_this() -> None:
    environment = told()
    port = environment.pop("MASTER_PORT")
    assert int(port) in PORTS
    assert environment == {
        "BATCH_SIZE": "32",
        "CUDA_VISIBLE_DEVICES": "1",
        "EPOCHS_DONE": "0",
        "EPOCHS_TO_BE_DONE": "3",
        "HEARTBEAT_FREQ": "3",
        "JOB_CONFIGID": "1",
        "JOB_RESTARTED": "FALSE",
        "JOB_UUID": ID,
        "KUBEPROFILER_ATTEMPT": "1",
        "KUBEPROFILER_CUSTOM": "/home/ada/tests",
        "KUBEPROFILER_DATA": "/home/ada/datasets",
        "KUBEPROFILER_HEARTBEAT_SECONDS": "30",
        "KUBEPROFILER_SERVER": "127.0.0.1:7070",
        "KUBEPROFILER_SNAPSHOTS": "/home/ada/snap",
        "KUBEPROFILER_TOKEN": "secret",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "NODELIST": "w",
        "NODE_RANK": "0",
        "NUM_GPUS": "1",
        "NUM_NODES": "1",
        "NVIDIA_VISIBLE_DEVICES": "gpu1",
        "PL_TORCH_DISTRIBUTED_BACKEND": "gloo",
        "PYTHONUNBUFFERED": "1",
        "RANK": "0",
        "RESERVED_MEM": "4000",
        "TRAINING_SET_SIZE": "1000",
        "WORLD_SIZE": "1",
    }


@pytest.mark.parametrize(
    ("launch", "gpus", "expected"),
    [
        pytest.param(
            ON_TWO_CARDS,
            PRETENDED,
            {
                "NUM_GPUS": "2",
                "CUDA_VISIBLE_DEVICES": "0,2",
                "RESERVED_MEM": "15872",
                "WORLD_SIZE": "1",
                # Its framework starts the second process, and gives both of them their ranks.
                "RANK": None,
                "LOCAL_RANK": None,
                "TF_CONFIG": None,
            },
            id="two GPUs",
        ),
        pytest.param(
            ON_REAL_CARDS,
            REAL,
            {
                "CUDA_VISIBLE_DEVICES": "GPU-11,GPU-33",
                "NVIDIA_VISIBLE_DEVICES": "GPU-11,GPU-33",
                "PL_TORCH_DISTRIBUTED_BACKEND": "nccl",
                "RESERVED_MEM": "8000",
            },
            id="real GPUs",
        ),
        pytest.param(
            WITHOUT,
            REAL,
            {
                "CUDA_VISIBLE_DEVICES": "",
                "NVIDIA_VISIBLE_DEVICES": "void",
                "NUM_GPUS": "0",
                "NUM_NODES": "1",
                "NODELIST": "w",
                "RESERVED_MEM": "0",
                "PL_TORCH_DISTRIBUTED_BACKEND": "gloo",
                "RANK": "0",
            },
            id="no GPU",
        ),
        pytest.param(
            replace(LAUNCH, attempt=2, epochs_done=2, max_epochs=5),
            PRETENDED,
            {
                "JOB_RESTARTED": "TRUE",
                "EPOCHS_DONE": "2",
                "EPOCHS_TO_BE_DONE": "5",
                "KUBEPROFILER_ATTEMPT": "2",
            },
            id="restarted",
        ),
        pytest.param(
            replace(LAUNCH, attempt=2),
            PRETENDED,
            {"JOB_RESTARTED": "FALSE", "EPOCHS_DONE": "0", "KUBEPROFILER_ATTEMPT": "2"},
            id="its first run died before an epoch was finished: there is nothing to load",
        ),
        pytest.param(
            replace(LAUNCH, spec=replace(SPEC, batch_size=4096)),
            PRETENDED,
            {"HEARTBEAT_FREQ": "1"},  # old libraries divide by it
            id="less than a batch",
        ),
    ],
)
def test_what_differs(
    launch: Launch, gpus: tuple[Gpu, ...], expected: dict[str, str | None]
) -> None:
    environment = told(launch, gpus)
    assert {name: environment.get(name) for name in expected} == expected


@pytest.mark.parametrize(("node", "first", "gpus"), [(0, "0", "1"), (1, "1", "2")])
def test_with_a_process_for_each_gpu_ranks_go_on_from_node_to_node(
    node: int, first: str, gpus: str
) -> None:
    shares = (*ON_TWO_NODES.shares, Share("n2", "gpu2", 4000))
    spec = replace(SPEC, gpus_max=3, process_per_gpu=True)
    environment = told(replace(ON_TWO_NODES, spec=spec, shares=shares), rank=node)
    assert environment["RANK"] == first, "of the first; the shell counts on from it"
    assert environment["NODE_RANK"] == str(node)
    assert environment["NUM_GPUS"] == environment["LOCAL_WORLD_SIZE"] == gpus
    assert (environment["WORLD_SIZE"], environment["NUM_NODES"]) == ("3", "2")
    assert "LOCAL_RANK" not in environment


def test_without_a_gpu_there_is_one_process_all_the_same() -> None:
    spec = replace(SPEC, process_per_gpu=True)
    environment = told(replace(WITHOUT, spec=spec))
    assert (environment["RANK"], environment["LOCAL_WORLD_SIZE"]) == ("0", "1")


@pytest.mark.parametrize("rank", [0, 1])
def test_each_of_two_nodes_is_told_its_place(rank: int) -> None:
    environment = told(ON_TWO_NODES, rank=rank)
    cluster = json.loads(environment["TF_CONFIG"])
    port = environment["MASTER_PORT"]
    assert cluster["cluster"] == {"worker": [f"n1:{port}", f"n2:{port}"]}
    assert cluster["task"] == {"type": "worker", "index": rank}
    assert environment["MASTER_ADDR"] == "n1"
    assert environment["NODELIST"] == "n1,n2"
    assert environment["WORLD_SIZE"] == environment["NUM_NODES"] == "2"
    assert environment["NODE_RANK"] == environment["RANK"] == str(rank)


def test_neighbours_meet_at_different_ports() -> None:
    other = replace(LAUNCH, job_id=JobId("223e4567-e89b-12d3-a456-426614174000"))
    ports = {told(launch)["MASTER_PORT"] for launch in (LAUNCH, other, replace(LAUNCH, attempt=2))}
    assert len(ports) == 3


def test_the_job_may_set_all_but_what_the_scheduler_alone_knows() -> None:
    given = dict.fromkeys((*told(), *RESERVED_ENVIRONMENT, "LR", "PATH"), "mine")
    environment = told(replace(LAUNCH, spec=replace(SPEC, env=tuple(given.items()))))
    own = {name for name, value in environment.items() if value == "mine"}
    assert own >= {
        *("LR", "PATH", "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", "HEARTBEAT_FREQ"),
        "PL_TORCH_DISTRIBUTED_BACKEND",
    }
    assert told(ON_TWO_CARDS).keys() - own <= RESERVED_ENVIRONMENT
    assert environment["KUBEPROFILER_TOKEN"] == "secret"


def test_a_share_of_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(Impossible, match="no GPU gpu1 on w"):
        told(gpus=PRETENDED[:1])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SPEC, ["python", "/home/ada/tests/train.py"]),
        (
            replace(SPEC, args=("--epochs", "3", "a b", "", "é'\"$HOME;")),
            ["python", "/home/ada/tests/train.py", "--epochs", "3", "a b", "", "é'\"$HOME;"],
        ),
        (
            replace(SPEC, command=("sh", "-c", "cat /data/x"), args=("/data", "/snapshots/a b")),
            ["sh", "-c", "cat /data/x", "/home/ada/datasets", "/home/ada/snap/a b"],
        ),
        (
            replace(SPEC, command=("t", "--in=/data/cifar", "-o=/custom", "k=/data")),
            ["t", "--in=/home/ada/datasets/cifar", "-o=/home/ada/tests", "k=/data"],
        ),
        (
            replace(SPEC, command=("/database/x", "/customs", "/x/data", "data", "--/data")),
            ["/database/x", "/customs", "/x/data", "data", "--/data"],
        ),
    ],
)
def test_folders_are_replaced_where_a_path_begins(spec: JobSpec, words: list[str]) -> None:
    assert command(spec, PATHS) == words


def test_without_a_custom_dir_its_name_stays() -> None:
    assert command(SPEC, replace(PATHS, custom=""))[1] == "/custom/train.py"


def test_a_person_is_told_what_this_machine_does_not_do() -> None:
    spec = replace(SPEC, image="img:new", ports=((31346, 6006),))
    assert notes(spec, PATHS) == [
        "image img:new is not used: this machine runs the command directly",
        "/custom is /home/ada/tests",
        "/snapshots is /home/ada/snap",
        "/data is /home/ada/datasets",
        "ports are not mapped (31346:6006): processes bind the machine's own ports",
    ]
    bare = notes(SPEC, Paths(custom="", snapshots="/s", data="/data"))
    assert bare == ["/snapshots is /s", "/custom is not available: no custom_dir was given"]


def test_who_keeps_an_old_library_is_told_that_it_can_save_nowhere() -> None:
    kept = replace(SPEC, keep_library=True)
    (more,) = set(notes(kept, PATHS, old_snapshots=False)) - set(notes(kept, PATHS))
    assert more == "--keep_library: an old library fails here: this machine has no /snapshots"
    assert notes(SPEC, PATHS, old_snapshots=False) == notes(SPEC, PATHS)
