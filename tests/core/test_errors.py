"""Errors, and the status of gRPC that each becomes."""

from __future__ import annotations

import grpc
import pytest

from scheduler.core import errors
from scheduler.core.errors import SchedulerError

ALL = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, SchedulerError)
]
AGAIN = [errors.Busy, errors.Unavailable]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_has_a_status_that_grpc_knows(error: type[SchedulerError]) -> None:
    assert grpc.StatusCode[error.status] is not grpc.StatusCode.OK
    assert str(error("a sentence")) == "a sentence"


def test_what_the_caller_is_to_blame_for_is_rejected_and_nothing_else_is() -> None:
    assert [error for error in ALL if issubclass(error, errors.Rejected)] == [
        errors.Rejected,
        errors.Impossible,
        errors.Forbidden,
        errors.Unauthenticated,
    ]


def test_a_client_can_tell_by_the_status_what_may_be_tried_again() -> None:
    others = {error.status for error in ALL if error not in AGAIN}
    assert not {error.status for error in AGAIN} & others
