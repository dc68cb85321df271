"""What a training's own record tells of epochs that were done twice."""

import pytest

from benchmarks.kills import repeated_by


@pytest.mark.parametrize(
    ("record", "repeated"),
    [
        ("attempt 1,epoch 1,epoch 2", {}),
        ("attempt 1,epoch 1,attempt 2,epoch 2", {}),
        ("attempt 1,epoch 1,epoch 2,attempt 2,epoch 2,epoch 3", {1: 1}),
        ("attempt 1,epoch 1,epoch 2,attempt 2,attempt 3,epoch 1,epoch 2", {2: 2}),
        ("attempt 1,doubled,epoch 1,epoch 1", {0: 1}),
    ],
)
def test_an_epoch_done_twice_is_put_down_to_the_run_before(
    record: str, repeated: dict[int, int]
) -> None:
    assert repeated_by(record.split(",")) == repeated
