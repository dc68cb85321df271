"""Workflows over HTTP, as Argo's clients speak it, on a daemon that runs their jobs."""

from __future__ import annotations

import json
import os

import pytest

from tests.gateway.argo.argo_server import ArgoServer, Json, dag, shell
from tests.gateway.serving_http import Served
from tests.support import eventually

TWO = dag({"a": {}, "b": {"dependencies": ["a"]}}, a=shell("echo a"), b=shell("echo b"))


def named(name: str, workflow: Json = TWO) -> Json:
    return {**workflow, "metadata": {"name": name}}


def test_a_workflow_is_submitted_shown_listed_and_deleted(argo: ArgoServer) -> None:
    answer = argo.ask("POST", "/workflows/lab", {"workflow": TWO})
    made = answer.json()
    assert answer.status_code == 200, answer.text
    name = made["metadata"]["name"]
    assert name.startswith("test-")
    assert made["metadata"]["namespace"] == "lab"
    assert made["spec"] == TWO["spec"]
    assert made["status"]["phase"] == "Running"
    (job,) = argo.daemon.state_of("--label", f"workflow={name}", "--label", "step=a")["jobs"]
    assert (job["id"], job["project"]) == (made["metadata"]["uid"], "lab")

    listed = argo.ask("GET", "/workflows/lab").json()["items"]
    assert [each["metadata"]["name"] for each in listed] == [name]
    assert argo.ask("GET", "/workflows/other").json()["items"] == []
    everywhere = argo.ask("GET", "/workflows/").json()["items"]
    assert name in [each["metadata"]["name"] for each in everywhere]
    assert argo.show("@latest", "lab")["metadata"]["name"] == name

    assert argo.ask("DELETE", f"/workflows/lab/{name}").json() == {}
    gone = argo.ask("GET", f"/workflows/lab/{name}")
    assert gone.json()["code"] == 5
    assert argo.ask("GET", "/workflows/lab").json()["items"] == []
    eventually(
        lambda: all(
            job["state"] in ("FINISHED", "CANCELED")
            for job in argo.daemon.state_of("--label", f"workflow={name}")["jobs"]
        )
    )


