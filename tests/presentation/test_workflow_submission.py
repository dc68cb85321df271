"""What the scheduler is sent for a workflow."""

from __future__ import annotations

import json
import random
import re

from scheduler.presentation.workflow_submission import (
    PACKED_BYTES_MAX,
    derived_id,
    document,
    job_ids,
    pack,
    submission,
    unpacked,
)
from scheduler.workflows.compiler import compile_workflow

TEXT = """\
metadata: {name: w, created: 2026-01-01}
spec:
  entrypoint: main
  arguments: {parameters: [{name: day, value: 2026-01-02}, {name: n, value: 3}]}
  templates:
  - name: main
    dag: {tasks: [{name: a, template: t}, {name: b, template: t, depends: a}]}
  - name: t
    container: {image: i, command: [echo, "{{workflow.parameters.n}}"]}
"""


def test_the_first_job_has_the_id_and_the_document_of_the_workflow() -> None:
    made = compile_workflow(TEXT.replace(", created: 2026-01-01", ""))
    identity = derived_id("w")
    request = submission(made, identity, document(TEXT, {}), "lab", {"team": "v", "step": "x"})
    first, second = request.jobs
    assert (first.job_id, request.common.project) == (identity, "lab")
    assert unpacked(first.spec.workflow) == document(TEXT, {})
    assert second.spec.workflow == b""
    assert [(each.job, each.when) for each in second.spec.after] == [(identity, "succeeded")]
    labels = {each.key: each.value for each in second.spec.labels}
    assert labels == {"team": "v", "workflow": "w", "workflow-id": identity, "step": "b"}


def test_the_same_words_give_the_same_id_of_the_form_of_a_uuid4() -> None:
    form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    ids = {derived_id("a", "b"), derived_id("ab"), derived_id("a", "b", "")}
    assert len(ids) == 3
    assert all(map(form.fullmatch, ids))
    assert derived_id("a", "b") == derived_id("a", "b")
    assert (
        len(
            set(
                job_ids(
                    compile_workflow(TEXT.replace(", created: 2026-01-01", "")).steps, "x"
                ).values()
            )
        )
        == 2
    )


def test_a_document_is_json_with_the_values_that_were_given() -> None:
    found = document(TEXT, {"n": "5"})
    json.dumps(found)
    assert found["metadata"]["created"] == "2026-01-01"
    assert found["spec"]["arguments"]["parameters"] == [
        {"name": "day", "value": "2026-01-02"},
        {"name": "n", "value": "5"},
    ]


def test_a_document_that_is_too_long_is_not_kept() -> None:
    noise = random.Random(1).randbytes(PACKED_BYTES_MAX).hex()
    assert pack({"a": noise}) == b""
    assert unpacked(pack({"a": "x" * 1_000_000})) == {"a": "x" * 1_000_000}


def test_what_cannot_be_unpacked_is_nothing() -> None:
    assert unpacked(b"") == unpacked(b"nonsense") == {}
