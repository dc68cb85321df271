"""Workflows that are retried, stopped, held and resubmitted: by what becomes of their jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.argo.argo_server import ArgoServer, dag, shell
from tests.support import eventually


def jobs_of(argo: ArgoServer, name: str) -> dict[str, list[str]]:
    """The ids of the jobs of each step, newest first."""
    found: dict[str, list[str]] = {}
    for job in argo.daemon.state_of("--label", f"workflow={name}")["jobs"]:
        found.setdefault(job["labels"]["step"], []).append(job["id"])
    return found


def test_a_retry_runs_only_what_failed_and_what_hangs_on_it(
    argo: ArgoServer, tmp_path: Path
) -> None:
    mended, log = tmp_path / "mended", tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    told = f"echo $0 >> {log}"
    name = argo.submit(
        dag(
            {
                "a": {},
                "b": {"depends": "a"},
                "c": {"depends": "b"},
                "tidy": {"depends": "b.Failed"},
                "other": {"depends": "a"},
            },
            a=shell(told.replace("$0", "a")),
            b=shell(f"{told.replace('$0', 'b')}; test -e {mended}"),
            c=shell(told.replace("$0", "c")),
            tidy=shell(told.replace("$0", "tidy")),
            other=shell(told.replace("$0", "other")),
        )
    )
    found = argo.await_phase(name, "Failed")
    assert found["status"]["message"] == "b: exit code 1"
    assert sorted(log.read_text().split()) == ["a", "b", "other", "tidy"]
    before = jobs_of(argo, name)

    mended.touch()
    again = argo.ask("PUT", f"/workflows/default/{name}/retry", {})
    assert again.status_code == 200, again.text
    assert again.json()["status"]["phase"] == "Running"
    argo.await_phase(name, "Succeeded")
    after = jobs_of(argo, name)
    assert {step: len(ids) for step, ids in after.items()} == {
        **dict.fromkeys(("a", "other"), 1),
        **dict.fromkeys(("b", "c", "tidy"), 2),
    }
    assert {step: ids[-1] for step, ids in after.items()} == {s: i[0] for s, i in before.items()}
    assert sorted(log.read_text().split()) == ["a", "b", "b", "c", "other", "tidy"]
    assert argo.phases(name)["tidy"] == "Omitted"


def test_a_retry_repeats_what_was_stopped_and_can_be_repeated(argo: ArgoServer) -> None:
    name = argo.submit(dag({"a": {}, "b": {"depends": "a"}}, a=shell("exit 1"), b=shell("true")))
    for _ in range(3):
        argo.await_phase(name, "Failed")
        assert argo.ask("PUT", f"/workflows/default/{name}/retry", {}).status_code == 200
    argo.await_phase(name, "Failed")
    assert len(jobs_of(argo, name)["a"]) == 4


def test_what_is_live_or_has_not_failed_is_not_retried(argo: ArgoServer) -> None:
    name = argo.submit(dag({"a": {}}, a=shell("sleep 100")))
    answer = argo.ask("PUT", f"/workflows/default/{name}/retry", {})
    assert answer.json()["message"] == (
        f"workflow {name!r} still runs: what failed is retried at its end"
    )
    argo.ask("DELETE", f"/workflows/default/{name}")
    done = argo.submit(dag({"a": {}}, a=shell("true")))
    argo.await_phase(done, "Succeeded")
    answer = argo.ask("PUT", f"/workflows/default/{done}/retry", {})
    assert answer.json()["message"] == f"workflow {done!r}: no step of it has failed"


@pytest.mark.parametrize(
    ("verb", "body", "words"),
    [
        ("retry", {"restartSuccessful": True}, "restartSuccessful"),
        ("retry", {"parameters": ["a=1"]}, "parameters"),
        ("retry", {"nodeFieldSelector": "id=x"}, "nodeFieldSelector"),
        ("resubmit", {"memoized": True}, "memoized"),
        ("fly", {}, "'fly' of a workflow is not supported here"),
    ],
)
def test_what_cannot_be_done_is_said(
    argo: ArgoServer, verb: str, body: dict[str, object], words: str
) -> None:
    answer = argo.ask("PUT", f"/workflows/default/any/{verb}", body)
    assert (answer.status_code, answer.json()["code"]) == (501, 12)
    assert answer.json()["message"].startswith(words)


@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_a_stopped_workflow_has_failed_and_runs_no_more(argo: ArgoServer, verb: str) -> None:
    name = argo.submit(
        dag({"a": {}, "b": {"depends": "a"}}, a=shell("sleep 1000"), b=shell("true"))
    )
    eventually(lambda: argo.phases(name)["a"] == "Running")
    answer = argo.ask("PUT", f"/workflows/default/{name}/{verb}", {"message": ""})
    assert answer.status_code == 200, answer.text
    found = argo.await_phase(name, "Failed")
    assert found["spec"]["shutdown"] == "Terminate"
    assert found["status"]["nodes"][f"{name}-a"]["phase"] == "Failed"
    states = {job["state"] for job in argo.daemon.state_of("--label", f"workflow={name}")["jobs"]}
    assert states == {"CANCELED"}


@pytest.mark.parametrize(("verb", "state"), [("stop", "FINISHED"), ("terminate", "CANCELED")])
def test_what_runs_at_the_end_runs_when_a_workflow_is_stopped(
    argo: ArgoServer, verb: str, state: str
) -> None:
    long = shell("sleep 1000")
    workflow = dag({"a": {}, "b": {"depends": "a"}}, a=long, b=long, bye=shell("true"))
    workflow["spec"]["onExit"] = "bye"
    name = argo.submit(workflow)
    eventually(lambda: argo.phases(name)["a"] == "Running")
    argo.ask("PUT", f"/workflows/default/{name}/{verb}", {})
    argo.await_phase(name, "Failed")
    jobs = argo.daemon.state_of("--label", f"workflow={name}")["jobs"]
    states = {job["labels"]["step"]: job["state"] for job in jobs}
    assert states == {"a": "CANCELED", "b": "CANCELED", "onExit": state}


def test_a_retry_keeps_what_steps_have_given(argo: ArgoServer, tmp_path: Path) -> None:
    """A step that has succeeded gives its outputs to those that are run once more."""
    mended, log = tmp_path / "mended", tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    give = shell(f"echo given >> {log}; echo 42 > /tmp/answer-$$; cp /tmp/answer-$$ answer")
    give["outputs"] = {"parameters": [{"name": "answer", "valueFrom": {"path": "answer"}}]}
    give["container"]["workingDir"] = str(tmp_path)
    take = shell(f"echo took {{{{inputs.parameters.n}}}} >> {log}; test -e {mended}")
    take["inputs"] = {"parameters": [{"name": "n"}]}
    arguments = [{"name": "n", "value": "{{tasks.give.outputs.parameters.answer}}"}]
    tasks = {"give": {}, "take": {"depends": "give", "arguments": {"parameters": arguments}}}
    name = argo.submit(dag(tasks, give=give, take=take))
    argo.await_phase(name, "Failed")
    mended.touch()
    assert argo.ask("PUT", f"/workflows/default/{name}/retry", {}).status_code == 200
    argo.await_phase(name, "Succeeded")
    assert log.read_text().splitlines() == ["given", "took 42", "took 42"]


def test_a_step_whose_own_condition_is_false_is_skipped(argo: ArgoServer) -> None:
    """What hangs on it is omitted, as Argo calls it, and not drawn by `argo get`."""
    flip = {"script": {"image": "x", "command": ["sh"], "source": "echo tails"}}
    on = {"depends": "flip", "when": "{{tasks.flip.outputs.result}} == heads"}
    tasks = {"flip": {}, "heads": on, "next": {"depends": "heads.Succeeded"}}
    name = argo.submit(dag(tasks, flip=flip, heads=shell("true"), next=shell("true")))
    argo.await_phase(name, "Succeeded")
    assert argo.phases(name) == {"flip": "Succeeded", "heads": "Skipped", "next": "Omitted"}


def test_a_suspended_workflow_starts_nothing_until_it_is_resumed(
    argo: ArgoServer, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = shell(f"while ! test -e {go}; do sleep 0.05; done")
    name = argo.submit(dag({"a": {}, "b": {"depends": "a"}}, a=wait, b=shell("true")))
    eventually(lambda: argo.phases(name)["a"] == "Running")
    assert argo.ask("PUT", f"/workflows/default/{name}/suspend", {}).status_code == 200
    go.touch()
    eventually(lambda: argo.phases(name) == {"a": "Succeeded", "b": "Pending"})
    assert argo.show(name)["spec"]["suspend"] is True
    assert argo.ask("PUT", f"/workflows/default/{name}/resume", {}).status_code == 200
    argo.await_phase(name, "Succeeded")
    assert "suspend" not in argo.show(name)["spec"]


def test_a_workflow_is_resubmitted_with_other_parameters(argo: ArgoServer) -> None:
    workflow = dag({"a": {}}, a=shell("echo {{workflow.parameters.word}}"))
    workflow["spec"]["arguments"] = {"parameters": [{"name": "word", "value": "hello"}]}
    name = argo.submit(workflow)
    answer = argo.ask("PUT", f"/workflows/default/{name}/resubmit", {"parameters": ["word=bye"]})
    again = answer.json()["metadata"]["name"]
    assert again.startswith("test-")
    assert again != name
    argo.await_phase(again, "Succeeded")
    lines = argo.events(f"/workflows/default/{again}/log")
    assert [line["content"] for line in lines] == ["bye"]
    wrong = argo.ask("PUT", f"/workflows/default/{name}/resubmit", {"parameters": ["wrd=bye"]})
    assert wrong.json()["message"] == "there is no parameter 'wrd'; there are: word"


def test_a_workflow_of_the_command_is_the_same_to_clients(argo: ArgoServer, tmp_path: Path) -> None:
    """And its document is JSON with the values that were given."""
    path = tmp_path / "w.yaml"
    path.write_text(
        "metadata: {name: from-command}\n"
        "spec:\n"
        "  entrypoint: main\n"
        "  arguments: {parameters: [{name: day, value: 2026-01-01}, {name: n, value: 3}]}\n"
        "  templates:\n"
        "  - name: main\n"
        "    container: {image: x, command: [echo, '{{workflow.parameters.day}}']}\n"
        "    activeDeadlineSeconds: 100\n"
    )
    done = argo.daemon.run("scheduler-run-workflow", path, "-p", "n=5", "--wait", user=argo.user)
    assert done.returncode == 0, done.stderr
    found = argo.show("from-command")
    assert found["status"]["phase"] == "Succeeded"
    assert found["spec"]["arguments"]["parameters"] == [
        {"name": "day", "value": "2026-01-01"},
        {"name": "n", "value": "5"},
    ]
    assert found["spec"]["templates"][0]["activeDeadlineSeconds"] == 100
    (node,) = found["status"]["nodes"].values()
    assert (node["id"], node["type"], node["phase"]) == ("from-command", "Pod", "Succeeded")