def test_a_name_is_given_once_and_again_after_its_deletion(argo: ArgoServer) -> None:
    argo.submit(named("once"))
    again = argo.ask("POST", "/workflows/default", {"workflow": named("once")})
    assert (again.status_code, again.json()) == (
        409,
        {"code": 6, "message": f"workflow 'once' already exists; it belongs to {argo.user}"},
    )
    first = argo.show("once")["metadata"]["uid"]
    for _ in range(2):
        assert argo.ask("DELETE", "/workflows/default/once").status_code == 200
        argo.submit(named("once"))
    assert argo.show("once")["metadata"]["uid"] != first


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"workflow": {"a"', "line 1, column 18: not valid JSON: ':' is missing"),
        (b'{"wrkflow": {}}', "line 1, column 1: the document: must be an object with the field"),
        (b'{"workflow": []}', "line 1, column 2: workflow: must be an object with fields"),
        (b'{"workflow": {}}', "line 1, column 2: the document: spec is missing"),
        (b"\xff", "the body is not UTF-8"),
        (
            b'{"workflow": {"spec":\n {"entrypoint": "x",\n  "tempates": []}}}',
            "line 3, column 3: spec.tempates: this field is not supported; did you mean",
        ),
        (
            b'{"workflow": {"spec": {"entrypoint": "x", "templates": []}}}',
            "line 1, column 24: spec.entrypoint: there is no template 'x'",
        ),
        (
            b'{"workflow": {"metadata": {"namespace": "other"}, "spec": {}}}',
            "metadata.namespace: is 'other', and the address says 'default'",
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(
    argo: ArgoServer, body: bytes, message: str
) -> None:
    with argo.client() as client:
        answer = client.post("/api/v1/workflows/default", content=body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"code", "message"}
    assert answer.json()["code"] == 3
    assert answer.json()["message"].startswith(message), answer.text
    assert "\n" not in answer.json()["message"]


def test_a_refusal_of_the_scheduler_names_the_step(argo: ArgoServer) -> None:
    wrong = dag({"a": {}}, a={"container": {"command": ["true"], "env": [{"name": "1"}]}})
    answer = argo.ask("POST", "/workflows/default", {"workflow": wrong})
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert answer.json()["message"].startswith("job 'a': --env")


def test_other_errors_have_argos_form_too(argo: ArgoServer) -> None:
    with argo.client() as client, argo.gateway.client() as nobody:
        large = client.post("/api/v1/workflows/default", content=b"x" * 10_000_000)
        assert (large.status_code, large.json()["code"]) == (413, 8)
        for path in ("/api/v1/workflows/default", "/api/v1/version"):
            answer = nobody.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, 16)
            assert "Authorization: Bearer TOKEN" in answer.json()["message"]
        unsigned = nobody.post("/api/v1/workflows/default", json={"workflow": TWO})
        assert (unsigned.status_code, unsigned.json()["code"]) == (403, 7)
        for method, path, code in (
            ("GET", "/workflows/default/none", 5),
            ("PUT", "/workflows/default/none/retry", 5),
            ("PUT", "/workflows/default/none/set", 12),
            ("POST", "/workflows/default/submit", 12),
            ("GET", "/workflow-templates/default", 12),
            ("GET", "/cron-workflows/default", 12),
            ("GET", "/workflows/default/none/log", 5),
        ):
            assert argo.ask(method, path, {} if method != "GET" else None).json()["code"] == code
        wrong = argo.ask("GET", "/workflows/default", **{"listOptions.labelSelector": "=x"})
        assert wrong.json()["message"] == "labelSelector: cannot be read at '=x'"


def test_what_the_scheduler_forbids_is_permission_denied(served: Served) -> None:
    with served.by("mallory") as client:
        answer = client.post("/api/v1/workflows/lab", json={"workflow": TWO})
    assert (answer.status_code, answer.json()["code"]) == (403, 7)
    assert "mallory may run nothing here" in answer.json()["message"]


def test_the_token_of_a_job_submits_nothing(served: Served) -> None:
    job = served.daemon.running("one", user="ada")
    with served.gateway.client(job.token) as client:
        answer = client.post("/api/v1/workflows/lab", json={"workflow": TWO})
    assert (answer.status_code, answer.json()["code"]) in [(401, 16), (403, 7)]


def test_a_token_may_be_the_password_of_the_address(argo: ArgoServer) -> None:
    """So an old client that sends no header has one: USER:TOKEN@HOST."""
    with argo.gateway.client() as client:
        login = (argo.user, argo.daemon.token(argo.user))
        answer = client.post("/api/v1/workflows/default", json={"workflow": TWO}, auth=login)
    assert answer.status_code == 200, answer.text


def test_others_see_a_workflow_but_neither_its_document_nor_may_change_it(
    argo: ArgoServer,
) -> None:
    secret = shell("echo hidden")
    name = argo.submit(dag({"a": {}, "d": {"when": "1 > 2"}}, a=secret, d=secret))
    seen = argo.ask("GET", f"/workflows/default/{name}", user="bob")
    assert seen.status_code == 200
    assert seen.json()["metadata"]["name"] == name
    assert seen.json()["spec"] == {}
    for verb in ("stop", "terminate", "suspend", "resume", "retry", "resubmit"):
        answer = argo.ask("PUT", f"/workflows/default/{name}/{verb}", {}, user="bob")
        assert (answer.status_code, answer.json()["code"]) == (403, 7), verb
    answer = argo.ask("DELETE", f"/workflows/default/{name}", user="bob")
    assert answer.json() == {
        "code": 7,
        "message": f"workflow {name!r} belongs to {argo.user}, and you are bob",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of two users need root")
def test_jobs_with_the_labels_of_anothers_workflow_are_not_of_it(argo: ArgoServer) -> None:
    name = argo.submit(TWO)
    uid = argo.show(name)["metadata"]["uid"]
    argo.daemon.submit(
        *("--num_gpus", "0", "--hold", "--label", f"workflow={name}", "--label", "step=a"),
        *("--label", f"workflow-id={uid}", "spoof", "--", "false"),
        user="nobody",
    )
    found = argo.await_phase(name, "Succeeded")
    assert len(found["status"]["nodes"]) == 3
    listed = argo.ask("GET", "/workflows/default").json()["items"]
    assert [each["metadata"]["name"] for each in listed].count(name) == 1


def test_lint_and_dry_runs_submit_nothing(argo: ArgoServer) -> None:
    checked = argo.ask("POST", "/workflows/default/lint", {"workflow": named("checked")})
    assert checked.json() == named("checked")
    body = {"workflow": named("checked"), "serverDryRun": True}
    tried = argo.ask("POST", "/workflows/default", body)
    assert tried.json()["metadata"]["name"] == "checked"
    body = {"workflow": named("checked"), "createOptions": {"dryRun": ["All"]}}
    assert argo.ask("POST", "/workflows/default", body).status_code == 200
    assert argo.ask("GET", "/workflows/default/checked").status_code == 404
    wrong = argo.ask("POST", "/workflows/default/lint", {"workflow": {"spec": {"x": 1}}})
    assert wrong.json()["code"] == 3


def test_lists_are_chosen_by_labels_and_phases(argo: ArgoServer) -> None:
    good = argo.submit({**TWO, "metadata": {"name": "good", "labels": {"team": "v"}}}, "chosen")
    bad = argo.submit(named("bad", dag({"a": {}}, a=shell("exit 3"))), "chosen")

    def chosen(selector: str) -> list[str]:
        query = {"listOptions.labelSelector": selector}
        items = argo.ask("GET", "/workflows/chosen", **query).json()["items"]
        return sorted(each["metadata"]["name"] for each in items)

    eventually(lambda: chosen("workflows.argoproj.io/completed=true") == [bad, good])
    assert chosen("workflows.argoproj.io/phase in (Failed, Error)") == [bad]
    assert chosen("workflows.argoproj.io/phase!=Failed") == [good]
    assert chosen("team=v") == [good]
    assert chosen("!team") == [bad]
    one = argo.ask("GET", "/workflows/chosen", **{"listOptions.limit": "1"}).json()["items"]
    assert len(one) == 1
    query = {"listOptions.fieldSelector": "metadata.name=bad"}
    (found,) = argo.ask("GET", "/workflows/chosen", **query).json()["items"]
    assert found["status"]["message"] == "a: exit code 3"


def test_who_and_what_answers(argo: ArgoServer) -> None:
    assert argo.ask("GET", "/userinfo").json()["subject"] == argo.user
    assert "epoch-scheduler" in argo.ask("GET", "/version").json()["version"]
    assert argo.ask("GET", "/info").json()["links"] == []


def test_warnings_of_the_document_are_conditions(argo: ArgoServer) -> None:
    template = shell("true")
    template["container"]["retryStrategy"] = {"limit": "3"}
    found = argo.show(argo.submit(dag({"a": {}}, a=template)))
    (warning,) = (each for each in found["status"]["conditions"] if each["type"] == "SpecWarning")
    assert "spec.templates[1].retryStrategy" in warning["message"]


def test_what_clients_in_go_send_beside_is_ignored(argo: ArgoServer) -> None:
    empty: Json = {"inputs": {}, "outputs": {}, "metadata": {}}
    workflow = dag({"a": {"arguments": {}}}, a={**shell("true"), **empty})
    workflow["spec"]["templates"][0] |= empty
    workflow["spec"]["templates"][1]["container"] |= {"name": "", "resources": {}}
    workflow["spec"]["arguments"] = {}
    workflow["metadata"]["creationTimestamp"] = None
    workflow["status"] = {"startedAt": None, "finishedAt": None}
    name = argo.submit(json.loads(json.dumps(workflow)))
    argo.await_phase(name, "Succeeded")
