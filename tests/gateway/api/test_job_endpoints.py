from __future__ import annotations

import uuid

import pytest

from tests.gateway.serving_http import Served

JOBS = "/api/v1/jobs"
# As a job's name and label; a page must get them as data, and as nothing else.
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m'\"&{{7*7}}"


def test_a_job_is_submitted_shown_changed_and_cancelled(served: Served) -> None:
    with served.by() as client:
        made = client.post(JOBS, json={"job": {"name": "life", "spec": {"command": ["true"]}}})
        assert made.status_code == 201, made.text
        job = made.json()["job"]["id"]
        shown = client.get(f"{JOBS}/{job[-8:]}").json()
        assert shown["job"]["id"] == job
        assert ("runs", "true") in [
            (each["name"], each["text"]) for each in shown["text"]["fields"]
        ]
        assert shown["text"]["story"][0]["text"] == "submitted by ada"
        changed = client.patch(f"{JOBS}/{job}", json={"priority": 7}).json()
        assert (changed["job"]["priority"], changed["text"]) == (
            7,
            f"life ({job[-8:]}): priority 7",
        )
        ended = client.post(f"{JOBS}/{job}/cancel").json()
        assert ended["text"].startswith(f"life ({job[-8:]}): ")
        assert client.get(JOBS, params={"id": job}).json()["total"] == 1


def test_the_same_id_again_is_the_same_job(served: Served) -> None:
    body = {"id": str(uuid.uuid4()), "job": {"name": "once", "spec": {"command": ["true"]}}}
    with served.by() as client:
        ids = {client.post(JOBS, json=body).json()["job"]["id"] for _ in range(2)}
    assert ids == {body["id"]}


def test_what_was_listed_can_be_submitted_and_a_job_can_be_submitted_again(served: Served) -> None:
    old = served.daemon.submit("old", args=["a b"], priority=3, user="bob")
    with served.by("bob") as client:
        listed = client.get(JOBS, params={"id": old, "brief": False}).json()["jobs"][0]
        again = client.post(JOBS, json={"job": listed}).json()["job"]
        resubmitted = client.post(f"{JOBS}/{old}/resubmit").json()["job"]
    assert again["id"] != resubmitted["id"]
    assert again["spec"] == resubmitted["spec"] == listed["spec"]


def test_a_dry_run_changes_nothing(served: Served) -> None:
    body = {"dry_run": True, "job": {"name": "dry", "spec": {"command": ["true"]}}}
    with served.by("dora") as client:
        tried = client.post(JOBS, json=body).json()
        assert tried["command"] == ["true"]
        assert client.get(JOBS).json()["total"] == 0


def test_lists_are_filtered_and_tell_what_the_column_note_tells(served: Served) -> None:
    served.daemon.submit("a", user="eve", project="one", held=True)
    served.daemon.submit("b", user="eve", project="two")
    with served.by("eve") as client:
        found = client.get(JOBS, params={"project": "one"}).json()
        assert ([job["name"] for job in found["jobs"]], found["total"]) == (["a"], 1)
        assert "held" in found["remarks"][0]
        assert client.get(JOBS, params={"label": "k=v"}).json()["jobs"] == []
        assert len(client.get(JOBS, params={"limit": 1}).json()["jobs"]) == 1


def test_a_list_that_has_not_changed_is_not_sent_again(served: Served) -> None:
    served.daemon.submit("c", user="fay")
    with served.by("fay") as client:
        tag = client.get(JOBS).headers["etag"]
        again = client.get(JOBS, headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        served.daemon.submit("d", user="fay")
        assert client.get(JOBS, headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field", "words"),
    [
        ("GET", "?limit=0", None, 400, "limit", "limit 0: must be 1 to 1000"),
        ("GET", "?limit=x", None, 400, "limit", "limit 'x': is not a whole number"),
        ("GET", "?all_users=perhaps", None, 400, "all_users", "neither true nor false"),
        ("GET", "?state=DANCING", None, 400, "status", "--status 'DANCING': is none of"),
        ("GET", "?label=x", None, 400, "label", "must be KEY=VALUE"),
        ("GET", "?user=a&user=b", None, 400, "user", "user is given twice"),
        ("GET", "/no-such-job", None, 404, None, "no job matches 'no-such-job'"),
        ("POST", "", {"job": {}}, 400, "job", "job: `name` is missing"),
        ("POST", "", {"jobb": {}}, 400, "jobb", "unknown field"),
        ("POST", "", {"job": {"name": "x"}, "dry_run": 1}, 400, "dry_run", "Expected `bool`"),
        (
            "POST",
            "",
            {"job": {"name": "x", "spec": {"command": ["x"], "gpus_min": 99, "gpus_max": 1}}},
            400,
            "gpus_min",
            "--min_gpus 99",
        ),
        (
            "POST",
            "",
            {"job": {"name": "x", "spec": {"secrets": ["K"]}}},
            400,
            "secrets",
            "K is miss",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_field(
    method: str,
    path: str,
    body: object,
    status: int,
    field: str | None,
    words: str,
    served: Served,
) -> None:
    with served.by() as client:
        answer = client.request(method, JOBS + path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (status, field), answer.text
    assert words in error["message"]


def test_whoever_may_not_by_grpc_may_not_here(served: Served) -> None:
    job = served.daemon.submit(user="ada", env=[])
    with served.by("mallory") as client:
        refused = client.post(f"{JOBS}/{job}/cancel")
        assert refused.status_code == 403
        assert refused.json()["error"]["message"] == (
            f"job {job} belongs to ada, and you are mallory"
        )
    with served.gateway.client("ada." + "0" * 64) as forged:
        assert forged.get(JOBS).status_code == 401
    with served.by("root") as admin:
        assert admin.post(f"{JOBS}/{job}/cancel").status_code == 200


def test_names_that_are_html_arrive_as_data_only(served: Served) -> None:
    with served.by("gil") as client:
        spec = {"command": ["echo", HOSTILE]}
        body = {"job": {"name": "<b>x</b>", "spec": spec}}
        made = client.post(JOBS, json=body)
        assert made.status_code == 201, made.text
        shown = client.get(f"{JOBS}/{made.json()['job']['id']}")
    assert shown.headers["content-type"] == "application/json"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.json()["job"]["spec"]["command"] == ["echo", HOSTILE]
    told = [each["text"] for each in shown.json()["text"]["fields"]]
    assert all(text.isprintable() for text in told), "no text controls a terminal or a line"
