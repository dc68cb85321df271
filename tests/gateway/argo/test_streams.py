"""Server-sent events: workflows as they change, and lines of logs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.gateway.argo.argo_server import ArgoServer, Json, dag, shell
from tests.support import eventually


def test_each_change_of_a_workflow_is_told_until_it_has_ended(argo: ArgoServer) -> None:
    name = argo.submit(
        dag({"a": {}, "b": {"depends": "a"}}, a=shell("sleep 0.3"), b=shell("exit 2"))
    )
    query = {"listOptions.fieldSelector": f"metadata.name={name}"}
    kinds, phases = [], []
    for event in argo.events("/workflow-events/default", **query):
        kinds.append(event["type"])
        phases.append(event["object"]["status"]["phase"])
        if event["object"]["status"]["finishedAt"]:
            break
    assert kinds[0] == "ADDED"
    assert set(kinds[1:]) <= {"MODIFIED"}
    assert phases[-1] == "Failed"
    nodes = event["object"]["status"]["nodes"]
    assert nodes[f"{name}-b"]["outputs"] == {"exitCode": "2"}


def test_new_and_deleted_workflows_are_told(argo: ArgoServer) -> None:
    told: list[tuple[str, str]] = []

    def listen() -> None:
        for event in argo.events("/workflow-events/told"):
            told.append((event["type"], event["object"]["metadata"]["name"]))
            if event["type"] == "DELETED":
                return

    listening = threading.Thread(target=listen)
    listening.start()
    first = argo.submit(dag({"a": {}}, a=shell("sleep 100")), "told")
    eventually(lambda: ("ADDED", first) in told)
    argo.ask("DELETE", f"/workflows/told/{first}")
    listening.join(30)
    assert told[-1] == ("DELETED", first)


def test_a_workflow_that_is_not_there_is_not_watched(argo: ArgoServer) -> None:
    query = {"listOptions.fieldSelector": "metadata.name=none"}
    answer = argo.ask("GET", "/workflow-events/default", **query)
    assert answer.json() == {
        "code": 5,
        "message": "workflow 'none' not found in namespace 'default'",
    }


def contents(lines: list[Json]) -> list[str]:
    return [line["content"] for line in lines]


def test_lines_of_all_steps_are_followed_to_the_end(argo: ArgoServer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = shell(f"echo one; while ! test -e {go}; do sleep 0.05; done; printf 'two\\nrest'")
    name = argo.submit(
        dag({"a": {}, "b": {}, "c": {"depends": "a && b"}}, a=slow, b=slow, c=shell("echo end"))
    )
    found: list[Json] = []
    for line in argo.events(f"/workflows/default/{name}/log", **{"logOptions.follow": "true"}):
        found.append(line)
        if contents(found) == ["one", "one"]:
            go.touch()
    assert {line["podName"] for line in found} == {f"{name}-{step}" for step in "abc"}
    own = [line["content"] for line in found if line["podName"] == f"{name}-a"]
    assert own == ["one", "two", "rest"]
    assert contents(found)[-1] == "end"


def test_lines_are_chosen(argo: ArgoServer) -> None:
    say = shell("for i in 1 2 3 4 5; do echo line $i; done")
    name = argo.submit(dag({"a": {}, "b": {"depends": "a"}}, a=say, b=say))
    argo.await_phase(name, "Succeeded")
    path = f"/workflows/default/{name}"

    def chosen(path: str, **query: str) -> list[str]:
        return contents(list(argo.events(path, **query)))

    assert len(chosen(f"{path}/log")) == 10
    assert chosen(f"{path}/log", podName=f"{name}-b", grep="[24]$") == ["line 2", "line 4"]
    tail = {"logOptions.tailLines": "1"}
    assert chosen(f"{path}/{name}-a/log", **tail) == ["line 5"]


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"podName": "none"}, 5, "has no pod 'none'"),
        ({"grep": "("}, 3, "grep: "),
        ({"logOptions.tailLines": "x"}, 3, "logOptions.tailLines 'x': is not a whole number"),
        ({"logOptions.sinceSeconds": "5"}, 12, "logOptions.sinceSeconds: lines of logs have no"),
        ({"selector": "a=b"}, 12, "selector: logs are chosen by the name of a pod only"),
    ],
)
def test_what_cannot_be_read_is_said(
    argo: ArgoServer, query: dict[str, str], code: int, message: str
) -> None:
    name = argo.submit(dag({"a": {}}, a=shell("true")))
    answer = argo.ask("GET", f"/workflows/default/{name}/log", **query)
    assert answer.json()["code"] == code
    assert message in answer.json()["message"]
