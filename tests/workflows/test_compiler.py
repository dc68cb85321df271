"""Documents become jobs that run, are skipped and fail as Argo says; errors have their place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.core.dependencies import HOLDS
from scheduler.core.model import Outcome, When
from scheduler.step_wrapper.expression import holds
from scheduler.workflows.compiler import CompiledWorkflow, compile_workflow
from scheduler.workflows.document import WorkflowError
from scheduler.workflows.step_jobs import StepJob
from tests.workflows import oracle

RUN = {
    "name": "run",
    "outputs": {"parameters": [{"name": "go", "valueFrom": {"path": "/go", "default": "no"}}]},
    "container": {"image": "img:1", "command": ["true"]},
}


def document(tasks: list[dict[str, Any]], *templates: dict[str, Any], **spec: Any) -> str:
    dag = {"name": "main", "dag": {"tasks": tasks}}
    body = {"entrypoint": "main", "templates": [dag, RUN, *templates], **spec}
    return json.dumps({"metadata": {"name": "wf"}, "spec": body})


def task(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": "run", **fields}


def after(made: CompiledWorkflow) -> dict[str, dict[str, str]]:
    return {step.name: dict(step.after) for step in made.steps}


def played(
    made: CompiledWorkflow, fails: Mapping[str, bool], gives: Mapping[str, str]
) -> dict[str, Outcome]:
    """The outcomes of the jobs by the rule of the core, with what each step gives."""
    ended: dict[str, Outcome] = {}

    def value(tag: str, step: StepJob) -> str:
        meant = step.data["values"][tag]
        there = ended[meant["step"]] is Outcome.SUCCEEDED
        return gives[meant["step"]] if there else str(meant["default"])

    for step in made.steps:
        held = all(ended[name] in HOLDS[When(when)] for name, when in step.after)
        wanted = held and all(
            holds(when, partial(value, step=step)) for when in step.data.get("when", ())
        )
        runs = Outcome.FAILED if fails[step.name] else Outcome.SUCCEEDED
        ended[step.name] = runs if wanted else Outcome.SKIPPED
    return ended


# --- against the oracle ---------------------------------------------------------------------------

PATTERNS = (
    *("{a}", "{a}.Succeeded", "{a}.Failed", "({a}.Succeeded || {a}.Failed)", "!{a}.Failed"),
    *("{a}.Skipped", "({a} || {a}.Failed)", "!({a}.Skipped)", "({a}.Succeeded || {a}.Skipped)"),
)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    tasks = []
    for number in range(draw(st.integers(1, 8))):
        made = task(f"t{number}")
        numbers = st.integers(0, max(0, number - 1))
        others = draw(st.lists(numbers, max_size=3 if number else 0, unique=True))
        plain = draw(st.booleans())
        if others and plain:
            made["dependencies"] = [f"t{other}" for other in others]
        elif others:
            parts = [draw(st.sampled_from(PATTERNS)).format(a=f"t{other}") for other in others]
            made["depends"] = draw(st.sampled_from([" && ", " && ", " || "])).join(parts)
        if draw(st.integers(0, 2)) == 0:
            known = ["1 == 1", "1 == 2"]
            later = [f"{{{{tasks.t{other}.outputs.parameters.go}}}} == yes" for other in others]
            made["when"] = draw(st.sampled_from([*known, *later]))
        if draw(st.integers(0, 4)) == 0:
            made["continueOn"] = {"failed": True}
        tasks.append(made)
    return draw(st.permutations(tasks))


@settings(max_examples=400)
@given(graphs(), st.data())
def test_what_runs_is_skipped_and_fails_is_as_the_oracle_says(
    tasks: list[dict[str, Any]], data: st.DataObject
) -> None:
    try:
        made = compile_workflow(document(tasks))
    except WorkflowError as error:
        if "not supported" not in str(error):
            raise
        event("refused")
        return
    event("compiled")
    fails = {each["name"]: data.draw(st.booleans(), each["name"]) for each in tasks}
    gives = {each["name"]: data.draw(st.sampled_from(["yes", "no"])) for each in tasks}
    found = played(made, fails, gives)
    words = {Outcome.SUCCEEDED: "Succeeded", Outcome.FAILED: "Failed", Outcome.SKIPPED: "Skipped"}
    told = {name: words[outcome] for name, outcome in found.items()}
    ends = oracle.ends(tasks, fails, gives)
    expected = {name: "Skipped" if end == "Omitted" else end for name, end in ends.items()}
    # What is known beforehand not to run is no job.
    assert {name: end for name, end in expected.items() if name in told} == told
    absent = {name for name in expected if name not in told}
    assert absent == set(made.left_out)
    assert {expected[name] for name in absent} <= {"Skipped"}


def test_plain_dependencies_and_each_way_to_end_are_compiled() -> None:
    """So that the property above is not about refusals only."""
    for pattern in PATTERNS[:6]:
        tasks = [task("a"), task("b", depends=pattern.format(a="a"))]
        if pattern not in ("!{a}.Failed", "{a}.Skipped"):
            assert compile_workflow(document(tasks)).steps
    made = compile_workflow(
        document([task("c", depends="a && b.Failed"), task("b", dependencies=["a"]), task("a")])
    )
    assert after(made) == {
        "a": {},
        "b": {"a": "succeeded"},
        "c": {"a": "succeeded", "b": "failed"},
    }


# --- parameters, loops, templates -----------------------------------------------------------------


def test_a_skipped_step_leaves_its_conditions_to_those_behind_it() -> None:
    spec = {"arguments": {"parameters": [{"name": "start", "value": 0}]}}
    tasks = [
        task("fine", when="{{workflow.parameters.start}} < 1"),
        task("prune", dependencies=["fine"], when="{{workflow.parameters.start}} < 2"),
        task("test", dependencies=["prune"]),
    ]
    text = document(tasks, **spec)
    assert after(compile_workflow(text))["test"] == {"prune": "succeeded"}
    made = compile_workflow(text, {"start": "1"})
    assert after(made) == {"prune": {}, "test": {"prune": "succeeded"}}
    assert made.left_out == ("fine",)


def test_parameters_reach_the_command_through_templates() -> None:
    train = {
        "name": "train",
        "inputs": {"parameters": [{"name": "epochs"}, {"name": "lr", "default": "0.1"}]},
        "container": {
            "command": ["python", "t.py"],
            "args": ["{{inputs.parameters.epochs}}", "{{inputs.parameters.lr}}"],
            "env": [{"name": "N", "value": "{{=asInt(inputs.parameters.epochs) * 2}}"}],
        },
    }
    call = {
        "name": "fit",
        "template": "train",
        "arguments": {"parameters": [{"name": "epochs", "value": "{{item.n}}"}]},
        "withItems": [{"n": 3}, {"n": 4}],
    }
    behind = task("test", dependencies=["fit"])
    made = compile_workflow(document([call, behind], train))
    fit = {step.name: step for step in made.steps}
    assert fit["fit-1"].command == ("python", "t.py", "4", "0.1")
    assert fit["fit-1"].env == (("N", "8"),)
    assert after(made)["test"] == {"fit-0": "succeeded", "fit-1": "succeeded"}


def test_steps_follow_each_other_in_groups_and_nest() -> None:
    inner = {"name": "pair", "steps": [[task("one")], [task("two"), task("three")]]}
    tasks = [{"name": "both", "template": "pair"}, task("last", dependencies=["both"])]
    made = after(compile_workflow(document(tasks, inner)))
    assert made["both.two"] == made["both.three"] == {"both.one": "succeeded"}
    assert made["last"] == dict.fromkeys(["both.one", "both.two", "both.three"], "succeeded")


def test_gpus_retries_and_limits_become_those_of_the_job() -> None:
    train = {
        "name": "train",
        "metadata": {
            "annotations": {"gpu-scheduler/sharing": "true", "gpu-scheduler/memory": "6Gi"}
        },
        "activeDeadlineSeconds": 60,
        "script": {
            "image": "python:3",
            "command": ["python3"],
            "source": "print(1)",
            "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": 4}},
            "retryStrategy": {"limit": "3", "retryPolicy": "Always"},
        },
    }
    made = compile_workflow(document([{"name": "t", "template": "train"}], train))
    (step,) = made.steps
    assert step.command == ("python3", "-c", "print(1)")
    assert (step.gpus, step.memory_mib, step.shareable) == (2, 6144, True)
    assert (step.retries, step.time_limit_seconds) == (3, 60.0)
    assert "retryStrategy: belongs to the template, as spec.templates[2].retry" in made.warnings[0]
    assert "cpu: is not used" in made.warnings[1]


# --- errors ---------------------------------------------------------------------------------------

HEAD = """\
metadata: {generateName: wf-}
spec:
  entrypoint: main
  templates:
  - name: main
