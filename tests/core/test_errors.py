"""Errors, and the status of gRPC that each becomes."""

from __future__ import annotations

import grpc
import pytest

from scheduler.core import errors
from scheduler.core.errors import SchedulerError


def all_errors(of: type[SchedulerError] = SchedulerError) -> list[type[SchedulerError]]:
    return [of, *(each for below in of.__subclasses__() for each in all_errors(below))]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_every_error_has_a_status_that_grpc_knows(error: type[SchedulerError]) -> None:
    assert grpc.StatusCode[error.status] is not grpc.StatusCode.OK
    assert str(error("a sentence")) == "a sentence"


def test_what_the_caller_is_to_blame_for_is_rejected_and_nothing_else_is() -> None:
    rejected = set(all_errors(errors.Rejected))
    assert rejected == {
        errors.Rejected,
        errors.Impossible,
        errors.Forbidden,
        errors.Unauthenticated,
    }
    for again in (errors.Busy, errors.Unavailable):
        assert again not in rejected


def test_a_client_can_tell_by_the_status_what_may_be_tried_again() -> None:
    again = {error.status for error in (errors.Busy, errors.Unavailable)}
    others = {
        error.status for error in all_errors() if error not in (errors.Busy, errors.Unavailable)
    }
    assert not again & others
