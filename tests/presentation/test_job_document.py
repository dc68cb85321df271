from __future__ import annotations

from typing import Any

import pytest

from scheduler.presentation.job_document import DocumentError, refuses_again, spec_from
from scheduler.v1 import scheduler_pb2 as pb


def test_a_job_is_read_from_its_own_record_or_a_list_of_one() -> None:
    record = {"name": "x", "labels": {"a": "b"}, "spec": {"command": ["ls"], "env": {"N": 1}}}
    for document in (record, {"jobs": [record], "total": 1}):
        spec = spec_from(document)
        assert (spec.name, list(spec.command)) == ("x", ["ls"])
        assert [(pair.key, pair.value) for pair in spec.env] == [("N", "1")]


@pytest.mark.parametrize(
    "document",
    [None, [], "x", {}, {"jobs": []}, {"spec": []}, {"name": "x", "no": 1}, {"name": {}}],
)
def test_what_is_no_job_is_refused(document: Any) -> None:
    with pytest.raises(DocumentError):
        spec_from(document)


def test_hidden_values_cannot_be_submitted_again() -> None:
    spec = pb.JobSpec(name="x", user="ada", env=[pb.KeyValue(key="K", value="(hidden)")])
    assert refuses_again(spec, "x") == (
        "x belongs to ada, and the values of its variables (K) are hidden from you"
    )
    assert refuses_again(pb.JobSpec(name="x"), "x") == ""