"""


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("spec: [", 1, 8, "not valid YAML"),
        ("[" * 200_000, 1, 1, "is nested too deeply"),
        ("", 1, 1, "is empty"),
        ("a: 1\na: 2", 2, 1, "'a' is given twice"),
        ("a: &a [*a]", 1, 4, "aliases make this too large"),
        (HEAD + "    container: {command: [a]}\n    ports: 1", 7, 5, "not supported"),
        (HEAD + "    containr: {}", 6, 5, "did you mean 'container'?"),
        (
            HEAD + "    container:\n      ports:\n      - hostPort: {{workflow.parameters.p}}",
            8,
            19,
            "a value that begins with {{ must be in quotes",
        ),
        (HEAD + "    container: {args: [a]}", 6, 5, "command is missing"),
        (HEAD + "    container: {command: ['{{tasks.a.outputs.x}}']}", 6, 27, "no such name here"),
        (HEAD + "    container: {command: ['{{x}}']}", 6, 27, "there is no such name here"),
        (HEAD + "    script: {command: [perl], source: x}", 6, 14, "must be of python or a shell"),
        (HEAD + "    daemon: true\n    container: {}", 6, 5, "this field is not supported"),
        (HEAD + "    dag: {tasks: [{name: a, template: b}]}", 6, 29, "there is no template 'b'"),
        (HEAD + "    dag: {tasks: [{name: a, template: main}]}", 6, 29, "does one use itself?"),
        (
            HEAD + "    dag:\n      tasks:\n      - {name: a, template: x, dependencies: [b]}",
            8,
            32,
            "there is no task 'b'",
        ),
        (
            HEAD + "    dag:\n      tasks:\n      - {name: a, template: x, depends: a}",
            8,
            9,
            "tasks wait for each other: a -> a",
        ),
        (
            HEAD + "    dag:\n      tasks:\n      - {name: a, template: x, when: '1 <'}",
            8,
            32,
            "something is missing at its end",
        ),
    ],
)
def test_an_error_names_its_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(WorkflowError) as error:
        compile_workflow(text)
    assert words in str(error.value)
    assert (error.value.line, error.value.column) == (line, column)


def test_an_unknown_or_missing_parameter_is_named() -> None:
    text = document([task("a")], arguments={"parameters": [{"name": "lr", "enum": ["1", "2"]}]})
    for given_values, words in (
        ({"x": "1"}, "value is missing"),
        ({"lr": "1", "x": "1"}, "there is no parameter 'x'; there are: lr"),
        ({"lr": "3"}, "'3': must be one of 1, 2"),
    ):
        with pytest.raises(WorkflowError, match=words):
            compile_workflow(text, given_values)


def test_a_thousand_steps_are_compiled_in_order() -> None:
    tasks = [task(f"s{n}", dependencies=[f"s{n - 1}"] if n else []) for n in range(1000)]
    made = compile_workflow(document(tasks[::-1]))
    assert [step.name for step in made.steps] == [f"s{n}" for n in range(1000)]


@settings(max_examples=200)
@given(st.text(alphabet="{}[]:,-&*!|>'\"\n abc#%@`spectmla0", max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(WorkflowError):
        compile_workflow(text)


# --- more of the language -------------------------------------------------------------------------


def test_a_loop_has_its_items_from_a_parameter_or_a_sequence() -> None:
    echo = {
        "name": "echo",
        "inputs": {"parameters": [{"name": "x"}]},
        "container": {"command": ["echo", "{{inputs.parameters.x}}"]},
    }
    given = {"parameters": [{"name": "x", "value": "{{item}}"}]}
    call = {"name": "t", "template": "echo", "arguments": given}

    def printed(**loop: Any) -> list[str]:
        spec = {"arguments": {"parameters": [{"name": "list", "value": '["a", 2]'}]}}
        made = compile_workflow(document([{**call, **loop}], echo, **spec))
        return [step.command[1] for step in made.steps]

    assert printed(withParam="{{workflow.parameters.list}}") == ["a", "2"]
    assert printed(withSequence={"count": 2}) == ["0", "1"]
    assert printed(withSequence={"start": 3, "end": 1, "format": "n%02d"}) == ["n03", "n02", "n01"]
    for loop, words in (
        ({"withParam": "1"}, "must be a list as JSON"),
        ({"withParam": "[]", "withItems": []}, "there is withItems, too"),
        ({"withSequence": {"count": 1, "end": 2}}, "must have count or end"),
        ({"withSequence": {"count": 1, "format": "%s%s"}}, "is not a format of a number"),
        ({"withSequence": {"count": 1, "format": "%999999999d"}}, "is not a format of a number"),
        ({"withSequence": {"end": 10**8}}, "has more than 10000 items"),
    ):
        with pytest.raises(WorkflowError, match=words):
            printed(**loop)


def test_how_many_steps_there_are_cannot_depend_on_what_a_step_gives() -> None:
    tasks = [
        task("a"),
        task("b", dependencies=["a"], withParam="{{tasks.a.outputs.result}}"),
    ]
    with pytest.raises(WorkflowError, match="known only when a step has run"):
        compile_workflow(document(tasks))


def test_volumes_and_the_folder_of_a_container_are_those_of_the_job() -> None:
    mounts = [
        {"name": "data", "mountPath": "/data", "subPath": "cells", "readOnly": True},
        {"name": "host", "mountPath": "/srv"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "lab"}},
        {"name": "host", "hostPath": {"path": "/mnt/srv", "type": "Directory"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    container = {"command": ["ls"], "volumeMounts": mounts, "workingDir": "/data"}
    train = {"name": "train", "container": container}
    call = [{"name": "t", "template": "train"}]
    made = compile_workflow(document(call, train, volumes=volumes))
    (step,) = made.steps
    assert step.volumes == ("lab/cells:/data:ro", "/mnt/srv:/srv")
    assert step.data == {"directory": "/data"}
    assert "emptyDir: is not used: each job has /dev/shm" in made.warnings[0]
    for mount, words in (
        ({"name": "x", "mountPath": "/x"}, "there is no volume 'x'"),
        ({"name": "tmp", "mountPath": "/x"}, "supported at /dev/shm only"),
        ({"name": "data"}, "needs name and mountPath"),
        ({"name": "data", "mountPath": "/a:ro"}, "must not contain ':'"),
    ):
        mounts[0] = mount
        with pytest.raises(WorkflowError, match=words):
            compile_workflow(document(call, train, volumes=volumes))
    for volume, words in (
        ({"name": "data", "configMap": {}}, "this field is not supported"),
        ({"name": "data"}, "needs a name, and one of"),
        ({"name": "host", "emptyDir": {}}, "there are two volumes 'host'"),
    ):
        with pytest.raises(WorkflowError, match=words):
            compile_workflow(document(call, train, volumes=[*volumes[1:], volume]))


def test_defaults_fill_in_what_templates_lack() -> None:
    defaults = {
        "retryStrategy": {"limit": 2},
        "container": {"image": "lab:1", "resources": {"limits": {"nvidia.com/gpu": 1}}},
    }
    own = {"name": "own", "container": {"image": "own:1", "command": ["a"]}}
    tasks = [task("a"), {"name": "b", "template": "own"}]
    made = compile_workflow(document(tasks, own, templateDefaults=defaults))
    assert [(step.image, step.gpus, step.retries) for step in made.steps] == [
        ("img:1", 1, 2),
        ("own:1", 1, 2),
    ]


def test_the_exit_step_runs_however_the_others_end() -> None:
    made = compile_workflow(document([task("a"), task("b", depends="a.Failed")], onExit="run"))
    assert after(made)["onExit"] == {"a": "ended", "b": "ended"}


def test_how_many_steps_run_at_once_is_for_all_of_them() -> None:
    assert compile_workflow(document([task("a")], parallelism=2)).parallel == 2
    with pytest.raises(WorkflowError, match="at least 1"):
        compile_workflow(document([task("a")], parallelism=0))


def test_what_comes_before_the_step_to_start_with_counts_as_succeeded() -> None:
    inner = {"name": "inner", "steps": [[task("x")], [task("y")]]}
    tasks = [
        task("a"),
        {"name": "b", "template": "inner", "depends": "a.Succeeded"},
        task("c", depends="b.Succeeded"),
        task("d", depends="a.Failed"),
        task("e"),
    ]

    def started(start: str) -> dict[str, dict[str, str]]:
        return after(compile_workflow(document(tasks, inner), start=start))

    assert started("b.y") == {"b.y": {}, "c": {"b.y": "succeeded"}}
    assert list(started("b")) == ["b.x", "b.y", "c"]
    assert list(started("c")) == ["c"]
    assert set(started("a")) == {"a", "b.x", "b.y", "c", "d"}
    for start in ("z", "b.z", "a.z"):
        with pytest.raises(WorkflowError, match="there is no step 'z' to start with"):
            started(start)


def test_what_applies_to_containers_only_is_said_where_it_does_nothing() -> None:
    graph = {"name": "g", "dag": {"tasks": [task("x")]}, "retryStrategy": {"limit": 1}}
    made = compile_workflow(document([{"name": "a", "template": "g"}], graph))
    assert made.warnings == (
        "line 1: spec.templates[2].retryStrategy: is not used: it does not apply to dag",
    )
