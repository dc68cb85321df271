"""What steps give to each other, as the compiler leaves it to their wrappers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.presentation.workflow_submission import submission
from scheduler.workflows.compiler import CompiledWorkflow, compile_workflow
from scheduler.workflows.document import WorkflowError

MAKE = {
    "name": "make",
    "outputs": {
        "parameters": [
            {"name": "loss", "valueFrom": {"path": "/out/loss"}},
            {"name": "best", "valueFrom": {"path": "/out/best", "default": "none"}},
        ],
        "artifacts": [{"name": "model", "path": "/out/model"}],
    },
    "container": {"command": ["train"]},
}
USE = {
    "name": "use",
    "inputs": {
        "parameters": [{"name": "x", "default": "0"}],
        "artifacts": [{"name": "prev", "path": "/in/prev", "optional": True}],
    },
    "container": {"command": ["use", "{{inputs.parameters.x}}", "{{inputs.artifacts.prev.path}}"]},
}


def compiled(
    *tasks: dict[str, Any], templates: tuple[dict[str, Any], ...] = (), **given: str
) -> CompiledWorkflow:
    parameters = [{"name": "start", "value": "0"}]
    main = {"name": "main", "dag": {"tasks": list(tasks)}}
    spec = {
        "entrypoint": "main",
        "arguments": {"parameters": parameters},
        "templates": [main, MAKE, USE, *templates],
    }
    return compile_workflow(json.dumps({"metadata": {"name": "w"}, "spec": spec}), given)


def make(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": "make", **fields}


def use(name: str = "b", x: str = "", prev: str = "", **fields: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if x:
        arguments["parameters"] = [{"name": "x", "value": x}]
    if prev:
        arguments["artifacts"] = [{"name": "prev", "from": prev}]
    return {"name": name, "template": "use", "arguments": arguments, "depends": "a", **fields}


def data(made: CompiledWorkflow, step: str) -> Any:
    return next(each for each in made.steps if each.name == step).data


LOSS = "{{tasks.a.outputs.parameters.loss}}"
MODEL = "{{tasks.a.outputs.artifacts.model}}"


def test_a_parameter_is_a_tag_until_the_step_that_uses_it_starts() -> None:
    made = compiled(make(), use(x=LOSS, prev=MODEL))
    assert data(made, "a")["outputs"]["artifacts"] == [{"name": "model", "path": "/out/model"}]
    (step,) = (each for each in made.steps if each.name == "b")
    assert step.command == ("use", "{{outputs:a/loss}}", "/in/prev")
    assert step.data["values"] == {"{{outputs:a/loss}}": {"step": "a", "name": "loss"}}
    assert step.data["inputs"] == [
        {"name": "prev", "optional": True, "step": "a", "artifact": "model", "path": "/in/prev"}
    ]


def test_a_step_that_exchanges_nothing_has_no_wrapper() -> None:
    (step,) = compiled({"name": "a", "template": "use"}).steps
    assert step.data["inputs"]  # it says that its artifact is absent
    plain = {"name": "plain", "container": {"command": ["ls"]}}
    task = {"name": "a", "template": "plain"}
    (step,) = compiled(task, templates=(plain,)).steps
    assert not step.data
    assert submission(compiled(task, templates=(plain,)), "w-1", {}).jobs[0].spec.step == ""


def test_expressions_lists_and_what_is_printed_are_left_to_the_wrapper() -> None:
    made = compiled(
        make(withItems=[1, 2]),
        use(x=LOSS),
        make("c"),
        use("d", x="{{=asFloat(tasks.c.outputs.parameters.loss) / 2}}", depends="c"),
        use("e", x="{{tasks.c.outputs.result}}", depends="c"),
    )
    (each,) = (v["each"] for v in data(made, "b")["values"].values() if "each" in v)
    assert each == ["{{outputs:a-0/loss}}", "{{outputs:a-1/loss}}"]
    (expression,) = (v for v in data(made, "d")["values"].values() if "expression" in v)
    assert expression["names"] == {"tasks.c.outputs.parameters.loss": "{{outputs:c/loss}}"}
    assert data(made, "c")["result"]
    assert "result" not in data(made, "a-0")


def test_a_condition_on_an_output_is_judged_by_the_step_and_those_behind_it_go_on() -> None:
    made = compiled(make(), use(when=f"{LOSS} < 0.1"), use("c", depends="b"), use("d", depends="c"))
    assert data(made, "b")["when"] == ["{{outputs:a/loss}} < 0.1"]
    after = {step.name: step.after for step in made.steps}
    # b is also skipped if a fails, and then c must not start.
    assert after["c"] == (("b", "skipped-or-succeeded"), ("a", "succeeded"))
    assert after["d"] == (("c", "succeeded"),)


def test_a_condition_of_a_graph_is_that_of_all_its_steps() -> None:
    inner = {
        "name": "inner",
        "dag": {"tasks": [make("x"), use("y", depends="x")]},
        "outputs": {
            "parameters": [
                {"name": "l", "valueFrom": {"parameter": "{{tasks.x.outputs.parameters.loss}}"}}
            ],
            "artifacts": [{"name": "m", "from": "{{tasks.x.outputs.artifacts.model}}"}],
        },
    }
    made = compiled(
        make(),
        {"name": "g", "template": "inner", "depends": "a", "when": f"{LOSS} < 1"},
        use(
            "z",
            depends="g",
            x="{{tasks.g.outputs.parameters.l}}",
            prev="{{tasks.g.outputs.artifacts.m}}",
        ),
        templates=(inner,),
    )
    assert data(made, "g.x")["when"] == data(made, "g.y")["when"] == ["{{outputs:a/loss}} < 1"]
    assert data(made, "z")["inputs"][0]["step"] == "g.x"
    assert "{{outputs:g.x/loss}}" in data(made, "z")["values"]
    after = {step.name: dict(step.after) for step in made.steps}
    assert after["z"] == {
        "g.x": "skipped-or-succeeded",
        "g.y": "skipped-or-succeeded",
        "a": "succeeded",
    }


def test_a_step_that_does_not_run_leaves_its_artifact_absent_and_its_default() -> None:
    tasks = (
        make(when="{{workflow.parameters.start}} < 1"),
        use(x="{{tasks.a.outputs.parameters.best}}", prev=MODEL),
    )
    made = compiled(*tasks, start="1")
    (step,) = made.steps
    assert step.command[1] == "none"
    assert step.data["inputs"] == [{"name": "prev", "optional": True, "path": "/in/prev"}]
    with pytest.raises(WorkflowError, match=r"'a' does not run, and it has no valueFrom.default"):
        compiled(tasks[0], use(x=LOSS), start="1")


def test_raw_data_and_the_arguments_of_the_workflow_reach_a_step() -> None:
    task = use(depends="")
    task["arguments"] = {"artifacts": [{"name": "prev", "raw": {"data": "batches: 0"}}]}
    made = compiled(task)
    assert data(made, "b")["inputs"][0]["raw"] == "batches: 0"
    spec = {
        "entrypoint": "use",
        "arguments": {"parameters": [{"name": "x", "value": 5}, {"name": "y", "value": 6}]},
        "templates": [USE],
    }
    (step,) = compile_workflow(json.dumps({"spec": spec})).steps
    assert step.command[1] == "5"


def test_an_object_of_the_store_has_its_key_and_no_other_address() -> None:
    store = {"key": "/model/{{workflow.name}}.pt", "bucket": "b", "endpoint": "e"}
    load = {
        "name": "load",
        "inputs": {"artifacts": [{"name": "m", "path": "/in/m", "s3": store}]},
        "outputs": {"artifacts": [{"name": "m", "path": "/in/m", "s3": store, "mode": 420}]},
        "container": {"command": ["ls"]},
    }
    made = compiled({"name": "a", "template": "load"}, templates=(load,))
    assert data(made, "a")["inputs"][0]["key"] == "model/w.pt"
    assert data(made, "a")["outputs"]["artifacts"][0]["key"] == "model/w.pt"
    unused = [line.split(": ")[1].rpartition(".")[2] for line in made.warnings]
    assert unused == ["bucket", "endpoint", "mode", "bucket", "endpoint"]


def test_an_equal_step_is_known_by_all_that_decides_what_it_gives() -> None:
    memo = {
        "key": "{{inputs.parameters.x}}",
        "maxAge": "1h30m",
        "cache": {"configMap": {"name": "c"}},
    }
    use_again = {**USE, "name": "again", "memoize": memo}
    use_again["container"] = {"image": "i", "command": ["a"], "env": [{"name": "LR", "value": "1"}]}
    made = compiled({"name": "a", "template": "again"}, templates=(use_again,))
    assert data(made, "a")["memoize"] == {
        "key": '{"configMap": {"name": "c"}} 0',
        "max_age_seconds": 5400.0,
        "image": "i",
        "env": ["LR"],
    }
    (job,) = submission(made, "w-1", {}, code="sha256:1").jobs
    assert json.loads(job.spec.step)["memoize"]["code"] == "sha256:1"
    memo["maxAge"] = "soon"
    with pytest.raises(WorkflowError, match="'soon': must be a duration such as 90s or 24h"):
        compiled({"name": "a", "template": "again"}, templates=(use_again,))


def test_the_steps_of_a_loop_by_steps_are_referred_to_as_steps() -> None:
    groups = [
        [{"name": "a", "template": "make"}],
        [
            {
                "name": "b",
                "template": "use",
                "arguments": {
                    "parameters": [{"name": "x", "value": "{{steps.a.outputs.parameters.loss}}"}]
                },
            }
        ],
    ]
    flow = {"name": "flow", "steps": groups}
    made = compiled({"name": "t", "template": "flow"}, templates=(flow,))
    assert "{{outputs:t.a/loss}}" in data(made, "t.b")["values"]


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (use(x=LOSS, depends=""), "'b' does not wait for 'a'"),
        (use(x="{{tasks.z.outputs.parameters.x}}"), "there is no task 'z' here"),
        (use(x="{{tasks.a.outputs.parameters.x}}"), "there is no such output parameter"),
        (use(x="{{tasks.a.status}}"), "there is no such output parameter"),
        (use(prev="{{tasks.a.outputs.artifacts.x}}"), "there is no such output artifact"),
        (use(prev="{{tasks.z.outputs.artifacts.x}}"), "there is no task 'z' here"),
        (use(prev="{{inputs.artifacts.x}}"), "there is no such name here"),
        (use(x="{{steps.a.outputs.parameters.loss}}"), "there is no such name here"),
        (use(x="{{outputs:a/loss}}"), "there is no such name here"),
        (use(depends="a.Skipped"), None),
        (make("b", outputs={}), "outputs: this field is not supported"),
    ],
)
def test_what_cannot_be_known_is_an_error(task: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert compiled(make(), task).left_out == ("b",)
        return
    with pytest.raises(WorkflowError, match=words):
        compiled(make(), task)


def test_the_id_of_the_workflow_is_in_each_step() -> None:
    made = compiled(make(), use(x=LOSS))
    told = submission(made, "w-1", {}, "vision")
    steps = [json.loads(job.spec.step) for job in told.jobs]
    assert [(each["workflow"], each["step"]) for each in steps] == [("w-1", "a"), ("w-1", "b")]
