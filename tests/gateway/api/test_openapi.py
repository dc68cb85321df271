"""The OpenAPI document against what the handlers answer."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest

from scheduler.gateway.api import openapi
from scheduler.gateway.app import ENDPOINTS, PREFIX
from tests.gateway.serving_http import Served

DOCUMENT = openapi.document(ENDPOINTS, PREFIX, "1.2.3")
OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]


def check(answer: Any, path: str, method: str, status: int) -> None:
    """Raises unless the document promises this answer."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    promised = responses.get(str(status), responses["default"])
    content = promised["content"]["application/json"]
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


def bodies(path: str) -> dict[str, Any]:
    job = {"name": "new", "spec": {"command": ["true"]}}
    known: dict[str, dict[str, Any]] = {"submit": {"job": job}, "update": {"priority": 2}}
    return known.get(path, {})


# Parameters that a request must have.
NEEDED = {
    "take_entries": "?spool=s",
    "compare": "?job={job}",
    "export": "?job={job}",
    "read_points": "?job={job}&name=loss",
}


def asking(path: str, job: str, served: Served) -> httpx.Client:
    """A person, or for what trainings log, the job."""
    if "/tracking" in path:
        return served.gateway.client(served.daemon.job(job).token)
    return served.by()


def log_a_file(job: str, served: Served) -> None:
    with served.gateway.client(served.daemon.job(job).token) as relay:
        relay.put(f"{PREFIX}/tracking/artifacts/a file", content=b"x").raise_for_status()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_each_answer_is_as_the_document_says(path: str, method: str, served: Served) -> None:
    job = served.daemon.submit()
    operation = DOCUMENT["paths"][path][method]
    with asking(path, job, served) as client:
        address = path.replace("{job}", job).replace("{path}", "a file")
        if operation["operationId"] == "read_artifact":
            log_a_file(job, served)
        body = bodies(operation["operationId"]) if "requestBody" in operation else None
        address += NEEDED.get(operation["operationId"], "").replace("{job}", job)
        answer = client.request(method.upper(), address, json=body)
        assert str(answer.status_code) in operation["responses"], answer.text
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in operation["responses"][str(answer.status_code)]["content"]
        if kind == "application/json":
            check(answer.json(), path, method, answer.status_code)
        more = f"{address}{'&' if '?' in address else '?'}no_such=1"
        wrong = client.request(method.upper(), more, json=body)
        assert wrong.status_code == 400
        check(wrong.json(), path, method, 400)
    with served.gateway.client() as anyone:
        refused = anyone.request(method.upper(), address, json=body)
        assert refused.status_code in (401, 403)
        check(refused.json(), path, method, refused.status_code)


def test_the_document_is_served_to_those_with_a_token(served: Served) -> None:
    with served.by() as client, served.gateway.client() as anyone:
        found = client.get(f"{PREFIX}/openapi.json").json()
        assert anyone.get(f"{PREFIX}/openapi.json").status_code == 401
    assert found["paths"] == DOCUMENT["paths"]


def test_each_reference_in_the_document_leads_somewhere() -> None:
    def references(part: Any) -> list[str]:
        if isinstance(part, dict):
            own = [part["$ref"]] if "$ref" in part else []
            return own + [each for value in part.values() for each in references(value)]
        return (
            [each for value in part for each in references(value)] if isinstance(part, list) else []
        )

    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) <= known
