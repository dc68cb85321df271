"""What is asked for reaches the wire."""

from __future__ import annotations

from dataclasses import fields

from epoch_scheduler_client import JobSpec
from scheduler.v1 import scheduler_pb2 as pb


def test_each_field_is_one_of_the_wire() -> None:
    known = set(pb.JobSpec.DESCRIPTOR.fields_by_name) | {"num_gpus", "more"}
    assert {field.name for field in fields(JobSpec)} <= known


def test_values_reach_the_wire_and_nothing_else_does() -> None:
    assert JobSpec("x").message() == pb.JobSpec(name="x")
    made = JobSpec(
        "x",
        command=["t", "1"],
        env={"LR": "0.1"},
        num_gpus=0,
        priority=0,
        volumes=["/srv/x:/data:ro"],
        more={"retries": 2},
    ).message()
    assert (list(made.command), made.env[0].value) == (["t", "1"], "0.1")
    assert (made.gpus_min, made.gpus_max, made.HasField("priority")) == (0, 0, True)
    assert (made.retries, list(made.volumes)) == (2, ["/srv/x:/data:ro"])


def test_the_values_of_secrets_are_in_no_document() -> None:
    spec = JobSpec("x", secrets={"KEY": "hush"})
    assert "hush" not in f"{spec} {spec.document()} {spec.message()}"
    assert list(spec.message().secrets) == ["KEY"]
