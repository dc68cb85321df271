"""scheduler-run-workflow: what it prints, and that all steps of it are jobs, or none."""

from __future__ import annotations

import json
from pathlib import Path

from cli.run_workflow import tree
from tests.cli.conftest import Command
from tests.serving import Serving

DIAMOND = """\
metadata: {name: diamond}
spec:
  entrypoint: main
  arguments: {parameters: [{name: word, value: hello}]}
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: say}
      - {name: b, template: say, dependencies: [a]}
      - {name: c, template: say, dependencies: [a]}
      - {name: d, template: say, depends: b && c.Failed}
  - name: say
    container: {image: i, command: [echo, "{{workflow.parameters.word}}"]}
"""


def _file(folder: Path, text: str = DIAMOND) -> str:
    path = folder / "w.yaml"
    path.write_text(text)
    return str(path)


def test_a_graph_is_drawn_with_each_step_once() -> None:
    lines = list(
        tree(
            {
                "a": {},
                "b": {"a": "succeeded"},
                "c": {"a": "finished"},
                "d": {"b": "succeeded", "c": "failed"},
                "e": {},
            }
        )
    )
    assert lines == [
        "a",
        "|- b",
        "|  `- d  (if c fails)",
        "`- c  (also if it fails)",
        "e",
    ]


def test_its_steps_become_jobs_with_the_labels_of_the_workflow(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    done = command("scheduler-run-workflow", _file(tmp_path), "-p", "word=bye", "--output", "json")
    steps = {step["step"]: step for step in json.loads(done.out)["steps"]}
    assert steps["d"]["after"] == [
        {"step": "b", "when": "succeeded"},
        {"step": "c", "when": "failed"},
    ]
    told = command("scheduler-state", "--label", "workflow=diamond", "--output", "json").out
    jobs = {job["name"]: job for job in json.loads(told)["jobs"]}
    assert jobs.keys() == steps.keys()
    assert jobs["d"]["id"] == steps["d"]["id"]
    first = steps["a"]["id"]
    labels = {"workflow": "diamond", "step": "d", "workflow-id": first}
    assert jobs["d"]["labels"] == labels
    assert jobs["d"]["spec"]["command"] == ["echo", "bye"]
    assert {each["job"] for each in jobs["d"]["spec"]["after"]} == {
        steps["b"]["id"],
        steps["c"]["id"],
    }


def test_what_is_wrong_is_one_line_with_its_place_and_nothing_is_submitted(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    for text, words in (
        (DIAMOND.replace("template: say}", "template: x}", 1), "9:19: spec.templates[0].dag"),
        (DIAMOND.replace("echo,", "[echo],"), "must be a text or a number"),
        (DIAMOND.replace("name: a,", "name: a b,"), "must have only letters, digits, '-'"),
        ("spec: {", "1:8: not valid YAML"),
    ):
        done = command("scheduler-run-workflow", _file(tmp_path, text))
        assert (done.exit_code, done.err.count("\n")) == (2, 1), done.err
        assert words in done.err
    done = command("scheduler-run-workflow", _file(tmp_path), "--params", '{"x": 1}')
    assert done.err.endswith("there is no parameter 'x'; there are: word\n")
    done = command("scheduler-run-workflow", str(tmp_path / "none.yaml"))
    assert done.err.endswith("none.yaml: No such file or directory\n")
    assert json.loads(command("scheduler-state", "--output", "json").out)["total"] == 0
