"""S22: what steps of a workflow give to each other, on a real daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TRAIN, Daemons, Gates, Train
from tests.support import Daemon, eventually

FLOW = """\
metadata: {name: data}
spec:
  entrypoint: main
  arguments: {parameters: [{name: dir, value: /tmp}]}
  templates:
  - name: main
    dag:
      tasks:
      - {name: train, template: train}
      - name: report
        template: report
        dependencies: [train]
        arguments:
          parameters: [{name: loss, value: "{{tasks.train.outputs.parameters.loss}}"}]
          artifacts: [{name: model, from: "{{tasks.train.outputs.artifacts.model}}"}]
      - name: good
        template: say
        dependencies: [train]
        when: "{{tasks.train.outputs.parameters.loss}} < 0.1"
        arguments: {parameters: [{name: word, value: good}]}
      - name: bad
        template: say
        dependencies: [train]
        when: "{{tasks.train.outputs.parameters.loss}} >= 0.1"
        arguments:
          parameters: [{name: word, value: "{{=tasks.train.outputs.parameters.loss * 10}}"}]
      - name: last
        template: say
        dependencies: [good, bad]
        arguments: {parameters: [{name: word, value: "{{tasks.bad.outputs.result}}"}]}
      - {name: never, template: say, depends: good.Succeeded,
         arguments: {parameters: [{name: word, value: never}]}}
  - name: train
    outputs:
      parameters: [{name: loss, valueFrom: {path: "{{workflow.parameters.dir}}/loss"}}]
      artifacts: [{name: model, path: "{{workflow.parameters.dir}}/model"}]
    container:
      command: [sh, -c]
      args: ["cd {{workflow.parameters.dir}}; mkdir model; echo 0.25 > loss; echo best > model/w"]
  - name: report
    inputs:
      parameters: [{name: loss}]
      artifacts: [{name: model, path: "{{workflow.parameters.dir}}/in"}]
    container:
      command: [sh, -c]
      args: ["echo loss={{inputs.parameters.loss}}; cat {{inputs.artifacts.model.path}}/w"]
  - name: say
    inputs: {parameters: [{name: word}]}
    script: {command: [python3], source: "print('{{inputs.parameters.word}}!')"}
