"""What clients send, before anything is asked of the scheduler."""

from __future__ import annotations

import json

import pytest

from scheduler.gateway.argo.sent_workflows import (
    compiled_again,
    encoded,
    manifest_of,
    sent_workflow,
)
from scheduler.gateway.problems import Problem
from tests.gateway.argo.argo_server import dag, shell

WORKFLOW = dag({"a": {}, "off": {"when": "1 > 2"}}, a=shell("true"), off=shell("true"))


def test_what_was_sent_is_kept_as_it_was() -> None:
    sent = sent_workflow(json.dumps({"workflow": WORKFLOW}).encode())
    assert sent.manifest.plain == WORKFLOW
    assert not sent.dry_run
    assert [step.name for step in sent.manifest.compiled("w").steps] == ["a"]


@pytest.mark.parametrize(
    "options", [{"serverDryRun": True}, {"createOptions": {"dryRun": ["All"]}}]
)
def test_a_dry_run_is_asked_for_in_two_ways(options: dict[str, object]) -> None:
    assert sent_workflow(json.dumps({"workflow": WORKFLOW, **options}).encode()).dry_run


def test_an_empty_value_of_a_parameter_stays() -> None:
    workflow = dag({"a": {}}, a=shell("echo [{{workflow.parameters.x}}]"))
    workflow["spec"]["arguments"] = {"parameters": [{"name": "x", "value": ""}]}
    (step,) = manifest_of(workflow).compiled("w").steps
    assert step.command[-1] == "echo []"


def test_an_error_counts_lines_of_what_was_sent() -> None:
    body = b'{"namespace": "x",\n "workflow": {\n  "spec": {"foo": 1}}}'
    with pytest.raises(Problem, match=r"^line 3, column 12: spec.foo: this field is not supp"):
        sent_workflow(body).manifest.compiled("w")


def test_what_was_kept_compiles_to_the_same_again() -> None:
    made = compiled_again(encoded(WORKFLOW), "w")
    assert made is not None
    assert (made.name, made.left_out) == ("w", ("off",))
    assert compiled_again(b'{"spec": {}}', "w") is None
