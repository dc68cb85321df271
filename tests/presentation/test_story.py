from __future__ import annotations

from typing import Any

import pytest

from scheduler.presentation.story import sentence
from tests.cli.samples import fact


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        ("job_submitted", {"name": "demo", "user": "ada"}, "submitted by ada"),
        ("run_started", {"gpus": "none", "epochs_done": 0}, "attempt 2 started without a GPU"),
        (
            "run_started",
            {"gpus": "gpu0 (6000 MiB)", "epochs_done": 4},
            "attempt 2 started on gpu0 (6,000 MiB), continues after epoch 4",
        ),
        ("run_running", {"seconds": 3.21}, "attempt 2 was running after 3.2 s"),
        ("memory_learned", {"from_mib": 0, "to_mib": 9}, "measured: it needs 9 MiB per GPU"),
        (
            "memory_learned",
            {"from_mib": 7, "to_mib": 9},
            "reservation changed from 7 to 9 MiB per GPU",
        ),
        (
            "job_updated",
            {"priority": 5, "held": False, "max_epochs": 9},
            "now with priority 5, not held, 9 epochs",
        ),
        (
            "run_asked_to_stop",
            {"reason": "cancelled by ada", "stop_at_epoch": 1},
            "attempt 2 was asked to stop: cancelled by ada",
        ),
        (
            "run_over_share",
            {"node": "n1", "gpu": "gpu0", "used_mib": 9, "share_mib": 7, "at_once": False},
            "attempt 2 uses 9 MiB of gpu0 on n1, but its share is 7 MiB: it was warned",
        ),
        (
            "run_over_share",
            {"node": "n1", "gpu": "gpu0", "used_mib": 9, "share_mib": 7, "at_once": True},
            "attempt 2 uses 9 MiB of gpu0 on n1, but its share is 7 MiB: it was ended immediately, "
            "because other jobs there could no longer get their shares",
        ),
        (
            "run_resized",
            {"from_mib": 7, "to_mib": 9},
            "the share of its run changed from 7 to 9 MiB",
        ),
        (
            "run_ended",
            {"reason": "killed", "epochs_done": 3, "seconds": 200, "lost_work_seconds": 40.0},
            "attempt 2 ended after 3 min, 3 epochs done: killed; 40 s of work lost",
        ),
        (
            "run_ended",
            {"reason": "", "epochs_done": 1, "seconds": 200},
            "attempt 2 ended after 3 min, 1 epoch done",
        ),
        ("epochs_beyond_max", {"reported": 6, "max_epochs": 5}, "reported epoch 6, but has only 5"),
        ("job_finished", {"reason": "finished", "epochs_done": 3}, "FINISHED"),
        (
            "epoch_unsaved",
            {"epoch": 3},
            "attempt 2 stopped before its script had saved epoch 3, because of its old library: "
            "this epoch is repeated",
        ),
        (
            "job_finished",
            {"reason": "finished, but reported none of its 4 epochs", "epochs_done": 0},
            "FINISHED: but reported none of its 4 epochs",
        ),
        (
            "checkpoint_missing",
            {"epochs_done": 4, "epochs_loaded": 0, "first_epoch": 5},
            "attempt 2 has loaded no checkpoint: epochs 1 to 4 may be missing from its result",
        ),
        (
            "checkpoint_missing",
            {"epochs_done": 4, "epochs_loaded": 0, "first_epoch": 1},
            "attempt 2 has loaded no checkpoint: epochs 1 to 4 are trained again",
        ),
        (
            "checkpoint_old",
            {"epochs_done": 4, "epochs_loaded": 3, "first_epoch": 4},
            "attempt 2 has loaded a checkpoint of epoch 3: epoch 4 is trained again",
        ),
        (
            "epochs_repeated",
            {"epochs_done": 4, "first_epoch": 2},
            "attempt 2 repeats epochs 2 to 4",
        ),
        (
            "epochs_missing",
            {"epochs_done": 8, "epochs_trained": 6},
            "its weights have only 6 of 8 epochs",
        ),
        (
            "epochs_unknown",
            {"epochs_done": 8},
            "it is not known how many of 8 epochs are in its weights",
        ),
        ("job_failed", {"reason": "exit code 1", "epochs_done": 3}, "FAILED: exit code 1"),
        ("job_cancelled", {"reason": "by ada", "epochs_done": 3}, "CANCELED: by ada"),
    ],
)
def test_a_fact_becomes_a_sentence(kind: str, data: dict[str, Any], told: str) -> None:
    assert sentence(fact(0, kind, 2, **data)) == told


def test_a_fact_of_a_newer_scheduler_is_shown_with_its_data() -> None:
    assert sentence(fact(0, "node_moved", node="n2", took_seconds=100)) == (
        "node moved: node n2, took_seconds 2 min"
    )
    assert sentence(fact(0, "run_started", 1)) == "run started"