"""


def test_parameters_artifacts_and_results_go_from_step_to_step(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon = daemons("0")
    place = tmp_path / "place"
    place.mkdir(mode=0o777)
    done = run(daemon, tmp_path, FLOW, "-p", f"dir={place}")
    assert done.returncode == 0, done.stderr
    states = daemon.wait_state(report="FINISHED", last="FINISHED", never="SKIPPED")
    assert states["good"].state == "SKIPPED"
    assert states["good"].reason == "its condition is false: 0.25 < 0.1"
    assert logs(daemon, "report") == ["loss=0.25", "best"]
    assert logs(daemon, "bad") == ["2.5!"]
    assert logs(daemon, "last") == ["2.5!!"]
    assert "SKIPPED: its condition is false" in daemon.run("scheduler-state", "good").stdout


def run(daemon: Daemon, folder: Path, flow: str, *flags: str) -> Any:
    file = folder / "flow.yaml"
    file.write_text(flow)
    return daemon.run("scheduler-run-workflow", str(file), "--wait", *flags)


def logs(daemon: Daemon, job: str) -> list[str]:
    return [
        line
        for line in daemon.run("scheduler-get-logs", job).stdout.splitlines()
        if not line.startswith("[epoch-scheduler]")
    ]


CRISP = Path(__file__).with_name("crisplitdemo.yaml").read_text()


def crisp(daemon: Daemon, folder: Path, *flags: str) -> Any:
    """The steps run in a folder that all of them see, as in one container after the other."""
    app = folder / "app"
    app.mkdir(mode=0o777)
    app.chmod(0o777)
    return run(daemon, folder, CRISP, "-p", f"app={app}", *flags)


def test_each_step_begins_with_the_results_of_the_one_before(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon = daemons("0")
    done = crisp(daemon, tmp_path, "--params", '{"batch_size": 2}')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("crisplit-")
    assert [logs(daemon, step) for step in ("train-fine", "prune", "test")] == [
        ["began with 0"],
        ["began with 2"],
        ["began with 4"],
    ]
    assert (tmp_path / "app/results.yaml").read_text() == "batches: 6\n"
    assert "retryStrategy: belongs to the template" in done.stderr


@pytest.mark.parametrize("start", ['--params={"start": 1}', "--start=prune"])
def test_a_step_starts_without_the_artifact_of_one_that_does_not_run(
    daemons: Daemons, tmp_path: Path, start: str
) -> None:
    daemon = daemons("0")
    done = crisp(daemon, tmp_path, start)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "app/steps").read_text() == "fine pruned\npruned tested\n"
    assert logs(daemon, "prune") == ["began with 0"]
    said = daemon.run("scheduler-get-logs", "prune").stdout
    assert "[epoch-scheduler] input prev_results is absent" in said


def test_a_step_that_fails_again_and_again_ends_its_workflow(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon = daemons("0")
    done = crisp(daemon, tmp_path, "-p", "fails=pruned", "--name", "sad")
    assert done.returncode == 1
    states = daemon.wait_state(prune="FAILED", test="SKIPPED", **{"train-fine": "FINISHED"})
    assert states["prune"].reason == "exit code 3, 2 times"
    assert states["test"].reason == "prune failed"
    told = daemon.run("scheduler-state", "--label", "workflow=sad").stdout
    assert "exit code 3, 2 times" in told
    assert (tmp_path / "app/steps").read_text().count("fine pruned") == 2


def test_a_mistake_in_a_document_has_its_line(daemons: Daemons, tmp_path: Path) -> None:
    daemon, file = daemons("0"), tmp_path / "crisplitpt.yaml"
    file.write_text(CRISP.replace("hostPort: 6007", "hostPort: {{workflow.parameters.port}}"))
    done = daemon.run("scheduler-run-workflow", str(file))
    assert done.returncode == 2
    assert ":71:66: spec.templates[1].container" in done.stderr
    assert "a value that begins with {{ must be in quotes" in done.stderr
    file.write_text(CRISP)
    done = daemon.run("scheduler-run-workflow", str(file), "--params", '{"batchsize": 2}')
    assert done.returncode == 2
    assert "there is no parameter 'batchsize'" in done.stderr
    done = daemon.run("scheduler-run-workflow", str(file), "--start", "trian")
    assert done.returncode == 2
    assert "there is no step 'trian' to start with" in done.stderr
    assert daemon.state_of()["jobs"] == []


def test_a_step_that_a_kill_interrupts_gives_whole_results(
    daemons: Daemons, tmp_path: Path
) -> None:
    """The daemon is killed while steps run and keep what they give."""
    daemon = daemons("0")
    file = tmp_path / "crisp.yaml"
    file.write_text(CRISP.replace("cd {{w", "sleep 0.3; cd {{w"))
    app = tmp_path / "app"
    app.mkdir(mode=0o777)
    app.chmod(0o777)
    daemon.run("scheduler-run-workflow", str(file), "-p", f"app={app}")
    for _ in range(3):
        daemon.kill()
        daemon.start()
    daemon.wait_state(test="FINISHED")
    assert (app / "steps").read_text() == " fine\nfine pruned\npruned tested\n"
    assert (app / "results.yaml").read_text() == "batches: 3\n"


def test_a_step_that_is_preempted_in_the_middle_loses_nothing(
    daemons: Daemons, gates: Gates, train: Train, tmp_path: Path
) -> None:
    daemon, gate, urgent = daemons("1x16384"), gates("step"), gates("urgent")
    out = tmp_path / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    step = {
        "name": "train",
        "metadata": {
            "annotations": {
                "gpu-scheduler/max_epochs": "5",
                "gpu-scheduler/sharing": "true",
                "gpu-scheduler/memory": "9000Mi",
            }
        },
        "outputs": {"parameters": [{"name": "n", "valueFrom": {"path": f"{out}/n"}}]},
        "container": {
            "command": ["sh", "-c", f"python3 {TRAIN} || exit $?; echo trained >> {out}/n"],
            "env": [
                {"name": "GATE", "value": str(gate.path)},
                {"name": "KUBEPROFILER_PRETEND_MEMORY_MIB", "value": "0"},
            ],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        },
    }
    say = {
        "name": "say",
        "inputs": {"parameters": [{"name": "n"}]},
        "container": {"command": ["echo", "{{inputs.parameters.n}}"]},
    }
    given = {"parameters": [{"name": "n", "value": "{{tasks.train.outputs.parameters.n}}"}]}
    tasks = [
        {"name": "train", "template": "train"},
        {"name": "say", "template": "say", "dependencies": ["train"], "arguments": given},
    ]
    main = {"name": "main", "dag": {"tasks": tasks}}
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"spec": {"entrypoint": "main", "templates": [main, step, say]}}))
    done = daemon.run(
        "scheduler-run-workflow", str(file), "--snapshots_dir", str(tmp_path / "snapshots")
    )
    assert done.returncode == 0, done.stderr
    daemon.wait_state(train="RUNNING")
    gate.open()
    daemon.wait(lambda jobs: jobs["train"].epochs_done == 1)
    flags = ("--estimated_memory", "9000", "--max_epochs", "1", "--priority", "10")
    daemon.submit(*train(urgent), *flags, "urgent")
    daemon.wait_state(train="STOPPING")
    gate.open()
    daemon.wait_state(urgent="RUNNING")
    urgent.open()
    daemon.wait_state(urgent="FINISHED", train="RUNNING")
    gate.open(3)
    jobs = daemon.wait_state(train="FINISHED", say="FINISHED")
    assert jobs["train"].epochs_done == 5
    assert logs(daemon, "say") == ["trained"]
    told = daemon.run("scheduler-get-logs", "train").stdout.splitlines()
    assert [line for line in told if line.endswith(" done")] == [
        f"epoch {number} done" for number in range(1, 6)
    ]


def test_a_step_that_is_submitted_again_takes_what_others_gave(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon, place = daemons("0"), tmp_path / "place"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    flow = FLOW.replace('"echo loss=', f'"test -e {place}/go || exit 4; echo loss=')
    done = run(daemon, tmp_path, flow, "-p", f"dir={place}")
    assert done.returncode == 1
    failed = daemon.wait_state(report="FAILED")["report"]
    (place / "go").touch()
    done = daemon.run("scheduler-resubmit-job", failed.id)
    assert done.returncode == 0, done.stderr
    again = done.stdout.strip()
    eventually(lambda: daemon.state_of(again)["jobs"][0]["state"] == "FINISHED")
    assert logs(daemon, again) == ["loss=0.25", "best"]
