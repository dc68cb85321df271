"""S01: a job is submitted, trains, is measured, and finishes; its output outlives it."""

import json
from pathlib import Path

from tests.e2e.conftest import TRAIN, Daemons, Gates

CONTRACT = (
    "MASTER_PORT",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "NODE_RANK",
    "JOB_UUID",
    "JOB_RESTARTED",
    "RESERVED_MEM",
    "EPOCHS_DONE",
    "HEARTBEAT_FREQ",
    "NODELIST",
    "NUM_GPUS",
    "NUM_NODES",
    "PL_TORCH_DISTRIBUTED_BACKEND",
    "BATCH_SIZE",
    "EPOCHS_TO_BE_DONE",
    "TRAINING_SET_SIZE",
    "KUBEPROFILER_SERVER",
    "KUBEPROFILER_TOKEN",
    "PYTHONUNBUFFERED",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)


def test_a_job_trains_to_its_end(daemons: Daemons, gates: Gates, tmp_path: Path) -> None:
    daemon, gate = daemons(), gates("demo")
    words = f"""--image_name img:new --script_path /custom/{TRAIN.name} --custom_dir {TRAIN.parent}
        --snapshots_dir {tmp_path / "snap"} --batch_size 32 --training_set_size 1000
        --max_epochs 3 --estimated_memory 4000 --est_nhours 2
        --env PRINT_ENVIRONMENT=1 --env GATE={gate.path} demo"""
    job_id = daemon.submit(*words.split())
    assert len(job_id) == 36

    daemon.wait_state(demo="RUNNING")
    gate.open()
    measured = daemon.wait(lambda jobs: jobs["demo"].epochs_done == 1)["demo"]
    assert measured.epoch_seconds > 0
    assert measured.eta_seconds < 2 * 3600, "the estimate is replaced after the first epoch"
    gate.open(2)
    daemon.wait_state(demo="FINISHED")

    (job,) = daemon.state_of()["jobs"]
    assert (job["id"], job["epochs_done"], job["max_epochs"]) == (job_id, 3, 3)
    assert (tmp_path / "snap" / job_id).is_dir()
    kinds = [fact.kind for fact in daemon.story(job_id)]
    assert kinds == ["job_submitted", "run_started", "run_running", "run_ended", "job_finished"]

    logs = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert logs[-3:] == ["epoch 1 done", "epoch 2 done", "epoch 3 done"]
    environment = json.loads(logs[0])
    assert [name for name in CONTRACT if name not in environment] == []
    assert environment["JOB_UUID"] == job_id
    assert environment["JOB_RESTARTED"] == "FALSE"
    assert environment["EPOCHS_DONE"] == "0"
    assert environment["EPOCHS_TO_BE_DONE"] == "3"
    assert environment["RESERVED_MEM"] == "4000"
